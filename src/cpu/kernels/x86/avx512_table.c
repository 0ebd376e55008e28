// The table of the AVX-512 kernels. Storing and merging rows of a head gain nothing from wider registers: they are
// AVX2's, which every CPU with AVX-512 has.
#include "avx512_kernels.h"
#include "cpu/kernels/c/shared.h"
#include "cpu/kernels/tables.h"
#include "cpu/kernels/x86/avx2.h"

#define MATVEC_Q8(NAME, name, ...) [PACKED_##NAME] = avx512_matvec_q8_##name,
#define MATVEC_F32(NAME, name, ...) [PACKED_##NAME] = avx512_matvec_f32_##name,
#define UNPACK_Q8(NAME, name, ...) [PACKED_##NAME] = avx512_unpack_q8_##name,
#define UNPACK_F32(NAME, name, ...) [PACKED_##NAME] = avx512_unpack_f32_##name,

const struct kernels kernels_table_avx512 = {
    .name = "avx512",
    .quantize_q8 = avx512_quantize_q8,
    .round_f16 = avx512_round_f16,
    .round_bf16 = avx512_round_bf16,
    .matvec_q8 = {AVX512_BLOCK_FORMATS(MATVEC_Q8)},
    .matvec_f32 = {AVX512_BLOCK_FORMATS(MATVEC_F32) AVX512_PLAIN_FORMATS(MATVEC_F32)},
    .unpack_q8 = {AVX512_BLOCK_FORMATS(UNPACK_Q8)},
    .unpack_f32 = {AVX512_BLOCK_FORMATS(UNPACK_F32) AVX512_PLAIN_FORMATS(UNPACK_F32)},
    .gemm_q8 =
        {
            [SCALING_32] = avx512_gemm_q8_SCALING_32,
            [SCALING_MIN32] = avx512_gemm_q8_SCALING_MIN32,
            [SCALING_16] = avx512_gemm_q8_SCALING_16,
            [SCALING_MIN16] = avx512_gemm_q8_SCALING_MIN16,
        },
    .gemm_f32 = avx512_gemm_f32,
    .add_parts = avx512_add_parts,
    .rms_norm = avx512_rms_norm,
    .add = avx512_add,
    .mul = avx512_mul,
    .scale = avx512_scale,
    .add_scaled = avx512_add_scaled,
    .swiglu = avx512_swiglu,
    .geglu = avx512_geglu,
    .reglu = avx512_reglu,
    .swiglu_clamped = avx512_swiglu_clamped,
    .sigmoid = avx512_sigmoid,
    .exp_minus = avx512_exp_minus,
    .rope = avx512_rope,
    .attend =
        {
            [KV_DTYPE_F32] = avx512_attend_f32,
            [KV_DTYPE_F16] = avx512_attend_f16,
            [KV_DTYPE_Q8_0] = avx512_attend_q8_0,
        },
    .attend_merge = avx2_attend_merge,
    .attend_finish = avx2_attend_finish,
    .store_k =
        {[KV_DTYPE_F32] = avx2_store_k_f32, [KV_DTYPE_F16] = avx2_store_k_f16, [KV_DTYPE_Q8_0] = avx2_store_k_q8_0},
    .store_v =
        {[KV_DTYPE_F32] = avx2_store_v_f32, [KV_DTYPE_F16] = avx2_store_v_f16, [KV_DTYPE_Q8_0] = avx2_store_v_q8_0},
    SHARED_KERNELS(fma),
};

// The table of the AVX2 kernels.
#include "cpu/kernels/c/shared.h"
#include "cpu/kernels/tables.h"
#include "cpu/kernels/x86/avx2.h"

#define MATVEC_Q8(name, kind, scaling, run, zero) [kind] = avx2_matvec_q8_##name,
#define MATVEC_F32(name, kind, ...) [kind] = avx2_matvec_f32_##name,
#define UNPACK_Q8(name, kind, scaling, run, zero) [kind] = avx2_unpack_q8_##name,
#define UNPACK_F32(name, kind, ...) [kind] = avx2_unpack_f32_##name,

const struct kernels kernels_table_avx2 = {
    .name = "avx2",
    .quantize_q8 = avx2_quantize_q8,
    .round_f16 = avx2_round_f16,
    .round_bf16 = avx2_round_bf16,
    .matvec_q8 = {AVX2_BLOCK_FORMATS(MATVEC_Q8)},
    .matvec_f32 = {AVX2_BLOCK_FORMATS(MATVEC_F32) AVX2_PLAIN_FORMATS(MATVEC_F32)},
    .unpack_q8 = {AVX2_BLOCK_FORMATS(UNPACK_Q8)},
    .unpack_f32 = {AVX2_BLOCK_FORMATS(UNPACK_F32) AVX2_PLAIN_FORMATS(UNPACK_F32)},
    .gemm_q8 = {avx2_gemm_q8, avx2_gemm_q8, avx2_gemm_q8, avx2_gemm_q8},
    .gemm_f32 = avx2_gemm_f32,
    .add_parts = avx2_add_parts,
    .rms_norm = avx2_rms_norm,
    .add = avx2_add,
    .mul = avx2_mul,
    .scale = avx2_scale,
    .add_scaled = avx2_add_scaled,
    .swiglu = avx2_swiglu,
    .geglu = avx2_geglu,
    .reglu = avx2_reglu,
    .swiglu_clamped = avx2_swiglu_clamped,
    .sigmoid = avx2_sigmoid,
    .exp_minus = avx2_exp_minus,
    .rope = avx2_rope,
    .attend = {avx2_attend_f32, avx2_attend_f16, avx2_attend_q8_0},
    .attend_merge = avx2_attend_merge,
    .attend_finish = avx2_attend_finish,
    .store_k = {avx2_store_k_f32, avx2_store_k_f16, avx2_store_k_q8_0},
    .store_v = {avx2_store_v_f32, avx2_store_v_f16, avx2_store_v_q8_0},
    SHARED_KERNELS(fma),
};

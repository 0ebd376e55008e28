// The table of the NEON kernels.
#include "cpu/kernels/arm/neon.h"
#include "cpu/kernels/c/shared.h"
#include "cpu/kernels/tables.h"

#define MATVEC_Q8(name, kind, scaling, zero) [kind] = neon_matvec_q8_##name,
#define MATVEC_F32(name, kind, ...) [kind] = neon_matvec_f32_##name,
#define UNPACK_Q8(name, kind, scaling, zero) [kind] = neon_unpack_q8_##name,
#define UNPACK_F32(name, kind, ...) [kind] = neon_unpack_f32_##name,

const struct kernels kernels_table_neon = {
    .name = "neon",
    .quantize_q8 = neon_quantize_q8,
    .round_f16 = neon_round_f16,
    .round_bf16 = neon_round_bf16,
    .matvec_q8 = {NEON_BLOCK_FORMATS(MATVEC_Q8)},
    .matvec_f32 = {NEON_BLOCK_FORMATS(MATVEC_F32) NEON_PLAIN_FORMATS(MATVEC_F32)},
    .unpack_q8 = {NEON_BLOCK_FORMATS(UNPACK_Q8)},
    .unpack_f32 = {NEON_BLOCK_FORMATS(UNPACK_F32) NEON_PLAIN_FORMATS(UNPACK_F32)},
    .gemm_q8 = {neon_gemm_q8, neon_gemm_q8, neon_gemm_q8, neon_gemm_q8},
    .gemm_f32 = neon_gemm_f32,
    .add_parts = neon_add_parts,
    .rms_norm = neon_rms_norm,
    .add = neon_add,
    .mul = neon_mul,
    .scale = neon_scale,
    .add_scaled = neon_add_scaled,
    .swiglu = neon_swiglu,
    .geglu = neon_geglu,
    .reglu = neon_reglu,
    .swiglu_clamped = neon_swiglu_clamped,
    .sigmoid = neon_sigmoid,
    .exp_minus = neon_exp_minus,
    .rope = neon_rope,
    .attend = {neon_attend_f32, neon_attend_f16, neon_attend_q8_0},
    .attend_merge = neon_attend_merge,
    .attend_finish = neon_attend_finish,
    .store_k = {neon_store_k_f32, neon_store_k_f16, neon_store_k_q8_0},
    .store_v = {neon_store_v_f32, neon_store_v_f16, neon_store_v_q8_0},
    SHARED_KERNELS(base),
};

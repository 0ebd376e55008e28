// The table of the C kernels: the reference. One function serves every block format.
#include "cpu/kernels/c/table.h"
#include "cpu/kernels/c/shared.h"
#include "cpu/kernels/tables.h"

#define BLOCK_KINDS(function)                                                                                          \
    [PACKED_Q4_0] = C_NAME(function), [PACKED_Q4_1] = C_NAME(function), [PACKED_Q5_0] = C_NAME(function),              \
    [PACKED_Q5_1] = C_NAME(function), [PACKED_Q8_0] = C_NAME(function), [PACKED_Q2_K] = C_NAME(function),              \
    [PACKED_Q3_K] = C_NAME(function), [PACKED_Q4_K] = C_NAME(function), [PACKED_Q5_K] = C_NAME(function),              \
    [PACKED_Q6_K] = C_NAME(function), [PACKED_MXFP4] = C_NAME(function)
#define PLAIN_KINDS(function)                                                                                          \
    [PACKED_F32] = C_NAME(function), [PACKED_F16] = C_NAME(function), [PACKED_BF16] = C_NAME(function)

const struct kernels C_NAME(kernels_table_c) = {
    .name = "c",
    .quantize_q8 = C_NAME(c_quantize_q8),
    .round_f16 = C_NAME(c_round_f16),
    .round_bf16 = C_NAME(c_round_bf16),
    .matvec_q8 = {BLOCK_KINDS(c_matvec_q8)},
    .matvec_f32 = {PLAIN_KINDS(c_matvec_f32), BLOCK_KINDS(c_matvec_f32)},
    .unpack_q8 = {BLOCK_KINDS(c_unpack_q8)},
    .unpack_f32 = {PLAIN_KINDS(c_unpack_f32), BLOCK_KINDS(c_unpack_f32)},
    .gemm_q8 =
        {
            [SCALING_32] = C_NAME(c_gemm_q8),
            [SCALING_MIN32] = C_NAME(c_gemm_q8),
            [SCALING_16] = C_NAME(c_gemm_q8),
            [SCALING_MIN16] = C_NAME(c_gemm_q8),
        },
    .gemm_f32 = C_NAME(c_gemm_f32),
    .add_parts = C_NAME(c_add_parts),
    .rms_norm = C_NAME(c_rms_norm),
    .add = C_NAME(c_add),
    .mul = C_NAME(c_mul),
    .scale = C_NAME(c_scale),
    .add_scaled = C_NAME(c_add_scaled),
    .swiglu = C_NAME(c_swiglu),
    .geglu = C_NAME(c_geglu),
    .reglu = C_NAME(c_reglu),
    .swiglu_clamped = C_NAME(c_swiglu_clamped),
    .sigmoid = C_NAME(c_sigmoid),
    .exp_minus = C_NAME(c_exp_minus),
    .rope = C_NAME(c_rope),
    .attend =
        {
            [KV_DTYPE_F32] = C_NAME(c_attend_f32),
            [KV_DTYPE_F16] = C_NAME(c_attend_f16),
            [KV_DTYPE_Q8_0] = C_NAME(c_attend_q8_0),
        },
    .attend_merge = C_NAME(c_attend_merge),
    .attend_finish = C_NAME(c_attend_finish),
    .store_k =
        {
            [KV_DTYPE_F32] = C_NAME(c_store_k_f32),
            [KV_DTYPE_F16] = C_NAME(c_store_k_f16),
            [KV_DTYPE_Q8_0] = C_NAME(c_store_k_q8_0),
        },
    .store_v =
        {
            [KV_DTYPE_F32] = C_NAME(c_store_v_f32),
            [KV_DTYPE_F16] = C_NAME(c_store_v_f16),
            [KV_DTYPE_Q8_0] = C_NAME(c_store_v_q8_0),
        },
    SHARED_KERNELS(C_VARIANT),
};

// The AVX-512 kernels by name, for avx512_table.c. Formats: X(NAME, name, …), where NAME ends an enum packed_kind.
#ifndef MOTE_CPU_KERNELS_X86_AVX512_KERNELS_H
#define MOTE_CPU_KERNELS_X86_AVX512_KERNELS_H

#include "cpu/kernels/kernels.h"

// X(NAME, name, scaling, zero, unit bytes, units of a super-block, bytes of its values, how scales are read)
#define AVX512_BLOCK_FORMATS(X)                                                                                        \
    X(Q4_0, q4_0, SCALING_32, 8, 288, 0, 0, d_scales)                                                                  \
    X(Q4_1, q4_1, SCALING_MIN32, 0, 320, 0, 0, dm_scales)                                                              \
    X(Q5_0, q5_0, SCALING_32, 16, 352, 0, 0, d_scales)                                                                 \
    X(Q5_1, q5_1, SCALING_MIN32, 0, 384, 0, 0, dm_scales)                                                              \
    X(Q8_0, q8_0, SCALING_32, 128, 544, 0, 0, d_scales)                                                                \
    X(Q2_K, q2_k, SCALING_MIN16, 0, 160, 8, 64, k_sub_min_scales)                                                      \
    X(Q3_K, q3_k, SCALING_16, 4, 224, 8, 32, k_sub_scales)                                                             \
    X(Q4_K, q4_k, SCALING_MIN32, 0, 288, 8, 64, k_min_scales)                                                          \
    X(Q5_K, q5_k, SCALING_MIN32, 0, 352, 8, 64, k_min_scales)                                                          \
    X(Q6_K, q6_k, SCALING_16, 32, 416, 8, 32, k_sub_scales)                                                            \
    X(MXFP4, mxfp4, SCALING_32, MXFP4_ZERO, 272, 0, 0, exponent_scales)

// X(NAME, name, bytes of 16 rows at one k)
#define AVX512_PLAIN_FORMATS(X) X(F32, f32, 64) X(F16, f16, 32) X(BF16, bf16, 32)

void avx512_quantize_q8(const float *x, size_t k, uint8_t *row);
void avx512_round_f16(const float *x, size_t k, const struct segments *segments, float *row);
void avx512_round_bf16(const float *x, size_t k, float *row);

#define DECLARE_F32(NAME, name, ...)                                                                                   \
    void avx512_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,               \
                                  size_t part_stride);                                                                 \
    void avx512_unpack_f32_##name(const struct packed *weight, size_t panel, float *out);
#define DECLARE_Q8(NAME, name, ...)                                                                                    \
    void avx512_matvec_q8_##name(const struct packed *weight, size_t panel, const uint8_t *row, float *y,              \
                                 size_t part_stride);                                                                  \
    void avx512_unpack_q8_##name(const struct packed *weight, size_t panel, struct unpacked_q8 *out);
AVX512_PLAIN_FORMATS(DECLARE_F32)
AVX512_BLOCK_FORMATS(DECLARE_F32)
AVX512_BLOCK_FORMATS(DECLARE_Q8)
#undef DECLARE_F32
#undef DECLARE_Q8

#define DECLARE_GEMM(scaling)                                                                                          \
    void avx512_gemm_q8_##scaling(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,   \
                                  size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride);
DECLARE_GEMM(SCALING_32)
DECLARE_GEMM(SCALING_MIN32)
DECLARE_GEMM(SCALING_16)
DECLARE_GEMM(SCALING_MIN16)
#undef DECLARE_GEMM
void avx512_gemm_f32(const struct packed *weight, const float *panel, const float *rows, size_t row_stride, size_t n,
                     float *y, size_t y_stride, size_t part_stride);

void avx512_rms_norm(const float *x, const float *weight, size_t n, float epsilon, float *y);
void avx512_add(const float *a, const float *b, size_t n, float *y);
void avx512_mul(const float *a, const float *b, size_t n, float *y);
void avx512_scale(const float *x, float factor, size_t n, float *y);
void avx512_add_scaled(const float *x, float factor, size_t n, float *y);
void avx512_add_parts(const float *parts, uint32_t n_segments, float *y);
void avx512_swiglu(const float *gate, const float *up, size_t n, float *y);
void avx512_geglu(const float *gate, const float *up, size_t n, float *y);
void avx512_reglu(const float *gate, const float *up, size_t n, float *y);
void avx512_swiglu_clamped(const float *gate, const float *up, size_t n, float limit, float alpha, float *y);
void avx512_sigmoid(const float *x, size_t n, float *y);
void avx512_exp_minus(const float *x, float max, size_t n, float *y);
void avx512_rope(float *x, size_t n_rot, const float *cos_sin, bool neox);

#define DECLARE_ATTEND(name)                                                                                           \
    void avx512_attend_##name(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,        \
                              size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride,            \
                              float *scratch);
DECLARE_ATTEND(f32)
DECLARE_ATTEND(f16)
DECLARE_ATTEND(q8_0)
#undef DECLARE_ATTEND

#endif

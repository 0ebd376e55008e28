// The C kernels. The sources are built once or twice, with C_VARIANT naming the build; C_NAME makes symbols distinct.
// What each does and its order of summation: docs/numerics.md.
#ifndef MOTE_CPU_KERNELS_C_TABLE_H
#define MOTE_CPU_KERNELS_C_TABLE_H

#include "cpu/kernels/c/shared.h" // declares the kernels that all tables share

#define C_PASTE2(name, variant) name##_##variant
#define C_PASTE(name, variant) C_PASTE2(name, variant)
#define C_NAME(name) C_PASTE(name, C_VARIANT)

void C_NAME(c_quantize_q8)(const float *x, size_t k, uint8_t *row);
void C_NAME(c_round_f16)(const float *x, size_t k, const struct segments *segments, float *row);
void C_NAME(c_round_bf16)(const float *x, size_t k, float *row);

void C_NAME(c_matvec_q8)(const struct packed *weight, size_t panel, const uint8_t *row, float *y, size_t part_stride);
void C_NAME(c_matvec_f32)(const struct packed *weight, size_t panel, const float *row, float *y, size_t part_stride);
void C_NAME(c_unpack_q8)(const struct packed *weight, size_t panel, struct unpacked_q8 *out);
void C_NAME(c_unpack_f32)(const struct packed *weight, size_t panel, float *out);
void C_NAME(c_gemm_q8)(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                       size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride);
void C_NAME(c_gemm_f32)(const struct packed *weight, const float *panel, const float *rows, size_t row_stride, size_t n,
                        float *y, size_t y_stride, size_t part_stride);
void C_NAME(c_add_parts)(const float *parts, uint32_t n_segments, float *y);

void C_NAME(c_rms_norm)(const float *x, const float *weight, size_t n, float epsilon, float *y);
void C_NAME(c_add)(const float *a, const float *b, size_t n, float *y);
void C_NAME(c_mul)(const float *a, const float *b, size_t n, float *y);
void C_NAME(c_scale)(const float *x, float factor, size_t n, float *y);
void C_NAME(c_add_scaled)(const float *x, float factor, size_t n, float *y);
void C_NAME(c_swiglu)(const float *gate, const float *up, size_t n, float *y);
void C_NAME(c_geglu)(const float *gate, const float *up, size_t n, float *y);
void C_NAME(c_reglu)(const float *gate, const float *up, size_t n, float *y);
void C_NAME(c_swiglu_clamped)(const float *gate, const float *up, size_t n, float limit, float alpha, float *y);
void C_NAME(c_sigmoid)(const float *x, size_t n, float *y);
void C_NAME(c_exp_minus)(const float *x, float max, size_t n, float *y);
void C_NAME(c_rope)(float *x, size_t n_rot, const float *cos_sin, bool neox);

void C_NAME(c_attend_f32)(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,
                          size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride, float *scratch);
void C_NAME(c_attend_f16)(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,
                          size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride, float *scratch);
void C_NAME(c_attend_q8_0)(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,
                           size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride,
                           float *scratch);
void C_NAME(c_attend_merge)(float *m, float *l, float *o, float m2, float l2, const float *o2, size_t v_dim);
void C_NAME(c_attend_finish)(float l, const float *o, size_t v_dim, float *y);

void C_NAME(c_store_k_f32)(const float *k, size_t head_dim, uint32_t position, void *page, float *scales);
void C_NAME(c_store_v_f32)(const float *v, size_t v_dim, uint32_t position, void *page, float *scales);
void C_NAME(c_store_k_f16)(const float *k, size_t head_dim, uint32_t position, void *page, float *scales);
void C_NAME(c_store_v_f16)(const float *v, size_t v_dim, uint32_t position, void *page, float *scales);
void C_NAME(c_store_k_q8_0)(const float *k, size_t head_dim, uint32_t position, void *page, float *scales);
void C_NAME(c_store_v_q8_0)(const float *v, size_t v_dim, uint32_t position, void *page, float *scales);

#endif

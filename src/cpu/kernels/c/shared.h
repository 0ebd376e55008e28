// What all tables share of the C kernels, as initializers. VARIANT is the build of them that the table's CPUs can run.
#ifndef MOTE_CPU_KERNELS_C_SHARED_H
#define MOTE_CPU_KERNELS_C_SHARED_H

#include "cpu/kernels/kernels.h"

#define DECLARE_SHARED_KERNELS(variant)                                                                                \
    void c_route_##variant(const struct routing *routing, const float *logits, const float *bias, float *scratch,      \
                           float *out);                                                                                \
    void c_abs_##variant(const float *x, size_t n, float *y);                                                          \
    void c_ceil_##variant(const float *x, size_t n, float *y);                                                         \
    void c_clamp_##variant(const float *x, float low, float high, size_t n, float *y);                                 \
    void c_div_##variant(const float *a, const float *b, size_t n, float *y);                                          \
    void c_exp_##variant(const float *x, size_t n, float *y);                                                          \
    void c_log_##variant(const float *x, size_t n, float *y);                                                          \
    void c_pool_1d_##variant(const float *x, size_t n, bool max, size_t kernel, size_t stride, size_t padding,         \
                             float *y);
DECLARE_SHARED_KERNELS(base)
DECLARE_SHARED_KERNELS(fma)

#define SHARED_KERNELS_OF(variant)                                                                                     \
    .route = c_route_##variant, .abs = c_abs_##variant, .ceil = c_ceil_##variant, .clamp = c_clamp_##variant,          \
    .div = c_div_##variant, .exp = c_exp_##variant, .log = c_log_##variant, .pool_1d = c_pool_1d_##variant
#define SHARED_KERNELS(variant) SHARED_KERNELS_OF(variant)

#endif

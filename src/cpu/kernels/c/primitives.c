// Elementwise primitives and pooling: one version for all tables, since nothing that a model runs per token waits for
// them.
#include "cpu/kernels/c/math.h"
#include "cpu/kernels/c/table.h"

void C_NAME(c_abs)(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = fabsf(x[i]);
}

void C_NAME(c_ceil)(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = ceilf(x[i]);
}

void C_NAME(c_clamp)(const float *x, float low, float high, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) {
        const float raised = max_f32(low, x[i]);
        y[i] = high < raised ? high : raised;
    }
}

void C_NAME(c_div)(const float *a, const float *b, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] / b[i];
}

void C_NAME(c_exp)(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = exp_f32(x[i]);
}

void C_NAME(c_log)(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = log_f32(x[i]);
}

// The maximum of n floats; NaN where one is.
static float max_of(const float *x, size_t n)
{
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++)
        max = x[i] > max || x[i] != x[i] ? x[i] : max; // no number is greater than NaN: it stays
    return max;
}

static float mean_of(const float *x, size_t n)
{
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (float)n;
}

void C_NAME(c_pool_1d)(const float *x, size_t n, bool max, size_t kernel, size_t stride, size_t padding, float *y)
{
    for (size_t i = 0; i * stride + kernel <= n + 2 * padding; i++) {
        // The window [begin, end) in x's own numbers, without what lies in the padding.
        const size_t begin = i * stride < padding ? 0 : i * stride - padding;
        const size_t reach = i * stride + kernel - padding; // the padding is below the kernel
        const size_t end = reach < n ? reach : n;
        y[i] = (max ? max_of : mean_of)(x + begin, end - begin);
    }
}

// Operations on rows of n floats: norms, activations, rotations.
#include "cpu/kernels/c/math.h"
#include "cpu/kernels/c/table.h"

void C_NAME(c_rms_norm)(const float *x, const float *weight, size_t n, float epsilon, float *y)
{
    float squares[16] = {0};
    for (size_t i = 0; i < n; i++)
        squares[i % 16] = fmaf(x[i], x[i], squares[i % 16]);
    const float mean = fold_16(squares) / (float)n;
    const float factor = rms_factor(mean, epsilon);
    for (size_t i = 0; i < n; i++)
        y[i] = weight ? x[i] * factor * weight[i] : x[i] * factor;
}

void C_NAME(c_add)(const float *a, const float *b, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

void C_NAME(c_mul)(const float *a, const float *b, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

void C_NAME(c_scale)(const float *x, float factor, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * factor;
}

void C_NAME(c_add_scaled)(const float *x, float factor, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf(factor, x[i], y[i]);
}

void C_NAME(c_swiglu)(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = silu_f32(gate[i]) * up[i];
}

void C_NAME(c_geglu)(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = gelu_f32(gate[i]) * up[i];
}

void C_NAME(c_reglu)(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = relu_f32(gate[i]) * up[i];
}

void C_NAME(c_swiglu_clamped)(const float *gate, const float *up, size_t n, float limit, float alpha, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = swiglu_clamped_f32(gate[i], up[i], limit, alpha);
}

void C_NAME(c_sigmoid)(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sigmoid_f32(x[i]);
}

void C_NAME(c_exp_minus)(const float *x, float max, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = exp_f32(x[i] - max);
}

void C_NAME(c_rope)(float *x, size_t n_rot, const float *cos_sin, bool neox)
{
    const size_t n_pairs = n_rot / 2;
    for (size_t i = 0; i < n_pairs; i++) {
        float *first = neox ? x + i : x + 2 * i;
        float *second = neox ? x + i + n_pairs : x + 2 * i + 1;
        const float x0 = *first, x1 = *second;
        const float cosine = cos_sin[i], sine = cos_sin[n_pairs + i];
        *first = fmaf(x0, cosine, -(x1 * sine));
        *second = fmaf(x0, sine, x1 * cosine);
    }
}

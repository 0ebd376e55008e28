// NEON: operations on rows of n floats, 4 at a time; the last few through a copy of 4.
#include "cpu/kernels/arm/neon_math.h"

void neon_rms_norm(const float *x, const float *weight, size_t n, float epsilon, float *y)
{
    float32x4_t squares[4] = {neon_set(0), neon_set(0), neon_set(0), neon_set(0)}; // element i in accumulator i mod 16
    for (size_t i = 0; i < n; i += 16)
        for (size_t j = 0; j < 4 && i + 4 * j < n; j++) {
            const size_t rest = n - (i + 4 * j);
            const float32x4_t v = neon_load_part(x + i + 4 * j, rest < 4 ? rest : 4);
            squares[j] = vfmaq_f32(squares[j], v, v);
        }
    const float mean = neon_fold_16(squares) / (float)n;
    const float factor = rms_factor(mean, epsilon);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float32x4_t v = vmulq_n_f32(vld1q_f32(x + i), factor);
        vst1q_f32(y + i, weight ? vmulq_f32(v, vld1q_f32(weight + i)) : v);
    }
    for (; i < n; i++)
        y[i] = weight ? x[i] * factor * weight[i] : x[i] * factor;
}

typedef float32x4_t binary(float32x4_t a, float32x4_t b);

// y = op(a, b), where b is a row or, where it is NULL, `all` in every lane.
NEON_INLINE void map_row(binary *op, const float *a, const float *b, float all, size_t n, float *y)
{
    const float32x4_t constant = neon_set(all);
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, op(vld1q_f32(a + i), b ? vld1q_f32(b + i) : constant));
    if (i < n)
        neon_store_part(y + i, n - i, op(neon_load_part(a + i, n - i), b ? neon_load_part(b + i, n - i) : constant));
}

NEON_INLINE float32x4_t op_add(float32x4_t a, float32x4_t b)
{
    return vaddq_f32(a, b);
}

NEON_INLINE float32x4_t op_mul(float32x4_t a, float32x4_t b)
{
    return vmulq_f32(a, b);
}

NEON_INLINE float32x4_t op_swiglu(float32x4_t gate, float32x4_t up)
{
    return vmulq_f32(neon_silu(gate), up);
}

NEON_INLINE float32x4_t op_geglu(float32x4_t gate, float32x4_t up)
{
    return vmulq_f32(neon_gelu(gate), up);
}

NEON_INLINE float32x4_t op_reglu(float32x4_t gate, float32x4_t up)
{
    return vmulq_f32(neon_relu(gate), up);
}

NEON_INLINE float32x4_t op_sigmoid(float32x4_t x, float32x4_t unused)
{
    (void)unused;
    return neon_sigmoid_of(x);
}

NEON_INLINE float32x4_t op_exp_minus(float32x4_t x, float32x4_t max)
{
    return neon_exp(vsubq_f32(x, max));
}

void neon_add(const float *a, const float *b, size_t n, float *y)
{
    map_row(op_add, a, b, 0.0f, n, y);
}

void neon_mul(const float *a, const float *b, size_t n, float *y)
{
    map_row(op_mul, a, b, 0.0f, n, y);
}

void neon_scale(const float *x, float factor, size_t n, float *y)
{
    map_row(op_mul, x, NULL, factor, n, y);
}

void neon_add_scaled(const float *x, float factor, size_t n, float *y)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vfmaq_n_f32(vld1q_f32(y + i), vld1q_f32(x + i), factor));
    if (i < n)
        neon_store_part(y + i, n - i, vfmaq_n_f32(neon_load_part(y + i, n - i), neon_load_part(x + i, n - i), factor));
}

void neon_add_parts(const float *parts, uint32_t n_segments, float *y)
{
    for (size_t quarter = 0; quarter < NEON_QUARTERS; quarter++) {
        float32x4_t partial[MAX_SEGMENTS] = {vdupq_n_f32(0)};
        for (uint32_t s = 0; s < n_segments; s++)
            partial[s] = vld1q_f32(parts + s * PANEL_ROWS + 4 * quarter);
        vst1q_f32(y + 4 * quarter, neon_tree(partial, 1, n_segments));
    }
}

void neon_swiglu(const float *gate, const float *up, size_t n, float *y)
{
    map_row(op_swiglu, gate, up, 0.0f, n, y);
}

void neon_geglu(const float *gate, const float *up, size_t n, float *y)
{
    map_row(op_geglu, gate, up, 0.0f, n, y);
}

void neon_reglu(const float *gate, const float *up, size_t n, float *y)
{
    map_row(op_reglu, gate, up, 0.0f, n, y);
}

void neon_sigmoid(const float *x, size_t n, float *y)
{
    map_row(op_sigmoid, x, NULL, 0.0f, n, y);
}

void neon_swiglu_clamped(const float *gate, const float *up, size_t n, float limit, float alpha, float *y)
{
    const float32x4_t limits = neon_set(limit), alphas = neon_set(alpha);
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, neon_swiglu_clamped_of(vld1q_f32(gate + i), vld1q_f32(up + i), limits, alphas));
    if (i < n) {
        const float32x4_t g = neon_load_part(gate + i, n - i), u = neon_load_part(up + i, n - i);
        neon_store_part(y + i, n - i, neon_swiglu_clamped_of(g, u, limits, alphas));
    }
}

void neon_exp_minus(const float *x, float max, size_t n, float *y)
{
    map_row(op_exp_minus, x, NULL, max, n, y);
}

// Rotates 4 pairs.
NEON_INLINE float32x4x2_t rotate(float32x4x2_t x, float32x4_t cosine, float32x4_t sine)
{
    const float32x4_t first = vfmaq_f32(vnegq_f32(vmulq_f32(x.val[1], sine)), x.val[0], cosine);
    const float32x4_t second = vfmaq_f32(vmulq_f32(x.val[1], cosine), x.val[0], sine);
    return (float32x4x2_t){{first, second}};
}

// The pairs beyond the last 4, one by one.
static void rotate_rest(float *x, size_t begin, size_t n_pairs, const float *cos_sin, bool neox)
{
    for (size_t i = begin; i < n_pairs; i++) {
        float *first = neox ? x + i : x + 2 * i;
        float *second = neox ? x + i + n_pairs : x + 2 * i + 1;
        const float x0 = *first, x1 = *second;
        const float cosine = cos_sin[i], sine = cos_sin[n_pairs + i];
        *first = fmaf(x0, cosine, -(x1 * sine));
        *second = fmaf(x0, sine, x1 * cosine);
    }
}

void neon_rope(float *x, size_t n_rot, const float *cos_sin, bool neox)
{
    const size_t n_pairs = n_rot / 2;
    size_t i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
        const float32x4_t cosine = vld1q_f32(cos_sin + i), sine = vld1q_f32(cos_sin + n_pairs + i);
        if (neox) {
            const float32x4x2_t pairs = {{vld1q_f32(x + i), vld1q_f32(x + n_pairs + i)}};
            const float32x4x2_t rotated = rotate(pairs, cosine, sine);
            vst1q_f32(x + i, rotated.val[0]);
            vst1q_f32(x + n_pairs + i, rotated.val[1]);
        } else {
            vst2q_f32(x + 2 * i, rotate(vld2q_f32(x + 2 * i), cosine, sine));
        }
    }
    rotate_rest(x, i, n_pairs, cos_sin, neox);
}

// AVX2: operations on rows of n floats, 8 at a time; the last few through masked loads and stores.
#include "cpu/kernels/x86/avx2_math.h"

void avx2_rms_norm(const float *x, const float *weight, size_t n, float epsilon, float *y)
{
    __m256 low = _mm256_setzero_ps(), high = low; // element i in accumulator i mod 16
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    if (i < n) {
        const __m256 a = avx2_load_part(x + i, n - i);
        const __m256 b = n - i > 8 ? avx2_load_part(x + i + 8, n - i - 8) : _mm256_setzero_ps();
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    const float mean = avx2_fold_16(low, high) / (float)n;
    const __m256 factor = avx2_set(rms_factor(mean, epsilon));
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), factor);
        if (weight)
            v = _mm256_mul_ps(v, _mm256_loadu_ps(weight + i));
        _mm256_storeu_ps(y + i, v);
    }
    if (i < n) {
        __m256 v = _mm256_mul_ps(avx2_load_part(x + i, n - i), factor);
        if (weight)
            v = _mm256_mul_ps(v, avx2_load_part(weight + i, n - i));
        avx2_store_part(y + i, n - i, v);
    }
}

typedef __m256 binary(__m256 a, __m256 b);

// y = op(a, b), where b is a row or, where it is NULL, `all` in every lane.
AVX2_INLINE void map_row(binary *op, const float *a, const float *b, float all, size_t n, float *y)
{
    const __m256 constant = avx2_set(all);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, op(_mm256_loadu_ps(a + i), b ? _mm256_loadu_ps(b + i) : constant));
    if (i < n)
        avx2_store_part(y + i, n - i, op(avx2_load_part(a + i, n - i), b ? avx2_load_part(b + i, n - i) : constant));
}

AVX2_INLINE __m256 op_add(__m256 a, __m256 b)
{
    return _mm256_add_ps(a, b);
}

AVX2_INLINE __m256 op_mul(__m256 a, __m256 b)
{
    return _mm256_mul_ps(a, b);
}

AVX2_INLINE __m256 op_swiglu(__m256 gate, __m256 up)
{
    return _mm256_mul_ps(avx2_silu(gate), up);
}

AVX2_INLINE __m256 op_geglu(__m256 gate, __m256 up)
{
    return _mm256_mul_ps(avx2_gelu(gate), up);
}

AVX2_INLINE __m256 op_reglu(__m256 gate, __m256 up)
{
    return _mm256_mul_ps(avx2_relu(gate), up);
}

AVX2_INLINE __m256 op_sigmoid(__m256 x, __m256 unused)
{
    (void)unused;
    return avx2_sigmoid_of(x);
}

AVX2_INLINE __m256 op_exp_minus(__m256 x, __m256 max)
{
    return avx2_exp(_mm256_sub_ps(x, max));
}

void avx2_add(const float *a, const float *b, size_t n, float *y)
{
    map_row(op_add, a, b, 0.0f, n, y);
}

void avx2_mul(const float *a, const float *b, size_t n, float *y)
{
    map_row(op_mul, a, b, 0.0f, n, y);
}

void avx2_scale(const float *x, float factor, size_t n, float *y)
{
    map_row(op_mul, x, NULL, factor, n, y);
}

void avx2_add_scaled(const float *x, float factor, size_t n, float *y)
{
    const __m256 by = avx2_set(factor);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(by, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    if (i < n)
        avx2_store_part(y + i, n - i, _mm256_fmadd_ps(by, avx2_load_part(x + i, n - i), avx2_load_part(y + i, n - i)));
}

void avx2_add_parts(const float *parts, uint32_t n_segments, float *y)
{
    for (int half = 0; half < 2; half++) {
        __m256 partial[MAX_SEGMENTS] = {_mm256_setzero_ps()};
        for (uint32_t s = 0; s < n_segments; s++)
            partial[s] = _mm256_loadu_ps(parts + s * PANEL_ROWS + 8 * half);
        _mm256_storeu_ps(y + 8 * half, avx2_tree(partial, 1, n_segments));
    }
}

void avx2_swiglu(const float *gate, const float *up, size_t n, float *y)
{
    map_row(op_swiglu, gate, up, 0.0f, n, y);
}

void avx2_geglu(const float *gate, const float *up, size_t n, float *y)
{
    map_row(op_geglu, gate, up, 0.0f, n, y);
}

void avx2_reglu(const float *gate, const float *up, size_t n, float *y)
{
    map_row(op_reglu, gate, up, 0.0f, n, y);
}

void avx2_sigmoid(const float *x, size_t n, float *y)
{
    map_row(op_sigmoid, x, NULL, 0.0f, n, y);
}

void avx2_swiglu_clamped(const float *gate, const float *up, size_t n, float limit, float alpha, float *y)
{
    const __m256 limits = avx2_set(limit), alphas = avx2_set(alpha);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i,
                         avx2_swiglu_clamped_of(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i), limits, alphas));
    if (i < n) {
        const __m256 g = avx2_load_part(gate + i, n - i), u = avx2_load_part(up + i, n - i);
        avx2_store_part(y + i, n - i, avx2_swiglu_clamped_of(g, u, limits, alphas));
    }
}

void avx2_exp_minus(const float *x, float max, size_t n, float *y)
{
    map_row(op_exp_minus, x, NULL, max, n, y);
}

// Rotates 8 pairs in place.
AVX2_INLINE void rotate(__m256 *x0, __m256 *x1, __m256 cosine, __m256 sine)
{
    const __m256 first = _mm256_fmsub_ps(*x0, cosine, _mm256_mul_ps(*x1, sine));
    *x1 = _mm256_fmadd_ps(*x0, sine, _mm256_mul_ps(*x1, cosine));
    *x0 = first;
}

// Pairs (2i, 2i + 1) of 16 floats, as two registers in order.
AVX2_INLINE void split_pairs(const float *x, __m256 *even, __m256 *odd)
{
    const __m256 a = _mm256_loadu_ps(x), b = _mm256_loadu_ps(x + 8);
    const __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    *even = _mm256_shuffle_ps(low, high, 0x88);
    *odd = _mm256_shuffle_ps(low, high, 0xdd);
}

AVX2_INLINE void join_pairs(float *x, __m256 even, __m256 odd)
{
    const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(x, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(x + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

// The pairs beyond the last 8, one by one.
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

void avx2_rope(float *x, size_t n_rot, const float *cos_sin, bool neox)
{
    const size_t n_pairs = n_rot / 2;
    size_t i = 0;
    for (; i + 8 <= n_pairs; i += 8) {
        const __m256 cosine = _mm256_loadu_ps(cos_sin + i), sine = _mm256_loadu_ps(cos_sin + n_pairs + i);
        __m256 x0, x1;
        if (neox) {
            x0 = _mm256_loadu_ps(x + i);
            x1 = _mm256_loadu_ps(x + n_pairs + i);
            rotate(&x0, &x1, cosine, sine);
            _mm256_storeu_ps(x + i, x0);
            _mm256_storeu_ps(x + n_pairs + i, x1);
        } else {
            split_pairs(x + 2 * i, &x0, &x1);
            rotate(&x0, &x1, cosine, sine);
            join_pairs(x + 2 * i, x0, x1);
        }
    }
    rotate_rest(x, i, n_pairs, cos_sin, neox);
}

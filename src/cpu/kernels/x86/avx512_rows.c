// Operations on rows of n floats, 16 at a time; the last few through masked loads and stores.
#include "avx512_kernels.h"
#include "avx512_math.h"

void avx512_rms_norm(const float *x, const float *weight, size_t n, float epsilon, float *y)
{
    __m512 squares = _mm512_setzero_ps(); // element i in lane i mod 16
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 mask = avx512_mask_16(n - i);
        __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
        squares = _mm512_fmadd_ps(v, v, squares);
    }
    const float mean = avx512_fold_16(squares) / (float)n;
    const __m512 factor = _mm512_set1_ps(rms_factor(mean, epsilon));
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 mask = avx512_mask_16(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), factor);
        if (weight)
            v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, weight + i));
        _mm512_mask_storeu_ps(y + i, mask, v);
    }
}

typedef __m512 binary(__m512 a, __m512 b);

// y = op(a, b), where b is a row or, where it is NULL, `all` in every lane.
static ALWAYS_INLINE void map_row(binary *op, const float *a, const float *b, float all, size_t n, float *y)
{
    const __m512 constant = _mm512_set1_ps(all);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(y + i, op(_mm512_loadu_ps(a + i), b ? _mm512_loadu_ps(b + i) : constant));
    if (i < n) {
        __mmask16 mask = avx512_mask_16(n - i);
        __m512 last = b ? _mm512_maskz_loadu_ps(mask, b + i) : constant;
        _mm512_mask_storeu_ps(y + i, mask, op(_mm512_maskz_loadu_ps(mask, a + i), last));
    }
}

static ALWAYS_INLINE __m512 op_add(__m512 a, __m512 b)
{
    return _mm512_add_ps(a, b);
}

static ALWAYS_INLINE __m512 op_mul(__m512 a, __m512 b)
{
    return _mm512_mul_ps(a, b);
}

static ALWAYS_INLINE __m512 op_swiglu(__m512 gate, __m512 up)
{
    return _mm512_mul_ps(avx512_silu(gate), up);
}

static ALWAYS_INLINE __m512 op_geglu(__m512 gate, __m512 up)
{
    return _mm512_mul_ps(avx512_gelu(gate), up);
}

static ALWAYS_INLINE __m512 op_reglu(__m512 gate, __m512 up)
{
    return _mm512_mul_ps(avx512_relu(gate), up);
}

static ALWAYS_INLINE __m512 op_sigmoid(__m512 x, __m512 unused)
{
    (void)unused;
    return avx512_sigmoid_of(x);
}

static ALWAYS_INLINE __m512 op_exp_minus(__m512 x, __m512 max)
{
    return avx512_exp(_mm512_sub_ps(x, max));
}

void avx512_add(const float *a, const float *b, size_t n, float *y)
{
    map_row(op_add, a, b, 0.0f, n, y);
}

void avx512_mul(const float *a, const float *b, size_t n, float *y)
{
    map_row(op_mul, a, b, 0.0f, n, y);
}

void avx512_scale(const float *x, float factor, size_t n, float *y)
{
    map_row(op_mul, x, NULL, factor, n, y);
}

void avx512_add_scaled(const float *x, float factor, size_t n, float *y)
{
    const __m512 by = _mm512_set1_ps(factor);
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 mask = avx512_mask_16(n - i);
        const __m512 sum = _mm512_maskz_loadu_ps(mask, y + i);
        _mm512_mask_storeu_ps(y + i, mask, _mm512_fmadd_ps(by, _mm512_maskz_loadu_ps(mask, x + i), sum));
    }
}

void avx512_add_parts(const float *parts, uint32_t n_segments, float *y)
{
    __m512 partial[MAX_SEGMENTS] = {_mm512_setzero_ps()};
    for (uint32_t s = 0; s < n_segments; s++)
        partial[s] = _mm512_loadu_ps(parts + s * PANEL_ROWS);
    _mm512_storeu_ps(y, avx512_tree(partial, n_segments, 1));
}

void avx512_swiglu(const float *gate, const float *up, size_t n, float *y)
{
    map_row(op_swiglu, gate, up, 0.0f, n, y);
}

void avx512_geglu(const float *gate, const float *up, size_t n, float *y)
{
    map_row(op_geglu, gate, up, 0.0f, n, y);
}

void avx512_reglu(const float *gate, const float *up, size_t n, float *y)
{
    map_row(op_reglu, gate, up, 0.0f, n, y);
}

void avx512_sigmoid(const float *x, size_t n, float *y)
{
    map_row(op_sigmoid, x, NULL, 0.0f, n, y);
}

void avx512_swiglu_clamped(const float *gate, const float *up, size_t n, float limit, float alpha, float *y)
{
    const __m512 limits = _mm512_set1_ps(limit), alphas = _mm512_set1_ps(alpha);
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 mask = avx512_mask_16(n - i);
        const __m512 g = _mm512_maskz_loadu_ps(mask, gate + i), u = _mm512_maskz_loadu_ps(mask, up + i);
        _mm512_mask_storeu_ps(y + i, mask, avx512_swiglu_clamped_of(g, u, limits, alphas));
    }
}

void avx512_exp_minus(const float *x, float max, size_t n, float *y)
{
    map_row(op_exp_minus, x, NULL, max, n, y);
}

// Lane i of the first result: first · cosine - second · sine, and so on for up to 16 pairs.
static ALWAYS_INLINE void rotate(__m512 *first, __m512 *second, __m512 cosine, __m512 sine)
{
    __m512 x0 = *first, x1 = *second;
    *first = _mm512_fmsub_ps(x0, cosine, _mm512_mul_ps(x1, sine));
    *second = _mm512_fmadd_ps(x0, sine, _mm512_mul_ps(x1, cosine));
}

static void rope_neox(float *x, size_t n_pairs, const float *cos_sin)
{
    for (size_t i = 0; i < n_pairs; i += 16) {
        __mmask16 mask = avx512_mask_16(n_pairs - i);
        __m512 first = _mm512_maskz_loadu_ps(mask, x + i);
        __m512 second = _mm512_maskz_loadu_ps(mask, x + n_pairs + i);
        rotate(&first, &second, _mm512_maskz_loadu_ps(mask, cos_sin + i),
               _mm512_maskz_loadu_ps(mask, cos_sin + n_pairs + i));
        _mm512_mask_storeu_ps(x + i, mask, first);
        _mm512_mask_storeu_ps(x + n_pairs + i, mask, second);
    }
}

static void rope_adjacent(float *x, size_t n_pairs, const float *cos_sin)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    for (size_t i = 0; i < n_pairs; i += 16) {
        __mmask16 mask = avx512_mask_16(n_pairs - i);
        size_t n = 2 * (n_pairs - i);
        __mmask16 low_mask = avx512_mask_16(n), high_mask = avx512_mask_16(n < 16 ? 0 : n - 16);
        __m512 a = _mm512_maskz_loadu_ps(low_mask, x + 2 * i);
        __m512 b = _mm512_maskz_loadu_ps(high_mask, x + 2 * i + 16);
        __m512 first = _mm512_permutex2var_ps(a, even, b);
        __m512 second = _mm512_permutex2var_ps(a, odd, b);
        rotate(&first, &second, _mm512_maskz_loadu_ps(mask, cos_sin + i),
               _mm512_maskz_loadu_ps(mask, cos_sin + n_pairs + i));
        _mm512_mask_storeu_ps(x + 2 * i, low_mask, _mm512_permutex2var_ps(first, low, second));
        _mm512_mask_storeu_ps(x + 2 * i + 16, high_mask, _mm512_permutex2var_ps(first, high, second));
    }
}

void avx512_rope(float *x, size_t n_rot, const float *cos_sin, bool neox)
{
    if (neox)
        rope_neox(x, n_rot / 2, cos_sin);
    else
        rope_adjacent(x, n_rot / 2, cos_sin);
}

// The elementary functions of kernels/c/math.h on 8 lanes: the same operations in the same order.
#ifndef MOTE_CPU_KERNELS_X86_AVX2_MATH_H
#define MOTE_CPU_KERNELS_X86_AVX2_MATH_H

#include "cpu/kernels/c/math.h"
#include "cpu/kernels/x86/avx2.h"

AVX2_INLINE __m256 avx2_set(float x)
{
    return _mm256_set1_ps(x);
}

AVX2_INLINE __m256 avx2_power_of_two(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

AVX2_INLINE __m256 avx2_exp(__m256 x)
{
    const __m256 magic = avx2_set(0x1.8p23f);
    const __m256 to_zero = _mm256_cmp_ps(x, avx2_set(-87.3f), _CMP_LT_OQ);
    x = _mm256_min_ps(avx2_set(89.0f), x);
    const __m256 shifted = _mm256_fmadd_ps(x, avx2_set(0x1.715476p+0f), magic);
    const __m256 n = _mm256_sub_ps(shifted, magic);
    __m256 r = _mm256_fmadd_ps(n, avx2_set(-0x1.62e4p-1f), x);
    r = _mm256_fmadd_ps(n, avx2_set(-0x1.7f7d1cp-20f), r);
    __m256 p = avx2_set(0x1.6a23dp-10f);
    p = _mm256_fmadd_ps(p, r, avx2_set(0x1.123a2p-7f));
    p = _mm256_fmadd_ps(p, r, avx2_set(0x1.5558f2p-5f));
    p = _mm256_fmadd_ps(p, r, avx2_set(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, r, avx2_set(0x1.fffffcp-2f));
    p = _mm256_fmadd_ps(p, r, avx2_set(1.0f));
    p = _mm256_fmadd_ps(p, r, avx2_set(1.0f));
    const __m256i whole = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(magic));
    const __m256i half = _mm256_srai_epi32(whole, 1);
    const __m256 y =
        _mm256_mul_ps(_mm256_mul_ps(p, avx2_power_of_two(half)), avx2_power_of_two(_mm256_sub_epi32(whole, half)));
    return _mm256_andnot_ps(to_zero, y);
}

AVX2_INLINE __m256 avx2_tanh(__m256 x)
{
    const __m256 sign = avx2_set(-0.0f);
    const __m256 a = _mm256_andnot_ps(sign, x);
    const __m256 s = _mm256_mul_ps(x, x);
    __m256 p = avx2_set(0x1.197b7ap-9f);
    p = _mm256_fmadd_ps(p, s, avx2_set(-0x1.0c2146p-7f));
    p = _mm256_fmadd_ps(p, s, avx2_set(0x1.6394dap-6f));
    p = _mm256_fmadd_ps(p, s, avx2_set(-0x1.b9ef7cp-5f));
    p = _mm256_fmadd_ps(p, s, avx2_set(0x1.11106cp-3f));
    p = _mm256_fmadd_ps(p, s, avx2_set(-0x1.555554p-2f));
    const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(s, x), p, x);
    const __m256 one = avx2_set(1.0f);
    __m256 t = _mm256_div_ps(avx2_set(2.0f), _mm256_add_ps(avx2_exp(_mm256_add_ps(a, a)), one));
    t = _mm256_sub_ps(one, t);
    const __m256 large = _mm256_or_ps(_mm256_andnot_ps(sign, t), _mm256_and_ps(sign, x));
    return _mm256_blendv_ps(large, small, _mm256_cmp_ps(a, avx2_set(0.625f), _CMP_LT_OQ));
}

AVX2_INLINE __m256 avx2_softcap(__m256 x, __m256 cap)
{
    return _mm256_mul_ps(cap, avx2_tanh(_mm256_div_ps(x, cap)));
}

AVX2_INLINE __m256 avx2_silu(__m256 g)
{
    return _mm256_div_ps(g, _mm256_add_ps(avx2_set(1.0f), avx2_exp(_mm256_xor_ps(g, avx2_set(-0.0f)))));
}

AVX2_INLINE __m256 avx2_gelu(__m256 g)
{
    const __m256 w = _mm256_fmadd_ps(_mm256_mul_ps(g, g), avx2_set(-0x1.2444f2p-4f), avx2_set(-0x1.988454p+0f));
    return _mm256_div_ps(g, _mm256_add_ps(avx2_set(1.0f), avx2_exp(_mm256_mul_ps(g, w))));
}

AVX2_INLINE __m256 avx2_sigmoid_of(__m256 x)
{
    const __m256 one = avx2_set(1.0f);
    return _mm256_div_ps(one, _mm256_add_ps(one, avx2_exp(_mm256_xor_ps(x, avx2_set(-0.0f)))));
}

AVX2_INLINE __m256 avx2_relu(__m256 g)
{
    return _mm256_max_ps(_mm256_setzero_ps(), g);
}

AVX2_INLINE __m256 avx2_swiglu_clamped_of(__m256 gate, __m256 up, __m256 limit, __m256 alpha)
{
    const __m256 one = avx2_set(1.0f), sign = avx2_set(-0.0f);
    const __m256 g = _mm256_min_ps(limit, gate);
    const __m256 u = _mm256_min_ps(limit, _mm256_max_ps(_mm256_xor_ps(limit, sign), up));
    const __m256 e = avx2_exp(_mm256_xor_ps(_mm256_mul_ps(alpha, g), sign));
    return _mm256_mul_ps(_mm256_div_ps(g, _mm256_add_ps(one, e)), _mm256_add_ps(u, one));
}

AVX2_INLINE __m256 avx2_round_bfloat(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x), magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(magnitude, _mm256_set1_epi32(0x7fff)), odd);
    rounded = _mm256_min_epi32(_mm256_and_si256(rounded, _mm256_set1_epi32(-0x10000)), _mm256_set1_epi32(0x7f7f0000));
    rounded = _mm256_or_si256(rounded, _mm256_andnot_si256(_mm256_set1_epi32(0x7fffffff), bits));
    const __m256i finite = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), magnitude);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, rounded, finite));
}

// The fold of 16 accumulators (element i in accumulator i mod 16): +8, +4, +2, +1.
AVX2_INLINE float avx2_fold_16(__m256 low, __m256 high)
{
    const __m256 eight = _mm256_add_ps(low, high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The first n of 8 floats (all where n is more): the lanes beyond are neither read nor written, and read as 0.
AVX2_INLINE __m256i avx2_part_mask(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

AVX2_INLINE __m256 avx2_load_part(const float *x, size_t n)
{
    return _mm256_maskload_ps(x, avx2_part_mask(n));
}

AVX2_INLINE void avx2_store_part(float *y, size_t n, __m256 value)
{
    _mm256_maskstore_ps(y, avx2_part_mask(n), value);
}

// The largest of 8 unsigned integers below 2^31.
AVX2_INLINE uint32_t avx2_max_of_8(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

// The bits of the magnitudes.
AVX2_INLINE __m256i avx2_magnitude(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

// The bits of the largest magnitude of n floats.
AVX2_INLINE uint32_t avx2_amax_bits(const float *x, size_t n)
{
    __m256i max = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        max = _mm256_max_epi32(max, avx2_magnitude(_mm256_loadu_ps(x + i)));
    if (i < n)
        max = _mm256_max_epi32(max, avx2_magnitude(avx2_load_part(x + i, n - i)));
    return avx2_max_of_8(max);
}

// One block of 32 to Q8: its integers; *d is its scale.
AVX2_INLINE __m256i avx2_q8_block(const float *x, float *d)
{
    __m256 v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_loadu_ps(x + 8 * i);
    const uint32_t amax = avx2_max_of_8(_mm256_max_epi32(_mm256_max_epi32(avx2_magnitude(v[0]), avx2_magnitude(v[1])),
                                                         _mm256_max_epi32(avx2_magnitude(v[2]), avx2_magnitude(v[3]))));
    *d = amax < 0x04800000u ? 0.0f : float_from_bits(0x7fc00000u);
    if (amax < 0x04800000u || amax >= 0x7f800000u)
        return _mm256_setzero_si256();
    *d = float_from_bits(amax) / 127.0f;
    const __m256 inverse = avx2_set(127.0f / float_from_bits(amax));
    __m256i q[4];
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#endif

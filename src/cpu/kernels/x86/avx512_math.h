// The elementary functions of kernels/c/math.h on 16 lanes: the same operations in the same order.
#ifndef MOTE_CPU_KERNELS_X86_AVX512_MATH_H
#define MOTE_CPU_KERNELS_X86_AVX512_MATH_H

#include "avx512.h"
#include "cpu/kernels/c/math.h"

static ALWAYS_INLINE __m512 avx512_power_of_two(__m512i n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}

static ALWAYS_INLINE __m512 avx512_exp(__m512 x)
{
    const __m512 magic = _mm512_set1_ps(0x1.8p23f);
    __mmask16 not_zero = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ);
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
    __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), magic);
    __m512 n = _mm512_sub_ps(shifted, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e4p-1f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-20f), r);
    __m512 p = _mm512_set1_ps(0x1.6a23dp-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123a2p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f2p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    __m512i whole = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_castps_si512(magic));
    __m512i half = _mm512_srai_epi32(whole, 1);
    p = _mm512_mul_ps(p, avx512_power_of_two(half));
    return _mm512_maskz_mul_ps(not_zero, p, avx512_power_of_two(_mm512_sub_epi32(whole, half)));
}

static ALWAYS_INLINE __m512 avx512_tanh(__m512 x)
{
    const __m512 sign = _mm512_set1_ps(-0.0f), one = _mm512_set1_ps(1.0f);
    __m512 a = _mm512_andnot_ps(sign, x);
    __m512 s = _mm512_mul_ps(x, x);
    __m512 p = _mm512_set1_ps(0x1.197b7ap-9f);
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(-0x1.0c2146p-7f));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(0x1.6394dap-6f));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(-0x1.b9ef7cp-5f));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(0x1.11106cp-3f));
    p = _mm512_fmadd_ps(p, s, _mm512_set1_ps(-0x1.555554p-2f));
    __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(s, x), p, x);
    __m512 t = _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(avx512_exp(_mm512_add_ps(a, a)), one));
    t = _mm512_sub_ps(one, t);
    __m512 large = _mm512_or_ps(_mm512_andnot_ps(sign, t), _mm512_and_ps(sign, x));
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, _mm512_set1_ps(0.625f), _CMP_LT_OQ), large, small);
}

static ALWAYS_INLINE __m512 avx512_softcap(__m512 x, __m512 cap)
{
    return _mm512_mul_ps(cap, avx512_tanh(_mm512_div_ps(x, cap)));
}

static ALWAYS_INLINE __m512 avx512_silu(__m512 g)
{
    __m512 e = avx512_exp(_mm512_xor_ps(g, _mm512_set1_ps(-0.0f)));
    return _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

static ALWAYS_INLINE __m512 avx512_gelu(__m512 g)
{
    __m512 w = _mm512_fmadd_ps(_mm512_mul_ps(g, g), _mm512_set1_ps(-0x1.2444f2p-4f), _mm512_set1_ps(-0x1.988454p+0f));
    return _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), avx512_exp(_mm512_mul_ps(g, w))));
}

static ALWAYS_INLINE __m512 avx512_sigmoid_of(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    return _mm512_div_ps(one, _mm512_add_ps(one, avx512_exp(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)))));
}

static ALWAYS_INLINE __m512 avx512_relu(__m512 g)
{
    return _mm512_max_ps(_mm512_setzero_ps(), g);
}

static ALWAYS_INLINE __m512 avx512_swiglu_clamped_of(__m512 gate, __m512 up, __m512 limit, __m512 alpha)
{
    const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_set1_ps(-0.0f);
    __m512 g = _mm512_min_ps(limit, gate);
    __m512 u = _mm512_min_ps(limit, _mm512_max_ps(_mm512_xor_ps(limit, sign), up));
    __m512 e = avx512_exp(_mm512_xor_ps(_mm512_mul_ps(alpha, g), sign));
    return _mm512_mul_ps(_mm512_div_ps(g, _mm512_add_ps(one, e)), _mm512_add_ps(u, one));
}

static ALWAYS_INLINE __m512 avx512_round_bfloat(__m512 x)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    __m512i bits = _mm512_castps_si512(x), magnitude = _mm512_andnot_si512(sign, bits);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(magnitude, _mm512_set1_epi32(0x7fff)), odd);
    rounded = _mm512_min_epi32(_mm512_and_si512(rounded, _mm512_set1_epi32(-0x10000)), _mm512_set1_epi32(0x7f7f0000));
    __mmask16 finite = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, finite, avx512_or_masked(rounded, bits, sign)));
}

// The fold of 16 accumulators: +8, +4, +2, +1.
static ALWAYS_INLINE float avx512_fold_16(__m512 v)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The bits of the magnitudes.
static ALWAYS_INLINE __m512i avx512_magnitude(__m512 x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

// The scales of up to 16 blocks of Q8 from the bits of their largest magnitudes, and the factors to their integers,
// which are 0 where the integers must be.
static ALWAYS_INLINE __m512 avx512_q8_scales(__m512i amax, __m512 *inverse)
{
    const __m512 most = _mm512_set1_ps(127.0f);
    __mmask16 finite = _mm512_cmplt_epi32_mask(amax, _mm512_set1_epi32(0x7f800000));
    __mmask16 usable = _mm512_mask_cmpge_epi32_mask(finite, amax, _mm512_set1_epi32(0x04800000));
    *inverse = _mm512_maskz_div_ps(usable, most, _mm512_castsi512_ps(amax));
    __m512 d = _mm512_maskz_div_ps(usable, _mm512_castsi512_ps(amax), most);
    return _mm512_mask_mov_ps(_mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)), finite, d);
}

#endif

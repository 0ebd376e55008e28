// The elementary functions of kernels/c/math.h on 4 lanes: the same operations in the same order.
#ifndef MOTE_CPU_KERNELS_ARM_NEON_MATH_H
#define MOTE_CPU_KERNELS_ARM_NEON_MATH_H

#include "cpu/kernels/arm/neon.h"
#include "cpu/kernels/c/math.h"

NEON_INLINE float32x4_t neon_set(float x)
{
    return vdupq_n_f32(x);
}

// a > b ? a : b, lane by lane; b where either is NaN (FMAX would give NaN, FMAXNM the other).
NEON_INLINE float32x4_t neon_max(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

NEON_INLINE float32x4_t neon_power_of_two(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

NEON_INLINE float32x4_t neon_exp(float32x4_t x)
{
    const float32x4_t magic = neon_set(0x1.8p23f), largest = neon_set(89.0f);
    const uint32x4_t to_zero = vcltq_f32(x, neon_set(-87.3f));
    x = vbslq_f32(vcltq_f32(largest, x), largest, x);
    const float32x4_t shifted = vfmaq_f32(magic, x, neon_set(0x1.715476p+0f));
    const float32x4_t n = vsubq_f32(shifted, magic);
    float32x4_t r = vfmaq_f32(x, n, neon_set(-0x1.62e4p-1f));
    r = vfmaq_f32(r, n, neon_set(-0x1.7f7d1cp-20f));
    float32x4_t p = neon_set(0x1.6a23dp-10f);
    p = vfmaq_f32(neon_set(0x1.123a2p-7f), p, r);
    p = vfmaq_f32(neon_set(0x1.5558f2p-5f), p, r);
    p = vfmaq_f32(neon_set(0x1.555492p-3f), p, r);
    p = vfmaq_f32(neon_set(0x1.fffffcp-2f), p, r);
    p = vfmaq_f32(neon_set(1.0f), p, r);
    p = vfmaq_f32(neon_set(1.0f), p, r);
    const int32x4_t whole = vsubq_s32(vreinterpretq_s32_f32(shifted), vreinterpretq_s32_f32(magic));
    const int32x4_t half = vshrq_n_s32(whole, 1);
    const float32x4_t y = vmulq_f32(vmulq_f32(p, neon_power_of_two(half)), neon_power_of_two(vsubq_s32(whole, half)));
    return vbslq_f32(to_zero, neon_set(0.0f), y);
}

NEON_INLINE float32x4_t neon_tanh(float32x4_t x)
{
    const float32x4_t a = vabsq_f32(x), one = neon_set(1.0f);
    const float32x4_t s = vmulq_f32(x, x);
    float32x4_t p = neon_set(0x1.197b7ap-9f);
    p = vfmaq_f32(neon_set(-0x1.0c2146p-7f), p, s);
    p = vfmaq_f32(neon_set(0x1.6394dap-6f), p, s);
    p = vfmaq_f32(neon_set(-0x1.b9ef7cp-5f), p, s);
    p = vfmaq_f32(neon_set(0x1.11106cp-3f), p, s);
    p = vfmaq_f32(neon_set(-0x1.555554p-2f), p, s);
    const float32x4_t small = vfmaq_f32(x, vmulq_f32(s, x), p);
    const float32x4_t t = vsubq_f32(one, vdivq_f32(neon_set(2.0f), vaddq_f32(neon_exp(vaddq_f32(a, a)), one)));
    const float32x4_t large = vbslq_f32(vdupq_n_u32(0x80000000u), x, t); // the sign of x
    return vbslq_f32(vcltq_f32(a, neon_set(0.625f)), small, large);
}

NEON_INLINE float32x4_t neon_softcap(float32x4_t x, float32x4_t cap)
{
    return vmulq_f32(cap, neon_tanh(vdivq_f32(x, cap)));
}

NEON_INLINE float32x4_t neon_silu(float32x4_t g)
{
    return vdivq_f32(g, vaddq_f32(neon_set(1.0f), neon_exp(vnegq_f32(g))));
}

NEON_INLINE float32x4_t neon_gelu(float32x4_t g)
{
    const float32x4_t w = vfmaq_f32(neon_set(-0x1.988454p+0f), vmulq_f32(g, g), neon_set(-0x1.2444f2p-4f));
    return vdivq_f32(g, vaddq_f32(neon_set(1.0f), neon_exp(vmulq_f32(g, w))));
}

NEON_INLINE float32x4_t neon_sigmoid_of(float32x4_t x)
{
    const float32x4_t one = neon_set(1.0f);
    return vdivq_f32(one, vaddq_f32(one, neon_exp(vnegq_f32(x))));
}

NEON_INLINE float32x4_t neon_relu(float32x4_t g)
{
    return neon_max(neon_set(0.0f), g);
}

// a < b ? a : b, lane by lane; b where either is NaN.
NEON_INLINE float32x4_t neon_min(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

NEON_INLINE float32x4_t neon_swiglu_clamped_of(float32x4_t gate, float32x4_t up, float32x4_t limit, float32x4_t alpha)
{
    const float32x4_t one = neon_set(1.0f), g = neon_min(limit, gate);
    const float32x4_t u = neon_min(limit, neon_max(vnegq_f32(limit), up));
    const float32x4_t e = neon_exp(vnegq_f32(vmulq_f32(alpha, g)));
    return vmulq_f32(vdivq_f32(g, vaddq_f32(one, e)), vaddq_f32(u, one));
}

NEON_INLINE float32x4_t neon_round_bfloat(float32x4_t x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x), magnitude = vandq_u32(bits, vdupq_n_u32(0x7fffffffu));
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(magnitude, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(vaddq_u32(magnitude, vdupq_n_u32(0x7fff)), odd);
    rounded = vminq_u32(vandq_u32(rounded, vdupq_n_u32(0xffff0000u)), vdupq_n_u32(0x7f7f0000u));
    rounded = vorrq_u32(rounded, vandq_u32(bits, vdupq_n_u32(0x80000000u)));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(magnitude, vdupq_n_u32(0x7f800000u)), rounded, bits));
}

// The fold of 16 accumulators (element i in accumulator i mod 16): +8, +4, +2, +1.
NEON_INLINE float neon_fold_16(const float32x4_t v[4])
{
    const float32x4_t four = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

// The first n ≤ 4 floats: the lanes beyond are neither read nor written, and read as 0.
NEON_INLINE float32x4_t neon_load_part(const float *x, size_t n)
{
    float part[4] = {0};
    memcpy(part, x, n * sizeof(float));
    return vld1q_f32(part);
}

NEON_INLINE void neon_store_part(float *y, size_t n, float32x4_t value)
{
    float part[4];
    vst1q_f32(part, value);
    memcpy(y, part, n * sizeof(float));
}

NEON_INLINE uint32x4_t neon_magnitude(float32x4_t x)
{
    return vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x7fffffffu));
}

// The bits of the largest magnitude of n floats.
NEON_INLINE uint32_t neon_amax_bits(const float *x, size_t n)
{
    uint32x4_t max = vdupq_n_u32(0);
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        max = vmaxq_u32(max, neon_magnitude(vld1q_f32(x + i)));
    if (i < n)
        max = vmaxq_u32(max, neon_magnitude(neon_load_part(x + i, n - i)));
    return vmaxvq_u32(max);
}

// One block of 32 to Q8; gives d.
NEON_INLINE float neon_q8_block(const float *x, int8_t *q)
{
    const uint32_t amax = neon_amax_bits(x, 32);
    if (amax < 0x04800000u || amax >= 0x7f800000u) {
        memset(q, 0, 32);
        return amax < 0x04800000u ? 0.0f : float_from_bits(0x7fc00000u);
    }
    const float inverse = 127.0f / float_from_bits(amax);
    for (int i = 0; i < 32; i += 8) {
        const int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), inverse));
        const int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4), inverse));
        vst1_s8(q + i, vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))));
    }
    return float_from_bits(amax) / 127.0f;
}

#endif

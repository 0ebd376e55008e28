// The exact sequence of operations of every elementary function and rounding that kernels use, for F32
// (docs/numerics.md has the reasons and the measured errors). SIMD kernels repeat these lane by lane and get the same
// bits. Where a comment says "exact", any way of computing that step gives the same bits. NaN may differ in sign and
// payload.
#ifndef MOTE_CPU_KERNELS_C_MATH_H
#define MOTE_CPU_KERNELS_C_MATH_H

#include "cpu/packed.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

// The contract's maximum: b where the two are equal or either is NaN (as maxps does).
static inline float max_f32(float a, float b)
{
    return a > b ? a : b;
}

// 2^n, -126 ≤ n ≤ 127.
static inline float power_of_two(int32_t n)
{
    return float_from_bits((uint32_t)(n + 127) << 23);
}

// exp(x), at most 1 ulp from the true value. Below -87.3 (also -inf): +0. From ln(FLT_MAX) on: inf. NaN stays.
// x = n ln 2 + r: n is rounded by adding 1.5 · 2^23, ln 2 is split so that n · LN2_HIGH is exact.
static inline float exp_f32(float x)
{
    const float magic = 0x1.8p23f, log2_e = 0x1.715476p+0f;
    const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;

    if (x < -87.3f) // SIMD: a select at the end
        return 0.0f;
    x = 89.0f < x ? 89.0f : x; // beyond it all is inf; NaN stays (minps(89, x))

    float shifted = fmaf(x, log2_e, magic);
    float n = shifted - magic;       // exact
    float r = fmaf(n, -ln2_high, x); // exact
    r = fmaf(n, -ln2_low, r);        // |r| < 0.3467
    float p = 0x1.6a23dp-10f;        // minimax of (exp(r) - 1 - r) / r²
    p = fmaf(p, r, 0x1.123a2p-7f);
    p = fmaf(p, r, 0x1.5558f2p-5f);
    p = fmaf(p, r, 0x1.555492p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    // p · 2^n, exact or inf: in two factors, since n = 128 has no F32. n ≥ -126, and the result is never subnormal.
    int32_t whole = (int32_t)(float_bits(shifted) - float_bits(magic));
    if (whole > 128 || whole < -126) // NaN only (SIMD needs no such test: the bits do not matter there)
        return x;
    int32_t half = whole >> 1;
    return p * power_of_two(half) * power_of_two(whole - half);
}

// tanh(x), at most 1.3 ulp; tanh(-0) is +0. SIMD: both sides, then a select.
static inline float tanh_f32(float x)
{
    float a = fabsf(x);
    if (a < 0.625f) {
        float s = x * x;
        float p = 0x1.197b7ap-9f; // minimax of (tanh(x) - x) / x³ in x²
        p = fmaf(p, s, -0x1.0c2146p-7f);
        p = fmaf(p, s, 0x1.6394dap-6f);
        p = fmaf(p, s, -0x1.b9ef7cp-5f);
        p = fmaf(p, s, 0x1.11106cp-3f);
        p = fmaf(p, s, -0x1.555554p-2f);
        return fmaf(s * x, p, x); // s · x first
    }
    float t = 1.0f - 2.0f / (exp_f32(a + a) + 1.0f); // exp may be inf: 1
    return copysignf(t, x);
}

// The softcap of scores: cap · tanh(x / cap).
static inline float softcap_f32(float x, float cap)
{
    return cap * tanh_f32(x / cap);
}

// silu(g) = g · sigmoid(g). Finite for every finite g (a large -g gives g / inf = -0); -inf gives NaN, as g · 0 does.
static inline float silu_f32(float g)
{
    return g / (1.0f + exp_f32(-g));
}

// gelu in its tanh form, 0.5 g (1 + tanh(u)) with u = sqrt(2/π) (g + 0.044715 g³), as g · sigmoid(2u): the same
// function, without the cancellation of 1 + tanh for negative g. -2u = g · (A + B g²). g² may be inf: then g or -0.
static inline float gelu_f32(float g)
{
    float w = fmaf(g * g, -0x1.2444f2p-4f, -0x1.988454p+0f);
    return g / (1.0f + exp_f32(g * w));
}

// sigmoid(x) = 1 / (1 + exp(-x)): 0 for -inf, 1 for inf.
static inline float sigmoid_f32(float x)
{
    return 1.0f / (1.0f + exp_f32(-x));
}

// A gated unit's ReLU: 0 where g is below 0, else g, also where g is NaN or -0.
static inline float relu_f32(float g)
{
    return max_f32(0.0f, g);
}

// gpt-oss' gated unit: g · sigmoid(alpha · g) · (u + 1) with g = min(gate, limit), u = clamp(up, -limit, limit). NaN
// in either source stays.
static inline float swiglu_clamped_f32(float gate, float up, float limit, float alpha)
{
    float g = limit < gate ? limit : gate;
    float u = max_f32(-limit, up);
    u = limit < u ? limit : u;
    return g / (1.0f + exp_f32(-(alpha * g))) * (u + 1.0f);
}

// log(x), at most 0.8 ulp from the true value. ±0: -inf; below 0: NaN. x = m · 2^n with m in [√½, √2), f = m - 1:
// log = n ln 2 + f - f²/2 + f³ P(f), where n · LN2_HIGH is exact and its sum with f is kept in two parts.
static inline float log_f32(float x)
{
    const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    if (!(x > 0.0f))
        return x == 0.0f ? -INFINITY : float_from_bits(0x7fc00000u);
    if (x > 0x1.fffffep127f)
        return x;
    int32_t n = 0;
    if (x < 0x1p-126f) { // subnormal: exact in 2^25 times its size
        x *= 0x1p25f;
        n = -25;
    }
    int32_t whole = (int32_t)(float_bits(x) - 0x3f3504f3u) >> 23; // 0x3f3504f3: √½; rounds down
    n += whole;
    float f = float_from_bits(float_bits(x) - ((uint32_t)whole << 23)) - 1.0f; // exact
    float p = 0x1.b2dbe6p-5f; // minimax of (log(1 + f) - f + f²/2) / f³
    p = fmaf(p, f, -0x1.be8d16p-4f);
    p = fmaf(p, f, 0x1.eff494p-4f);
    p = fmaf(p, f, -0x1.01040ep-3f);
    p = fmaf(p, f, 0x1.230302p-3f);
    p = fmaf(p, f, -0x1.552f10p-3f);
    p = fmaf(p, f, 0x1.99a542p-3f);
    p = fmaf(p, f, -0x1.000070p-2f);
    p = fmaf(p, f, 0x1.555548p-2f);
    float square = f * f;
    float small = fmaf(square * f, p, -0.5f * square);
    small = fmaf((float)n, ln2_low, small);
    float large = (float)n * ln2_high; // exact
    float sum = large + f;
    return sum + ((large - sum) + f + small); // (large - sum) + f: what rounding sum lost, exactly
}

// softplus(x) = log(1 + exp(x)), as max(x, 0) + log(1 + t) with t = exp(-|x|), so that neither side overflows; the
// quotient restores what 1 + t rounded away. -inf: 0; inf: inf.
static inline float softplus_f32(float x)
{
    float t = exp_f32(-fabsf(x));
    float u = 1.0f + t;
    float tail = log_f32(u) + (t - (u - 1.0f)) / u;
    return (x > 0.0f ? x : 0.0f) + tail;
}

// To BF16, nearest even. What is finite stays finite: a magnitude that would round to infinity (from 0x1.ffp127 on)
// becomes the largest, so sources in BF16 need no scale. inf and NaN stay as they are.
static inline float round_bfloat(float x)
{
    uint32_t bits = float_bits(x), magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x7f800000u)
        return x;
    uint32_t rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) & 0xffff0000u;
    rounded = rounded < 0x7f7f0000u ? rounded : 0x7f7f0000u;
    return float_from_bits(rounded | (bits & 0x80000000u));
}

// The tree over S = n segment sums (or over any n ≤ 8 leaves): in place, the result in v[0].
static inline float tree_add(float v[MAX_SEGMENTS], uint32_t n)
{
    for (uint32_t stride = 1; stride < n; stride *= 2)
        for (uint32_t i = 0; i + stride < n; i += 2 * stride)
            v[i] += v[i + stride];
    return v[0];
}

// The fold of a true reduction's 16 accumulators: +8, +4, +2, +1.
static inline float fold_16(float v[16])
{
    for (int width = 8; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            v[j] += v[j + width];
    return v[0];
}

// RMS norm: what a row whose squares have this mean is multiplied by. Where their sum has left F32 there is no factor:
// 0, which 1/sqrt gives, would make zeros of the row, and an answer of nothing.
static inline float rms_factor(float mean, float epsilon)
{
    return mean == INFINITY ? NAN : 1.0f / sqrtf(mean + epsilon);
}

// The scale of one block of 32 in Q8 and the factor to its integers: q = rint(x · *inverse), to nearest even.
// Where *inverse is 0, q is 0 whatever x is (select: x may be inf or NaN).
static inline float q8_scale(const float *x, float *inverse)
{
    uint32_t amax = 0; // bits of the largest magnitude; NaN and inf are the largest
    for (int i = 0; i < 32; i++) {
        uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
        amax = bits > amax ? bits : amax;
    }
    *inverse = 0.0f;
    if (amax >= 0x7f800000u)
        return float_from_bits(0x7fc00000u);
    if (amax < 0x04800000u) // 2^-118: 127/amax could overflow
        return 0.0f;
    *inverse = 127.0f / float_from_bits(amax);
    return float_from_bits(amax) / 127.0f;
}

// One block of 32 to Q8: q[32], the return value is d.
static inline float q8_block(const float *x, int8_t *q)
{
    float inverse;
    float d = q8_scale(x, &inverse);
    for (int i = 0; i < 32; i++) {
        // |x · inverse| < 127.5, so that adding 1.5 · 2^23 rounds it to nearest even (as cvtps2dq, rint and fcvtns do).
        float shifted = x[i] * inverse + 0x1.8p23f;
        q[i] = inverse == 0.0f ? 0 : (int8_t)(float_bits(shifted) & 0xff);
    }
    return d;
}

// Half to float, exact, without a table: the exponent is moved by a multiplication, which also makes subnormals right.
static inline float half_value(uint16_t half)
{
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    uint32_t bits =
        magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : float_bits(float_from_bits(magnitude) * 0x1p112f);
    return float_from_bits(bits | (uint32_t)(half & 0x8000) << 16);
}

static inline float bfloat_value(uint16_t bfloat)
{
    return float_from_bits((uint32_t)bfloat << 16);
}

// The range exponent of values rounded to half: the least e ≥ 0 for which the largest magnitude · 2^-e does not round
// to infinity. amax: its bits. 0 where it is inf or NaN: such values are not scaled.
static inline int32_t half_exponent(uint32_t amax)
{
    if (amax >= 0x7f800000u)
        return 0;
    int32_t e = (int32_t)((amax + 0x1000) >> 23) - 142;
    return e > 0 ? e : 0;
}

static inline uint32_t amax_bits(const float *x, size_t n)
{
    uint32_t amax = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
        amax = bits > amax ? bits : amax;
    }
    return amax;
}

#endif

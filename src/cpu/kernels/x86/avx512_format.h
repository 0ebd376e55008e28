// One grain (32 elements of K) of 16 rows in registers, for each block format: what avx512_matvec.c multiplies and
// avx512_unpack.c stores. A format is two functions: the k group's bytes, and its scales. cpu/packed.h has the layouts.
#ifndef MOTE_CPU_KERNELS_X86_AVX512_FORMAT_H
#define MOTE_CPU_KERNELS_X86_AVX512_FORMAT_H

#include "avx512.h"

struct grain_scales {
    __m512 scale;    // what multiplies dx · isum
    __m512 min;      // MIN32: what multiplies sx, subtracted; MIN16: dmin
    __m512i sub[2];  // SCALING_16, MIN16: sub-scales of the halves, int32
    __m512i sub_min; // MIN16: sub-minimums of the halves, a pair of int16 a row
};

// unit: the packed unit; super: the values of its super-block (formats that have none ignore it).
typedef __m512i grain_group(const uint8_t *unit, int group); // group 0 … 7: [16 rows][4 k], unsigned
typedef void grain_read_scales(const uint8_t *unit, const uint8_t *super, struct grain_scales *scales);

// ---- groups ----

static ALWAYS_INLINE __m512i grain_nibbles(const uint8_t *nibbles, int group)
{
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i v = _mm512_loadu_si512(nibbles + (size_t)(group % 4) * 64);
    return _mm512_and_si512(group < 4 ? v : avx512_shift_right_16(v, 4), mask);
}

// Bit `group` of every byte, moved to bit `to`; other bits are rubbish.
static ALWAYS_INLINE __m512i grain_high_bit(const uint8_t *bits, int group, int to)
{
    __m512i v = _mm512_loadu_si512(bits);
    return group <= to ? avx512_shift_left_16(v, to - group) : avx512_shift_right_16(v, group - to);
}

// The two bits of the group, moved to bit `to`; other bits are rubbish.
static ALWAYS_INLINE __m512i grain_two_bits(const uint8_t *bits, int group, int to)
{
    __m512i v = _mm512_loadu_si512(bits + (size_t)(group / 4) * 64);
    int at = 2 * (group % 4);
    return at <= to ? avx512_shift_left_16(v, to - at) : avx512_shift_right_16(v, at - to);
}

static ALWAYS_INLINE __m512i q4_0_group(const uint8_t *unit, int group)
{
    return grain_nibbles(unit + 32, group);
}

static ALWAYS_INLINE __m512i q4_1_group(const uint8_t *unit, int group)
{
    return grain_nibbles(unit + 64, group);
}

static ALWAYS_INLINE __m512i q5_0_group(const uint8_t *unit, int group)
{
    return avx512_or_masked(grain_nibbles(unit + 32, group), grain_high_bit(unit + 288, group, 4),
                            _mm512_set1_epi8(16));
}

static ALWAYS_INLINE __m512i q5_1_group(const uint8_t *unit, int group)
{
    return avx512_or_masked(grain_nibbles(unit + 64, group), grain_high_bit(unit + 320, group, 4),
                            _mm512_set1_epi8(16));
}

static ALWAYS_INLINE __m512i q8_0_group(const uint8_t *unit, int group)
{
    return _mm512_loadu_si512(unit + 32 + (size_t)group * 64);
}

static ALWAYS_INLINE __m512i q2_k_group(const uint8_t *unit, int group)
{
    return _mm512_and_si512(grain_two_bits(unit + 32, group, 0), _mm512_set1_epi8(3));
}

static ALWAYS_INLINE __m512i q3_k_group(const uint8_t *unit, int group)
{
    __m512i low = _mm512_and_si512(grain_two_bits(unit + 32, group, 0), _mm512_set1_epi8(3));
    return avx512_or_masked(low, grain_high_bit(unit + 160, group, 2), _mm512_set1_epi8(4));
}

static ALWAYS_INLINE __m512i q4_k_group(const uint8_t *unit, int group)
{
    return grain_nibbles(unit + 32, group);
}

static ALWAYS_INLINE __m512i q5_k_group(const uint8_t *unit, int group)
{
    return avx512_or_masked(grain_nibbles(unit + 32, group), grain_high_bit(unit + 288, group, 4),
                            _mm512_set1_epi8(16));
}

static ALWAYS_INLINE __m512i q6_k_group(const uint8_t *unit, int group)
{
    return avx512_or_masked(grain_nibbles(unit + 32, group), grain_two_bits(unit + 288, group, 4),
                            _mm512_set1_epi8(48));
}

static ALWAYS_INLINE __m512i mxfp4_group(const uint8_t *unit, int group)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_setr_epi8(MXFP4_CODES)), grain_nibbles(unit + 16, group));
}

// ---- scales ----

// d f16[16]: Q4_0, Q5_0, Q8_0
static ALWAYS_INLINE void d_scales(const uint8_t *unit, const uint8_t *super, struct grain_scales *scales)
{
    (void)super;
    scales->scale = avx512_load_half(unit);
}

// exponent u8[16]: MXFP4, 2^(e - 128). (e + 1) << 21 is right for 0 and 1, (e - 1) << 23 from 2 on; each is the greater
// there.
static ALWAYS_INLINE void exponent_scales(const uint8_t *unit, const uint8_t *super, struct grain_scales *scales)
{
    (void)super;
    const __m512i e = avx512_load_u8(unit), one = _mm512_set1_epi32(1);
    const __m512i subnormal = _mm512_slli_epi32(_mm512_add_epi32(e, one), 21);
    scales->scale = _mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(_mm512_sub_epi32(e, one), 23), subnormal));
}

// d f16[16], m f16[16]: Q4_1, Q5_1. The formats add m; the contract subtracts the minimum.
static ALWAYS_INLINE void dm_scales(const uint8_t *unit, const uint8_t *super, struct grain_scales *scales)
{
    (void)super;
    scales->scale = avx512_load_half(unit);
    scales->min = _mm512_xor_ps(avx512_load_half(unit + 32), _mm512_set1_ps(-0.0f));
}

// scale u8[16], min u8[16]; super d, dmin: Q4_K, Q5_K
static ALWAYS_INLINE void k_min_scales(const uint8_t *unit, const uint8_t *super, struct grain_scales *scales)
{
    scales->scale = _mm512_mul_ps(avx512_load_half(super), _mm512_cvtepi32_ps(avx512_load_u8(unit)));
    scales->min = _mm512_mul_ps(avx512_load_half(super + 32), _mm512_cvtepi32_ps(avx512_load_u8(unit + 16)));
}

// sub-scale i8[2][16]; super d: Q3_K, Q6_K
static ALWAYS_INLINE void k_sub_scales(const uint8_t *unit, const uint8_t *super, struct grain_scales *scales)
{
    scales->scale = avx512_load_half(super);
    scales->sub[0] = avx512_load_i8(unit);
    scales->sub[1] = avx512_load_i8(unit + 16);
}

// (scale | min << 4) u8[2][16]; super d, dmin: Q2_K
static ALWAYS_INLINE void k_sub_min_scales(const uint8_t *unit, const uint8_t *super, struct grain_scales *scales)
{
    const __m512i mask = _mm512_set1_epi32(15);
    __m512i first = avx512_load_u8(unit);
    __m512i second = avx512_load_u8(unit + 16);
    scales->scale = avx512_load_half(super);
    scales->min = avx512_load_half(super + 32);
    scales->sub[0] = _mm512_and_si512(first, mask);
    scales->sub[1] = _mm512_and_si512(second, mask);
    scales->sub_min =
        avx512_or_masked(_mm512_srli_epi32(first, 4), _mm512_slli_epi32(second, 12), _mm512_set1_epi32(0xf0000));
}

#endif

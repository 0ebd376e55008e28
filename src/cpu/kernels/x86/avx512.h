// What the AVX-512 kernels share. Every kernel here gives the bits of the C reference (src/cpu/kernels/c): lanes are
// outputs, so the only freedom taken is in exact integer sums and in doing independent chains side by side.
#ifndef MOTE_CPU_KERNELS_X86_AVX512_H
#define MOTE_CPU_KERNELS_X86_AVX512_H

#include "base/fpenv.h"
#include "cpu/kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

// The kernels are templates: one body, specialised by constant arguments (format, tokens a tile).
#define ALWAYS_INLINE inline __attribute__((always_inline))

// Unrolls the loop that follows, whose trip count is a constant of at most 16 once inlined.
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// Shifts by a count that need not be an immediate where nothing is inlined (debug builds).
typedef uint16_t u16x32 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));

static ALWAYS_INLINE __m512i avx512_shift_left_16(__m512i v, int count)
{
    return (__m512i)((u16x32)v << (uint16_t)count);
}

static ALWAYS_INLINE __m512i avx512_shift_right_16(__m512i v, int count)
{
    return (__m512i)((u16x32)v >> (uint16_t)count);
}

// a | (b & mask)
static ALWAYS_INLINE __m512i avx512_or_masked(__m512i a, __m512i b, __m512i mask)
{
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

// 16 halves as floats.
static ALWAYS_INLINE __m512 avx512_load_half(const void *halves)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(halves));
}

// 16 unsigned or signed bytes as integers.
static ALWAYS_INLINE __m512i avx512_load_u8(const void *bytes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes));
}

static ALWAYS_INLINE __m512i avx512_load_i8(const void *bytes)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes));
}

// The same 4 bytes (or the float, or the pair of 16-bit values) in every lane.
static ALWAYS_INLINE __m512i avx512_broadcast_32(const void *bytes)
{
    int value;
    memcpy(&value, bytes, sizeof(value));
    return _mm512_set1_epi32(value);
}

// Lanes of the first count of 16.
static ALWAYS_INLINE __mmask16 avx512_mask_16(size_t count)
{
    return count >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << count) - 1);
}

// The size of the next tile where n remain and at most `most` fit: nearly equal ones, 7 as 4 + 3 and not 6 + 1.
static ALWAYS_INLINE size_t avx512_tile_size(size_t n, size_t most)
{
    size_t tiles = (n + most - 1) / most;
    return (n + tiles - 1) / tiles;
}

// The partial sums of up to 8 segments, added in the contract's order; the usual 8 without a loop. May change them.
static ALWAYS_INLINE __m512 avx512_tree(__m512 *partial, uint32_t n, size_t stride)
{
    if (n == MAX_SEGMENTS) {
        __m512 pair[MAX_SEGMENTS / 2];
        UNROLL
        for (size_t i = 0; i < MAX_SEGMENTS / 2; i++)
            pair[i] = _mm512_add_ps(partial[2 * i * stride], partial[(2 * i + 1) * stride]);
        return _mm512_add_ps(_mm512_add_ps(pair[0], pair[1]), _mm512_add_ps(pair[2], pair[3]));
    }
    for (uint32_t step = 1; step < n; step *= 2)
        for (uint32_t i = 0; i + step < n; i += 2 * step)
            partial[i * stride] = _mm512_add_ps(partial[i * stride], partial[(i + step) * stride]);
    return partial[0];
}

// The segments' sums of `count` tokens as they are. Apart from its caller, whose usual way is the tree.
static __attribute__((noinline, unused)) void avx512_store_parts(const __m512 *partial, uint32_t n, size_t stride,
                                                                 size_t count, float *y, size_t y_stride,
                                                                 size_t part_stride)
{
    for (size_t t = 0; t < count; t++)
        for (uint32_t s = 0; s < n; s++)
            _mm512_storeu_ps(y + t * y_stride + s * part_stride, partial[s * stride + t]);
}

// Writes the 16 outputs of `count` tokens, partial[segment * stride + token]: the tree over the n segments, or where
// part_stride is not 0 each segment as it is, that far apart.
static ALWAYS_INLINE void avx512_store_sums(__m512 *partial, uint32_t n, size_t stride, size_t count, float *y,
                                            size_t y_stride, size_t part_stride)
{
    if (part_stride != 0) {
        avx512_store_parts(partial, n, stride, count, y, y_stride, part_stride);
        return;
    }
    for (size_t t = 0; t < count; t++)
        _mm512_storeu_ps(y + t * y_stride, avx512_tree(partial + t, n, stride));
}

#endif

// The integer product of one panel and a tile of tokens: the micro-kernel under matvec_q8 (one token, weights unpacked
// as they are read) and gemm_q8 (several tokens, weights unpacked before). 16 rows are the lanes; a tile keeps one F32
// accumulator a token in registers over a segment of K, and the segments' sums on the stack for the tree.
#ifndef MOTE_CPU_KERNELS_X86_AVX512_DOT_H
#define MOTE_CPU_KERNELS_X86_AVX512_DOT_H

#include "avx512_format.h"

enum {
    DOT_TOKENS = 12,          // the most tokens of a tile: 12 sums and 12 accumulators fill the registers
    DOT_HALF_TOKENS = 8,      // the same where the halves of a grain have sums of their own
    DOT_FEW = 3,              // tokens that leave registers for a second chain each
    DOT_CHUNK = 32,           // grains whose per-token values are prepared at a time
    DOT_PREFETCH_NEAR = 2048, // bytes ahead, to the first level of cache
    DOT_PREFETCH_FAR = 16384, // bytes ahead, to the second: the hardware's own prefetch stops at pages
};

// Where the weights come from: packed units, or an unpacked panel.
struct dot_weight {
    grain_group *group;
    grain_read_scales *read_scales; // NULL: unpacked
    const struct unpacked_q8 *unpacked;
    const uint8_t *units;
    size_t unit_bytes;
    const uint8_t *supers;
    size_t super_units; // 0: no super-blocks
    size_t super_bytes;
    size_t super_offset; // units
};

// What each grain of a token brings besides its bytes.
struct dot_token {
    float d[DOT_CHUNK];
    union {
        float sum[DOT_CHUNK];          // MIN32: d · Σq
        int32_t start[DOT_CHUNK];      // SCALING_32: -zero · Σq
        int32_t starts[2 * DOT_CHUNK]; // SCALING_16: the same for each half
    };
};

static ALWAYS_INLINE void dot_prepare_32(struct dot_token *token, const uint8_t *d, const uint8_t *sums, size_t n,
                                         enum scaling scaling, int zero)
{
    const __m512i factor = _mm512_set1_epi16((short)(scaling == SCALING_32 ? -zero : 1));
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 mask = avx512_mask_16(n - i);
        __m512 scale = _mm512_maskz_loadu_ps(mask, d + i * 4);
        _mm512_storeu_ps(token->d + i, scale);
        if (scaling == SCALING_MIN16)
            continue;
        __m512i sum = _mm512_madd_epi16(_mm512_maskz_loadu_epi32(mask, sums + i * 4), factor);
        if (scaling == SCALING_MIN32)
            _mm512_storeu_ps(token->sum + i, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)));
        else
            _mm512_storeu_si512(token->start + i, sum);
    }
}

static ALWAYS_INLINE void dot_prepare_16(struct dot_token *token, const uint8_t *d, const uint8_t *sums, size_t n,
                                         int zero)
{
    const __m512i factor = _mm512_set1_epi32((uint16_t)-zero); // the upper half of each pair: 0
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 mask = avx512_mask_16(n - i);
        _mm512_storeu_ps(token->d + i, _mm512_maskz_loadu_ps(mask, d + i * 4));
        __m512i pairs = _mm512_maskz_loadu_epi32(mask, sums + i * 4);
        __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(pairs));
        __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(pairs, 1));
        _mm512_storeu_si512(token->starts + 2 * i, _mm512_madd_epi16(low, factor));
        _mm512_storeu_si512(token->starts + 2 * i + 16, _mm512_madd_epi16(high, factor));
    }
}

static inline void dot_prepare(struct dot_token *tokens, size_t count, const uint8_t *rows, size_t row_stride, size_t k,
                               size_t begin, size_t end, enum scaling scaling, int zero)
{
    for (size_t t = 0; t < count; t++) {
        const uint8_t *d = rows + t * row_stride + k + begin * 4;
        const uint8_t *sums = rows + t * row_stride + k + k / 8 + begin * 4;
        if (scaling == SCALING_16)
            dot_prepare_16(&tokens[t], d, sums, end - begin, zero);
        else
            dot_prepare_32(&tokens[t], d, sums, end - begin, scaling, zero);
    }
}

static ALWAYS_INLINE void dot_scales(const struct dot_weight *weight, size_t grain, enum scaling scaling,
                                     struct grain_scales *scales)
{
    if (weight->read_scales) {
        const uint8_t *super = weight->supers;
        if (weight->super_units)
            super += (weight->super_offset + grain) / weight->super_units * weight->super_bytes;
        weight->read_scales(weight->units + grain * weight->unit_bytes, super, scales);
        return;
    }
    const struct unpacked_q8 *unpacked = weight->unpacked;
    scales->scale = _mm512_load_ps(unpacked->scale + grain * 16);
    if (scaling == SCALING_MIN32 || scaling == SCALING_MIN16)
        scales->min = _mm512_load_ps(unpacked->min + grain * 16);
    if (scaling == SCALING_16 || scaling == SCALING_MIN16) {
        __m512i pairs = _mm512_load_si512(unpacked->sub + grain * 32);
        scales->sub[0] = _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16);
        scales->sub[1] = _mm512_srai_epi32(pairs, 16);
    }
    if (scaling == SCALING_MIN16)
        scales->sub_min = _mm512_load_si512(unpacked->sub_min + grain * 32);
}

// Integer sums are exact, so few tokens get two chains each: one would show the latency of the dot products.
static ALWAYS_INLINE size_t dot_chains(size_t count)
{
    return count <= DOT_FEW ? 2 : 1;
}

// sum[t] += groups first … first + n - 1 of a grain, for count tokens. x: the grain's bytes of the first token.
static ALWAYS_INLINE void dot_groups(const struct dot_weight *weight, const uint8_t *unit, int first, int n,
                                     const uint8_t *x, size_t row_stride, size_t count, size_t chains, __m512i *sum)
{
    __m512i more[DOT_FEW];
    for (size_t t = 0; t < DOT_FEW; t++)
        more[t] = _mm512_setzero_si512();
    UNROLL
    for (int i = 0; i < n; i++) {
        int j = n == 8 ? i / 2 + i % 2 * 4 : first + i; // nibbles: groups j and j + 4 share a load
        __m512i q = weight->group(unit, j);
        __m512i *into = chains == 2 && i % 2 ? more : sum;
        UNROLL
        for (size_t t = 0; t < count; t++)
            into[t] = _mm512_dpbusd_epi32(into[t], q, avx512_broadcast_32(x + t * row_stride + (size_t)j * 4));
    }
    if (chains == 2)
        for (size_t t = 0; t < count; t++)
            sum[t] = _mm512_add_epi32(sum[t], more[t]);
}

// One scale for the 32, and with MIN32 one minimum.
static ALWAYS_INLINE void dot_grain_32(const struct dot_weight *weight, size_t grain, enum scaling scaling,
                                       const uint8_t *x, size_t row_stride, size_t count,
                                       const struct dot_token *tokens, size_t at, __m512 *acc)
{
    struct grain_scales scales;
    __m512i sum[DOT_TOKENS];
    UNROLL
    for (size_t t = 0; t < count; t++)
        sum[t] = scaling == SCALING_32 ? _mm512_set1_epi32(tokens[t].start[at]) : _mm512_setzero_si512();
    dot_groups(weight, weight->units + grain * weight->unit_bytes, 0, 8, x, row_stride, count, dot_chains(count), sum);
    dot_scales(weight, grain, scaling, &scales);
    UNROLL
    for (size_t t = 0; t < count; t++) {
        __m512 factor = _mm512_mul_ps(scales.scale, _mm512_set1_ps(tokens[t].d[at]));
        acc[t] = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(sum[t]), acc[t]);
        if (scaling == SCALING_MIN32)
            acc[t] = _mm512_fnmadd_ps(scales.min, _mm512_set1_ps(tokens[t].sum[at]), acc[t]);
    }
}

// Two integer sub-scales. (float)(sub0 · half0 + sub1 · half1) is computed in F32: each product is below 2^24, so only
// the last addition rounds, as the conversion of the exact integer would.
static ALWAYS_INLINE void dot_grain_16(const struct dot_weight *weight, size_t grain, enum scaling scaling,
                                       const uint8_t *x, size_t row_stride, size_t count,
                                       const struct dot_token *tokens, size_t at, const uint8_t *sums, __m512 *acc)
{
    struct grain_scales scales;
    __m512i half[DOT_HALF_TOKENS];
    __m512 sum[DOT_HALF_TOKENS];
    dot_scales(weight, grain, scaling, &scales);
    UNROLL
    for (int h = 0; h < 2; h++) {
        UNROLL
        for (size_t t = 0; t < count; t++)
            half[t] = scaling == SCALING_16 ? _mm512_set1_epi32(tokens[t].starts[2 * at + (size_t)h])
                                            : _mm512_setzero_si512();
        dot_groups(weight, weight->units + grain * weight->unit_bytes, 4 * h, 4, x, row_stride, count, 1, half);
        __m512 sub = _mm512_cvtepi32_ps(scales.sub[h]);
        UNROLL
        for (size_t t = 0; t < count; t++) {
            __m512 value = _mm512_cvtepi32_ps(half[t]);
            sum[t] = h ? _mm512_fmadd_ps(sub, value, sum[t]) : _mm512_mul_ps(sub, value);
        }
    }
    UNROLL
    for (size_t t = 0; t < count; t++) {
        __m512 d = _mm512_set1_ps(tokens[t].d[at]);
        acc[t] = _mm512_fmadd_ps(_mm512_mul_ps(scales.scale, d), sum[t], acc[t]);
        if (scaling == SCALING_MIN16) {
            __m512i pair = avx512_broadcast_32(sums + t * row_stride);
            __m512i minimum = _mm512_dpwssd_epi32(_mm512_setzero_si512(), scales.sub_min, pair);
            acc[t] = _mm512_fnmadd_ps(_mm512_mul_ps(scales.min, d), _mm512_cvtepi32_ps(minimum), acc[t]);
        }
    }
}

// Asks for the units that come next; panels follow each other, so this reaches into the next one, and beyond the last:
// a prefetch never faults.
static ALWAYS_INLINE void dot_prefetch(const uint8_t *unit, size_t unit_bytes)
{
    const uintptr_t near = (uintptr_t)unit + DOT_PREFETCH_NEAR, far = (uintptr_t)unit + DOT_PREFETCH_FAR;
    UNROLL
    for (size_t i = 0; i < unit_bytes; i += 64) {
        _mm_prefetch((const char *)(near + i), _MM_HINT_T0);
        _mm_prefetch((const char *)(far + i), _MM_HINT_T1);
    }
}

// y[t * y_stride + 0 … 15] for count tokens, count a constant; the segments apart where part_stride is not 0.
static ALWAYS_INLINE void dot_tile(const struct dot_weight *weight, enum scaling scaling, int zero, size_t count,
                                   const struct segments *segments, size_t k, const uint8_t *rows, size_t row_stride,
                                   float *y, size_t y_stride, size_t part_stride)
{
    struct dot_token tokens[DOT_TOKENS];
    __m512 partial[MAX_SEGMENTS][DOT_TOKENS];
    size_t n = k / 32;
    size_t begin = 0, end = 0; // the chunk of grains that tokens holds
    size_t grain = 0;
    for (uint32_t s = 0; s < segments->n; s++) {
        __m512 acc[DOT_TOKENS];
        UNROLL
        for (size_t t = 0; t < count; t++)
            acc[t] = _mm512_setzero_ps();
        size_t last = segments->border[s + 1];
        while (grain < last) {
            if (grain == end) {
                begin = end;
                end = n - begin < DOT_CHUNK ? n : begin + DOT_CHUNK;
                dot_prepare(tokens, count, rows, row_stride, k, begin, end, scaling, zero);
            }
            size_t stop = last < end ? last : end;
            for (; grain < stop; grain++) {
                const uint8_t *x = rows + grain * 32;
                if (weight->read_scales)
                    dot_prefetch(weight->units + grain * weight->unit_bytes, weight->unit_bytes);
                if (scaling == SCALING_32 || scaling == SCALING_MIN32)
                    dot_grain_32(weight, grain, scaling, x, row_stride, count, tokens, grain - begin, acc);
                else
                    dot_grain_16(weight, grain, scaling, x, row_stride, count, tokens, grain - begin,
                                 rows + k + k / 8 + grain * 4, acc);
            }
        }
        UNROLL
        for (size_t t = 0; t < count; t++)
            partial[s][t] = acc[t];
    }
    avx512_store_sums(&partial[0][0], segments->n, DOT_TOKENS, count, y, y_stride, part_stride);
}

#endif

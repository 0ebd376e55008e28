// What the AVX2 kernels share: how a unit of each block format is loaded, integer dot products without saturation, the
// tree of segments. A register holds 8 rows × 4 consecutive k; a panel of 16 rows is two halves.
//
// Without VNNI a dot product is vpmaddubsw (u8 × i8, pairs in i16) and vpmaddwd (pairs of i16 in i32). The first
// saturates, so it is used only where it cannot: q ≤ 63 gives at most 2 · 63 · 127 = 16002 a pair. Sums of several
// groups stay in i16 while they fit: `run` groups, 8 for q ≤ 15 (30480), 4 for q ≤ 31 (31496), 2 for q ≤ 63 (32004).
// Bytes of full range (Q8_0) take |w| as u8 times x with w's sign: at most 2 · 128 · 127 = 32512, one group a run.
#ifndef MOTE_CPU_KERNELS_X86_AVX2_H
#define MOTE_CPU_KERNELS_X86_AVX2_H

#include "cpu/kernels/kernels.h"

#include <immintrin.h>

#define AVX2_INLINE static inline __attribute__((always_inline))

// Before a loop of constant length over registers: it must disappear.
#ifdef __clang__
#define AVX2_UNROLL _Pragma("clang loop unroll(full)")
#else
#define AVX2_UNROLL _Pragma("GCC unroll 8")
#endif

enum {
    AVX2_PREFETCH = 4096, // bytes
    AVX2_GROUPS = 8,      // groups of 4 k in a unit of 32
    AVX2_RUN_SIGNED = 1,  // the run of full bytes, which take the signed path
    AVX2_RUN_6BIT = 2,
    AVX2_RUN_5BIT = 4,
    AVX2_RUN_4BIT = 8,
    AVX2_RUN_HALF = 4, // 3 bits or less, with sub-scales: a run ends with its half block
};

// A unit of 8 rows.
struct avx2_unit {
    __m256i q[AVX2_GROUPS]; // u8 [8 rows][4 k], the zero point not subtracted
    __m256 scale;           // d, or d · scale where a sub-block has 32 elements
    __m256 min;             // m, or dmin where sub-minimums are integers
    __m256i sub;            // i16 [8 rows][2 halves]
    __m256i sub_min;        // i16 [8 rows][2 halves]
};

typedef struct avx2_unit avx2_load(const uint8_t *unit, const uint8_t *super, int half);

// Decoding streams weights once: asks for the lines that a few thousand bytes of work later will be read. The address
// may lie beyond the weights: a prefetch never faults.
AVX2_INLINE void avx2_prefetch(const uint8_t *at, size_t bytes)
{
    const uintptr_t ahead = (uintptr_t)at + AVX2_PREFETCH;
    for (size_t line = 0; line < bytes; line += 64)
        _mm_prefetch((const char *)(ahead + line), _MM_HINT_T0);
}

AVX2_INLINE __m256i avx2_load32(const void *bytes)
{
    return _mm256_loadu_si256((const __m256i *)bytes);
}

AVX2_INLINE __m256 avx2_load_half8(const void *halves)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves));
}

AVX2_INLINE __m256 avx2_load_u8(const uint8_t *bytes) // 8 bytes as floats
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes)));
}

AVX2_INLINE __m256i avx2_broadcast4(const void *four_bytes)
{
    int32_t value;
    __builtin_memcpy(&value, four_bytes, sizeof value);
    return _mm256_set1_epi32(value);
}

// ---- the parts of a unit ----

// Shifts the bits left (by > 0) or right, and keeps those in mask; mask never admits a bit of the neighbouring byte.
AVX2_INLINE __m256i avx2_bits(__m256i v, int by, char mask)
{
    const __m256i shifted = by >= 0 ? _mm256_slli_epi16(v, by) : _mm256_srli_epi16(v, -by);
    return _mm256_and_si256(shifted, _mm256_set1_epi8(mask));
}

AVX2_INLINE void avx2_nibbles(const uint8_t *nibbles, int half, __m256i q[AVX2_GROUPS])
{
    AVX2_UNROLL
    for (int j = 0; j < 4; j++) {
        const __m256i v = avx2_load32(nibbles + 64 * j + 32 * half);
        q[j] = avx2_bits(v, 0, 15);
        q[j + 4] = avx2_bits(v, -4, 15);
    }
}

AVX2_INLINE void avx2_two_bits(const uint8_t *pairs, int half, __m256i q[AVX2_GROUPS])
{
    AVX2_UNROLL
    for (int g = 0; g < AVX2_GROUPS; g++)
        q[g] = avx2_bits(avx2_load32(pairs + 64 * (g / 4) + 32 * half), -2 * (g % 4), 3);
}

// Adds one bit a group at bit `at`.
AVX2_INLINE void avx2_add_high_bits(const uint8_t *high, int half, int at, __m256i q[AVX2_GROUPS])
{
    const __m256i v = avx2_load32(high + 32 * half);
    AVX2_UNROLL
    for (int g = 0; g < AVX2_GROUPS; g++)
        q[g] = _mm256_or_si256(q[g], avx2_bits(v, at - g, (char)(1 << at)));
}

// Adds two bits a group at bits 4 and 5.
AVX2_INLINE void avx2_add_high_pairs(const uint8_t *pairs, int half, __m256i q[AVX2_GROUPS])
{
    AVX2_UNROLL
    for (int g = 0; g < AVX2_GROUPS; g++) {
        const __m256i v = avx2_load32(pairs + 64 * (g / 4) + 32 * half);
        q[g] = _mm256_or_si256(q[g], avx2_bits(v, 4 - 2 * (g % 4), 0x30));
    }
}

// Bytes [2 halves of the block][16 rows] as pairs [8 rows][2].
AVX2_INLINE __m128i avx2_load_pairs(const uint8_t *bytes, int half)
{
    return _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(bytes + 8 * half)),
                             _mm_loadl_epi64((const __m128i *)(bytes + 16 + 8 * half)));
}

// ---- one loader a format: cpu/packed.h has the layouts ----

AVX2_INLINE struct avx2_unit avx2_load_q4_0(const uint8_t *unit, const uint8_t *super, int half)
{
    (void)super;
    struct avx2_unit u = {.scale = avx2_load_half8(unit + 16 * half)};
    avx2_nibbles(unit + 32, half, u.q);
    return u;
}

AVX2_INLINE __m256 avx2_load_negative_half8(const uint8_t *halves) // these formats add m: the minimum is -m
{
    return _mm256_xor_ps(avx2_load_half8(halves), _mm256_set1_ps(-0.0f));
}

AVX2_INLINE struct avx2_unit avx2_load_q4_1(const uint8_t *unit, const uint8_t *super, int half)
{
    struct avx2_unit u = avx2_load_q4_0(unit, super, half);
    u.min = avx2_load_negative_half8(unit + 32 + 16 * half);
    avx2_nibbles(unit + 64, half, u.q);
    return u;
}

AVX2_INLINE struct avx2_unit avx2_load_q5_0(const uint8_t *unit, const uint8_t *super, int half)
{
    struct avx2_unit u = avx2_load_q4_0(unit, super, half);
    avx2_add_high_bits(unit + 288, half, 4, u.q);
    return u;
}

AVX2_INLINE struct avx2_unit avx2_load_q5_1(const uint8_t *unit, const uint8_t *super, int half)
{
    struct avx2_unit u = avx2_load_q4_1(unit, super, half);
    avx2_add_high_bits(unit + 320, half, 4, u.q);
    return u;
}

AVX2_INLINE struct avx2_unit avx2_load_q8_0(const uint8_t *unit, const uint8_t *super, int half)
{
    (void)super;
    struct avx2_unit u = {.scale = avx2_load_half8(unit + 16 * half)};
    AVX2_UNROLL
    for (int g = 0; g < AVX2_GROUPS; g++)
        u.q[g] = avx2_load32(unit + 32 + 64 * g + 32 * half);
    return u;
}

AVX2_INLINE struct avx2_unit avx2_load_q2_k(const uint8_t *unit, const uint8_t *super, int half)
{
    const __m256i both = _mm256_cvtepu8_epi16(avx2_load_pairs(unit, half)); // scale | min << 4
    struct avx2_unit u = {.scale = avx2_load_half8(super + 16 * half),
                          .min = avx2_load_half8(super + 32 + 16 * half),
                          .sub = _mm256_and_si256(both, _mm256_set1_epi16(15)),
                          .sub_min = _mm256_srli_epi16(both, 4)};
    avx2_two_bits(unit + 32, half, u.q);
    return u;
}

AVX2_INLINE struct avx2_unit avx2_load_q3_k(const uint8_t *unit, const uint8_t *super, int half)
{
    struct avx2_unit u = {.scale = avx2_load_half8(super + 16 * half),
                          .sub = _mm256_cvtepi8_epi16(avx2_load_pairs(unit, half))};
    avx2_two_bits(unit + 32, half, u.q);
    avx2_add_high_bits(unit + 160, half, 2, u.q);
    return u;
}

AVX2_INLINE struct avx2_unit avx2_load_q4_k(const uint8_t *unit, const uint8_t *super, int half)
{
    struct avx2_unit u = {
        .scale = _mm256_mul_ps(avx2_load_half8(super + 16 * half), avx2_load_u8(unit + 8 * half)),
        .min = _mm256_mul_ps(avx2_load_half8(super + 32 + 16 * half), avx2_load_u8(unit + 16 + 8 * half))};
    avx2_nibbles(unit + 32, half, u.q);
    return u;
}

AVX2_INLINE struct avx2_unit avx2_load_q5_k(const uint8_t *unit, const uint8_t *super, int half)
{
    struct avx2_unit u = avx2_load_q4_k(unit, super, half);
    avx2_add_high_bits(unit + 288, half, 4, u.q);
    return u;
}

AVX2_INLINE struct avx2_unit avx2_load_q6_k(const uint8_t *unit, const uint8_t *super, int half)
{
    struct avx2_unit u = {.scale = avx2_load_half8(super + 16 * half),
                          .sub = _mm256_cvtepi8_epi16(avx2_load_pairs(unit, half))};
    avx2_nibbles(unit + 32, half, u.q);
    avx2_add_high_pairs(unit + 288, half, u.q);
    return u;
}

AVX2_INLINE __m256 avx2_load_exponent8(const uint8_t *exponents) // 2^(e - 128): see mxfp4_scale
{
    // (e + 1) << 21 is right for 0 and 1, (e - 1) << 23 from 2 on; each is the greater there.
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)exponents)), one = _mm256_set1_epi32(1);
    const __m256i subnormal = _mm256_slli_epi32(_mm256_add_epi32(e, one), 21);
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(_mm256_sub_epi32(e, one), 23), subnormal));
}

AVX2_INLINE struct avx2_unit avx2_load_mxfp4(const uint8_t *unit, const uint8_t *super, int half)
{
    (void)super;
    const __m256i codes = _mm256_broadcastsi128_si256(_mm_setr_epi8(MXFP4_CODES));
    struct avx2_unit u = {.scale = avx2_load_exponent8(unit + 8 * half)};
    avx2_nibbles(unit + 16, half, u.q);
    AVX2_UNROLL
    for (int g = 0; g < AVX2_GROUPS; g++)
        u.q[g] = _mm256_shuffle_epi8(codes, u.q[g]);
    return u;
}

// Every block format: name, kind, scaling, run, zero point. Makes the instances of each template.
#define AVX2_BLOCK_FORMATS(X)                                                                                          \
    X(q4_0, PACKED_Q4_0, SCALING_32, AVX2_RUN_4BIT, 8)                                                                 \
    X(q4_1, PACKED_Q4_1, SCALING_MIN32, AVX2_RUN_4BIT, 0)                                                              \
    X(q5_0, PACKED_Q5_0, SCALING_32, AVX2_RUN_5BIT, 16)                                                                \
    X(q5_1, PACKED_Q5_1, SCALING_MIN32, AVX2_RUN_5BIT, 0)                                                              \
    X(q8_0, PACKED_Q8_0, SCALING_32, AVX2_RUN_SIGNED, 128)                                                             \
    X(q2_k, PACKED_Q2_K, SCALING_MIN16, AVX2_RUN_HALF, 0)                                                              \
    X(q3_k, PACKED_Q3_K, SCALING_16, AVX2_RUN_HALF, 4)                                                                 \
    X(q4_k, PACKED_Q4_K, SCALING_MIN32, AVX2_RUN_4BIT, 0)                                                              \
    X(q5_k, PACKED_Q5_K, SCALING_MIN32, AVX2_RUN_5BIT, 0)                                                              \
    X(q6_k, PACKED_Q6_K, SCALING_16, AVX2_RUN_6BIT, 32)                                                                \
    X(mxfp4, PACKED_MXFP4, SCALING_32, AVX2_RUN_5BIT, MXFP4_ZERO)

// Every plain type: name, kind, bytes of an element.
#define AVX2_PLAIN_FORMATS(X) X(f32, PACKED_F32, 4) X(f16, PACKED_F16, 2) X(bf16, PACKED_BF16, 2)

typedef __m256 avx2_load_plain(const uint8_t *elements);

AVX2_INLINE __m256 avx2_load_f32(const uint8_t *elements)
{
    return _mm256_castsi256_ps(avx2_load32(elements));
}

AVX2_INLINE __m256 avx2_load_f16(const uint8_t *elements)
{
    return avx2_load_half8(elements);
}

AVX2_INLINE __m256 avx2_load_bf16(const uint8_t *elements)
{
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)elements));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

// Where the parts of a panel of a block format lie.
struct avx2_panel {
    const uint8_t *units;
    const uint8_t *supers;
};

AVX2_INLINE struct avx2_panel avx2_panel_at(const struct packed *weight, size_t panel)
{
    const uint8_t *units = weight->data + panel * weight->panel_bytes;
    return (struct avx2_panel){units, units + weight->k / 32 * weight->format->unit_bytes};
}

AVX2_INLINE const uint8_t *avx2_super_of(const struct packed *weight, struct avx2_panel panel, size_t unit)
{
    return panel.supers + (unit + weight->super_offset) / 8 * weight->format->super_bytes;
}

// One half block's part of [8 rows][2 halves], as i32.
AVX2_INLINE __m256i avx2_half_of(__m256i sub, int half_block)
{
    return _mm256_srai_epi32(half_block ? sub : _mm256_slli_epi32(sub, 16), 16);
}

AVX2_INLINE bool avx2_scaling_has_sub(enum scaling scaling)
{
    return scaling == SCALING_16 || scaling == SCALING_MIN16;
}

// The exact values of 8 rows at k = 4 · group + j: scale · (q - zero) - min, each product rounded, no FMA.
AVX2_INLINE __m256 avx2_value(const struct avx2_unit *unit, int group, int j, enum scaling scaling, int zero)
{
    __m256i q = _mm256_and_si256(_mm256_srli_epi32(unit->q[group], 8 * j), _mm256_set1_epi32(255));
    if (zero != 0)
        q = _mm256_sub_epi32(q, _mm256_set1_epi32(zero));
    __m256 scale = unit->scale;
    if (avx2_scaling_has_sub(scaling))
        scale = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(avx2_half_of(unit->sub, group >= AVX2_GROUPS / 2)));
    const __m256 value = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(q));
    if (scaling == SCALING_MIN32)
        return _mm256_sub_ps(value, unit->min);
    if (scaling == SCALING_MIN16) {
        const __m256 by = _mm256_cvtepi32_ps(avx2_half_of(unit->sub_min, group >= AVX2_GROUPS / 2));
        return _mm256_sub_ps(value, _mm256_mul_ps(unit->min, by));
    }
    return value;
}

// ---- integer sums ----

// The products of one group, pairs in i16. Signed: q is w + 128, and w = -128 is |w| = 128 as u8.
AVX2_INLINE __m256i avx2_products(__m256i q, __m256i x, bool is_signed)
{
    if (!is_signed)
        return _mm256_maddubs_epi16(q, x);
    const __m256i w = _mm256_xor_si256(q, _mm256_set1_epi8(-128));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

// Sub-scales [8 rows][2 halves] → what multiplies the products of one half block: [8 rows][2 equal].
AVX2_INLINE __m256i avx2_spread(__m256i sub, int half_block)
{
    const __m256i low = _mm256_set1_epi64x(0x0504050401000100), high = _mm256_set1_epi64x(0x0706070603020302);
    const __m256i rows = _mm256_set_epi64x(0x0808080808080808, 0, 0x0808080808080808, 0);
    return _mm256_shuffle_epi8(sub, _mm256_add_epi8(half_block ? high : low, rows));
}

// What the zero point adds to isum. sums: the two sums of x's half blocks as i16, in every lane.
AVX2_INLINE __m256i avx2_zero_term(enum scaling scaling, int zero, __m256i sub, __m256i sums)
{
    const __m256i by = _mm256_set1_epi16((short)zero);
    return _mm256_madd_epi16(avx2_scaling_has_sub(scaling) ? _mm256_mullo_epi16(sub, by) : by, sums);
}

// One more block of 32 in the chain of a segment.
AVX2_INLINE __m256 avx2_accumulate(enum scaling scaling, __m256 acc, __m256i isum, __m256 dx, __m256i sums,
                                   __m256 scale, __m256 min, __m256i sub_min)
{
    acc = _mm256_fmadd_ps(_mm256_mul_ps(scale, dx), _mm256_cvtepi32_ps(isum), acc);
    if (scaling == SCALING_MIN32) {
        const __m256 sum = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
        acc = _mm256_fnmadd_ps(min, _mm256_mul_ps(dx, sum), acc);
    }
    if (scaling == SCALING_MIN16) {
        const __m256 imin = _mm256_cvtepi32_ps(_mm256_madd_epi16(sub_min, sums));
        acc = _mm256_fnmadd_ps(_mm256_mul_ps(min, dx), imin, acc);
    }
    return acc;
}

// ---- segments ----

// Adds the partial sums of n segments as a tree; stride: registers between the segments of one output.
AVX2_INLINE __m256 avx2_tree(__m256 *partial, size_t stride, uint32_t n)
{
    for (uint32_t step = 1; step < n; step *= 2)
        for (uint32_t i = 0; i + step < n; i += 2 * step)
            partial[i * stride] = _mm256_add_ps(partial[i * stride], partial[(i + step) * stride]);
    return partial[0];
}

// The segments' sums of `count` tokens as they are. Apart from its caller, whose usual way is the tree.
static __attribute__((noinline, unused)) void avx2_store_parts(const __m256 *partial, size_t stride, uint32_t n,
                                                               size_t count, float *y, size_t y_stride,
                                                               size_t part_stride)
{
    for (size_t i = 0; i < 2 * count; i++)
        for (uint32_t s = 0; s < n; s++)
            _mm256_storeu_ps(y + i / 2 * y_stride + i % 2 * 8 + s * part_stride, partial[s * stride + i]);
}

// Writes the 16 outputs of `count` tokens, partial[segment * stride + 2 * token + half]: the tree over the n segments,
// or where part_stride is not 0 each segment as it is, that far apart.
AVX2_INLINE void avx2_store_sums(__m256 *partial, size_t stride, uint32_t n, size_t count, float *y, size_t y_stride,
                                 size_t part_stride)
{
    if (part_stride != 0 || n == 0) { // of no segments nothing is written
        avx2_store_parts(partial, stride, n, count, y, y_stride, part_stride);
        return;
    }
    for (size_t i = 0; i < 2 * count; i++)
        _mm256_storeu_ps(y + i / 2 * y_stride + i % 2 * 8, avx2_tree(partial + i, stride, n));
}

// ---- the kernels, by file; avx2_table.c puts them in the table ----

#define AVX2_DECLARE_BLOCK(name, kind, scaling, run, zero)                                                             \
    void avx2_matvec_q8_##name(const struct packed *weight, size_t panel, const uint8_t *row, float *y,                \
                               size_t part_stride);                                                                    \
    void avx2_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,                 \
                                size_t part_stride);                                                                   \
    void avx2_unpack_q8_##name(const struct packed *weight, size_t panel, struct unpacked_q8 *out);                    \
    void avx2_unpack_f32_##name(const struct packed *weight, size_t panel, float *out);
AVX2_BLOCK_FORMATS(AVX2_DECLARE_BLOCK)
#define AVX2_DECLARE_PLAIN(name, kind, element_bytes)                                                                  \
    void avx2_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,                 \
                                size_t part_stride);                                                                   \
    void avx2_unpack_f32_##name(const struct packed *weight, size_t panel, float *out);
AVX2_PLAIN_FORMATS(AVX2_DECLARE_PLAIN)

void avx2_gemm_q8(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows, size_t row_stride,
                  size_t n, float *y, size_t y_stride, size_t part_stride);
void avx2_gemm_f32(const struct packed *weight, const float *panel, const float *rows, size_t row_stride, size_t n,
                   float *y, size_t y_stride, size_t part_stride);

void avx2_quantize_q8(const float *x, size_t k, uint8_t *row);
void avx2_round_f16(const float *x, size_t k, const struct segments *segments, float *row);
void avx2_round_bf16(const float *x, size_t k, float *row);
void avx2_rms_norm(const float *x, const float *weight, size_t n, float epsilon, float *y);
void avx2_add(const float *a, const float *b, size_t n, float *y);
void avx2_mul(const float *a, const float *b, size_t n, float *y);
void avx2_scale(const float *x, float factor, size_t n, float *y);
void avx2_add_scaled(const float *x, float factor, size_t n, float *y);
void avx2_add_parts(const float *parts, uint32_t n_segments, float *y);
void avx2_swiglu(const float *gate, const float *up, size_t n, float *y);
void avx2_geglu(const float *gate, const float *up, size_t n, float *y);
void avx2_reglu(const float *gate, const float *up, size_t n, float *y);
void avx2_swiglu_clamped(const float *gate, const float *up, size_t n, float limit, float alpha, float *y);
void avx2_sigmoid(const float *x, size_t n, float *y);
void avx2_exp_minus(const float *x, float max, size_t n, float *y);
void avx2_rope(float *x, size_t n_rot, const float *cos_sin, bool neox);

#define AVX2_DECLARE_KV(name)                                                                                          \
    void avx2_attend_##name(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,          \
                            size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride,              \
                            float *scratch);                                                                           \
    void avx2_store_k_##name(const float *k, size_t head_dim, uint32_t position, void *page, float *scales);           \
    void avx2_store_v_##name(const float *v, size_t v_dim, uint32_t position, void *page, float *scales);
AVX2_DECLARE_KV(f32)
AVX2_DECLARE_KV(f16)
AVX2_DECLARE_KV(q8_0)
void avx2_attend_merge(float *m, float *l, float *o, float m2, float l2, const float *o2, size_t v_dim);
void avx2_attend_finish(float l, const float *o, size_t v_dim, float *y);

#endif

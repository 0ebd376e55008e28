// Products in F32: plain types, and block formats by their exact values (--precision f32). A panel's 16 rows are the
// lanes. The segments of one token are independent chains, so matvec_f32 takes one grain of each in turn: the latency
// of one chain hides behind the others.
#include "avx512_format.h"
#include "avx512_kernels.h"

// ---- the values of 16 rows at one k ----

typedef __m512 plain_load(const uint8_t *panel, size_t k);

static ALWAYS_INLINE __m512 load_f32(const uint8_t *panel, size_t k)
{
    return _mm512_load_ps(panel + k * 64);
}

static ALWAYS_INLINE __m512 load_f16(const uint8_t *panel, size_t k)
{
    return avx512_load_half(panel + k * 32);
}

static ALWAYS_INLINE __m512 load_bf16(const uint8_t *panel, size_t k)
{
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)(const void *)(panel + k * 32)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

// A grain of a block format: how its integers become values in each half.
struct grain_decoder {
    const uint8_t *unit;
    __m512 scale[2];
    __m512 min[2];
};

static ALWAYS_INLINE void decode_begin(struct grain_decoder *decoder, const struct packed *weight, const uint8_t *panel,
                                       size_t grain, grain_read_scales *read_scales, enum scaling scaling,
                                       size_t unit_bytes, size_t super_units, size_t super_bytes)
{
    struct grain_scales scales;
    const uint8_t *super = panel + weight->k / 32 * unit_bytes;
    if (super_units)
        super += (weight->super_offset + grain) / super_units * super_bytes;
    decoder->unit = panel + grain * unit_bytes;
    read_scales(decoder->unit, super, &scales);
    for (int h = 0; h < 2; h++) {
        decoder->scale[h] = scales.scale;
        decoder->min[h] = scaling == SCALING_MIN32 || scaling == SCALING_MIN16 ? scales.min : _mm512_setzero_ps();
    }
    if (scaling == SCALING_16 || scaling == SCALING_MIN16)
        for (int h = 0; h < 2; h++)
            decoder->scale[h] = _mm512_mul_ps(scales.scale, _mm512_cvtepi32_ps(scales.sub[h]));
    if (scaling == SCALING_MIN16) {
        __m512i low = _mm512_and_si512(scales.sub_min, _mm512_set1_epi32(0xffff));
        decoder->min[0] = _mm512_mul_ps(scales.min, _mm512_cvtepi32_ps(low));
        decoder->min[1] = _mm512_mul_ps(scales.min, _mm512_cvtepi32_ps(_mm512_srli_epi32(scales.sub_min, 16)));
    }
}

// Byte `byte` of a group's vector as a value.
static ALWAYS_INLINE __m512 decode_value(const struct grain_decoder *decoder, __m512i q, int group, int byte,
                                         enum scaling scaling, int zero)
{
    __m512i integer = _mm512_and_si512((__m512i)((u32x16)q >> (uint32_t)(8 * byte)), _mm512_set1_epi32(255));
    integer = _mm512_sub_epi32(integer, _mm512_set1_epi32(zero));
    __m512 value = _mm512_mul_ps(decoder->scale[group / 4], _mm512_cvtepi32_ps(integer));
    if (scaling == SCALING_MIN32 || scaling == SCALING_MIN16)
        value = _mm512_sub_ps(value, decoder->min[group / 4]);
    return value;
}

// ---- matvec_f32 ----

// The sums of a token's segments: by the powers of two that the source was divided by, then the tree or as they are.
static ALWAYS_INLINE void finish_token(const struct packed *weight, const float *row, __m512 *acc, float *y,
                                       size_t part_stride)
{
    const float *scales = row + f32_row_scales(weight->k);
    for (uint32_t s = 0; s < weight->segments.n; s++)
        acc[s] = _mm512_mul_ps(acc[s], _mm512_set1_ps(scales[s]));
    avx512_store_sums(acc, weight->segments.n, 1, 1, y, 0, part_stride);
}

static ALWAYS_INLINE uint32_t longest_segment(const struct segments *segments)
{
    uint32_t longest = 0;
    for (uint32_t s = 0; s < segments->n; s++)
        if (segments->border[s + 1] - segments->border[s] > longest)
            longest = segments->border[s + 1] - segments->border[s];
    return longest;
}

static ALWAYS_INLINE void matvec_plain(const struct packed *weight, size_t panel, const float *row, float *y,
                                       size_t part_stride, plain_load *load, size_t unit_bytes)
{
    const struct segments *segments = &weight->segments;
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    __m512 acc[MAX_SEGMENTS];
    for (int s = 0; s < MAX_SEGMENTS; s++)
        acc[s] = _mm512_setzero_ps();
    uint32_t longest = longest_segment(segments);
    for (uint32_t i = 0; i < longest; i++) {
        for (uint32_t s = 0; s < segments->n; s++) {
            size_t grain = segments->border[s] + i;
            if (grain >= segments->border[s + 1])
                continue;
            __m512 sum = acc[s];
            if (grain * 16 + 16 <= weight->k) {
                // The next panel's part, since the order in which lines are read here is no hardware's guess.
                for (size_t b = 0; b < 16 * unit_bytes; b += 64)
                    _mm_prefetch((const char *)((uintptr_t)data + weight->panel_bytes + grain * 16 * unit_bytes + b),
                                 _MM_HINT_T1);
                UNROLL
                for (size_t k = 0; k < 16; k++)
                    sum = _mm512_fmadd_ps(load(data, grain * 16 + k), _mm512_set1_ps(row[grain * 16 + k]), sum);
            } else {
                for (size_t k = grain * 16; k < weight->k; k++)
                    sum = _mm512_fmadd_ps(load(data, k), _mm512_set1_ps(row[k]), sum);
            }
            acc[s] = sum;
        }
    }
    finish_token(weight, row, acc, y, part_stride);
}

static ALWAYS_INLINE void matvec_blocks(const struct packed *weight, size_t panel, const float *row, float *y,
                                        size_t part_stride, grain_group *group, grain_read_scales *read_scales,
                                        enum scaling scaling, int zero, size_t unit_bytes, size_t super_units,
                                        size_t super_bytes)
{
    const struct segments *segments = &weight->segments;
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    __m512 acc[MAX_SEGMENTS];
    for (int s = 0; s < MAX_SEGMENTS; s++)
        acc[s] = _mm512_setzero_ps();
    uint32_t longest = longest_segment(segments);
    for (uint32_t i = 0; i < longest; i++) {
        for (uint32_t s = 0; s < segments->n; s++) {
            size_t grain = segments->border[s] + i;
            if (grain >= segments->border[s + 1])
                continue;
            struct grain_decoder decoder;
            decode_begin(&decoder, weight, data, grain, read_scales, scaling, unit_bytes, super_units, super_bytes);
            const float *x = row + grain * 32;
            __m512 sum = acc[s];
            UNROLL
            for (int j = 0; j < 8; j++) {
                __m512i q = group(decoder.unit, j);
                UNROLL
                for (int b = 0; b < 4; b++)
                    sum = _mm512_fmadd_ps(decode_value(&decoder, q, j, b, scaling, zero), _mm512_set1_ps(x[4 * j + b]),
                                          sum);
            }
            acc[s] = sum;
        }
    }
    finish_token(weight, row, acc, y, part_stride);
}

// ---- unpack_f32 ----

static ALWAYS_INLINE void unpack_plain(const struct packed *weight, size_t panel, float *out, plain_load *load)
{
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    for (size_t k = 0; k < weight->k; k++)
        _mm512_storeu_ps(out + k * PANEL_ROWS, load(data, k));
}

static ALWAYS_INLINE void unpack_blocks(const struct packed *weight, size_t panel, float *out, grain_group *group,
                                        grain_read_scales *read_scales, enum scaling scaling, int zero,
                                        size_t unit_bytes, size_t super_units, size_t super_bytes)
{
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    for (size_t grain = 0; grain < weight->k / 32; grain++) {
        struct grain_decoder decoder;
        decode_begin(&decoder, weight, data, grain, read_scales, scaling, unit_bytes, super_units, super_bytes);
        UNROLL
        for (int j = 0; j < 8; j++) {
            __m512i q = group(decoder.unit, j);
            UNROLL
            for (int b = 0; b < 4; b++)
                _mm512_storeu_ps(out + (grain * 32 + (size_t)(4 * j + b)) * PANEL_ROWS,
                                 decode_value(&decoder, q, j, b, scaling, zero));
        }
    }
}

#define PLAIN(NAME, name, unit_bytes)                                                                                  \
    void avx512_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,               \
                                  size_t part_stride)                                                                  \
    {                                                                                                                  \
        matvec_plain(weight, panel, row, y, part_stride, load_##name, unit_bytes);                                     \
    }                                                                                                                  \
    void avx512_unpack_f32_##name(const struct packed *weight, size_t panel, float *out)                               \
    {                                                                                                                  \
        unpack_plain(weight, panel, out, load_##name);                                                                 \
    }
#define BLOCKS(NAME, name, scaling, zero, unit_bytes, super_units, super_bytes, read_scales)                           \
    void avx512_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,               \
                                  size_t part_stride)                                                                  \
    {                                                                                                                  \
        matvec_blocks(weight, panel, row, y, part_stride, name##_group, read_scales, scaling, zero, unit_bytes,        \
                      super_units, super_bytes);                                                                       \
    }                                                                                                                  \
    void avx512_unpack_f32_##name(const struct packed *weight, size_t panel, float *out)                               \
    {                                                                                                                  \
        unpack_blocks(weight, panel, out, name##_group, read_scales, scaling, zero, unit_bytes, super_units,           \
                      super_bytes);                                                                                    \
    }
AVX512_PLAIN_FORMATS(PLAIN)
AVX512_BLOCK_FORMATS(BLOCKS)

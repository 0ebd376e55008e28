// Source rows as products take them: Q8 in blocks of 32, F16 range-exact by segment.
#include "avx512_kernels.h"
#include "avx512_math.h"

enum {
    BLOCKS = 16, // whose scales are computed together
};

// The sums of 16 of one or two blocks: 4 bytes a block.
static ALWAYS_INLINE void store_sums(const uint8_t *q, size_t n_blocks, uint8_t *sums)
{
    __m512i v = _mm512_maskz_loadu_epi8(n_blocks > 1 ? ~(__mmask64)0 : (__mmask64)0xffffffff, q);
    __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), v);
    sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, (_MM_PERM_ENUM)0x4e));
    sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, (_MM_PERM_ENUM)0xb1));
    __m512i halves = _mm512_maskz_compress_epi32(0x1111, sum);
    uint8_t bytes[8];
    _mm_storel_epi64((__m128i *)bytes, _mm256_castsi256_si128(_mm512_cvtepi32_epi16(halves)));
    memcpy(sums, bytes, n_blocks > 1 ? 8 : 4);
}

void avx512_quantize_q8(const float *x, size_t k, uint8_t *row)
{
    uint8_t *d = row + k, *sums = row + k + k / 32 * 4;
    size_t n = k / 32;
    for (size_t begin = 0; begin < n; begin += BLOCKS) {
        size_t count = n - begin < BLOCKS ? n - begin : BLOCKS;
        const float *in = x + begin * 32;
        uint8_t *out = row + begin * 32;
        _Alignas(64) int32_t amax[BLOCKS] = {0};
        for (size_t i = 0; i < count; i++)
            amax[i] = _mm512_reduce_max_epi32(_mm512_max_epi32(avx512_magnitude(_mm512_loadu_ps(in + i * 32)),
                                                               avx512_magnitude(_mm512_loadu_ps(in + i * 32 + 16))));
        _Alignas(64) float inverse[BLOCKS];
        __m512 inverses;
        _mm512_mask_storeu_ps(d + begin * 4, avx512_mask_16(count),
                              avx512_q8_scales(_mm512_load_si512(amax), &inverses));
        _mm512_store_ps(inverse, inverses);
        for (size_t i = 0; i < 2 * count; i++) {
            __m512 factor = _mm512_set1_ps(inverse[i / 2]);
            __mmask16 mask = inverse[i / 2] != 0.0f ? 0xffff : 0;
            __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(in + i * 16), factor));
            _mm_storeu_si128((__m128i *)(void *)(out + i * 16), _mm512_maskz_cvtepi32_epi8(mask, q));
        }
        for (size_t i = 0; i < count; i += 2)
            store_sums(out + i * 32, count - i, sums + (begin + i) * 4);
    }
}

static uint32_t largest_magnitude(const float *x, size_t n)
{
    __m512i max = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 16)
        max = _mm512_max_epi32(max, avx512_magnitude(_mm512_maskz_loadu_ps(avx512_mask_16(n - i), x + i)));
    return (uint32_t)_mm512_reduce_max_epi32(max);
}

// The zeros after k elements, and scales of 1.
static void clear_row_end(size_t k, float *row)
{
    for (size_t i = k; i < f32_row_scales(k); i++)
        row[i] = 0.0f;
    _mm256_storeu_ps(row + f32_row_scales(k), _mm256_set1_ps(1.0f));
}

// Elements [begin, end): times `down`, rounded to half.
static ALWAYS_INLINE void round_range(const float *x, size_t begin, size_t end, __m512 down, float *row)
{
    for (size_t i = begin; i < end; i += 16) {
        __mmask16 mask = avx512_mask_16(end - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), down);
        __m256i halves = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm512_mask_storeu_ps(row + i, mask, _mm512_cvtph_ps(halves));
    }
}

void avx512_round_f16(const float *x, size_t k, const struct segments *segments, float *row)
{
    float *scales = row + f32_row_scales(k);
    clear_row_end(k, row);
    if (segments == NULL)
        round_range(x, 0, k, _mm512_set1_ps(1.0f), row);
    for (uint32_t s = 0; segments != NULL && s < segments->n; s++) {
        size_t begin, end;
        segments_range(segments, s, k, &begin, &end);
        const int32_t e = half_exponent(largest_magnitude(x + begin, end - begin));
        round_range(x, begin, end, _mm512_set1_ps(power_of_two(-e)), row);
        scales[s] = power_of_two(e);
    }
}

void avx512_round_bf16(const float *x, size_t k, float *row)
{
    clear_row_end(k, row);
    for (size_t i = 0; i < k; i += 16) {
        __mmask16 mask = avx512_mask_16(k - i);
        _mm512_mask_storeu_ps(row + i, mask, avx512_round_bfloat(_mm512_maskz_loadu_ps(mask, x + i)));
    }
}

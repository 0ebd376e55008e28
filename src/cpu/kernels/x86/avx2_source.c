// AVX2: rows rounded to what products and pages take: Q8 in blocks of 32, F16 range-exact.
#include "cpu/kernels/x86/avx2_math.h"

void avx2_quantize_q8(const float *x, size_t k, uint8_t *row)
{
    float *d = (float *)(void *)(row + k);
    uint8_t *sums = row + k + k / 32 * 4;
    for (size_t block = 0; block < k / 32; block++) {
        const __m256i q = avx2_q8_block(x + 32 * block, d + block);
        _mm256_storeu_si256((__m256i *)(row + 32 * block), q);
        // Sums of 16: of pairs, of fours, then across the 4 lanes of each half.
        __m256i sum = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
        sum = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
        sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
        sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
        const int16_t halves[2] = {(int16_t)_mm256_extract_epi32(sum, 0), (int16_t)_mm256_extract_epi32(sum, 4)};
        memcpy(sums + 4 * block, halves, sizeof halves);
    }
}

AVX2_INLINE __m128i to_half8(__m256 x)
{
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

// The zeros after k elements, and scales of 1.
static void clear_row_end(size_t k, float *row)
{
    for (size_t i = k; i < f32_row_scales(k); i++)
        row[i] = 0.0f;
    _mm256_storeu_ps(row + f32_row_scales(k), avx2_set(1.0f));
}

// Elements [i, end): times `down`, rounded to half.
AVX2_INLINE void round_range(const float *x, size_t i, size_t end, __m256 down, float *row)
{
    for (; i + 8 <= end; i += 8)
        _mm256_storeu_ps(row + i, _mm256_cvtph_ps(to_half8(_mm256_mul_ps(_mm256_loadu_ps(x + i), down))));
    if (i < end) {
        const __m256 rest = _mm256_mul_ps(avx2_load_part(x + i, end - i), down);
        avx2_store_part(row + i, end - i, _mm256_cvtph_ps(to_half8(rest)));
    }
}

void avx2_round_f16(const float *x, size_t k, const struct segments *segments, float *row)
{
    float *scales = row + f32_row_scales(k);
    clear_row_end(k, row);
    if (segments == NULL)
        round_range(x, 0, k, avx2_set(1.0f), row);
    for (uint32_t s = 0; segments != NULL && s < segments->n; s++) {
        size_t begin, end;
        segments_range(segments, s, k, &begin, &end);
        const int32_t e = half_exponent(avx2_amax_bits(x + begin, end - begin));
        round_range(x, begin, end, avx2_set(power_of_two(-e)), row);
        scales[s] = power_of_two(e);
    }
}

void avx2_round_bf16(const float *x, size_t k, float *row)
{
    size_t i = 0;
    clear_row_end(k, row);
    for (; i + 8 <= k; i += 8)
        _mm256_storeu_ps(row + i, avx2_round_bfloat(_mm256_loadu_ps(x + i)));
    if (i < k)
        avx2_store_part(row + i, k - i, avx2_round_bfloat(avx2_load_part(x + i, k - i)));
}

// ---- pages of keys and values ----

void avx2_store_k_f32(const float *k, size_t head_dim, uint32_t position, void *page, float *scales)
{
    float *out = page;
    (void)scales;
    for (size_t d = 0; d < head_dim; d++)
        out[d * KV_PAGE_POSITIONS + position] = k[d];
}

void avx2_store_v_f32(const float *v, size_t v_dim, uint32_t position, void *page, float *scales)
{
    (void)scales;
    memcpy((float *)page + position * v_dim, v, v_dim * sizeof(float));
}

// Writes n values as halves, `stride` halves apart, scaled so that they fit; gives 2^e.
AVX2_INLINE float store_halves(const float *x, size_t n, uint16_t *out, size_t stride)
{
    const int32_t e = half_exponent(avx2_amax_bits(x, n));
    const __m256 down = avx2_set(power_of_two(-e));
    for (size_t i = 0; i < n; i += 8) {
        const size_t count = n - i < 8 ? n - i : 8;
        uint16_t halves[8];
        _mm_storeu_si128((__m128i *)halves, to_half8(_mm256_mul_ps(avx2_load_part(x + i, count), down)));
        if (stride == 1)
            memcpy(out + i, halves, count * sizeof halves[0]);
        else
            for (size_t j = 0; j < count; j++)
                out[(i + j) * stride] = halves[j];
    }
    return power_of_two(e);
}

void avx2_store_k_f16(const float *k, size_t head_dim, uint32_t position, void *page, float *scales)
{
    scales[position] = store_halves(k, head_dim, (uint16_t *)page + position, KV_PAGE_POSITIONS);
}

void avx2_store_v_f16(const float *v, size_t v_dim, uint32_t position, void *page, float *scales)
{
    scales[position] = store_halves(v, v_dim, (uint16_t *)page + position * v_dim, 1);
}

void avx2_store_k_q8_0(const float *k, size_t head_dim, uint32_t position, void *page, float *scales)
{
    uint8_t *out = page; // [head_dim / 4][64 positions][4]
    for (size_t block = 0; block < head_dim / 32; block++) {
        uint8_t q[32];
        _mm256_storeu_si256((__m256i *)q, avx2_q8_block(k + 32 * block, &scales[block * KV_PAGE_POSITIONS + position]));
        for (size_t g = 0; g < 8; g++)
            memcpy(out + ((block * 8 + g) * KV_PAGE_POSITIONS + position) * 4, q + 4 * g, 4);
    }
}

void avx2_store_v_q8_0(const float *v, size_t v_dim, uint32_t position, void *page, float *scales)
{
    uint8_t *out = (uint8_t *)page + position * v_dim;
    for (size_t block = 0; block < v_dim / 32; block++)
        _mm256_storeu_si256((__m256i *)(out + 32 * block),
                            avx2_q8_block(v + 32 * block, &scales[position * (v_dim / 32) + block]));
}

// NEON: rows rounded to what products and pages take: Q8 in blocks of 32, F16 range-exact.
#include "cpu/kernels/arm/neon_math.h"

void neon_quantize_q8(const float *x, size_t k, uint8_t *row)
{
    int8_t *q = (int8_t *)row;
    float *d = (float *)(void *)(row + k);
    int16_t *sums = (int16_t *)(void *)(row + k + k / 32 * 4);
    for (size_t block = 0; block < k / 32; block++)
        d[block] = neon_q8_block(x + 32 * block, q + 32 * block);
    for (size_t half = 0; half < k / 16; half++)
        sums[half] = vaddlvq_s8(vld1q_s8(q + 16 * half));
}

NEON_INLINE uint16x4_t to_half4(float32x4_t x)
{
    return vreinterpret_u16_f16(vcvt_f16_f32(x));
}

NEON_INLINE float32x4_t round_half4(float32x4_t x)
{
    return vcvt_f32_f16(vcvt_f16_f32(x));
}

// The zeros after k elements, and scales of 1.
static void clear_row_end(size_t k, float *row)
{
    for (size_t i = k; i < f32_row_scales(k); i++)
        row[i] = 0.0f;
    for (size_t s = 0; s < MAX_SEGMENTS; s++)
        row[f32_row_scales(k) + s] = 1.0f;
}

// Elements [i, end): times `down`, rounded to half.
NEON_INLINE void round_range(const float *x, size_t i, size_t end, float down, float *row)
{
    for (; i + 4 <= end; i += 4)
        vst1q_f32(row + i, round_half4(vmulq_n_f32(vld1q_f32(x + i), down)));
    if (i < end)
        neon_store_part(row + i, end - i, round_half4(vmulq_n_f32(neon_load_part(x + i, end - i), down)));
}

void neon_round_f16(const float *x, size_t k, const struct segments *segments, float *row)
{
    float *scales = row + f32_row_scales(k);
    clear_row_end(k, row);
    if (segments == NULL)
        round_range(x, 0, k, 1.0f, row);
    for (uint32_t s = 0; segments != NULL && s < segments->n; s++) {
        size_t begin, end;
        segments_range(segments, s, k, &begin, &end);
        const int32_t e = half_exponent(neon_amax_bits(x + begin, end - begin));
        round_range(x, begin, end, power_of_two(-e), row);
        scales[s] = power_of_two(e);
    }
}

void neon_round_bf16(const float *x, size_t k, float *row)
{
    size_t i = 0;
    clear_row_end(k, row);
    for (; i + 4 <= k; i += 4)
        vst1q_f32(row + i, neon_round_bfloat(vld1q_f32(x + i)));
    if (i < k)
        neon_store_part(row + i, k - i, neon_round_bfloat(neon_load_part(x + i, k - i)));
}

// ---- pages of keys and values ----

void neon_store_k_f32(const float *k, size_t head_dim, uint32_t position, void *page, float *scales)
{
    float *out = page;
    (void)scales;
    for (size_t d = 0; d < head_dim; d++)
        out[d * KV_PAGE_POSITIONS + position] = k[d];
}

void neon_store_v_f32(const float *v, size_t v_dim, uint32_t position, void *page, float *scales)
{
    (void)scales;
    memcpy((float *)page + position * v_dim, v, v_dim * sizeof(float));
}

// Writes n values as halves, `stride` halves apart, scaled so that they fit; gives 2^e.
NEON_INLINE float store_halves(const float *x, size_t n, uint16_t *out, size_t stride)
{
    const int32_t e = half_exponent(neon_amax_bits(x, n));
    const float down = power_of_two(-e);
    for (size_t i = 0; i < n; i += 4) {
        const size_t count = n - i < 4 ? n - i : 4;
        uint16_t halves[4];
        vst1_u16(halves, to_half4(vmulq_n_f32(neon_load_part(x + i, count), down)));
        for (size_t j = 0; j < count; j++)
            out[(i + j) * stride] = halves[j];
    }
    return power_of_two(e);
}

void neon_store_k_f16(const float *k, size_t head_dim, uint32_t position, void *page, float *scales)
{
    scales[position] = store_halves(k, head_dim, (uint16_t *)page + position, KV_PAGE_POSITIONS);
}

void neon_store_v_f16(const float *v, size_t v_dim, uint32_t position, void *page, float *scales)
{
    scales[position] = store_halves(v, v_dim, (uint16_t *)page + position * v_dim, 1);
}

void neon_store_k_q8_0(const float *k, size_t head_dim, uint32_t position, void *page, float *scales)
{
    int8_t *out = page; // [head_dim / 4][64 positions][4]
    for (size_t block = 0; block < head_dim / 32; block++) {
        int8_t q[32];
        scales[block * KV_PAGE_POSITIONS + position] = neon_q8_block(k + 32 * block, q);
        for (size_t g = 0; g < 8; g++)
            memcpy(out + ((block * 8 + g) * KV_PAGE_POSITIONS + position) * 4, q + 4 * g, 4);
    }
}

void neon_store_v_q8_0(const float *v, size_t v_dim, uint32_t position, void *page, float *scales)
{
    int8_t *out = (int8_t *)page + position * v_dim;
    for (size_t block = 0; block < v_dim / 32; block++)
        scales[position * (v_dim / 32) + block] = neon_q8_block(v + 32 * block, out + 32 * block);
}

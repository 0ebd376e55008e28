// AVX2: one panel times one token, straight from the packed layout. Each format is the template below with its loader.
#include "cpu/kernels/x86/avx2.h"

// isum of one unit of 8 rows, the zero point subtracted. x: 32 bytes.
AVX2_INLINE __m256i block_sum(const struct avx2_unit *unit, const int8_t *x, __m256i sums, enum scaling scaling,
                              int run, int zero)
{
    const bool is_signed = run == AVX2_RUN_SIGNED;
    __m256i total = _mm256_setzero_si256();
    AVX2_UNROLL
    for (int first = 0; first < AVX2_GROUPS; first += run) {
        __m256i pairs = avx2_products(unit->q[first], avx2_broadcast4(x + 4 * first), is_signed);
        AVX2_UNROLL
        for (int g = first + 1; g < first + run; g++)
            pairs = _mm256_add_epi16(pairs, avx2_products(unit->q[g], avx2_broadcast4(x + 4 * g), is_signed));
        const __m256i by =
            avx2_scaling_has_sub(scaling) ? avx2_spread(unit->sub, first >= AVX2_GROUPS / 2) : _mm256_set1_epi16(1);
        total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, by));
    }
    if (zero != 0 && !is_signed)
        total = _mm256_sub_epi32(total, avx2_zero_term(scaling, zero, unit->sub, sums));
    return total;
}

AVX2_INLINE void matvec_q8(const struct packed *weight, size_t panel, const uint8_t *row, float *y, size_t part_stride,
                           avx2_load *load, enum scaling scaling, int run, int zero)
{
    const size_t k = weight->k;
    const size_t unit_bytes = weight->format->unit_bytes;
    const struct avx2_panel at = avx2_panel_at(weight, panel);
    const int8_t *x = (const int8_t *)row;
    const uint8_t *d = row + k;
    const uint8_t *sums = d + k / 32 * 4;
    __m256 partial[MAX_SEGMENTS][2];
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (size_t i = weight->segments.border[s]; i < weight->segments.border[s + 1]; i++) {
            const __m256 dx = _mm256_castsi256_ps(avx2_broadcast4(d + 4 * i));
            const __m256i sum = avx2_broadcast4(sums + 4 * i);
            const uint8_t *super = avx2_super_of(weight, at, i);
            avx2_prefetch(at.units + i * unit_bytes, unit_bytes);
            AVX2_UNROLL
            for (int half = 0; half < 2; half++) {
                const struct avx2_unit unit = load(at.units + i * unit_bytes, super, half);
                const __m256i isum = block_sum(&unit, x + 32 * i, sum, scaling, run, zero);
                acc[half] = avx2_accumulate(scaling, acc[half], isum, dx, sum, unit.scale, unit.min, unit.sub_min);
            }
        }
        partial[s][0] = acc[0];
        partial[s][1] = acc[1];
    }
    avx2_store_sums(&partial[0][0], 2, weight->segments.n, 1, y, 0, part_stride);
}

#define MATVEC_Q8(name, kind, scaling, run, zero)                                                                      \
    void avx2_matvec_q8_##name(const struct packed *weight, size_t panel, const uint8_t *row, float *y,                \
                               size_t part_stride)                                                                     \
    {                                                                                                                  \
        matvec_q8(weight, panel, row, y, part_stride, avx2_load_##name, scaling, run, zero);                           \
    }
AVX2_BLOCK_FORMATS(MATVEC_Q8)

// ---- F32 sources ----

// Block formats: each unit's exact values, then one chain.
AVX2_INLINE void matvec_f32_blocks(const struct packed *weight, size_t panel, const float *row, float *y,
                                   size_t part_stride, avx2_load *load, enum scaling scaling, int zero)
{
    const size_t unit_bytes = weight->format->unit_bytes;
    const struct avx2_panel at = avx2_panel_at(weight, panel);
    const float *scales = row + f32_row_scales(weight->k);
    __m256 partial[MAX_SEGMENTS][2];
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (size_t i = weight->segments.border[s]; i < weight->segments.border[s + 1]; i++) {
            const uint8_t *super = avx2_super_of(weight, at, i);
            AVX2_UNROLL
            for (int half = 0; half < 2; half++) {
                const struct avx2_unit unit = load(at.units + i * unit_bytes, super, half);
                const float *x = row + 32 * i;
                AVX2_UNROLL
                for (int g = 0; g < AVX2_GROUPS; g++) {
                    AVX2_UNROLL
                    for (int j = 0; j < 4; j++)
                        acc[half] = _mm256_fmadd_ps(avx2_value(&unit, g, j, scaling, zero),
                                                    _mm256_broadcast_ss(x + 4 * g + j), acc[half]);
                }
            }
        }
        const __m256 scale = _mm256_broadcast_ss(scales + s);
        partial[s][0] = _mm256_mul_ps(acc[0], scale);
        partial[s][1] = _mm256_mul_ps(acc[1], scale);
    }
    avx2_store_sums(&partial[0][0], 2, weight->segments.n, 1, y, 0, part_stride);
}

#define MATVEC_F32_BLOCKS(name, kind, scaling, run, zero)                                                              \
    void avx2_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,                 \
                                size_t part_stride)                                                                    \
    {                                                                                                                  \
        matvec_f32_blocks(weight, panel, row, y, part_stride, avx2_load_##name, scaling, zero);                        \
    }
AVX2_BLOCK_FORMATS(MATVEC_F32_BLOCKS)

// Plain types: a chain is bound by the latency of FMA, so the chains of two segments run side by side. Their lengths
// differ by a grain at most.
AVX2_INLINE void plain_segments(const uint8_t *data, const float *x, size_t element_bytes, avx2_load_plain *load,
                                const size_t begin[2], const size_t length[2], __m256 acc[4])
{
    const size_t both = length[0] < length[1] ? length[0] : length[1];
    const size_t stride = PANEL_ROWS * element_bytes;
    const uint8_t *w[2] = {data + begin[0] * stride, data + begin[1] * stride};
    __m256 a0 = _mm256_setzero_ps(), a1 = a0, b0 = a0, b1 = a0;
    for (size_t i = 0; i < both; i++) {
        avx2_prefetch(w[0] + i * stride, stride);
        avx2_prefetch(w[1] + i * stride, stride);
        const __m256 xa = _mm256_broadcast_ss(x + begin[0] + i), xb = _mm256_broadcast_ss(x + begin[1] + i);
        a0 = _mm256_fmadd_ps(load(w[0] + i * stride), xa, a0);
        a1 = _mm256_fmadd_ps(load(w[0] + i * stride + stride / 2), xa, a1);
        b0 = _mm256_fmadd_ps(load(w[1] + i * stride), xb, b0);
        b1 = _mm256_fmadd_ps(load(w[1] + i * stride + stride / 2), xb, b1);
    }
    for (size_t i = both; i < length[0]; i++) {
        const __m256 xa = _mm256_broadcast_ss(x + begin[0] + i);
        a0 = _mm256_fmadd_ps(load(w[0] + i * stride), xa, a0);
        a1 = _mm256_fmadd_ps(load(w[0] + i * stride + stride / 2), xa, a1);
    }
    for (size_t i = both; i < length[1]; i++) {
        const __m256 xb = _mm256_broadcast_ss(x + begin[1] + i);
        b0 = _mm256_fmadd_ps(load(w[1] + i * stride), xb, b0);
        b1 = _mm256_fmadd_ps(load(w[1] + i * stride + stride / 2), xb, b1);
    }
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = b0;
    acc[3] = b1;
}

AVX2_INLINE void matvec_f32_plain(const struct packed *weight, size_t panel, const float *row, float *y,
                                  size_t part_stride, size_t element_bytes, avx2_load_plain *load)
{
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    const float *scales = row + f32_row_scales(weight->k);
    const uint32_t n = weight->segments.n;
    __m256 partial[2 * (MAX_SEGMENTS + 1)]; // [segment][half]; room for the missing half of a pair
    partial[0] = partial[1] = _mm256_setzero_ps();
    for (uint32_t s = 0; s < n; s += 2) {
        size_t begin[2], end[2], length[2] = {0, 0};
        begin[1] = 0;
        for (uint32_t i = 0; i < 2 && s + i < n; i++) {
            segments_range(&weight->segments, s + i, weight->k, &begin[i], &end[i]);
            length[i] = end[i] - begin[i];
        }
        plain_segments(data, row, element_bytes, load, begin, length, partial + 2 * s);
        for (uint32_t i = 0; i < 2 && s + i < n; i++)
            for (int half = 0; half < 2; half++)
                partial[2 * (s + i) + half] =
                    _mm256_mul_ps(partial[2 * (s + i) + half], _mm256_broadcast_ss(scales + s + i));
    }
    avx2_store_sums(partial, 2, n, 1, y, 0, part_stride);
}

#define MATVEC_F32_PLAIN(name, kind, element_bytes)                                                                    \
    void avx2_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,                 \
                                size_t part_stride)                                                                    \
    {                                                                                                                  \
        matvec_f32_plain(weight, panel, row, y, part_stride, element_bytes, avx2_load_##name);                         \
    }
AVX2_PLAIN_FORMATS(MATVEC_F32_PLAIN)

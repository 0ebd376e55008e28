// AVX2: one unpacked panel times many tokens. A tile is 16 rows × TILE tokens: its pairs in i16 (2 registers a token),
// two of weights and one of the source fill the 16 registers; the F32 accumulators of the segment lie in L1.
#include "cpu/kernels/x86/avx2.h"

enum {
    TILE_Q8 = 4,  // tokens
    TILE_F32 = 6, // tokens: 12 accumulators in registers
};

// The parts of a Q8 row.
struct source {
    const int8_t *q;
    const uint8_t *d;    // F32
    const uint8_t *sums; // pairs of int16
};

// isum of one grain for a tile.
AVX2_INLINE void tile_sums(const struct unpacked_q8 *panel, size_t grain, const struct source *sources, int tile,
                           enum scaling scaling, int run, int zero, __m256i total[][2])
{
    const bool is_signed = run == AVX2_RUN_SIGNED;
    const uint8_t *q = panel->q + 512 * grain;
    __m256i sub[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    if (avx2_scaling_has_sub(scaling)) {
        sub[0] = avx2_load32(panel->sub + 32 * grain);
        sub[1] = avx2_load32(panel->sub + 32 * grain + 16);
    }
    AVX2_UNROLL
    for (int first = 0; first < AVX2_GROUPS; first += run) {
        __m256i pairs[TILE_Q8][2];
        AVX2_UNROLL
        for (int g = first; g < first + run; g++) {
            const __m256i w0 = avx2_load32(q + 64 * g), w1 = avx2_load32(q + 64 * g + 32);
            AVX2_UNROLL
            for (int t = 0; t < tile; t++) {
                const __m256i x = avx2_broadcast4(sources[t].q + 32 * grain + 4 * (size_t)g);
                const __m256i p0 = avx2_products(w0, x, is_signed), p1 = avx2_products(w1, x, is_signed);
                pairs[t][0] = g == first ? p0 : _mm256_add_epi16(pairs[t][0], p0);
                pairs[t][1] = g == first ? p1 : _mm256_add_epi16(pairs[t][1], p1);
            }
        }
        AVX2_UNROLL
        for (int half = 0; half < 2; half++) {
            const __m256i by =
                avx2_scaling_has_sub(scaling) ? avx2_spread(sub[half], first >= AVX2_GROUPS / 2) : _mm256_set1_epi16(1);
            AVX2_UNROLL
            for (int t = 0; t < tile; t++) {
                const __m256i sum = _mm256_madd_epi16(pairs[t][half], by);
                total[t][half] = first == 0 ? sum : _mm256_add_epi32(total[t][half], sum);
            }
        }
    }
    if (zero == 0 || is_signed)
        return;
    AVX2_UNROLL
    for (int t = 0; t < tile; t++) {
        const __m256i sums = avx2_broadcast4(sources[t].sums + 4 * grain);
        AVX2_UNROLL
        for (int half = 0; half < 2; half++)
            total[t][half] = _mm256_sub_epi32(total[t][half], avx2_zero_term(scaling, zero, sub[half], sums));
    }
}

// Adds one grain to the accumulators of a tile.
AVX2_INLINE void tile_accumulate(const struct unpacked_q8 *panel, size_t grain, const struct source *sources, int tile,
                                 enum scaling scaling, __m256i total[][2], __m256 acc[][2])
{
    AVX2_UNROLL
    for (int half = 0; half < 2; half++) {
        const size_t row = 16 * grain + 8 * (size_t)half;
        const __m256 scale = _mm256_loadu_ps(panel->scale + row);
        __m256 min = _mm256_setzero_ps();
        __m256i sub_min = _mm256_setzero_si256();
        if (scaling == SCALING_MIN32 || scaling == SCALING_MIN16)
            min = _mm256_loadu_ps(panel->min + row);
        if (scaling == SCALING_MIN16)
            sub_min = avx2_load32(panel->sub_min + 2 * row);
        AVX2_UNROLL
        for (int t = 0; t < tile; t++)
            acc[t][half] = avx2_accumulate(scaling, acc[t][half], total[t][half],
                                           _mm256_castsi256_ps(avx2_broadcast4(sources[t].d + 4 * grain)),
                                           avx2_broadcast4(sources[t].sums + 4 * grain), scale, min, sub_min);
    }
}

AVX2_INLINE void gemm_tile(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                           size_t row_stride, int tile, float *y, size_t y_stride, size_t part_stride,
                           enum scaling scaling, int run, int zero)
{
    struct source sources[TILE_Q8];
    __m256 partial[MAX_SEGMENTS][TILE_Q8][2];
    AVX2_UNROLL
    for (int t = 0; t < tile; t++) {
        const uint8_t *row = rows + (size_t)t * row_stride;
        sources[t] = (struct source){(const int8_t *)row, row + weight->k, row + weight->k + weight->k / 32 * 4};
    }
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        __m256 acc[TILE_Q8][2];
        AVX2_UNROLL
        for (int t = 0; t < tile; t++)
            acc[t][0] = acc[t][1] = _mm256_setzero_ps();
        for (size_t grain = weight->segments.border[s]; grain < weight->segments.border[s + 1]; grain++) {
            __m256i total[TILE_Q8][2];
            tile_sums(panel, grain, sources, tile, scaling, run, zero, total);
            tile_accumulate(panel, grain, sources, tile, scaling, total, acc);
        }
        AVX2_UNROLL
        for (int t = 0; t < tile; t++) {
            partial[s][t][0] = acc[t][0];
            partial[s][t][1] = acc[t][1];
        }
    }
    avx2_store_sums(&partial[0][0][0], 2 * TILE_Q8, weight->segments.n, (size_t)tile, y, y_stride, part_stride);
}

AVX2_INLINE void gemm_q8(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                         size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride,
                         enum scaling scaling, int run, int zero)
{
    size_t t = 0;
    for (; t + TILE_Q8 <= n; t += TILE_Q8)
        gemm_tile(weight, panel, rows + t * row_stride, row_stride, TILE_Q8, y + t * y_stride, y_stride, part_stride,
                  scaling, run, zero);
    for (; t < n; t++)
        gemm_tile(weight, panel, rows + t * row_stride, row_stride, 1, y + t * y_stride, y_stride, part_stride, scaling,
                  run, zero);
}

typedef void gemm_function(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                           size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride);

// How long a run may be depends on the format's bits, so there is an instance a format.
#define GEMM_Q8(name, kind, scaling, run, zero)                                                                        \
    static void gemm_q8_##name(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,      \
                               size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride)             \
    {                                                                                                                  \
        gemm_q8(weight, panel, rows, row_stride, n, y, y_stride, part_stride, scaling, run, zero);                     \
    }
AVX2_BLOCK_FORMATS(GEMM_Q8)

#define GEMM_ENTRY(name, kind, scaling, run, zero) [kind] = gemm_q8_##name,
static gemm_function *const gemm_of_kind[PACKED_COUNT] = {AVX2_BLOCK_FORMATS(GEMM_ENTRY)};

void avx2_gemm_q8(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows, size_t row_stride,
                  size_t n, float *y, size_t y_stride, size_t part_stride)
{
    gemm_of_kind[weight->format->kind](weight, panel, rows, row_stride, n, y, y_stride, part_stride);
}

// ---- F32 ----

AVX2_INLINE void gemm_f32_tile(const struct packed *weight, const float *panel, const uint8_t *rows, size_t row_stride,
                               int tile, float *y, size_t y_stride, size_t part_stride)
{
    __m256 partial[MAX_SEGMENTS][TILE_F32][2];
    const float *x[TILE_F32];
    AVX2_UNROLL
    for (int t = 0; t < tile; t++)
        x[t] = (const float *)(rows + (size_t)t * row_stride);
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        size_t begin, end;
        segments_range(&weight->segments, s, weight->k, &begin, &end);
        __m256 acc[TILE_F32][2];
        AVX2_UNROLL
        for (int t = 0; t < tile; t++)
            acc[t][0] = acc[t][1] = _mm256_setzero_ps();
        for (size_t i = begin; i < end; i++) {
            const __m256 w0 = _mm256_loadu_ps(panel + PANEL_ROWS * i), w1 = _mm256_loadu_ps(panel + PANEL_ROWS * i + 8);
            AVX2_UNROLL
            for (int t = 0; t < tile; t++) {
                const __m256 xt = _mm256_broadcast_ss(x[t] + i);
                acc[t][0] = _mm256_fmadd_ps(w0, xt, acc[t][0]);
                acc[t][1] = _mm256_fmadd_ps(w1, xt, acc[t][1]);
            }
        }
        AVX2_UNROLL
        for (int t = 0; t < tile; t++) {
            const __m256 scale = _mm256_broadcast_ss(x[t] + f32_row_scales(weight->k) + s);
            partial[s][t][0] = _mm256_mul_ps(acc[t][0], scale);
            partial[s][t][1] = _mm256_mul_ps(acc[t][1], scale);
        }
    }
    avx2_store_sums(&partial[0][0][0], 2 * TILE_F32, weight->segments.n, (size_t)tile, y, y_stride, part_stride);
}

void avx2_gemm_f32(const struct packed *weight, const float *panel, const float *rows, size_t row_stride, size_t n,
                   float *y, size_t y_stride, size_t part_stride)
{
    const uint8_t *bytes = (const uint8_t *)rows;
    size_t t = 0;
    for (; t + TILE_F32 <= n; t += TILE_F32)
        gemm_f32_tile(weight, panel, bytes + t * row_stride, row_stride, TILE_F32, y + t * y_stride, y_stride,
                      part_stride);
    for (; t + 2 <= n; t += 2)
        gemm_f32_tile(weight, panel, bytes + t * row_stride, row_stride, 2, y + t * y_stride, y_stride, part_stride);
    for (; t < n; t++)
        gemm_f32_tile(weight, panel, bytes + t * row_stride, row_stride, 1, y + t * y_stride, y_stride, part_stride);
}

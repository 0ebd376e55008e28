// Many tokens times one unpacked panel. Tokens are cut into tiles of nearly equal size, so that 7 are 4 + 3, never
// 6 + 1: each tile reads the panel's weights once from the first-level cache.
#include "avx512_dot.h"
#include "avx512_kernels.h"

static ALWAYS_INLINE __m512i unpacked_group(const uint8_t *unit, int group)
{
    return _mm512_load_si512(unit + (size_t)group * 64);
}

// ---- gemm_q8: a function a scaling and tile size ----

typedef void q8_tile(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                     size_t row_stride, float *y, size_t y_stride, size_t part_stride);

static ALWAYS_INLINE void q8_tile_of(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                                     size_t row_stride, float *y, size_t y_stride, size_t part_stride,
                                     enum scaling scaling, size_t count)
{
    struct dot_weight source = {.group = unpacked_group, .unpacked = panel, .units = panel->q, .unit_bytes = 8 * 64};
    // The zero point differs between formats of one scaling, so here it is a variable.
    dot_tile(&source, scaling, weight->format->zero, count, &weight->segments, weight->k, rows, row_stride, y, y_stride,
             part_stride);
}

#define TILE(scaling, count)                                                                                           \
    static void tile_##scaling##_##count(const struct packed *weight, const struct unpacked_q8 *panel,                 \
                                         const uint8_t *rows, size_t row_stride, float *y, size_t y_stride,            \
                                         size_t part_stride)                                                           \
    {                                                                                                                  \
        q8_tile_of(weight, panel, rows, row_stride, y, y_stride, part_stride, scaling, count);                         \
    }
#define TILES_8(X, ...)                                                                                                \
    X(__VA_ARGS__, 1)                                                                                                  \
    X(__VA_ARGS__, 2)                                                                                                  \
    X(__VA_ARGS__, 3) X(__VA_ARGS__, 4) X(__VA_ARGS__, 5) X(__VA_ARGS__, 6) X(__VA_ARGS__, 7) X(__VA_ARGS__, 8)
#define TILES_12(X, ...)                                                                                               \
    TILES_8(X, __VA_ARGS__) X(__VA_ARGS__, 9) X(__VA_ARGS__, 10) X(__VA_ARGS__, 11) X(__VA_ARGS__, 12)
TILES_12(TILE, SCALING_32)
TILES_12(TILE, SCALING_MIN32)
TILES_8(TILE, SCALING_16)
TILES_8(TILE, SCALING_MIN16)
#undef TILE

static ALWAYS_INLINE void gemm_q8(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                                  size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride,
                                  q8_tile *const *tiles, size_t most)
{
    while (n) {
        size_t count = avx512_tile_size(n, most);
        tiles[count - 1](weight, panel, rows, row_stride, y, y_stride, part_stride);
        rows += count * row_stride;
        y += count * y_stride;
        n -= count;
    }
}

#define ENTRY(scaling, count) tile_##scaling##_##count,
#define GEMM(scaling, tiles_of, most)                                                                                  \
    void avx512_gemm_q8_##scaling(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,   \
                                  size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride)          \
    {                                                                                                                  \
        static q8_tile *const tiles[] = {tiles_of(ENTRY, scaling)};                                                    \
        gemm_q8(weight, panel, rows, row_stride, n, y, y_stride, part_stride, tiles, most);                            \
    }
GEMM(SCALING_32, TILES_12, DOT_TOKENS)
GEMM(SCALING_MIN32, TILES_12, DOT_TOKENS)
GEMM(SCALING_16, TILES_8, DOT_HALF_TOKENS)
GEMM(SCALING_MIN16, TILES_8, DOT_HALF_TOKENS)

// ---- gemm_f32 ----

typedef void f32_tile(const struct packed *weight, const float *panel, const uint8_t *rows, size_t row_stride, float *y,
                      size_t y_stride, size_t part_stride);

static ALWAYS_INLINE float read_float(const uint8_t *bytes)
{
    float value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

static ALWAYS_INLINE void f32_tile_of(const struct packed *weight, const float *panel, const uint8_t *rows,
                                      size_t row_stride, float *y, size_t y_stride, size_t part_stride, size_t count)
{
    const struct segments *segments = &weight->segments;
    __m512 partial[MAX_SEGMENTS][DOT_TOKENS];
    for (uint32_t s = 0; s < segments->n; s++) {
        __m512 acc[DOT_TOKENS];
        UNROLL
        for (size_t t = 0; t < count; t++)
            acc[t] = _mm512_setzero_ps();
        size_t begin, end;
        segments_range(segments, s, weight->k, &begin, &end);
        for (size_t k = begin; k < end; k++) {
            __m512 w = _mm512_loadu_ps(panel + k * PANEL_ROWS);
            UNROLL
            for (size_t t = 0; t < count; t++)
                acc[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(read_float(rows + t * row_stride + k * 4)), acc[t]);
        }
        const uint8_t *scale = rows + (f32_row_scales(weight->k) + s) * 4;
        UNROLL
        for (size_t t = 0; t < count; t++)
            partial[s][t] = _mm512_mul_ps(acc[t], _mm512_set1_ps(read_float(scale + t * row_stride)));
    }
    avx512_store_sums(&partial[0][0], segments->n, DOT_TOKENS, count, y, y_stride, part_stride);
}

#define TILE(prefix, count)                                                                                            \
    static void prefix##_##count(const struct packed *weight, const float *panel, const uint8_t *rows,                 \
                                 size_t row_stride, float *y, size_t y_stride, size_t part_stride)                     \
    {                                                                                                                  \
        f32_tile_of(weight, panel, rows, row_stride, y, y_stride, part_stride, count);                                 \
    }
TILES_12(TILE, f32_tile)
#undef TILE

void avx512_gemm_f32(const struct packed *weight, const float *panel, const float *rows, size_t row_stride, size_t n,
                     float *y, size_t y_stride, size_t part_stride)
{
#define ENTRY_F32(prefix, count) prefix##_##count,
    static f32_tile *const tiles[] = {TILES_12(ENTRY_F32, f32_tile)};
    const uint8_t *bytes = (const uint8_t *)rows;
    while (n) {
        size_t count = avx512_tile_size(n, DOT_TOKENS);
        tiles[count - 1](weight, panel, bytes, row_stride, y, y_stride, part_stride);
        bytes += count * row_stride;
        y += count * y_stride;
        n -= count;
    }
}

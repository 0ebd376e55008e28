// NEON: one unpacked panel times many tokens. A tile is 16 rows × TILE tokens; 4 rows of a grain stay in registers
// while the tokens of the tile pass.
#include "cpu/kernels/arm/neon.h"

enum { TILE = 4 }; // tokens

// A unit of 4 rows from an unpacked panel.
NEON_INLINE struct neon_unit load_unpacked(const struct unpacked_q8 *panel, size_t grain, int quarter,
                                           enum scaling scaling)
{
    const size_t row = 16 * grain + 4 * (size_t)quarter;
    struct neon_unit u = {.scale = vld1q_f32(panel->scale + row)};
    NEON_UNROLL
    for (int g = 0; g < NEON_GROUPS; g++)
        u.q[g] = vld1q_u8(panel->q + 512 * grain + 64 * g + 16 * quarter);
    if (scaling == SCALING_MIN32 || scaling == SCALING_MIN16)
        u.min = vld1q_f32(panel->min + row);
    if (neon_scaling_has_sub(scaling)) {
        const int16x4x2_t sub = vld2_s16(panel->sub + 2 * row);
        u.sub[0] = vmovl_s16(sub.val[0]);
        u.sub[1] = vmovl_s16(sub.val[1]);
    }
    if (scaling == SCALING_MIN16) {
        const int16x4x2_t sub_min = vld2_s16(panel->sub_min + 2 * row);
        u.sub_min[0] = vmovl_s16(sub_min.val[0]);
        u.sub_min[1] = vmovl_s16(sub_min.val[1]);
    }
    return u;
}

NEON_INLINE void gemm_tile(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                           size_t row_stride, int tile, float *y, size_t y_stride, size_t part_stride,
                           enum scaling scaling, int zero)
{
    struct neon_source sources[TILE];
    float32x4_t partial[MAX_SEGMENTS][TILE][NEON_QUARTERS];
    for (int t = 0; t < tile; t++)
        sources[t] = neon_source_of(rows + (size_t)t * row_stride, weight->k);
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        for (int quarter = 0; quarter < NEON_QUARTERS; quarter++) {
            float32x4_t acc[TILE];
            NEON_UNROLL
            for (int t = 0; t < tile; t++)
                acc[t] = vdupq_n_f32(0);
            for (size_t i = weight->segments.border[s]; i < weight->segments.border[s + 1]; i++) {
                const struct neon_unit unit = load_unpacked(panel, i, quarter, scaling);
                NEON_UNROLL
                for (int t = 0; t < tile; t++)
                    acc[t] = neon_accumulate(acc[t], &unit, sources[t], i, scaling, zero);
            }
            NEON_UNROLL
            for (int t = 0; t < tile; t++)
                partial[s][t][quarter] = acc[t];
        }
    }
    neon_store_sums(&partial[0][0][0], TILE * NEON_QUARTERS, weight->segments.n, (size_t)tile, y, y_stride,
                    part_stride);
}

NEON_INLINE void gemm_q8(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                         size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride,
                         enum scaling scaling, int zero)
{
    size_t t = 0;
    for (; t + TILE <= n; t += TILE)
        gemm_tile(weight, panel, rows + t * row_stride, row_stride, TILE, y + t * y_stride, y_stride, part_stride,
                  scaling, zero);
    for (; t < n; t++)
        gemm_tile(weight, panel, rows + t * row_stride, row_stride, 1, y + t * y_stride, y_stride, part_stride, scaling,
                  zero);
}

typedef void gemm_function(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                           size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride);

#define GEMM_Q8(name, kind, scaling, zero)                                                                             \
    static void gemm_q8_##name(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,      \
                               size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride)             \
    {                                                                                                                  \
        gemm_q8(weight, panel, rows, row_stride, n, y, y_stride, part_stride, scaling, zero);                          \
    }
NEON_BLOCK_FORMATS(GEMM_Q8)

#define GEMM_ENTRY(name, kind, scaling, zero) [kind] = gemm_q8_##name,
static gemm_function *const gemm_of_kind[PACKED_COUNT] = {NEON_BLOCK_FORMATS(GEMM_ENTRY)};

void neon_gemm_q8(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows, size_t row_stride,
                  size_t n, float *y, size_t y_stride, size_t part_stride)
{
    gemm_of_kind[weight->format->kind](weight, panel, rows, row_stride, n, y, y_stride, part_stride);
}

// ---- F32 ----

NEON_INLINE void gemm_f32_tile(const struct packed *weight, const float *panel, const uint8_t *rows, size_t row_stride,
                               int tile, float *y, size_t y_stride, size_t part_stride)
{
    float32x4_t partial[MAX_SEGMENTS][TILE][NEON_QUARTERS];
    const float *x[TILE];
    for (int t = 0; t < tile; t++)
        x[t] = (const float *)(rows + (size_t)t * row_stride);
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        size_t begin, end;
        segments_range(&weight->segments, s, weight->k, &begin, &end);
        float32x4_t acc[TILE][NEON_QUARTERS];
        for (int t = 0; t < tile; t++)
            for (int quarter = 0; quarter < NEON_QUARTERS; quarter++)
                acc[t][quarter] = vdupq_n_f32(0);
        for (size_t i = begin; i < end; i++) {
            NEON_UNROLL
            for (int quarter = 0; quarter < NEON_QUARTERS; quarter++) {
                const float32x4_t w = vld1q_f32(panel + PANEL_ROWS * i + 4 * (size_t)quarter);
                NEON_UNROLL
                for (int t = 0; t < tile; t++)
                    acc[t][quarter] = vfmaq_n_f32(acc[t][quarter], w, x[t][i]);
            }
        }
        for (int t = 0; t < tile; t++)
            for (int quarter = 0; quarter < NEON_QUARTERS; quarter++)
                partial[s][t][quarter] = vmulq_n_f32(acc[t][quarter], x[t][f32_row_scales(weight->k) + s]);
    }
    neon_store_sums(&partial[0][0][0], TILE * NEON_QUARTERS, weight->segments.n, (size_t)tile, y, y_stride,
                    part_stride);
}

void neon_gemm_f32(const struct packed *weight, const float *panel, const float *rows, size_t row_stride, size_t n,
                   float *y, size_t y_stride, size_t part_stride)
{
    const uint8_t *bytes = (const uint8_t *)rows;
    size_t t = 0;
    for (; t + TILE <= n; t += TILE)
        gemm_f32_tile(weight, panel, bytes + t * row_stride, row_stride, TILE, y + t * y_stride, y_stride, part_stride);
    for (; t < n; t++)
        gemm_f32_tile(weight, panel, bytes + t * row_stride, row_stride, 1, y + t * y_stride, y_stride, part_stride);
}

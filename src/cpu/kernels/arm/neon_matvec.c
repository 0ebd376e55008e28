// NEON: one panel times one token, straight from the packed layout. Each format is the template below with its loader.
#include "cpu/kernels/arm/neon.h"

NEON_INLINE void matvec_q8(const struct packed *weight, size_t panel, const uint8_t *row, float *y, size_t part_stride,
                           neon_load *load, enum scaling scaling, int zero)
{
    const size_t unit_bytes = weight->format->unit_bytes;
    const struct neon_panel at = neon_panel_at(weight, panel);
    const struct neon_source source = neon_source_of(row, weight->k);
    float32x4_t partial[MAX_SEGMENTS][NEON_QUARTERS];
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        float32x4_t acc[NEON_QUARTERS] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
        for (size_t i = weight->segments.border[s]; i < weight->segments.border[s + 1]; i++) {
            const uint8_t *super = neon_super_of(weight, at, i);
            NEON_UNROLL
            for (int quarter = 0; quarter < NEON_QUARTERS; quarter++) {
                const struct neon_unit unit = load(at.units + i * unit_bytes, super, quarter);
                acc[quarter] = neon_accumulate(acc[quarter], &unit, source, i, scaling, zero);
            }
        }
        for (int quarter = 0; quarter < NEON_QUARTERS; quarter++)
            partial[s][quarter] = acc[quarter];
    }
    neon_store_sums(&partial[0][0], NEON_QUARTERS, weight->segments.n, 1, y, 0, part_stride);
}

// Block formats with F32 sources: each unit's exact values, then one chain.
NEON_INLINE void matvec_f32_blocks(const struct packed *weight, size_t panel, const float *row, float *y,
                                   size_t part_stride, neon_load *load, enum scaling scaling, int zero)
{
    const size_t unit_bytes = weight->format->unit_bytes;
    const struct neon_panel at = neon_panel_at(weight, panel);
    const float *scales = row + f32_row_scales(weight->k);
    float32x4_t partial[MAX_SEGMENTS][NEON_QUARTERS];
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        float32x4_t acc[NEON_QUARTERS] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
        for (size_t i = weight->segments.border[s]; i < weight->segments.border[s + 1]; i++) {
            const uint8_t *super = neon_super_of(weight, at, i);
            const float *x = row + 32 * i;
            NEON_UNROLL
            for (int quarter = 0; quarter < NEON_QUARTERS; quarter++) {
                const struct neon_unit unit = load(at.units + i * unit_bytes, super, quarter);
                NEON_UNROLL
                for (int g = 0; g < NEON_GROUPS; g++) {
                    NEON_UNROLL
                    for (int j = 0; j < 4; j++)
                        acc[quarter] = vfmaq_n_f32(acc[quarter], neon_value(&unit, g, j, scaling, zero), x[4 * g + j]);
                }
            }
        }
        for (int quarter = 0; quarter < NEON_QUARTERS; quarter++)
            partial[s][quarter] = vmulq_n_f32(acc[quarter], scales[s]);
    }
    neon_store_sums(&partial[0][0], NEON_QUARTERS, weight->segments.n, 1, y, 0, part_stride);
}

#define MATVEC_BLOCKS(name, kind, scaling, zero)                                                                       \
    void neon_matvec_q8_##name(const struct packed *weight, size_t panel, const uint8_t *row, float *y,                \
                               size_t part_stride)                                                                     \
    {                                                                                                                  \
        matvec_q8(weight, panel, row, y, part_stride, neon_load_##name, scaling, zero);                                \
    }                                                                                                                  \
    void neon_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,                 \
                                size_t part_stride)                                                                    \
    {                                                                                                                  \
        matvec_f32_blocks(weight, panel, row, y, part_stride, neon_load_##name, scaling, zero);                        \
    }
NEON_BLOCK_FORMATS(MATVEC_BLOCKS)

NEON_INLINE void matvec_f32_plain(const struct packed *weight, size_t panel, const float *row, float *y,
                                  size_t part_stride, size_t element_bytes, neon_load_plain *load)
{
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    const float *scales = row + f32_row_scales(weight->k);
    float32x4_t partial[MAX_SEGMENTS][NEON_QUARTERS];
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        size_t begin, end;
        segments_range(&weight->segments, s, weight->k, &begin, &end);
        float32x4_t acc[NEON_QUARTERS] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
        for (size_t i = begin; i < end; i++) {
            NEON_UNROLL
            for (int quarter = 0; quarter < NEON_QUARTERS; quarter++) {
                const size_t element = PANEL_ROWS * i + 4 * (size_t)quarter;
                acc[quarter] = vfmaq_n_f32(acc[quarter], load(data + element * element_bytes), row[i]);
            }
        }
        for (int quarter = 0; quarter < NEON_QUARTERS; quarter++)
            partial[s][quarter] = vmulq_n_f32(acc[quarter], scales[s]);
    }
    neon_store_sums(&partial[0][0], NEON_QUARTERS, weight->segments.n, 1, y, 0, part_stride);
}

#define MATVEC_PLAIN(name, kind, element_bytes)                                                                        \
    void neon_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,                 \
                                size_t part_stride)                                                                    \
    {                                                                                                                  \
        matvec_f32_plain(weight, panel, row, y, part_stride, element_bytes, neon_load_##name);                         \
    }
NEON_PLAIN_FORMATS(MATVEC_PLAIN)

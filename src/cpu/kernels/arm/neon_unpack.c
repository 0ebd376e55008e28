// NEON: a panel unpacked once for many tokens, to bytes and scales (unpack_q8) or to its exact values (unpack_f32).
#include "cpu/kernels/arm/neon.h"

// Pairs [4 rows][2 halves] of int16.
NEON_INLINE void store_pairs(int16_t *out, const int32x4_t sub[2])
{
    vst2_s16(out, ((int16x4x2_t){{vmovn_s32(sub[0]), vmovn_s32(sub[1])}}));
}

NEON_INLINE void unpack_q8(const struct packed *weight, size_t panel, struct unpacked_q8 *out, neon_load *load,
                           enum scaling scaling)
{
    const size_t unit_bytes = weight->format->unit_bytes;
    const struct neon_panel at = neon_panel_at(weight, panel);
    for (size_t i = 0; i < weight->k / 32; i++) {
        const uint8_t *super = neon_super_of(weight, at, i);
        for (int quarter = 0; quarter < NEON_QUARTERS; quarter++) {
            const struct neon_unit unit = load(at.units + i * unit_bytes, super, quarter);
            const size_t row = 16 * i + 4 * (size_t)quarter;
            NEON_UNROLL
            for (int g = 0; g < NEON_GROUPS; g++)
                vst1q_u8(out->q + 512 * i + 64 * g + 16 * quarter, unit.q[g]);
            vst1q_f32(out->scale + row, unit.scale);
            if (scaling == SCALING_MIN32 || scaling == SCALING_MIN16)
                vst1q_f32(out->min + row, unit.min);
            if (neon_scaling_has_sub(scaling))
                store_pairs(out->sub + 2 * row, unit.sub);
            if (scaling == SCALING_MIN16)
                store_pairs(out->sub_min + 2 * row, unit.sub_min);
        }
    }
}

NEON_INLINE void unpack_f32_blocks(const struct packed *weight, size_t panel, float *out, neon_load *load,
                                   enum scaling scaling, int zero)
{
    const size_t unit_bytes = weight->format->unit_bytes;
    const struct neon_panel at = neon_panel_at(weight, panel);
    for (size_t i = 0; i < weight->k / 32; i++) {
        const uint8_t *super = neon_super_of(weight, at, i);
        for (int quarter = 0; quarter < NEON_QUARTERS; quarter++) {
            const struct neon_unit unit = load(at.units + i * unit_bytes, super, quarter);
            NEON_UNROLL
            for (int g = 0; g < NEON_GROUPS; g++) {
                NEON_UNROLL
                for (int j = 0; j < 4; j++)
                    vst1q_f32(out + PANEL_ROWS * (32 * i + 4 * (size_t)g + (size_t)j) + 4 * quarter,
                              neon_value(&unit, g, j, scaling, zero));
            }
        }
    }
}

#define UNPACK_BLOCK(name, kind, scaling, zero)                                                                        \
    void neon_unpack_q8_##name(const struct packed *weight, size_t panel, struct unpacked_q8 *out)                     \
    {                                                                                                                  \
        unpack_q8(weight, panel, out, neon_load_##name, scaling);                                                      \
    }                                                                                                                  \
    void neon_unpack_f32_##name(const struct packed *weight, size_t panel, float *out)                                 \
    {                                                                                                                  \
        unpack_f32_blocks(weight, panel, out, neon_load_##name, scaling, zero);                                        \
    }
NEON_BLOCK_FORMATS(UNPACK_BLOCK)

NEON_INLINE void unpack_f32_plain(const struct packed *weight, size_t panel, float *out, size_t element_bytes,
                                  neon_load_plain *load)
{
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    for (size_t i = 0; i < weight->k * PANEL_ROWS; i += 4)
        vst1q_f32(out + i, load(data + i * element_bytes));
}

#define UNPACK_PLAIN(name, kind, element_bytes)                                                                        \
    void neon_unpack_f32_##name(const struct packed *weight, size_t panel, float *out)                                 \
    {                                                                                                                  \
        unpack_f32_plain(weight, panel, out, element_bytes, neon_load_##name);                                         \
    }
NEON_PLAIN_FORMATS(UNPACK_PLAIN)

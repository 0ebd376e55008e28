// Where the parts of a unit lie in a packed panel, and access to them: for the packer, the readers and the C kernels.
#ifndef MOTE_CPU_PACKED_LAYOUT_H
#define MOTE_CPU_PACKED_LAYOUT_H

#include "cpu/packed.h"

#include <string.h>

enum sub_scales {
    SUB_NONE,
    SUB_U8_PAIR,  // scale u8[16], min u8[16]: one of each a unit (Q4_K, Q5_K)
    SUB_I8,       // scale i8 [2][16]: one a half (Q3_K, Q6_K)
    SUB_NIBBLES,  // (scale | min << 4) u8 [2][16]: one a half (Q2_K)
    SUB_EXPONENT, // exponent u8[16]: the scale itself; there are no halves (MXFP4)
};

// A unit of a block format is [halves][sub-scales][low bits][high bits]; see cpu/packed.h. Between sub_offset and
// low_offset lie 0, 16 or 32 bytes of sub-scales.
struct unit_layout {
    uint8_t n_halves; // F16 values a row before the integers: d, then m (0 where d lies in the super-block)
    enum sub_scales sub;
    uint8_t low_bits;     // 8, 4 or 2
    uint8_t high_bits;    // 0, 1 or 2
    uint16_t sub_offset;  // bytes
    uint16_t low_offset;  // bytes
    uint16_t high_offset; // bytes
    const uint8_t *codes; // what the stored nibbles stand for [16]; NULL: themselves
};

// For a block format.
const struct unit_layout *packed_unit_layout(enum packed_kind kind);

// Where the bits of one group of 4 k lie: vectors of 64 bytes, and shifts within each byte.
struct unit_place {
    uint32_t low_vector, low_shift;
    uint32_t high_vector, high_shift;
};

static inline struct unit_place unit_place(const struct unit_layout *layout, uint32_t group)
{
    const uint32_t per_vector = 8u / layout->low_bits; // groups that share a vector of low bits
    struct unit_place place = {
        .low_vector = group / per_vector,
        .low_shift = layout->low_bits * (group % per_vector),
        .high_vector = layout->high_bits * group / 8,
        .high_shift = layout->high_bits * group % 8,
    };
    if (layout->low_bits == 4) { // nibbles: groups j and j + 4 share vector j
        place.low_vector = group % 4;
        place.low_shift = group / 4 * 4;
    }
    return place;
}

// The integers of a unit as words: [8 groups of 4 k][16 rows], a word is 4 consecutive k of a row.
static inline void unit_read_q(const struct unit_layout *layout, const uint8_t *unit, uint32_t q[8][PANEL_ROWS])
{
    const uint8_t *low = unit + layout->low_offset, *high = unit + layout->high_offset;
    const uint32_t low_mask = 0x01010101u * ((1u << layout->low_bits) - 1);
    const uint32_t high_mask = 0x01010101u * ((1u << layout->high_bits) - 1);
    for (uint32_t group = 0; group < 8; group++) {
        const struct unit_place place = unit_place(layout, group);
        uint32_t words[PANEL_ROWS];
        memcpy(words, low + 64 * place.low_vector, sizeof(words));
        for (int row = 0; row < PANEL_ROWS; row++)
            q[group][row] = (words[row] >> place.low_shift) & low_mask;
        if (layout->high_bits == 0)
            continue;
        memcpy(words, high + 64 * place.high_vector, sizeof(words));
        for (int row = 0; row < PANEL_ROWS; row++)
            q[group][row] |= ((words[row] >> place.high_shift) & high_mask) << layout->low_bits;
    }
    if (layout->codes != NULL) {
        uint8_t *bytes = (uint8_t *)q;
        for (int i = 0; i < 32 * PANEL_ROWS; i++)
            bytes[i] = layout->codes[bytes[i]];
    }
}

// The integers of one row of a unit.
static inline void unit_read_row(const struct unit_layout *layout, const uint8_t *unit, size_t row, uint8_t q[32])
{
    for (uint32_t group = 0; group < 8; group++) {
        const struct unit_place place = unit_place(layout, group);
        const uint8_t *low = unit + layout->low_offset + 64 * place.low_vector + 4 * row;
        const uint8_t *high = unit + layout->high_offset + 64 * place.high_vector + 4 * row;
        for (int i = 0; i < 4; i++) {
            q[4 * group + i] = (uint8_t)(low[i] >> place.low_shift & ((1 << layout->low_bits) - 1));
            if (layout->high_bits > 0)
                q[4 * group + i] |=
                    (uint8_t)((high[i] >> place.high_shift & ((1 << layout->high_bits) - 1)) << layout->low_bits);
            if (layout->codes != NULL)
                q[4 * group + i] = layout->codes[q[4 * group + i]];
        }
    }
}

// Where the F16 values of a unit lie in its panel, for K-quants those of its super-block: d[16], then m or dmin[16]
// where the format has it. Bytes.
static inline size_t unit_halves_offset(const struct packed *packed, size_t unit)
{
    const struct packed_format *format = packed->format;
    if (format->super_units == 0)
        return unit * format->unit_bytes;
    size_t n_units = packed->k / format->unit;
    size_t super = (packed->super_offset + unit) / format->super_units;
    return n_units * format->unit_bytes + super * format->super_bytes;
}

static inline uint16_t read_u16(const uint8_t *bytes, size_t index)
{
    uint16_t value;
    memcpy(&value, bytes + 2 * index, sizeof(value));
    return value;
}

#endif

// Packing: rows in the file's layout to panels of 16 rows (cpu/packed.h). Each block format has one function that takes
// a unit of one row apart; one writer puts 16 of them together.
#include "cpu/packed_layout.h"

#include <stdbool.h>
#include <string.h>

// One row's 32 elements of a block format, taken apart.
struct unit_values {
    uint8_t q[32];      // as stored: the format's zero point not subtracted, codes not looked up
    uint16_t halves[2]; // d, and m or dmin (bits)
    uint8_t sub[2];     // bytes as packed: [scale, min], the two halves' sub-scales, or an exponent
};

static void split_nibbles(const uint8_t *bytes, uint8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = bytes[i] & 15;
        q[i + 16] = bytes[i] >> 4;
    }
}

// Bit i of the 32 bits at `bits` becomes bit 4 of q[i].
static void add_fifth_bits(const uint8_t *bits, uint8_t *q)
{
    for (int i = 0; i < 4; i++) { // 8 elements: byte j of `spread` is not 0 where bit j is set, at most 0x80
        uint64_t elements, spread = bits[i] * 0x0101010101010101u & 0x8040201008040201u;
        memcpy(&elements, q + 8 * i, sizeof(elements));
        elements |= (spread + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u;
        memcpy(q + 8 * i, &elements, sizeof(elements));
    }
}

// d f16, q[16]
static void read_q4_0(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit * 18;
    out->halves[0] = read_u16(block, 0);
    split_nibbles(block + 2, out->q);
}

// d f16, m f16, q[16]
static void read_q4_1(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit * 20;
    out->halves[0] = read_u16(block, 0);
    out->halves[1] = read_u16(block, 1);
    split_nibbles(block + 4, out->q);
}

// d f16, fifth bits u32, q[16]
static void read_q5_0(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit * 22;
    out->halves[0] = read_u16(block, 0);
    split_nibbles(block + 6, out->q);
    add_fifth_bits(block + 2, out->q);
}

// d f16, m f16, fifth bits u32, q[16]
static void read_q5_1(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit * 24;
    out->halves[0] = read_u16(block, 0);
    out->halves[1] = read_u16(block, 1);
    split_nibbles(block + 8, out->q);
    add_fifth_bits(block + 4, out->q);
}

// d f16, q i8[32]
static void read_q8_0(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit * 34;
    out->halves[0] = read_u16(block, 0);
    for (int i = 0; i < 32; i++)
        out->q[i] = block[2 + i] ^ 0x80; // + 128
}

// exponent u8, q[16]
static void read_mxfp4(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit * 17;
    out->sub[0] = block[0];
    split_nibbles(block + 1, out->q);
}

// The K-quants: a block of 256 holds 8 units; `unit % 8` is the sub-block. Two-bit planes: sub-block 4h + j lies at
// bits 2j of the 32 bytes of half h.
static void read_two_bits(const uint8_t *bytes, uint32_t sub_block, uint8_t *q)
{
    const uint8_t *half = bytes + 32 * (sub_block / 4);
    uint32_t shift = 2 * (sub_block % 4);
    for (int i = 0; i < 32; i++)
        q[i] = half[i] >> shift & 3;
}

// scales u8[16] (scale | min << 4), q[64], d f16, dmin f16
static void read_q2_k(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit / 8 * 84;
    uint32_t sub_block = unit % 8;
    out->halves[0] = read_u16(block + 80, 0);
    out->halves[1] = read_u16(block + 80, 1);
    out->sub[0] = block[2 * sub_block];
    out->sub[1] = block[2 * sub_block + 1];
    read_two_bits(block + 16, sub_block, out->q);
}

// One of the 16 six-bit scales of Q3_K, minus 32: low nibbles in bytes 0 … 7, upper two bits in bytes 8 … 11.
static uint8_t q3_k_scale(const uint8_t *scales, uint32_t index)
{
    uint32_t low = index < 8 ? scales[index] & 15u : (uint32_t)scales[index - 8] >> 4;
    uint32_t high = scales[8 + index % 4] >> (2 * (index / 4)) & 3u;
    return (uint8_t)((low | high << 4) - 32);
}

// third bits[32], q[64], scales[12], d f16
static void read_q3_k(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit / 8 * 110;
    uint32_t sub_block = unit % 8;
    out->halves[0] = read_u16(block + 108, 0);
    out->sub[0] = q3_k_scale(block + 96, 2 * sub_block);
    out->sub[1] = q3_k_scale(block + 96, 2 * sub_block + 1);
    read_two_bits(block + 32, sub_block, out->q);
    for (int i = 0; i < 32; i++)
        out->q[i] |= (uint8_t)((block[i] >> sub_block & 1) << 2);
}

// The six-bit scale and minimum of a sub-block of Q4_K and Q5_K, from 12 bytes.
static void k_scale_min(const uint8_t *scales, uint32_t sub_block, uint8_t *sub)
{
    if (sub_block < 4) {
        sub[0] = scales[sub_block] & 63;
        sub[1] = scales[sub_block + 4] & 63;
    } else {
        sub[0] = (uint8_t)((scales[sub_block + 4] & 15) | scales[sub_block - 4] >> 6 << 4);
        sub[1] = (uint8_t)(scales[sub_block + 4] >> 4 | scales[sub_block] >> 6 << 4);
    }
}

// Nibbles: sub-blocks 2c and 2c + 1 are the low and high nibbles of 32 bytes.
static void read_nibble_plane(const uint8_t *bytes, uint32_t sub_block, uint8_t *q)
{
    const uint8_t *plane = bytes + 32 * (sub_block / 2);
    uint32_t shift = 4 * (sub_block % 2);
    for (int i = 0; i < 32; i++)
        q[i] = plane[i] >> shift & 15;
}

// d f16, dmin f16, scales[12], q[128]
static void read_q4_k(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit / 8 * 144;
    out->halves[0] = read_u16(block, 0);
    out->halves[1] = read_u16(block, 1);
    k_scale_min(block + 4, unit % 8, out->sub);
    read_nibble_plane(block + 16, unit % 8, out->q);
}

// d f16, dmin f16, scales[12], fifth bits[32], q[128]
static void read_q5_k(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit / 8 * 176;
    out->halves[0] = read_u16(block, 0);
    out->halves[1] = read_u16(block, 1);
    k_scale_min(block + 4, unit % 8, out->sub);
    read_nibble_plane(block + 48, unit % 8, out->q);
    for (int i = 0; i < 32; i++)
        out->q[i] |= (uint8_t)((block[16 + i] >> unit % 8 & 1) << 4);
}

// low q[128], high q[64], scales i8[16], d f16. In each half of 128: sub-blocks 0 and 1 are the low nibbles of 64
// bytes, 2 and 3 the high ones.
static void read_q6_k(const uint8_t *row, size_t unit, struct unit_values *out)
{
    const uint8_t *block = row + unit / 8 * 210;
    uint32_t sub_block = unit % 8;
    const uint8_t *low = block + 64 * (sub_block / 4) + 32 * (sub_block % 2);
    uint32_t low_shift = sub_block % 4 / 2 * 4;
    uint8_t high[32];
    out->halves[0] = read_u16(block + 208, 0);
    out->sub[0] = block[192 + 2 * sub_block];
    out->sub[1] = block[192 + 2 * sub_block + 1];
    read_two_bits(block + 128, sub_block, high);
    for (int i = 0; i < 32; i++)
        out->q[i] = (uint8_t)((low[i] >> low_shift & 15) | high[i] << 4);
}

typedef void (*unit_reader)(const uint8_t *row, size_t unit, struct unit_values *out);
static const unit_reader unit_readers[PACKED_COUNT] = {
    [PACKED_Q4_0] = read_q4_0, [PACKED_Q4_1] = read_q4_1, [PACKED_Q5_0] = read_q5_0,   [PACKED_Q5_1] = read_q5_1,
    [PACKED_Q8_0] = read_q8_0, [PACKED_Q2_K] = read_q2_k, [PACKED_Q3_K] = read_q3_k,   [PACKED_Q4_K] = read_q4_k,
    [PACKED_Q5_K] = read_q5_k, [PACKED_Q6_K] = read_q6_k, [PACKED_MXFP4] = read_mxfp4,
};

// Puts the integers of one row into a unit.
static void write_q(const struct unit_layout *layout, uint8_t *unit, size_t row, const uint8_t *q)
{
    uint8_t *low = unit + layout->low_offset + 4 * row, *high = unit + layout->high_offset + 4 * row;
    const uint32_t low_mask = 0x01010101u * ((1u << layout->low_bits) - 1);
    const uint32_t high_mask = 0x01010101u * ((1u << layout->high_bits) - 1);
    uint32_t groups[8], low_words[8] = {0}, high_words[2] = {0}; // the row's 4 bytes of each vector
    memcpy(groups, q, sizeof(groups));
    for (uint32_t group = 0; group < 8; group++) {
        const struct unit_place place = unit_place(layout, group);
        low_words[place.low_vector] |= (groups[group] & low_mask) << place.low_shift;
        high_words[place.high_vector] |= (groups[group] >> layout->low_bits & high_mask) << place.high_shift;
    }
    for (uint32_t vector = 0; vector < layout->low_bits; vector++)
        memcpy(low + 64 * vector, &low_words[vector], sizeof(low_words[0]));
    for (uint32_t vector = 0; vector < layout->high_bits; vector++)
        memcpy(high + 64 * vector, &high_words[vector], sizeof(high_words[0]));
}

static void pack_blocks(const struct packed *packed, uint8_t *panel, const uint8_t *rows, size_t row_bytes,
                        size_t n_rows)
{
    const struct packed_format *format = packed->format;
    const struct unit_layout *layout = packed_unit_layout(format->kind);
    const unit_reader read_unit = unit_readers[format->kind];
    const size_t n_units = packed->k / format->unit;
    const size_t n_halves = layout->n_halves > 0 ? layout->n_halves : format->super_bytes / 32;
    const size_t n_sub = (size_t)(layout->low_offset - layout->sub_offset) / 16;
    for (size_t i = 0; i < n_units; i++) {
        uint8_t *unit = panel + i * format->unit_bytes;
        uint8_t *halves = panel + unit_halves_offset(packed, i);
        for (size_t row = 0; row < n_rows; row++) {
            struct unit_values values = {0};
            read_unit(rows + row * row_bytes, packed->super_offset + i, &values);
            for (size_t j = 0; j < n_halves; j++)
                memcpy(halves + 32 * j + 2 * row, &values.halves[j], 2);
            for (size_t j = 0; j < n_sub; j++)
                unit[layout->sub_offset + 16 * j + row] = values.sub[j];
            write_q(layout, unit, row, values.q);
        }
    }
}

// Plain types: a transposition. Elements of 2 or 4 bytes, 16 of a row at a time, so that what is written stays near.
static void pack_plain(const struct packed *packed, uint8_t *panel, const uint8_t *rows, size_t row_bytes,
                       size_t n_rows)
{
    enum { TILE = 16 };
    const bool wide = packed->format->unit_bytes == 4 * PANEL_ROWS;
    for (size_t begin = 0; begin < packed->k; begin += TILE) {
        const size_t end = packed->k - begin < TILE ? packed->k : begin + TILE;
        for (size_t row = 0; row < n_rows; row++) {
            const uint8_t *from = rows + row * row_bytes;
            for (size_t i = begin; i < end; i++)
                if (wide)
                    memcpy(panel + 4 * (i * PANEL_ROWS + row), from + 4 * i, 4);
                else
                    memcpy(panel + 2 * (i * PANEL_ROWS + row), from + 2 * i, 2);
        }
    }
}

void packed_pack_panel(const struct packed *packed, size_t panel, const uint8_t *rows, size_t row_bytes, size_t n_rows)
{
    uint8_t *data = packed->data + panel * packed->panel_bytes;
    memset(data, 0, packed->panel_bytes);
    if (packed->format->scaling == SCALING_NONE)
        pack_plain(packed, data, rows, row_bytes, n_rows);
    else
        pack_blocks(packed, data, rows, row_bytes, n_rows);
}

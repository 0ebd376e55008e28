// The formats of packed weights, and sizes. The layout is described in packed.h, its parts in packed_layout.h.
#include "cpu/packed.h"

#include "base/checked.h"
#include "cpu/kernels/kernels.h"
#include "cpu/packed_layout.h"

// kind, dtype, scaling, unit, unit bytes, super units, super bytes, grain, zero
static const struct packed_format formats[PACKED_COUNT] = {
    {PACKED_F32, DTYPE_F32, SCALING_NONE, 1, 64, 0, 0, 16, 0},
    {PACKED_F16, DTYPE_F16, SCALING_NONE, 1, 32, 0, 0, 16, 0},
    {PACKED_BF16, DTYPE_BF16, SCALING_NONE, 1, 32, 0, 0, 16, 0},
    {PACKED_Q4_0, DTYPE_Q4_0, SCALING_32, 32, 288, 0, 0, 32, 8},
    {PACKED_Q4_1, DTYPE_Q4_1, SCALING_MIN32, 32, 320, 0, 0, 32, 0},
    {PACKED_Q5_0, DTYPE_Q5_0, SCALING_32, 32, 352, 0, 0, 32, 16},
    {PACKED_Q5_1, DTYPE_Q5_1, SCALING_MIN32, 32, 384, 0, 0, 32, 0},
    {PACKED_Q8_0, DTYPE_Q8_0, SCALING_32, 32, 544, 0, 0, 32, 128},
    {PACKED_Q2_K, DTYPE_Q2_K, SCALING_MIN16, 32, 160, 8, 64, 32, 0},
    {PACKED_Q3_K, DTYPE_Q3_K, SCALING_16, 32, 224, 8, 32, 32, 4},
    {PACKED_Q4_K, DTYPE_Q4_K, SCALING_MIN32, 32, 288, 8, 64, 32, 0},
    {PACKED_Q5_K, DTYPE_Q5_K, SCALING_MIN32, 32, 352, 8, 64, 32, 0},
    {PACKED_Q6_K, DTYPE_Q6_K, SCALING_16, 32, 416, 8, 32, 32, 32},
    {PACKED_MXFP4, DTYPE_MXFP4, SCALING_32, 32, 272, 0, 0, 32, MXFP4_ZERO},
};

static const uint8_t mxfp4_codes[16] = {MXFP4_CODES};

// halves, sub-scales, low bits, high bits, offsets of sub-scales, low and high bits, codes
static const struct unit_layout layouts[PACKED_COUNT] = {
    [PACKED_Q4_0] = {1, SUB_NONE, 4, 0, 32, 32, 288, NULL},
    [PACKED_Q4_1] = {2, SUB_NONE, 4, 0, 64, 64, 320, NULL},
    [PACKED_Q5_0] = {1, SUB_NONE, 4, 1, 32, 32, 288, NULL},
    [PACKED_Q5_1] = {2, SUB_NONE, 4, 1, 64, 64, 320, NULL},
    [PACKED_Q8_0] = {1, SUB_NONE, 8, 0, 32, 32, 544, NULL},
    [PACKED_Q2_K] = {0, SUB_NIBBLES, 2, 0, 0, 32, 160, NULL},
    [PACKED_Q3_K] = {0, SUB_I8, 2, 1, 0, 32, 160, NULL},
    [PACKED_Q4_K] = {0, SUB_U8_PAIR, 4, 0, 0, 32, 288, NULL},
    [PACKED_Q5_K] = {0, SUB_U8_PAIR, 4, 1, 0, 32, 288, NULL},
    [PACKED_Q6_K] = {0, SUB_I8, 4, 2, 0, 32, 288, NULL},
    [PACKED_MXFP4] = {0, SUB_EXPONENT, 4, 0, 0, 16, 272, mxfp4_codes},
};

const struct packed_format *packed_format_of(enum dtype dtype)
{
    for (int kind = 0; kind < PACKED_COUNT; kind++)
        if (formats[kind].dtype == dtype)
            return &formats[kind];
    return NULL;
}

const struct unit_layout *packed_unit_layout(enum packed_kind kind)
{
    return &layouts[kind];
}

void packed_describe(struct packed *packed, const struct packed_format *format, size_t n_rows, size_t k,
                     size_t super_offset)
{
    size_t n_units = k / format->unit;
    size_t n_supers = 0;
    if (format->super_units > 0)
        n_supers = (super_offset + n_units + format->super_units - 1) / format->super_units;
    *packed = (struct packed){
        .format = format,
        .n_rows = n_rows,
        .k = k,
        .super_offset = super_offset,
        .n_panels = (n_rows + PANEL_ROWS - 1) / PANEL_ROWS,
        .panel_bytes = round_up(n_units * format->unit_bytes + n_supers * format->super_bytes, 64),
    };
    segments_make(&packed->segments, k, format->grain);
}

// The parts of an unpacked panel, in order; each is a multiple of 64 bytes for every n.
size_t unpacked_q8_bytes(size_t k)
{
    return k / 32 * (512 + 64 + 64 + 64 + 64);
}

void unpacked_q8_place(struct unpacked_q8 *unpacked, void *memory, size_t k)
{
    size_t n = k / 32;
    uint8_t *bytes = memory;
    unpacked->q = bytes;
    unpacked->scale = (float *)(void *)(bytes + n * 512);
    unpacked->min = (float *)(void *)(bytes + n * 576);
    unpacked->sub = (int16_t *)(void *)(bytes + n * 640);
    unpacked->sub_min = (int16_t *)(void *)(bytes + n * 704);
}

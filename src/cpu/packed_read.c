// Reading single rows back out of panels, exactly: the embedding lookup, which needs no second copy of the tensor.
#include "cpu/packed_layout.h"

#include <stdbool.h>
#include <string.h>

// The sub-scales and sub-minimums of both halves of a unit's row: 1 and 0 where the format has none.
static void read_sub_scales(enum sub_scales kind, const uint8_t *sub, size_t row, float scale[2], float min[2])
{
    for (int half = 0; half < 2; half++) {
        const uint8_t byte = sub[16 * half + row];
        scale[half] = 1.0f;
        min[half] = 1.0f;
        switch (kind) {
        case SUB_NONE:
        case SUB_EXPONENT:
            break;
        case SUB_U8_PAIR:
            scale[half] = (float)sub[row];
            min[half] = (float)sub[16 + row];
            break;
        case SUB_I8:
            scale[half] = (float)(int8_t)byte;
            break;
        case SUB_NIBBLES:
            scale[half] = (float)(byte & 15);
            min[half] = (float)(byte >> 4);
            break;
        }
    }
}

// 32 values of a row. Each is the dtype's: (d · scale) · q, then ± the minimum; all products but the last are exact.
static void read_unit_row(const struct packed *packed, const uint8_t *panel, size_t index, size_t row, float *values)
{
    const struct packed_format *format = packed->format;
    const struct unit_layout *layout = packed_unit_layout(format->kind);
    const uint8_t *unit = panel + index * format->unit_bytes;
    const uint8_t *halves = panel + unit_halves_offset(packed, index);
    const bool has_min = format->scaling == SCALING_MIN32 || format->scaling == SCALING_MIN16;
    const float d = layout->sub == SUB_EXPONENT ? mxfp4_scale(unit[layout->sub_offset + row])
                                                : half_to_float(read_u16(halves, row));
    // Q4_1 and Q5_1 add their m, the K-quants subtract dmin · min.
    float dmin = has_min ? half_to_float(read_u16(halves, 16 + row)) : 0.0f;
    if (layout->sub == SUB_NONE)
        dmin = -dmin;

    float scale[2], min[2];
    read_sub_scales(layout->sub, unit + layout->sub_offset, row, scale, min);
    uint8_t q[32];
    unit_read_row(layout, unit, row, q);
    for (int i = 0; i < 32; i++) {
        const int half = i / 16;
        values[i] = d * scale[half] * (float)(q[i] - format->zero);
        if (has_min)
            values[i] -= dmin * min[half];
    }
}

static float plain_value(enum packed_kind kind, const uint8_t *element)
{
    float value;
    if (kind == PACKED_F16)
        return half_to_float(read_u16(element, 0));
    if (kind == PACKED_BF16)
        return bfloat_to_float(read_u16(element, 0));
    memcpy(&value, element, sizeof(value));
    return value;
}

void packed_read_row(const struct packed *packed, size_t row, float *values)
{
    const struct packed_format *format = packed->format;
    const uint8_t *panel = packed->data + row / PANEL_ROWS * packed->panel_bytes;
    row %= PANEL_ROWS;
    const size_t n_units = packed->k / format->unit;
    for (size_t i = 0; i < n_units; i++) {
        if (format->scaling == SCALING_NONE)
            values[i] =
                plain_value(format->kind, panel + i * format->unit_bytes + row * (format->unit_bytes / PANEL_ROWS));
        else
            read_unit_row(packed, panel, i, row, values + i * format->unit);
    }
}

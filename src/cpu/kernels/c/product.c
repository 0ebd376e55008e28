// Products of one panel of 16 outputs. Every output's sum: segments of K, each one chain in ascending k, then a tree.
#include "cpu/kernels/c/math.h"
#include "cpu/kernels/c/table.h"
#include "cpu/packed_layout.h"

// 32 elements of K of a panel, unpacked: pointers to 16 rows each, in the layouts of struct unpacked_q8.
struct grain {
    uint8_t *q;       // [8 groups][16][4]
    float *scale;     // [16]
    float *min;       // [16]
    int16_t *sub;     // [16][2]
    int16_t *sub_min; // [16][2]
};

static struct grain grain_of(const struct unpacked_q8 *unpacked, size_t index)
{
    return (struct grain){
        .q = unpacked->q + 512 * index,
        .scale = unpacked->scale + 16 * index,
        .min = unpacked->min + 16 * index,
        .sub = unpacked->sub + 32 * index,
        .sub_min = unpacked->sub_min + 32 * index,
    };
}

static bool has_min(const struct packed_format *format)
{
    return format->scaling == SCALING_MIN32 || format->scaling == SCALING_MIN16;
}

// Sub-scales: SUB_U8_PAIR multiplies them into scale and min (exact in F32), an exponent is the scale, the others keep
// integers a half.
static void unpack_sub_scales(enum sub_scales kind, const uint8_t *sub, struct grain *out)
{
    for (int row = 0; row < PANEL_ROWS; row++) {
        switch (kind) {
        case SUB_EXPONENT:
            out->scale[row] = mxfp4_scale(sub[row]);
            break;
        case SUB_NONE: // Q4_1 and Q5_1 add their minimum, the contract subtracts it
            out->min[row] = -out->min[row];
            break;
        case SUB_U8_PAIR:
            out->scale[row] *= (float)sub[row];
            out->min[row] *= (float)sub[16 + row];
            break;
        case SUB_I8:
            for (int half = 0; half < 2; half++)
                out->sub[2 * row + half] = (int8_t)sub[16 * half + row];
            break;
        case SUB_NIBBLES:
            for (int half = 0; half < 2; half++) {
                out->sub[2 * row + half] = sub[16 * half + row] & 15;
                out->sub_min[2 * row + half] = sub[16 * half + row] >> 4;
            }
            break;
        }
    }
}

static void unpack_grain(const struct packed *weight, const uint8_t *panel, size_t index, struct grain *out)
{
    const struct packed_format *format = weight->format;
    const struct unit_layout *layout = packed_unit_layout(format->kind);
    const uint8_t *unit = panel + index * format->unit_bytes;
    const uint8_t *halves = panel + unit_halves_offset(weight, index);
    if (layout->sub != SUB_EXPONENT)
        for (size_t row = 0; row < PANEL_ROWS; row++)
            out->scale[row] = half_value(read_u16(halves, row));
    if (has_min(format))
        for (size_t row = 0; row < PANEL_ROWS; row++)
            out->min[row] = half_value(read_u16(halves, 16 + row));
    if (layout->sub != SUB_NONE || has_min(format))
        unpack_sub_scales(layout->sub, unit + layout->sub_offset, out);
    uint32_t q[8][PANEL_ROWS];
    unit_read_q(layout, unit, q);
    memcpy(out->q, q, sizeof(q));
}

// Room for a single grain, for kernels that unpack as they go.
struct grain_memory {
    _Alignas(64) uint8_t q[512];
    float scale[16], min[16];
    int16_t sub[32], sub_min[32];
};

static struct grain grain_in(struct grain_memory *memory)
{
    return (struct grain){memory->q, memory->scale, memory->min, memory->sub, memory->sub_min};
}

// dot[half][row] = Σ (q - zero) · xq over a half of the grain: exact integers.
static void dot_halves(const uint8_t *q, int zero, const int8_t *xq, int32_t dot[2][PANEL_ROWS])
{
    for (int half = 0; half < 2; half++) {
        for (int row = 0; row < PANEL_ROWS; row++)
            dot[half][row] = 0;
        for (int group = 4 * half; group < 4 * half + 4; group++)
            for (int row = 0; row < PANEL_ROWS; row++)
                for (int i = 0; i < 4; i++)
                    dot[half][row] += (q[64 * group + 4 * row + i] - zero) * xq[4 * group + i];
    }
}

// One step of the chains: acc += grain · 32 elements of the source (xq, its scale dx, its sums of 16).
static void chain_grain(const struct packed_format *format, const struct grain *grain, const int8_t *xq, float dx,
                        const int16_t *sums, float *acc)
{
    int32_t dot[2][PANEL_ROWS];
    dot_halves(grain->q, format->zero, xq, dot);
    if (format->scaling == SCALING_32 || format->scaling == SCALING_MIN32)
        for (int row = 0; row < PANEL_ROWS; row++)
            acc[row] = fmaf(grain->scale[row] * dx, (float)(dot[0][row] + dot[1][row]), acc[row]);
    else
        for (int row = 0; row < PANEL_ROWS; row++) {
            int32_t sum = grain->sub[2 * row] * dot[0][row] + grain->sub[2 * row + 1] * dot[1][row];
            acc[row] = fmaf(grain->scale[row] * dx, (float)sum, acc[row]);
        }

    if (format->scaling == SCALING_MIN32) {
        const float sx = dx * (float)(sums[0] + sums[1]);
        for (int row = 0; row < PANEL_ROWS; row++)
            acc[row] = fmaf(-grain->min[row], sx, acc[row]);
    } else if (format->scaling == SCALING_MIN16) {
        for (int row = 0; row < PANEL_ROWS; row++) {
            int32_t sum = grain->sub_min[2 * row] * sums[0] + grain->sub_min[2 * row + 1] * sums[1];
            acc[row] = fmaf(-(grain->min[row] * dx), (float)sum, acc[row]);
        }
    }
}

// The tree over the segments' partial sums, for 16 outputs.
static void add_segments(float partial[MAX_SEGMENTS][PANEL_ROWS], uint32_t n, float *y)
{
    for (uint32_t stride = 1; stride < n; stride *= 2)
        for (uint32_t i = 0; i + stride < n; i += 2 * stride)
            for (int row = 0; row < PANEL_ROWS; row++)
                partial[i][row] += partial[i + stride][row];
    memcpy(y, partial[0], PANEL_ROWS * sizeof(*y));
}

// The tree's result, or where part_stride is not 0 each segment's sums as they are, that many floats apart.
static void store_sums(float partial[MAX_SEGMENTS][PANEL_ROWS], uint32_t n, float *y, size_t part_stride)
{
    if (part_stride == 0) {
        add_segments(partial, n, y);
        return;
    }
    for (uint32_t s = 0; s < n; s++)
        memcpy(y + s * part_stride, partial[s], PANEL_ROWS * sizeof(*y));
}

void C_NAME(c_add_parts)(const float *parts, uint32_t n_segments, float *y)
{
    float partial[MAX_SEGMENTS][PANEL_ROWS] = {{0}};
    memcpy(partial, parts, n_segments * sizeof(partial[0]));
    add_segments(partial, n_segments, y);
}

void C_NAME(c_unpack_q8)(const struct packed *weight, size_t panel, struct unpacked_q8 *out)
{
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    for (size_t i = 0; i < weight->k / 32; i++) {
        struct grain grain = grain_of(out, i);
        unpack_grain(weight, data, i, &grain);
    }
}

void C_NAME(c_matvec_q8)(const struct packed *weight, size_t panel, const uint8_t *row, float *y, size_t part_stride)
{
    const struct q8_row x = q8_row_parts(row, weight->k);
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    struct grain_memory memory;
    struct grain grain = grain_in(&memory);
    float partial[MAX_SEGMENTS][PANEL_ROWS] = {{0}};
    for (uint32_t s = 0; s < weight->segments.n; s++)
        for (size_t i = weight->segments.border[s]; i < weight->segments.border[s + 1]; i++) {
            unpack_grain(weight, data, i, &grain);
            chain_grain(weight->format, &grain, x.q + 32 * i, x.d[i], x.sums + 2 * i, partial[s]);
        }
    store_sums(partial, weight->segments.n, y, part_stride);
}

void C_NAME(c_gemm_q8)(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                       size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride)
{
    for (size_t t = 0; t < n; t++) {
        const struct q8_row x = q8_row_parts(rows + t * row_stride, weight->k);
        float partial[MAX_SEGMENTS][PANEL_ROWS] = {{0}};
        for (uint32_t s = 0; s < weight->segments.n; s++)
            for (size_t i = weight->segments.border[s]; i < weight->segments.border[s + 1]; i++) {
                const struct grain grain = grain_of(panel, i);
                chain_grain(weight->format, &grain, x.q + 32 * i, x.d[i], x.sums + 2 * i, partial[s]);
            }
        store_sums(partial, weight->segments.n, y + t * y_stride, part_stride);
    }
}

// The values of a grain, [32][16]: (d · sub-scale) · q - minimum, as the dtype's definition has it.
static void grain_values(const struct packed_format *format, const struct grain *grain, float *values)
{
    const bool by_half = format->scaling == SCALING_16 || format->scaling == SCALING_MIN16;
    for (int i = 0; i < 32; i++)
        for (int row = 0; row < PANEL_ROWS; row++) {
            float scale = grain->scale[row];
            float min = has_min(format) ? grain->min[row] : 0.0f;
            if (by_half)
                scale *= (float)grain->sub[2 * row + i / 16];
            if (format->scaling == SCALING_MIN16)
                min *= (float)grain->sub_min[2 * row + i / 16];
            float value = scale * (float)(grain->q[64 * (i / 4) + 4 * row + i % 4] - format->zero);
            values[16 * i + row] = has_min(format) ? value - min : value;
        }
}

// n elements of a plain type as F32.
static void plain_values(enum packed_kind kind, const uint8_t *elements, size_t n, float *values)
{
    if (kind == PACKED_F32)
        memcpy(values, elements, n * sizeof(*values));
    else if (kind == PACKED_F16)
        for (size_t i = 0; i < n; i++)
            values[i] = half_value(read_u16(elements, i));
    else
        for (size_t i = 0; i < n; i++)
            values[i] = bfloat_value(read_u16(elements, i));
}

// The values of elements [begin, end) of K, [end - begin][16]; for block formats whole grains.
static void unpack_range(const struct packed *weight, size_t panel, size_t begin, size_t end, float *out)
{
    const struct packed_format *format = weight->format;
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    if (format->scaling == SCALING_NONE) {
        plain_values(format->kind, data + begin * format->unit_bytes, (end - begin) * PANEL_ROWS, out);
        return;
    }
    struct grain_memory memory;
    struct grain grain = grain_in(&memory);
    for (size_t k = begin; k < end; k += 32) {
        unpack_grain(weight, data, k / 32, &grain);
        grain_values(format, &grain, out + (k - begin) * PANEL_ROWS);
    }
}

void C_NAME(c_unpack_f32)(const struct packed *weight, size_t panel, float *out)
{
    unpack_range(weight, panel, 0, weight->k, out);
}

// acc += w · x over n elements, one chain an output.
static void chain_f32(const float *w, const float *x, size_t n, float *acc)
{
    for (size_t i = 0; i < n; i++)
        for (int row = 0; row < PANEL_ROWS; row++)
            acc[row] = fmaf(w[PANEL_ROWS * i + row], x[i], acc[row]);
}

// A segment's partial sums by the power of two that its source was divided by.
static void scale_partial(float *partial, float scale)
{
    for (int row = 0; row < PANEL_ROWS; row++)
        partial[row] *= scale;
}

void C_NAME(c_matvec_f32)(const struct packed *weight, size_t panel, const float *row, float *y, size_t part_stride)
{
    const float *scales = row + f32_row_scales(weight->k);
    float partial[MAX_SEGMENTS][PANEL_ROWS] = {{0}};
    for (uint32_t s = 0; s < weight->segments.n; s++) {
        size_t begin, end;
        segments_range(&weight->segments, s, weight->k, &begin, &end);
        float values[32 * PANEL_ROWS];
        for (size_t k = begin; k < end; k += 32) {
            const size_t n = end - k < 32 ? end - k : 32;
            unpack_range(weight, panel, k, k + n, values);
            chain_f32(values, row + k, n, partial[s]);
        }
        scale_partial(partial[s], scales[s]);
    }
    store_sums(partial, weight->segments.n, y, part_stride);
}

void C_NAME(c_gemm_f32)(const struct packed *weight, const float *panel, const float *rows, size_t row_stride, size_t n,
                        float *y, size_t y_stride, size_t part_stride)
{
    for (size_t t = 0; t < n; t++) {
        const float *row = (const float *)(const void *)((const char *)rows + t * row_stride);
        const float *scales = row + f32_row_scales(weight->k);
        float partial[MAX_SEGMENTS][PANEL_ROWS] = {{0}};
        for (uint32_t s = 0; s < weight->segments.n; s++) {
            size_t begin, end;
            segments_range(&weight->segments, s, weight->k, &begin, &end);
            chain_f32(panel + begin * PANEL_ROWS, row + begin, end - begin, partial[s]);
            scale_partial(partial[s], scales[s]);
        }
        store_sums(partial, weight->segments.n, y + t * y_stride, part_stride);
    }
}

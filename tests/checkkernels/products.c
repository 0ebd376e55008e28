// Products: every packed kind, with weights whose scales and codes are ordinary, extreme and not finite.
#include "check.h"

#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t block_sizes[] = {32, 64, 96, 224, 256, 288, 512, 576, 1536, 4128};
static const size_t plain_sizes[] = {1, 3, 16, 17, 31, 48, 100, 128, 129, 575, 1030};
enum { N_BLOCK_SIZES = sizeof(block_sizes) / sizeof(block_sizes[0]) };
enum { N_PLAIN_SIZES = sizeof(plain_sizes) / sizeof(plain_sizes[0]) };
enum { MAX_TOKENS = 13 };

// Where a file's block holds its F16 scales (d, then m or dmin); 0xffff: none. (MXFP4's exponent is byte 0.)
struct block_halves {
    enum dtype dtype;
    uint16_t offset[2];
};
static const struct block_halves block_halves[] = {
    {DTYPE_Q4_0, {0, 0xffff}},      {DTYPE_Q4_1, {0, 2}},
    {DTYPE_Q5_0, {0, 0xffff}},      {DTYPE_Q5_1, {0, 2}},
    {DTYPE_Q8_0, {0, 0xffff}},      {DTYPE_Q2_K, {80, 82}},
    {DTYPE_Q3_K, {108, 0xffff}},    {DTYPE_Q4_K, {0, 2}},
    {DTYPE_Q5_K, {0, 2}},           {DTYPE_Q6_K, {208, 0xffff}},
    {DTYPE_F32, {0xffff, 0xffff}},  {DTYPE_F16, {0xffff, 0xffff}},
    {DTYPE_BF16, {0xffff, 0xffff}}, {DTYPE_MXFP4, {0xffff, 0xffff}},
};
enum { N_DTYPES = sizeof(block_halves) / sizeof(block_halves[0]) };

enum weight_values {
    WEIGHTS_RANDOM,  // random codes, ordinary scales
    WEIGHTS_ONES,    // all bits set in the codes
    WEIGHTS_ZEROS,   // no bit set (Q4_0: -8, Q8_0: 0)
    WEIGHTS_MINIMUM, // bytes 0x80: -128 in Q8_0 and in Q6_K's scales
    WEIGHTS_SCALES,  // random codes, scales subnormal, largest, zero, negative
    WEIGHTS_SPECIAL, // the same with inf and NaN
    WEIGHTS_COUNT,
};
static const char *const weight_names[WEIGHTS_COUNT] = {"random", "ones", "zeros", "minimum", "scales", "special"};

static uint16_t random_half(struct check *check, enum weight_values weights)
{
    static const uint16_t edges[] = {0x0001, 0x03ff, 0x7bff, 0xfbff, 0x8001, 0x0000,
                                     0x8000, 0x0400, 0x7c00, 0xfc00, 0x7e01};
    const uint64_t random = check_random(check);
    if (weights == WEIGHTS_SCALES)
        return edges[random % 8];
    if (weights == WEIGHTS_SPECIAL && random % 8 == 0)
        return edges[8 + (random >> 8) % 3];
    return (uint16_t)(0x1400 + (random & 0x87ff)); // ± 2^-10 to 2^-8
}

// The exponents of MXFP4: 255 has products that are infinite.
static uint8_t random_exponent(struct check *check, enum weight_values weights)
{
    static const uint8_t edges[] = {0, 1, 2, 3, 127, 128, 200, 251, 252, 253, 254, 255};
    const uint64_t random = check_random(check);
    if (weights == WEIGHTS_SCALES)
        return edges[random % 9];
    if (weights == WEIGHTS_SPECIAL && random % 4 == 0)
        return edges[9 + (random >> 8) % 3];
    return (uint8_t)(114 + random % 16);
}

// One row in the file's layout.
static void fill_row(struct check *check, const struct block_halves *halves, enum weight_values weights, uint8_t *row,
                     size_t n_blocks, size_t block_bytes)
{
    static const uint8_t patterns[WEIGHTS_COUNT] = {[WEIGHTS_ONES] = 0xff, [WEIGHTS_MINIMUM] = 0x80};
    const bool random = weights == WEIGHTS_RANDOM || weights >= WEIGHTS_SCALES;
    for (size_t i = 0; i < n_blocks * block_bytes; i++)
        row[i] = random ? (uint8_t)check_random(check) : patterns[weights];
    for (size_t i = 0; i < n_blocks; i++) {
        if (halves->dtype == DTYPE_MXFP4)
            row[i * block_bytes] = random_exponent(check, weights);
        for (int j = 0; j < 2; j++)
            if (halves->offset[j] != 0xffff) {
                uint16_t half = random_half(check, weights);
                memcpy(row + i * block_bytes + halves->offset[j], &half, sizeof(half));
            }
    }
}

// A row of a plain type: of the input kinds that go with weights, so that a product meets more than N(0, 1).
static void fill_plain_row(struct check *check, enum dtype dtype, enum weight_values weights, uint8_t *row, size_t k)
{
    static const enum input inputs[WEIGHTS_COUNT] = {INPUT_NORMAL, INPUT_HUGE,   INPUT_ZERO,
                                                     INPUT_SMALL,  INPUT_SPREAD, INPUT_SPECIAL};
    for (size_t i = 0; i < k; i++) {
        float value;
        check_fill(check, inputs[weights], &value, 1);
        uint16_t bits = dtype == DTYPE_F16 ? float_to_half(value) : float_to_bfloat(value);
        if (dtype == DTYPE_F32)
            memcpy(row + 4 * i, &value, 4);
        else
            memcpy(row + 2 * i, &bits, 2);
    }
}

// A packed weight of random rows.
static struct packed make_weight(struct check *check, const struct block_halves *halves, enum weight_values weights,
                                 size_t n_rows, size_t k, size_t super_offset)
{
    const struct packed_format *format = packed_format_of(halves->dtype);
    const struct dtype_desc *desc = dtype_get(halves->dtype);
    struct packed packed;
    packed_describe(&packed, format, n_rows, k, super_offset);
    const size_t n_blocks = (super_offset * 32 + k + desc->block - 1) / desc->block;
    const size_t row_bytes = n_blocks * desc->bytes;
    uint8_t *rows = malloc(PANEL_ROWS * row_bytes);
    packed.data = aligned_alloc(64, packed.n_panels * packed.panel_bytes);
    if (!rows || !packed.data) {
        fprintf(stderr, "checkkernels: no memory\n");
        exit(1);
    }
    for (size_t panel = 0; panel < packed.n_panels; panel++) {
        const size_t n = n_rows - panel * PANEL_ROWS < PANEL_ROWS ? n_rows - panel * PANEL_ROWS : PANEL_ROWS;
        for (size_t row = 0; row < n; row++)
            if (format->scaling == SCALING_NONE)
                fill_plain_row(check, halves->dtype, weights, rows + row * row_bytes, k);
            else
                fill_row(check, halves, weights, rows + row * row_bytes, n_blocks, desc->bytes);
        packed_pack_panel(&packed, panel, rows, row_bytes, n);
    }
    free(rows);
    return packed;
}

// ---- segments apart ----

// The segments' sums of n tokens as products write them: tokens outside or segments outside.
struct parts {
    struct guarded memory;
    float *y;
    size_t token_stride, part_stride, size; // floats
};

static struct parts make_parts(const struct packed *weight, size_t n)
{
    const size_t n_segments = weight->segments.n, gap = n % 3;
    struct parts parts = {.token_stride = n_segments * (PANEL_ROWS + gap), .part_stride = PANEL_ROWS + gap};
    if (n % 2)
        parts = (struct parts){.token_stride = PANEL_ROWS + gap, .part_stride = n * (PANEL_ROWS + gap)};
    parts.size = n * n_segments * (PANEL_ROWS + gap);
    parts.y = guarded_floats(&parts.memory, parts.size, n % 2);
    return parts;
}

// Their tree is what the product gives without parts, sums[t * y_stride + 0 … 15].
static void check_tree(struct check *check, const struct packed *weight, const struct parts *parts, size_t n,
                       const float *sums, size_t y_stride)
{
    for (size_t t = 0; t < n; t++) {
        struct guarded expected, got;
        float *a = guarded_floats(&expected, PANEL_ROWS, t % 2), *b = guarded_floats(&got, PANEL_ROWS, t % 2);
        float segments[MAX_SEGMENTS * PANEL_ROWS];
        for (size_t s = 0; s < weight->segments.n; s++)
            memcpy(segments + s * PANEL_ROWS, parts->y + t * parts->token_stride + s * parts->part_stride,
                   PANEL_ROWS * sizeof(*segments));
        check->reference->add_parts(segments, weight->segments.n, a);
        check_floats(check, "the parts' tree", sums + t * y_stride, a, PANEL_ROWS);
        check->tested->add_parts(segments, weight->segments.n, b);
        check_floats(check, "add_parts", a, b, PANEL_ROWS);
        check_guards(check, &got);
        guarded_free(&expected);
        guarded_free(&got);
    }
}

// Those of one token.
static void check_token_parts(struct check *check, const char *what, const struct packed *weight,
                              const struct parts *expected, const struct parts *got, size_t t)
{
    for (size_t s = 0; s < weight->segments.n; s++) {
        const size_t at = t * expected->token_stride + s * expected->part_stride;
        check_floats(check, what, expected->y + at, got->y + at, PANEL_ROWS);
    }
}

// ---- Q8 sources ----

static void check_unpacked(struct check *check, const struct packed *weight, const struct unpacked_q8 *expected,
                           const struct unpacked_q8 *got)
{
    const size_t n = weight->k / 32;
    const enum scaling scaling = weight->format->scaling;
    check_bytes(check, "unpacked q", expected->q, got->q, n * 512);
    check_floats(check, "unpacked scale", expected->scale, got->scale, n * 16);
    if (scaling == SCALING_MIN32 || scaling == SCALING_MIN16)
        check_floats(check, "unpacked min", expected->min, got->min, n * 16);
    if (scaling == SCALING_16 || scaling == SCALING_MIN16)
        check_bytes(check, "unpacked sub", expected->sub, got->sub, n * 64);
    if (scaling == SCALING_MIN16)
        check_bytes(check, "unpacked sub_min", expected->sub_min, got->sub_min, n * 64);
}

// The largest codes everywhere, and their sums, which kernels may use for the zero point.
static void fill_q8_row(uint8_t *row, size_t k, int code)
{
    const int16_t sum = (int16_t)(16 * code);
    memset(row, code, k);
    for (size_t half = 0; half < k / 16; half++)
        memcpy(row + k + k / 32 * 4 + 2 * half, &sum, sizeof(sum));
}

// The rows of n tokens, each of another input kind, beginning with `input`.
static struct guarded make_q8_rows(struct check *check, size_t k, size_t n, int input, size_t stride)
{
    struct guarded rows = guarded_make(n * stride, 0), values;
    float *x = guarded_floats(&values, k, 0);
    for (size_t t = 0; t < n; t++) {
        check_fill(check, (enum input)(((size_t)input + t) % INPUT_COUNT), x, k);
        check->reference->quantize_q8(x, k, rows.data + t * stride);
        if (t % 4 == 3)
            fill_q8_row(rows.data + t * stride, k, t & 4 ? 127 : -127);
    }
    guarded_free(&values);
    return rows;
}

static void check_q8_parts(struct check *check, const struct packed *weight, size_t panel,
                           const struct unpacked_q8 *unpacked, const uint8_t *rows, size_t stride, size_t n,
                           const float *sums, size_t y_stride)
{
    const enum packed_kind kind = weight->format->kind;
    const enum scaling scaling = weight->format->scaling;
    struct parts a = make_parts(weight, n), b = make_parts(weight, n);
    check->reference->gemm_q8[scaling](weight, unpacked, rows, stride, n, a.y, a.token_stride, a.part_stride);
    check_tree(check, weight, &a, n, sums, y_stride);
    if (check->tested->gemm_q8[scaling]) {
        check->tested->gemm_q8[scaling](weight, unpacked, rows, stride, n, b.y, b.token_stride, b.part_stride);
        check_floats(check, "gemm_q8 parts", a.y, b.y, a.size);
        check_guards(check, &b.memory);
    }
    guarded_reset(&b.memory);
    for (size_t t = 0; t < n; t++) {
        check->tested->matvec_q8[kind](weight, panel, rows + t * stride, b.y + t * b.token_stride, b.part_stride);
        check_token_parts(check, "matvec_q8 parts", weight, &a, &b, t);
    }
    check_guards(check, &b.memory);
    guarded_free(&a.memory);
    guarded_free(&b.memory);
}

static void check_q8_case(struct check *check, const struct packed *weight, size_t panel, size_t n, int input)
{
    const size_t k = weight->k, stride = q8_row_bytes(k) + 64, y_stride = PANEL_ROWS + n % 3;
    const enum packed_kind kind = weight->format->kind;
    const enum scaling scaling = weight->format->scaling;
    struct guarded rows = make_q8_rows(check, k, n, input, stride);
    struct guarded expected_memory = guarded_make(unpacked_q8_bytes(k), 0);
    struct guarded got_memory = guarded_make(unpacked_q8_bytes(k), 0);
    struct guarded expected_y, got_y;
    float *a = guarded_floats(&expected_y, n * y_stride, n % 2), *b = guarded_floats(&got_y, n * y_stride, n % 2);
    struct unpacked_q8 expected, got;
    unpacked_q8_place(&expected, expected_memory.data, k);
    unpacked_q8_place(&got, got_memory.data, k);
    check->reference->unpack_q8[kind](weight, panel, &expected);
    if (check->tested->unpack_q8[kind]) {
        check->tested->unpack_q8[kind](weight, panel, &got);
        check_unpacked(check, weight, &expected, &got);
        check_guards(check, &got_memory);
    }
    check->reference->gemm_q8[scaling](weight, &expected, rows.data, stride, n, a, y_stride, 0);
    if (check->tested->gemm_q8[scaling]) {
        check->tested->gemm_q8[scaling](weight, &expected, rows.data, stride, n, b, y_stride, 0);
        check_floats(check, "gemm_q8 y", a, b, n * y_stride);
        check_guards(check, &got_y);
    }
    // One token at a time gives the same bits as many.
    guarded_reset(&got_y);
    for (size_t t = 0; t < n; t++) {
        check->tested->matvec_q8[kind](weight, panel, rows.data + t * stride, b + t * y_stride, 0);
        check_floats(check, "matvec_q8 y", a + t * y_stride, b + t * y_stride, PANEL_ROWS);
    }
    check_guards(check, &got_y);
    check_q8_parts(check, weight, panel, &expected, rows.data, stride, n, a, y_stride);
    guarded_free(&rows);
    guarded_free(&expected_memory);
    guarded_free(&got_memory);
    guarded_free(&expected_y);
    guarded_free(&got_y);
}

static void check_q8(struct check *check, const struct block_halves *halves)
{
    const struct packed_format *format = packed_format_of(halves->dtype);
    for (size_t i = 0; i < N_BLOCK_SIZES; i++)
        for (int weights = 0; weights < WEIGHTS_COUNT; weights++) {
            const size_t k = block_sizes[i];
            const size_t super_offset = format->super_units ? (i + (size_t)weights) % 8 * (size_t)(weights > 0) : 0;
            const size_t n_rows = weights % 2 ? 21 : 16, n = 1 + check_random_below(check, MAX_TOKENS);
            struct packed weight = make_weight(check, halves, weights, n_rows, k, super_offset);
            for (int input = 0; input < INPUT_COUNT; input += 1 + (k > 1000) * 2) {
                check_case(check, "k=%zu rows=%zu offset=%zu tokens=%zu weights=%s input=%s…", k, n_rows, super_offset,
                           n, weight_names[weights], input_names[input]);
                check_q8_case(check, &weight, weight.n_panels - 1, n, input);
            }
            free(weight.data);
        }
}

// ---- F32 sources ----

static struct guarded make_f32_rows(struct check *check, const struct packed *weight, size_t n, int input,
                                    size_t stride)
{
    struct guarded rows = guarded_make(n * stride, 0), values;
    float *x = guarded_floats(&values, weight->k, 0);
    for (size_t t = 0; t < n; t++) {
        float *row = (float *)(void *)(rows.data + t * stride);
        check_fill(check, (enum input)(((size_t)input + t) % INPUT_COUNT), x, weight->k);
        check->reference->round_f16(x, weight->k, &weight->segments, row);
        if (t % 2 == 0 || weight->format->kind != PACKED_F16) { // values as they are, unscaled
            memcpy(row, x, weight->k * sizeof(*x));
            for (int s = 0; s < MAX_SEGMENTS; s++)
                row[f32_row_scales(weight->k) + (size_t)s] = 1.0f;
        }
    }
    guarded_free(&values);
    return rows;
}

static void check_f32_parts(struct check *check, const struct packed *weight, size_t panel, const float *values,
                            const uint8_t *rows, size_t stride, size_t n, const float *sums, size_t y_stride)
{
    const enum packed_kind kind = weight->format->kind;
    const float *row_data = (const float *)(const void *)rows;
    struct parts a = make_parts(weight, n), b = make_parts(weight, n);
    check->reference->gemm_f32(weight, values, row_data, stride, n, a.y, a.token_stride, a.part_stride);
    check_tree(check, weight, &a, n, sums, y_stride);
    if (check->tested->gemm_f32) {
        check->tested->gemm_f32(weight, values, row_data, stride, n, b.y, b.token_stride, b.part_stride);
        check_floats(check, "gemm_f32 parts", a.y, b.y, a.size);
        check_guards(check, &b.memory);
    }
    guarded_reset(&b.memory);
    for (size_t t = 0; t < n; t++) {
        const float *row = (const float *)(const void *)(rows + t * stride);
        check->tested->matvec_f32[kind](weight, panel, row, b.y + t * b.token_stride, b.part_stride);
        check_token_parts(check, "matvec_f32 parts", weight, &a, &b, t);
    }
    check_guards(check, &b.memory);
    guarded_free(&a.memory);
    guarded_free(&b.memory);
}

static void check_f32_case(struct check *check, const struct packed *weight, size_t panel, size_t n, int input)
{
    const size_t k = weight->k, stride = f32_row_bytes(k) + 64, y_stride = PANEL_ROWS + n % 3;
    const enum packed_kind kind = weight->format->kind;
    struct guarded rows = make_f32_rows(check, weight, n, input, stride), expected_y, got_y, expected, got;
    float *a = guarded_floats(&expected_y, n * y_stride, n % 2), *b = guarded_floats(&got_y, n * y_stride, n % 2);
    float *expected_values = guarded_floats(&expected, k * PANEL_ROWS, 0);
    float *got_values = guarded_floats(&got, k * PANEL_ROWS, 0);
    const float *row_data = (const float *)(const void *)rows.data;
    check->reference->unpack_f32[kind](weight, panel, expected_values);
    if (check->tested->unpack_f32[kind]) {
        check->tested->unpack_f32[kind](weight, panel, got_values);
        check_floats(check, "unpack_f32", expected_values, got_values, k * PANEL_ROWS);
        check_guards(check, &got);
    }
    check->reference->gemm_f32(weight, expected_values, row_data, stride, n, a, y_stride, 0);
    if (check->tested->gemm_f32) {
        check->tested->gemm_f32(weight, expected_values, row_data, stride, n, b, y_stride, 0);
        check_floats(check, "gemm_f32 y", a, b, n * y_stride);
        check_guards(check, &got_y);
    }
    guarded_reset(&got_y);
    for (size_t t = 0; t < n; t++) {
        const float *row = (const float *)(const void *)(rows.data + t * stride);
        check->tested->matvec_f32[kind](weight, panel, row, b + t * y_stride, 0);
        check_floats(check, "matvec_f32 y", a + t * y_stride, b + t * y_stride, PANEL_ROWS);
    }
    check_guards(check, &got_y);
    check_f32_parts(check, weight, panel, expected_values, rows.data, stride, n, a, y_stride);
    guarded_free(&rows);
    guarded_free(&expected_y);
    guarded_free(&got_y);
    guarded_free(&expected);
    guarded_free(&got);
}

static void check_f32(struct check *check, const struct block_halves *halves)
{
    const struct packed_format *format = packed_format_of(halves->dtype);
    const bool plain = format->scaling == SCALING_NONE;
    for (size_t i = 0; i < (plain ? N_PLAIN_SIZES : N_BLOCK_SIZES); i++)
        for (int weights = 0; weights < WEIGHTS_COUNT; weights++) {
            const size_t k = plain ? plain_sizes[i] : block_sizes[i];
            const size_t super_offset = format->super_units ? i % 8 * (size_t)(weights > 0) : 0;
            const size_t n_rows = weights % 2 ? 21 : 16, n = 1 + check_random_below(check, MAX_TOKENS);
            struct packed weight = make_weight(check, halves, weights, n_rows, k, super_offset);
            for (int input = 0; input < INPUT_COUNT; input += 1 + (k > 1000) * 2) {
                check_case(check, "k=%zu rows=%zu offset=%zu tokens=%zu weights=%s input=%s…", k, n_rows, super_offset,
                           n, weight_names[weights], input_names[input]);
                check_f32_case(check, &weight, weight.n_panels - 1, n, input);
            }
            free(weight.data);
        }
}

// ---- times ----

struct product_bench {
    const struct kernels *kernels;
    struct packed weight;
    const uint8_t *rows;
    size_t stride, n;
    struct unpacked_q8 unpacked;
    float *values; // [k][16]
    float *y;
    const uint8_t *file_rows; // any bytes, for packing
    size_t file_row_bytes;
};

static void bench_matvec_q8(void *user)
{
    struct product_bench *b = user;
    for (size_t panel = 0; panel < b->weight.n_panels; panel++)
        b->kernels->matvec_q8[b->weight.format->kind](&b->weight, panel, b->rows, b->y, 0);
}

static void bench_matvec_f32(void *user)
{
    struct product_bench *b = user;
    for (size_t panel = 0; panel < b->weight.n_panels; panel++)
        b->kernels->matvec_f32[b->weight.format->kind](&b->weight, panel, (const float *)(const void *)b->rows, b->y,
                                                       0);
}

static void bench_unpack_q8(void *user)
{
    struct product_bench *b = user;
    for (size_t panel = 0; panel < b->weight.n_panels; panel++)
        b->kernels->unpack_q8[b->weight.format->kind](&b->weight, panel, &b->unpacked);
}

static void bench_unpack_f32(void *user)
{
    struct product_bench *b = user;
    for (size_t panel = 0; panel < b->weight.n_panels; panel++)
        b->kernels->unpack_f32[b->weight.format->kind](&b->weight, panel, b->values);
}

static void bench_gemm_q8(void *user)
{
    struct product_bench *b = user;
    b->kernels->gemm_q8[b->weight.format->scaling](&b->weight, &b->unpacked, b->rows, b->stride, b->n, b->y, PANEL_ROWS,
                                                   0);
}

static void bench_gemm_f32(void *user)
{
    struct product_bench *b = user;
    b->kernels->gemm_f32(&b->weight, b->values, (const float *)(const void *)b->rows, b->stride, b->n, b->y, PANEL_ROWS,
                         0);
}

static void bench_pack(void *user)
{
    struct product_bench *b = user;
    for (size_t panel = 0; panel < b->weight.n_panels; panel++)
        packed_pack_panel(&b->weight, panel, b->file_rows, b->file_row_bytes, PANEL_ROWS);
}

static void bench_products(struct check *check, const struct block_halves *halves)
{
    enum { K = 2048, TOKENS = 64 };
    const struct packed_format *format = packed_format_of(halves->dtype);
    const struct dtype_desc *desc = dtype_get(halves->dtype);
    const size_t kind = format->kind;
    struct product_bench b = {.kernels = check->tested, .n = TOKENS, .stride = f32_row_bytes(K)};
    struct packed panel;
    packed_describe(&panel, format, PANEL_ROWS, K, 0);
    const size_t n_panels = check->bench_bytes / panel.panel_bytes + 1;
    b.weight = make_weight(check, halves, WEIGHTS_RANDOM, PANEL_ROWS * n_panels, K, 0);
    struct guarded rows = guarded_make(TOKENS * b.stride, 0), unpacked = guarded_make(unpacked_q8_bytes(K), 0), values,
                   y, x;
    float *source = guarded_floats(&x, K, 0);
    b.values = guarded_floats(&values, K * PANEL_ROWS, 0);
    b.y = guarded_floats(&y, TOKENS * PANEL_ROWS, 0);
    b.rows = rows.data;
    unpacked_q8_place(&b.unpacked, unpacked.data, K);
    const double bytes = (double)(b.weight.n_panels * b.weight.panel_bytes);
    const double operations = 2.0 * K * PANEL_ROWS;
    check_fill(check, INPUT_NORMAL, source, K);
    check_case(check, "k=%d panels=%zu", K, b.weight.n_panels);

    if (format->scaling != SCALING_NONE) {
        for (size_t t = 0; t < TOKENS; t++)
            check->reference->quantize_q8(source, K, rows.data + t * b.stride);
        check->reference->unpack_q8[kind](&b.weight, 0, &b.unpacked);
        if (check_begin(check, check->tested->matvec_q8[kind], "matvec_q8.%s", desc->name))
            check_bench(check, bench_matvec_q8, &b, bytes, operations * (double)n_panels);
        if (check_begin(check, check->tested->unpack_q8[kind], "unpack_q8.%s", desc->name))
            check_bench(check, bench_unpack_q8, &b, bytes, 0);
        check_case(check, "k=%d tokens=%d", K, TOKENS);
        if (check_begin(check, check->tested->gemm_q8[format->scaling], "gemm_q8.%s", desc->name))
            check_bench(check, bench_gemm_q8, &b, 0, operations * TOKENS);
    }
    if (check->tested == check->reference && check_begin(check, true, "pack.%s", desc->name)) {
        b.file_row_bytes = K / desc->block * desc->bytes;
        check_case(check, "k=%d panels=%zu", K, b.weight.n_panels);
        struct guarded file = guarded_make(PANEL_ROWS * b.file_row_bytes, 0);
        b.file_rows = file.data;
        check_bench(check, bench_pack, &b, bytes, 0);
        guarded_free(&file);
    }
    for (size_t t = 0; t < TOKENS; t++)
        check->reference->round_f16(source, K, &b.weight.segments, (float *)(void *)(rows.data + t * b.stride));
    check->reference->unpack_f32[kind](&b.weight, 0, b.values);
    check_case(check, "k=%d panels=%zu", K, b.weight.n_panels);
    if (check_begin(check, check->tested->matvec_f32[kind], "matvec_f32.%s", desc->name))
        check_bench(check, bench_matvec_f32, &b, bytes, operations * (double)n_panels);
    if (check_begin(check, check->tested->unpack_f32[kind], "unpack_f32.%s", desc->name))
        check_bench(check, bench_unpack_f32, &b, bytes, 0);
    check_case(check, "k=%d tokens=%d", K, TOKENS);
    if (format->scaling == SCALING_NONE && check_begin(check, check->tested->gemm_f32, "gemm_f32.%s", desc->name))
        check_bench(check, bench_gemm_f32, &b, 0, operations * TOKENS);
    free(b.weight.data);
    guarded_free(&rows);
    guarded_free(&unpacked);
    guarded_free(&values);
    guarded_free(&y);
    guarded_free(&x);
}

void check_products(struct check *check)
{
    const struct kernels *k = check->tested;
    for (size_t i = 0; i < N_DTYPES; i++) {
        const struct packed_format *format = packed_format_of(block_halves[i].dtype);
        const char *name = dtype_get(block_halves[i].dtype)->name;
        const enum packed_kind kind = format->kind;
        if (check->bench) {
            bench_products(check, &block_halves[i]);
            continue;
        }
        if (format->scaling != SCALING_NONE) {
            // The three belong together; what a table lacks of them is said, and the rest is checked.
            const bool all = k->matvec_q8[kind] && k->unpack_q8[kind] && k->gemm_q8[format->scaling];
            if (check_begin(check, all, "matvec_q8.%s unpack_q8 gemm_q8", name))
                check_q8(check, &block_halves[i]);
        }
        const bool all = k->matvec_f32[kind] && k->unpack_f32[kind] && k->gemm_f32;
        if (check_begin(check, all, "matvec_f32.%s unpack_f32 gemm_f32", name))
            check_f32(check, &block_halves[i]);
    }
}

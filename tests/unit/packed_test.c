// Packed weights against the dtypes' decoders, and products against independent sums in F64.
#include "cpu/kernels/kernels.h"
#include "cpu/packed.h"
#include "tensor/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "random_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_same_floats(const float *expected, const float *got, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&expected[i], &got[i], sizeof(float)) != 0 && !(isnan(expected[i]) && isnan(got[i])))
            fail_msg("element %zu: expected %a, got %a", i, (double)expected[i], (double)got[i]);
}

// The values of rows [n_rows][k_file] by the dtype's decoder.
static float *decode_rows(enum dtype dtype, const uint8_t *rows, size_t n_rows, size_t k_file)
{
    float *values = malloc(n_rows * k_file * sizeof(*values));
    assert_non_null(values);
    dtype_get(dtype)->decode(rows, values, n_rows * k_file);
    return values;
}

static void check_values(const struct packed *packed, const float *expected, size_t k_file, size_t begin)
{
    const struct kernels *kernels = kernels_c();
    float *row = malloc(packed->k * sizeof(*row)), *panel = malloc(packed->k * PANEL_ROWS * sizeof(*panel));
    assert_non_null(row);
    assert_non_null(panel);
    for (size_t i = 0; i < packed->n_rows; i++) {
        packed_read_row(packed, i, row);
        assert_same_floats(expected + i * k_file + begin, row, packed->k);
    }
    for (size_t p = 0; p < packed->n_panels; p++) {
        kernels->unpack_f32[packed->format->kind](packed, p, panel);
        for (size_t i = 0; i < PANEL_ROWS; i++) {
            const size_t index = p * PANEL_ROWS + i;
            for (size_t k = 0; k < packed->k; k++)
                row[k] = panel[k * PANEL_ROWS + i];
            if (index < packed->n_rows)
                assert_same_floats(expected + index * k_file + begin, row, packed->k);
            else // the rows that fill the panel
                for (size_t k = 0; k < packed->k; k++)
                    assert_true(row[k] == 0.0f);
        }
    }
    free(row);
    free(panel);
}

// Every format: rows and panels hold the dtype's values bit for bit, also where K was cut inside a super-block.
static void test_values(void **state)
{
    (void)state;
    enum { ROWS = 21, K = 768 };
    static const struct {
        size_t begin, k;
    } cuts[] = {{0, 768}, {0, 256}, {96, 544}, {224, 32}, {512, 256}, {160, 96}};
    for (int d = 0; d < N_DTYPES; d++) {
        uint8_t *rows = random_rows(dtypes[d], ROWS, K);
        float *values = decode_rows(dtypes[d], rows, ROWS, K);
        for (size_t c = 0; c < sizeof(cuts) / sizeof(cuts[0]); c++) {
            struct packed packed = pack(dtypes[d], rows, ROWS, K, cuts[c].begin, cuts[c].k);
            check_values(&packed, values, K, cuts[c].begin);
            free(packed.data);
        }
        free(rows);
        free(values);
    }
}

// A block of 32 or 256 with every byte value, and scales of every half: also what is not finite is decoded alike.
static void test_all_scales(void **state)
{
    (void)state;
    enum { ROWS = 16, K = 256 };
    for (int d = 3; d < N_DTYPES; d++) {
        const struct dtype_desc *desc = dtype_get(dtypes[d]);
        size_t offsets[2], n_halves;
        halves_offsets(dtypes[d], offsets, &n_halves);
        uint8_t *rows = random_rows(dtypes[d], ROWS, K);
        for (uint32_t half = 0; half < 0x10000; half += 37) {
            for (size_t i = 0; i < ROWS * K / desc->block; i++)
                for (size_t j = 0; j < n_halves; j++) {
                    const uint16_t bits = (uint16_t)(half + 4099 * i + 17 * j);
                    memcpy(rows + i * desc->bytes + offsets[j], &bits, sizeof(bits));
                }
            float *values = decode_rows(dtypes[d], rows, ROWS, K);
            struct packed packed = pack(dtypes[d], rows, ROWS, K, 0, K);
            check_values(&packed, values, K, 0);
            free(packed.data);
            free(values);
        }
        free(rows);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    for (int d = 0; d < N_DTYPES; d++) {
        const struct dtype_desc *desc = dtype_get(dtypes[d]);
        struct packed packed;
        packed_describe(&packed, packed_format_of(dtypes[d]), 160, 2048, 0);
        const double file = 160.0 * 2048 / desc->block * desc->bytes;
        assert_true((double)(packed.n_panels * packed.panel_bytes) <= 1.05 * file);
        assert_int_equal(packed.panel_bytes % 64, 0);
    }
    assert_null(packed_format_of(DTYPE_I32));
    assert_null(packed_format_of(DTYPE_IQ2_XXS));
}

static void test_segments(void **state)
{
    (void)state;
    struct segments segments;
    segments_make(&segments, 576, 32); // 18 grains
    const uint32_t borders[] = {0, 2, 4, 6, 9, 11, 13, 15, 18};
    assert_int_equal(segments.n, 8);
    assert_memory_equal(segments.border, borders, sizeof(borders));
    segments_make(&segments, 40, 16); // 3 grains, the last of 8 elements
    assert_int_equal(segments.n, 3);
    size_t begin, end;
    segments_range(&segments, 2, 40, &begin, &end);
    assert_int_equal(begin, 32);
    assert_int_equal(end, 40);
    segments_make(&segments, 1, 16);
    assert_int_equal(segments.n, 1);
    assert_int_equal(segments.border[1], 1);
}

// Products of every format against F64 sums of the decoded weights and the (rounded) sources. The bound is that of a
// sum of K terms in F32 in any order: (K + 8) · 2^-24 · Σ |w·x|.
static void test_products(void **state)
{
    (void)state;
    enum { ROWS = 32, K = 1024 };
    const struct kernels *kernels = kernels_c();
    float x[K], y[PANEL_ROWS];
    _Alignas(64) float row[K + 16];
    _Alignas(64) uint8_t q8[2 * K];
    for (int d = 0; d < N_DTYPES; d++) {
        uint8_t *rows = random_rows(dtypes[d], ROWS, K);
        float *values = decode_rows(dtypes[d], rows, ROWS, K);
        struct packed packed = pack(dtypes[d], rows, ROWS, K, 0, K);
        const enum packed_kind kind = packed.format->kind;
        for (int i = 0; i < K; i++)
            x[i] = random_float();
        kernels->round_f16(x, K, &packed.segments, row);
        for (size_t panel = 0; panel < packed.n_panels; panel++) {
            kernels->matvec_f32[kind](&packed, panel, row, y, 0);
            for (size_t i = 0; i < PANEL_ROWS; i++) {
                double sum = 0, magnitude = 0;
                for (size_t k = 0; k < K; k++) {
                    const double product = (double)values[(panel * PANEL_ROWS + i) * K + k] * (double)row[k];
                    sum += product;
                    magnitude += fabs(product);
                }
                assert_true(fabs((double)y[i] - sum) <= (K + 8) * 0x1p-24 * magnitude);
            }
        }
        if (kernels->matvec_q8[kind]) {
            kernels->quantize_q8(x, K, q8);
            const struct q8_row parts = q8_row_parts(q8, K);
            for (size_t panel = 0; panel < packed.n_panels; panel++) {
                kernels->matvec_q8[kind](&packed, panel, q8, y, 0);
                for (size_t i = 0; i < PANEL_ROWS; i++) {
                    double sum = 0, magnitude = 0;
                    for (size_t k = 0; k < K; k++) {
                        const double source = (double)parts.d[k / 32] * parts.q[k];
                        const double product = (double)values[(panel * PANEL_ROWS + i) * K + k] * source;
                        sum += product;
                        magnitude += fabs(product);
                    }
                    // Minimums are summed apart from the integers, so that what cancels counts: a factor of 32 is
                    // ample.
                    assert_true(fabs((double)y[i] - sum) <= 32 * (K / 32 + 8) * 0x1p-24 * magnitude);
                }
            }
        }
        free(packed.data);
        free(rows);
        free(values);
    }
}

// A source whose values do not fit in F16 gives the product of the same source scaled down, scaled up: exactly.
static void test_range_exact(void **state)
{
    (void)state;
    enum { ROWS = 16, K = 256 };
    const struct kernels *kernels = kernels_c();
    float x[K], small[K], y[PANEL_ROWS], expected[PANEL_ROWS];
    _Alignas(64) float row[K + 16];
    uint8_t *rows = random_rows(DTYPE_F16, ROWS, K);
    struct packed packed = pack(DTYPE_F16, rows, ROWS, K, 0, K);
    for (int i = 0; i < K; i++) {
        small[i] = random_float() * 60000.0f;
        x[i] = small[i] * 0x1p20f;
    }
    kernels->round_f16(small, K, &packed.segments, row);
    kernels->matvec_f32[PACKED_F16](&packed, 0, row, expected, 0);
    kernels->round_f16(x, K, &packed.segments, row);
    for (int s = 0; s < MAX_SEGMENTS; s++)
        assert_true(row[f32_row_scales(K) + (size_t)s] >= 0x1p19f);
    for (int i = 0; i < K; i++)
        assert_true(isfinite(row[i]));
    kernels->matvec_f32[PACKED_F16](&packed, 0, row, y, 0);
    for (int i = 0; i < PANEL_ROWS; i++)
        assert_true(y[i] == expected[i] * 0x1p20f);
    free(packed.data);
    free(rows);
}

// The values around which the range exponent changes: none becomes infinite, none that fits is scaled.
static void test_half_edges(void **state)
{
    (void)state;
    static const struct {
        float x;
        float scale;
    } edges[] = {{65504, 1},
                 {0x1.ffdffep15f, 1},
                 {65520, 2},
                 {131008, 2},
                 {0x1.ffdffep16f, 2},
                 {131040, 4},
                 {0x1.fffffep127f, 0x1p113f},
                 {0x1p127f, 0x1p112f},
                 {INFINITY, 1},
                 {NAN, 1},
                 {-0x1.ffep127f, 0x1p113f}};
    struct segments segments;
    segments_make(&segments, 16, 16);
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        float x[16] = {1, -2, edges[i].x, 0};
        _Alignas(64) float row[32];
        kernels_c()->round_f16(x, 16, &segments, row);
        assert_true(row[f32_row_scales(16)] == edges[i].scale);
        assert_int_equal(isfinite(row[2]) != 0, isfinite(edges[i].x) != 0);
        assert_int_equal(isnan(row[2]) != 0, isnan(edges[i].x) != 0);
        assert_true(isnan(row[2]) || isinf(row[2]) || fabsf(row[2] / (edges[i].x / edges[i].scale) - 1) <= 0x1p-11f);
    }
}

static void test_quantize(void **state)
{
    (void)state;
    _Alignas(64) uint8_t row[64 * 3];
    float x[64] = {0};
    x[0] = -254.0f; // d = 2
    x[1] = 3.0f;    // 1.5: to even, 2
    x[2] = 1.0f;    // 0.5: to even, 0
    x[40] = 0x1p-119f;
    kernels_c()->quantize_q8(x, 64, row);
    const struct q8_row parts = q8_row_parts(row, 64);
    assert_true(parts.d[0] == 2.0f && parts.d[1] == 0.0f);
    assert_int_equal(parts.q[0], -127);
    assert_int_equal(parts.q[1], 2);
    assert_int_equal(parts.q[2], 0);
    assert_int_equal(parts.sums[0], -125);
    assert_int_equal(parts.q[40], 0);
    x[5] = INFINITY;
    x[40] = NAN;
    kernels_c()->quantize_q8(x, 64, row);
    assert_true(isnan(parts.d[0]) && isnan(parts.d[1]));
    for (int i = 0; i < 64; i++)
        assert_int_equal(parts.q[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),   cmocka_unit_test(test_all_scales), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_segments), cmocka_unit_test(test_products),   cmocka_unit_test(test_range_exact),
        cmocka_unit_test(test_quantize), cmocka_unit_test(test_half_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

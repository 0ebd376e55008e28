// The rounding of sources, of stored keys and values and what products make of them, in every table of kernels, against
// a model in F64 of what docs/numerics.md says: rows of all magnitudes from subnormal to the largest, the borders of
// F16's range, ±0, inf and NaN, each anywhere in the row.
#include "cpu/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "random_weights.h"

enum { MAX_K = 700, ROUNDS = 4000 };

static size_t random_below(size_t n)
{
    return (size_t)(random_bits() >> 11) % n;
}

// x to `bits` significant bits, to nearest even; with a quantum of 2^least for subnormals.
static double round_to(double x, int bits, int least)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &exponent);
    const int unit = exponent - bits > least ? exponent - bits : least;
    return ldexp(rint(ldexp(x, -unit)), unit);
}

static double half_of(double x)
{
    const double rounded = round_to(x, 11, -24);
    return fabs(rounded) > 65504 ? copysign(INFINITY, x) : rounded;
}

// A row of one magnitude, or of many, with a few special values.
static void random_row(float *x, size_t k)
{
    static const float special[] = {65504.0f, 65519.99f, 65520.0f, 65535.0f, 131008.0f, 131039.99f, 131040.0f, 3e38f,
                                    FLT_MAX,  0x1p-149f, 0x1p-24f, 0x1p-25f, 6.1e-5f,   0.0f,       -0.0f};
    const int exponent = (int)random_below(277) - 149, kind = (int)random_below(4);
    for (size_t i = 0; i < k; i++) {
        const double fraction = (double)(int64_t)random_bits() * 0x1p-63;
        const int e = kind == 0 ? (int)random_below(277) - 149 : exponent;
        x[i] = (float)ldexp(fraction, e);
    }
    for (size_t n = random_below(4); n > 0; n--)
        x[random_below(k)] = special[random_below(sizeof(special) / sizeof(special[0]))] * (n % 2 ? 1.0f : -1.0f);
    if (random_below(8) == 0)
        x[random_below(k)] = random_below(2) ? INFINITY : -INFINITY;
    if (random_below(8) == 0)
        x[random_below(k)] = NAN;
}

static void assert_same(double expected, float got)
{
    if (isnan(expected) ? !isnan(got) : expected != (double)got)
        fail_msg("expected %a, got %a", expected, (double)got);
}

// The least e that keeps every element finite, by trying; 0 where one is inf or NaN.
static int model_exponent(const float *x, size_t n)
{
    int e = 0;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return 0;
    for (size_t i = 0; i < n; i++)
        while (isinf(half_of(ldexp((double)x[i], -e))))
            e++;
    return e;
}

static void check_f16(const struct kernels *kernels, const float *x, size_t k, uint32_t grain)
{
    static _Alignas(64) float row[MAX_K + 16 + MAX_SEGMENTS];
    struct segments segments;
    segments_make(&segments, k, grain);
    memset(row, 0x5a, sizeof(row));
    kernels->round_f16(x, k, &segments, row);
    for (uint32_t s = 0; s < MAX_SEGMENTS; s++) {
        size_t begin = 0, end = 0;
        if (s < segments.n)
            segments_range(&segments, s, k, &begin, &end);
        const int e = model_exponent(x + begin, end - begin);
        assert_same(ldexp(1.0, e), row[f32_row_scales(k) + s]);
        for (size_t i = begin; i < end; i++) {
            assert_same(half_of(ldexp((double)x[i], -e)), row[i]);
            assert_true(isnan(x[i]) || signbit(x[i]) == signbit(row[i]));
        }
    }
    for (size_t i = k; i < f32_row_scales(k); i++)
        assert_same(0.0, row[i]);

    kernels->round_f16(x, k, NULL, row);
    for (size_t i = 0; i < k; i++)
        assert_same(half_of((double)x[i]), row[i]);
    for (size_t s = 0; s < MAX_SEGMENTS; s++)
        assert_same(1.0, row[f32_row_scales(k) + s]);
}

static void check_bf16(const struct kernels *kernels, const float *x, size_t k)
{
    static _Alignas(64) float row[MAX_K + 16 + MAX_SEGMENTS];
    const double largest = 0x1.fep127;
    memset(row, 0x5a, sizeof(row));
    kernels->round_bf16(x, k, row);
    for (size_t i = 0; i < k; i++) {
        double expected = round_to((double)x[i], 8, -133);
        if (isfinite(x[i]) && fabs(expected) > largest)
            expected = copysign(largest, expected);
        assert_same(expected, row[i]);
        assert_true(isnan(x[i]) || signbit(x[i]) == signbit(row[i]));
    }
    for (size_t i = k; i < f32_row_scales(k); i++)
        assert_same(0.0, row[i]);
    for (size_t s = 0; s < MAX_SEGMENTS; s++)
        assert_same(1.0, row[f32_row_scales(k) + s]);
}

// Q8 keeps its scales in F32: a block of 1e30 is as near as one of 1. Half a step, and what rounding x · (127 / amax)
// twice may add; blocks whose scale would be lost are 0.
static void check_q8(const struct kernels *kernels, const float *x, size_t k)
{
    static _Alignas(64) uint8_t memory[MAX_K * 2];
    kernels->quantize_q8(x, k, memory);
    const struct q8_row row = q8_row_parts(memory, k);
    for (size_t block = 0; block < k / 32; block++) {
        double amax = 0;
        bool finite = true;
        for (size_t i = 32 * block; i < 32 * block + 32; i++) {
            finite = finite && isfinite(x[i]);
            amax = fmax(amax, fabs((double)x[i]));
        }
        assert_int_equal(isnan(row.d[block]) != 0, !finite);
        for (size_t i = 32 * block; i < 32 * block + 32 && finite; i++) {
            const double error = fabs((double)row.d[block] * row.q[i] - (double)x[i]);
            assert_true(error <= amax / 127 * 0.5001 || (amax < 0x1p-118 && row.q[i] == 0));
        }
    }
}

static void check_table(const struct kernels *kernels)
{
    static float x[MAX_K];
    for (int round = 0; round < ROUNDS; round++) {
        const size_t k = 1 + random_below(MAX_K);
        random_row(x, k);
        check_f16(kernels, x, k, round % 3 ? 16 : 64);
        check_bf16(kernels, x, k);
        check_q8(kernels, x, k / 32 * 32);
    }
}

// Every float around the border alone in its row: 65504 and below are untouched, 65520 is the first that is scaled.
static void check_borders(const struct kernels *kernels)
{
    for (float x = 65503.0f; x < 65537.0f; x = nextafterf(x, INFINITY)) {
        const float row[3] = {1.0f, -x, -0.0f};
        check_f16(kernels, row, 3, 16);
    }
    const float zeros[5] = {0.0f, -0.0f, 0.0f, -0.0f, 0x1p-149f};
    check_f16(kernels, zeros, 5, 16);
    check_bf16(kernels, zeros, 5);
}

// ---- stored keys and values ----

static void check_halves(const float *x, size_t n, const uint16_t *halves, size_t stride, float scale)
{
    const int e = model_exponent(x, n);
    assert_same(ldexp(1.0, e), scale);
    for (size_t i = 0; i < n; i++) {
        const float got = half_to_float(halves[i * stride]);
        assert_same(half_of(ldexp((double)x[i], -e)), got);
        assert_true(isnan(x[i]) || signbit(x[i]) == signbit(got));
    }
}

// A key or value is scaled by itself; the other positions of its page keep what they have.
static void check_stores(const struct kernels *kernels)
{
    static const size_t dims[] = {16, 32, 64, 80, 96, 128, 192, 256};
    enum { MAX_DIM = 256, GUARD = 0x5a5a };
    static _Alignas(64) uint16_t k_page[MAX_DIM * KV_PAGE_POSITIONS], v_page[MAX_DIM * KV_PAGE_POSITIONS];
    static float x[MAX_DIM];
    for (int round = 0; round < ROUNDS / 8; round++) {
        const size_t n = dims[random_below(sizeof(dims) / sizeof(dims[0]))];
        const uint32_t position = (uint32_t)random_below(KV_PAGE_POSITIONS);
        float k_scales[KV_PAGE_POSITIONS] = {0}, v_scales[KV_PAGE_POSITIONS] = {0};
        memset(k_page, 0x5a, sizeof(k_page));
        memset(v_page, 0x5a, sizeof(v_page));
        random_row(x, n);
        kernels->store_k[KV_DTYPE_F16](x, n, position, k_page, k_scales);
        kernels->store_v[KV_DTYPE_F16](x, n, position, v_page, v_scales);
        check_halves(x, n, k_page + position, KV_PAGE_POSITIONS, k_scales[position]);
        check_halves(x, n, v_page + position * n, 1, v_scales[position]);
        for (size_t i = 0; i < n * KV_PAGE_POSITIONS; i++) {
            assert_true(i % KV_PAGE_POSITIONS == position || k_page[i] == GUARD);
            assert_true(i / n == position || v_page[i] == GUARD);
        }
    }
}

// ---- products ----

// Row j of the weight times the row rounded as the contract says, exactly, and the sum of the magnitudes.
static double exact_product(const uint16_t *weight, const float *x, size_t k, const struct segments *segments,
                            double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (uint32_t s = 0; s < segments->n; s++) {
        size_t begin, end;
        segments_range(segments, s, k, &begin, &end);
        const int e = model_exponent(x + begin, end - begin);
        for (size_t i = begin; i < end; i++) {
            const double term = (double)half_to_float(weight[i]) * ldexp(half_of(ldexp((double)x[i], -e)), e);
            sum += term;
            *magnitude += fabs(term);
        }
    }
    return sum;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

// What overflows F16 comes back at its size; what is not finite shows in every output.
static void check_product(const struct kernels *kernels, size_t k)
{
    static _Alignas(64) float row[MAX_K + 16 + MAX_SEGMENTS], x[MAX_K], panel[MAX_K * PANEL_ROWS];
    float y[PANEL_ROWS], many[PANEL_ROWS];
    uint8_t *bytes = random_rows(DTYPE_F16, PANEL_ROWS, k);
    const uint16_t *weights = (const uint16_t *)(const void *)bytes;
    struct packed packed = pack(DTYPE_F16, bytes, PANEL_ROWS, k, 0, k);
    random_row(x, k);
    kernels->round_f16(x, k, &packed.segments, row);
    kernels->matvec_f32[packed.format->kind](&packed, 0, row, y, 0);
    kernels->unpack_f32[packed.format->kind](&packed, 0, panel);
    kernels->gemm_f32(&packed, panel, row, sizeof(row), 1, many, PANEL_ROWS, 0);
    for (size_t j = 0; j < PANEL_ROWS; j++) {
        double magnitude;
        const double exact = exact_product(weights + j * k, x, k, &packed.segments, &magnitude);
        assert_true(isnan(y[j]) ? isnan(many[j]) : y[j] == many[j]);
        if (!all_finite(x, k))
            assert_true(!isfinite(y[j]));
        else if (magnitude < 0x1p127)
            assert_true(fabs(exact - (double)y[j]) <= magnitude * (double)k * 0x1p-24 + (double)k * 0x1p-149);
    }
    free(packed.data);
    free(bytes);
}

static void check_products(const struct kernels *kernels)
{
    for (int round = 0; round < ROUNDS / 16; round++)
        check_product(kernels, 1 + random_below(MAX_K));
}

static void test_tables(void **state)
{
    (void)state;
    const struct kernels *const tables[] = {kernels_c(), kernels_avx2(), kernels_avx512(), kernels_neon()};
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (!tables[i])
            continue;
        check_table(tables[i]);
        check_borders(tables[i]);
        check_stores(tables[i]);
        check_products(tables[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

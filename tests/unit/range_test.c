// The rounding of sources in every table of kernels against a model in F64 of what docs/numerics.md says: rows of all
// magnitudes from subnormal to the largest, the borders of F16's range, ±0, inf and NaN, each anywhere in the row.
#include "cpu/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

enum { MAX_K = 700, ROUNDS = 4000 };

static uint64_t random_state = 41;

static uint64_t random_bits(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

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
        for (size_t i = begin; i < end; i++)
            assert_same(half_of(ldexp((double)x[i], -e)), row[i]);
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

static void test_tables(void **state)
{
    (void)state;
    const struct kernels *const tables[] = {kernels_c(), kernels_avx2(), kernels_avx512(), kernels_neon()};
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (!tables[i])
            continue;
        check_table(tables[i]);
        check_borders(tables[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// The F64 elementary functions against the C library's long double ones, in units of the last place of the result.
#include "tensor/elementary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>

static uint64_t random_state;

static double random_unit(void) // [0, 1)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static double random_between(double low, double high)
{
    return low + (high - low) * random_unit();
}

// The distance in units of the last place of a normal number of expected's size.
static double ulps(double got, long double expected)
{
    int exponent;
    if (isnan(got) != isnan(expected))
        return INFINITY;
    frexpl(expected, &exponent);
    if (exponent < DBL_MIN_EXP)
        exponent = DBL_MIN_EXP;
    return (double)(fabsl((long double)got - expected) / ldexpl(1.0L, exponent - DBL_MANT_DIG));
}

static double worse(double worst, double got, long double expected)
{
    double error = ulps(got, expected);
    return error > worst ? error : worst;
}

// Long double of 113 bits is computed by the library, slowly.
enum { SAMPLES = LDBL_MANT_DIG > 64 ? 20000 : 300000 };

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i < SAMPLES; i++) {
        double x = i % 2 ? random_between(-708, 709) : random_between(-2, 2);
        worst = worse(worst, elementary_exp(x), expl(x));
    }
    printf("exp: %.3f ulp\n", worst);
    assert_true(worst < 0.7);
    assert_true(elementary_exp(0) == 1);
    assert_true(elementary_exp(710) == INFINITY && elementary_exp(INFINITY) == INFINITY);
    assert_true(elementary_exp(-800) == 0 && elementary_exp(-INFINITY) == 0);
    assert_true(isnan(elementary_exp(NAN)));
    assert_true(ulps(elementary_exp(-740), expl(-740)) <= 1); // subnormal
}

static void test_log(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i < SAMPLES; i++) {
        double x = i % 3 == 0 ? random_between(0.5, 2) : exp(random_between(-700, 700));
        if (i % 3 == 1)
            x = 1 + random_between(-1e-3, 1e-3);
        worst = worse(worst, elementary_log(x), logl(x));
    }
    printf("log: %.3f ulp\n", worst);
    assert_true(worst < 0.6);
    assert_true(elementary_log(1) == 0);
    assert_true(elementary_log(0) == -INFINITY && elementary_log(INFINITY) == INFINITY);
    assert_true(isnan(elementary_log(-1)) && isnan(elementary_log(NAN)));
    assert_true(ulps(elementary_log(0x1.8p-1070), logl(0x1.8p-1070)) < 0.6);
}

static void test_pow(void **state)
{
    (void)state;
    double worst = 0, worst_rope = 0; // RoPE: theta to -2i/d
    for (int i = 0; i < SAMPLES; i++) {
        double base = random_between(0.001, 10), exponent = random_between(-30, 30);
        double theta = exp(random_between(0, 16)), fraction = random_between(-1, 0);
        worst = worse(worst, elementary_pow(base, exponent), powl(base, exponent));
        worst_rope = worse(worst_rope, elementary_pow(theta, fraction), powl(theta, fraction));
    }
    printf("pow: %.3f ulp, RoPE's frequencies %.3f ulp\n", worst, worst_rope);
    assert_true(worst < 1.0 && worst_rope < 0.75);
    assert_true(elementary_pow(10000, 0) == 1 && elementary_pow(1, 5) == 1);
    assert_true(elementary_pow(2, 10) == 1024 && elementary_pow(4, -0.5) == 0.5);
    assert_true(elementary_pow(10, 400) == INFINITY && elementary_pow(10, -400) == 0);
    assert_true(isnan(elementary_pow(-1, 2)) && isnan(elementary_pow(2, NAN)));
}

static void test_sincos(void **state)
{
    (void)state;
    const double ranges[] = {1e-6, 0.8, 100, 131072, 0x1p30};
    double worst_sine = 0, worst_cosine = 0, sine, cosine;
    for (int i = 0; i < SAMPLES; i++) {
        double range = ranges[i % 5], x = random_between(-range, range);
        if (i % 7 == 0) // near multiples of π/2
            x = rint(x) * M_PI_2;
        if (fabs(x) > 0x1p30)
            continue;
        elementary_sincos(x, &sine, &cosine);
        worst_sine = worse(worst_sine, sine, sinl(x));
        worst_cosine = worse(worst_cosine, cosine, cosl(x));
    }
    printf("sin: %.3f ulp, cos: %.3f ulp\n", worst_sine, worst_cosine);
    assert_true(worst_sine < 0.8 && worst_cosine < 0.8);
    elementary_sincos(0, &sine, &cosine);
    assert_true(sine == 0 && cosine == 1);
    const double invalid[] = {INFINITY, -INFINITY, NAN, 0x1.1p30};
    for (int i = 0; i < 4; i++) {
        elementary_sincos(invalid[i], &sine, &cosine);
        assert_true(isnan(sine) && isnan(cosine));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_pow),
        cmocka_unit_test(test_sincos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// The F32 functions that every kernel repeats (cpu/kernels/c/math.h), against double: the bounds that
// docs/numerics.md states. Arguments are every 509th float of a range, so all binades are seen.
#include "cpu/kernels/c/math.h"
#include "tensor/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <stdio.h>

enum { STEP = 509 };

// The error in units of the last place of a normal number of expected's size.
static double ulps(float got, double expected)
{
    int exponent;
    if (isnan(got))
        return INFINITY;
    frexp(expected, &exponent);
    if (exponent < FLT_MIN_EXP)
        exponent = FLT_MIN_EXP;
    return fabs((double)got - expected) / ldexp(1.0, exponent - FLT_MANT_DIG);
}

// The largest error of a function over [low, high] (both of one sign), and where it is.
static double worst_ulps(const char *name, float (*function)(float), double (*exact)(double), float low, float high)
{
    double worst = 0;
    float where = low;
    const uint32_t a = float_bits(fabsf(low) < fabsf(high) ? low : high);
    const uint32_t b = float_bits(fabsf(low) < fabsf(high) ? high : low);
    for (uint32_t bits = a; bits <= b; bits += STEP) {
        const float x = float_from_bits(bits);
        const double error = ulps(function(x), exact((double)x));
        if (error > worst) {
            worst = error;
            where = x;
        }
    }
    printf("%s over [%g, %g]: %.3f ulp at %a\n", name, (double)low, (double)high, worst, (double)where);
    return worst;
}

static void test_exp(void **state)
{
    (void)state;
    assert_true(worst_ulps("exp", exp_f32, exp, 0.0f, 88.72283f) < 1.0);
    assert_true(worst_ulps("exp", exp_f32, exp, -87.3f, -0.0f) < 1.0);
    assert_true(exp_f32(0.0f) == 1.0f && exp_f32(-0.0f) == 1.0f);
    assert_true(exp_f32(-87.30001f) == 0.0f && !signbit(exp_f32(-1e30f)) && exp_f32(-INFINITY) == 0.0f);
    assert_true(exp_f32(-87.3f) >= FLT_MIN);
    assert_true(isfinite(exp_f32(88.72283f)) && exp_f32(88.7229f) == INFINITY);
    assert_true(exp_f32(1e30f) == INFINITY && exp_f32(INFINITY) == INFINITY);
    assert_true(isnan(exp_f32(NAN)) && isnan(exp_f32(-NAN)));
}

static void test_tanh(void **state)
{
    (void)state;
    assert_true(worst_ulps("tanh", tanh_f32, tanh, 0.0f, 0.625f) < 1.5);
    assert_true(worst_ulps("tanh", tanh_f32, tanh, 0.625f, 20.0f) < 2.0);
    for (float x = 1e-40f; x < 100.0f; x *= 1.37f)
        assert_true(tanh_f32(-x) == -tanh_f32(x));
    assert_true(tanh_f32(INFINITY) == 1.0f && tanh_f32(-INFINITY) == -1.0f && tanh_f32(50.0f) == 1.0f);
    assert_true(float_bits(tanh_f32(-0.0f)) == 0); // +0: the sign of zero is not kept
    assert_true(isnan(tanh_f32(NAN)));
}

static double exact_silu(double g)
{
    return g / (1.0 + exp(-g));
}

static double exact_gelu(double g)
{
    const double u = 0.797884560802865355879892119868763737 * (g + 0.044715 * g * g * g);
    return g / (1.0 + exp(-2.0 * u));
}

// The largest error of an activation relative to |g|: what it multiplies.
static double worst_of_gate(const char *name, float (*function)(float), double (*exact)(double), bool negative)
{
    double worst = 0;
    for (uint32_t bits = float_bits(1e-30f); bits <= float_bits(3e38f); bits += 4 * STEP) {
        const float g = float_from_bits(bits | (negative ? 0x80000000u : 0));
        const double error = fabs((double)function(g) - exact((double)g)) / fabs((double)g);
        assert_false(isnan(function(g)));
        worst = error > worst ? error : worst;
    }
    printf("%s of %s gates: %.3g of |g|\n", name, negative ? "negative" : "positive", worst);
    return worst;
}

static void test_activations(void **state)
{
    (void)state;
    assert_true(worst_of_gate("silu", silu_f32, exact_silu, false) < 1.5e-7);
    assert_true(worst_of_gate("silu", silu_f32, exact_silu, true) < 1.5e-7);
    assert_true(worst_of_gate("gelu", gelu_f32, exact_gelu, false) < 2e-7);
    assert_true(worst_of_gate("gelu", gelu_f32, exact_gelu, true) < 2e-7);
    assert_true(silu_f32(INFINITY) == INFINITY && isnan(silu_f32(-INFINITY)) && isnan(silu_f32(NAN)));
    assert_true(gelu_f32(INFINITY) == INFINITY && isnan(gelu_f32(-INFINITY)) && isnan(gelu_f32(NAN)));
    assert_true(silu_f32(-3e38f) == 0.0f && gelu_f32(-3e38f) == 0.0f);
    assert_true(silu_f32(3e38f) == 3e38f && gelu_f32(3e38f) == 3e38f);
    assert_true(silu_f32(0.0f) == 0.0f && signbit(gelu_f32(-0.0f)));
}

static double exact_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static void test_sigmoid(void **state)
{
    (void)state;
    assert_true(worst_ulps("sigmoid", sigmoid_f32, exact_sigmoid, 1e-30f, 100.0f) < 2.0);
    assert_true(worst_ulps("sigmoid", sigmoid_f32, exact_sigmoid, -87.0f, -1e-30f) < 2.5);
    assert_true(sigmoid_f32(0.0f) == 0.5f && sigmoid_f32(-0.0f) == 0.5f);
    assert_true(sigmoid_f32(INFINITY) == 1.0f && float_bits(sigmoid_f32(-INFINITY)) == 0 && isnan(sigmoid_f32(NAN)));
}

static void test_relu(void **state)
{
    (void)state;
    assert_true(relu_f32(3.5f) == 3.5f && float_bits(relu_f32(-3.5f)) == 0 && relu_f32(INFINITY) == INFINITY);
    assert_true(float_bits(relu_f32(-INFINITY)) == 0 && float_bits(relu_f32(0.0f)) == 0);
    assert_true(signbit(relu_f32(-0.0f)) && isnan(relu_f32(NAN)) && isnan(relu_f32(-NAN)));
    assert_true(relu_f32(0x1p-149f) == 0x1p-149f && float_bits(relu_f32(-0x1p-149f)) == 0);
}

static double exact_clamped(double gate, double up)
{
    const double g = gate > 7 ? 7 : gate, u = up > 7 ? 7 : up < -7 ? -7 : up;
    return g * exact_sigmoid((double)1.702f * g) * (u + 1);
}

static void test_swiglu_clamped(void **state)
{
    (void)state;
    for (float gate = -100.0f; gate < 20.0f; gate += 0.0937f)
        for (float up = -12.0f; up < 12.0f; up += 0.713f) {
            const double exact = exact_clamped((double)gate, (double)up);
            const double got = (double)swiglu_clamped_f32(gate, up, 7.0f, 1.702f);
            assert_true(fabs(got - exact) <= 5e-7 * fabs((double)gate) * (fabs((double)up) + 1));
        }
    const float most = swiglu_clamped_f32(7.0f, 7.0f, 7.0f, 1.702f);
    assert_true(swiglu_clamped_f32(INFINITY, INFINITY, 7.0f, 1.702f) == most);
    assert_true(swiglu_clamped_f32(3e38f, 3e38f, 7.0f, 1.702f) == most);
    assert_true(swiglu_clamped_f32(1.0f, -INFINITY, 7.0f, 1.702f) == swiglu_clamped_f32(1.0f, -7.0f, 7.0f, 1.702f));
    assert_true(swiglu_clamped_f32(-3e38f, 1.0f, 7.0f, 1.702f) == 0.0f);
    assert_true(swiglu_clamped_f32(2.0f, -1.0f, 7.0f, 1.702f) == 0.0f);
    assert_true(isnan(swiglu_clamped_f32(NAN, 1.0f, 7.0f, 1.702f)) &&
                isnan(swiglu_clamped_f32(1.0f, NAN, 7.0f, 1.702f)));
}

static void test_log(void **state)
{
    (void)state;
    assert_true(worst_ulps("log", log_f32, log, 0x1p-149f, 0x1p-126f) < 0.8);
    assert_true(worst_ulps("log", log_f32, log, 0x1p-126f, 0x1.fffffep-1f) < 0.8);
    assert_true(worst_ulps("log", log_f32, log, 1.0f, FLT_MAX) < 0.8);
    // Around 1, where the result is small and the borders of the reduction lie: every float.
    for (uint32_t bits = float_bits(0.999f); bits < float_bits(1.001f); bits++)
        assert_true(ulps(log_f32(float_from_bits(bits)), log((double)float_from_bits(bits))) < 0.8);
    for (uint32_t bits = 0x3f3504f3u - 100; bits < 0x3f3504f3u + 100; bits++)
        assert_true(ulps(log_f32(float_from_bits(bits)), log((double)float_from_bits(bits))) < 0.8);
    assert_true(float_bits(log_f32(1.0f)) == 0 && log_f32(0.0f) == -INFINITY && log_f32(-0.0f) == -INFINITY);
    assert_true(log_f32(INFINITY) == INFINITY && isnan(log_f32(-1.0f)) && isnan(log_f32(-INFINITY)));
    assert_true(isnan(log_f32(NAN)) && isnan(log_f32(-0x1p-149f)));
}

static double exact_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static void test_softplus(void **state)
{
    (void)state;
    assert_true(worst_ulps("softplus", softplus_f32, exact_softplus, 1e-30f, 3e38f) < 2.0);
    assert_true(worst_ulps("softplus", softplus_f32, exact_softplus, -87.3f, -1e-30f) < 3.0);
    assert_true(softplus_f32(INFINITY) == INFINITY && float_bits(softplus_f32(-INFINITY)) == 0);
    assert_true(softplus_f32(-3e38f) == 0.0f && softplus_f32(3e38f) == 3e38f && isnan(softplus_f32(NAN)));
}

static void test_softcap(void **state)
{
    (void)state;
    assert_true(softcap_f32(1e30f, 30.0f) == 30.0f && softcap_f32(-INFINITY, 50.0f) == -50.0f);
    assert_true(isnan(softcap_f32(NAN, 50.0f)));
    for (float x = -200.0f; x < 200.0f; x += 0.37f) {
        const double exact = 30.0 * tanh((double)x / 30.0);
        assert_true(fabs((double)softcap_f32(x, 30.0f) - exact) <= 3e-7 * fabs(exact));
    }
}

static void test_halves(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        const float a = half_value((uint16_t)half), b = half_to_float((uint16_t)half);
        assert_true(float_bits(a) == float_bits(b) || (isnan(a) && isnan(b)));
        const float c = bfloat_value((uint16_t)half), e = bfloat_to_float((uint16_t)half);
        assert_true(float_bits(c) == float_bits(e) || (isnan(c) && isnan(e)));
    }
    // The exponent is the least that keeps the value from rounding to infinity, over all magnitudes.
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += STEP) {
        const float x = float_from_bits(bits);
        const int32_t e = half_exponent(bits);
        assert_true(e >= 0 && isfinite(half_value(float_to_half(x * power_of_two(-e)))));
        assert_true(e == 0 || isinf(half_value(float_to_half(x * power_of_two(1 - e)))));
    }
    assert_int_equal(half_exponent(0x7f800000u), 0);
    assert_int_equal(half_exponent(0x7fc00000u), 0);
}

static void test_tree(void **state)
{
    (void)state;
    // Powers of two far apart show the order of additions: each tree is written out.
    const float x[MAX_SEGMENTS] = {1.1f, 0x1p23f, -0x1p23f, 3.3f, 0x1.8p24f, 0.7f, -0x1.4p24f, 1e-3f};
    const float expected[MAX_SEGMENTS] = {
        x[0],
        x[0] + x[1],
        (x[0] + x[1]) + x[2],
        (x[0] + x[1]) + (x[2] + x[3]),
        ((x[0] + x[1]) + (x[2] + x[3])) + x[4],
        ((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]),
        ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]),
        ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])),
    };
    for (uint32_t n = 1; n <= MAX_SEGMENTS; n++) {
        float v[MAX_SEGMENTS];
        memcpy(v, x, sizeof(v));
        assert_true(tree_add(v, n) == expected[n - 1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sigmoid), cmocka_unit_test(test_relu),        cmocka_unit_test(test_swiglu_clamped),
        cmocka_unit_test(test_log),     cmocka_unit_test(test_softplus),    cmocka_unit_test(test_exp),
        cmocka_unit_test(test_tanh),    cmocka_unit_test(test_activations), cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_halves),  cmocka_unit_test(test_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

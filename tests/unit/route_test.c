// Routing against a model in F64, its ties and its broken inputs; pooling and the elementwise primitives; gated units
// of every table where a source is not finite.
#include "cpu/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { MAX_EXPERTS = 512 };

static uint64_t random_state = 5;

static float random_float(void) // [-1, 1)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)((double)(int64_t)(z ^ z >> 31) * 0x1p-63);
}

static void assert_near(double expected, double got, double bound)
{
    if (!(fabs(expected - got) <= bound))
        fail_msg("expected %.9g, got %.9g: more than %.3g apart", expected, got, bound);
}

// The route's experts, checked to be valid, distinct and ascending; the kernel gives the same twice.
static void route(const struct routing *routing, const float *logits, const float *bias, uint32_t *experts,
                  float *weights)
{
    static float scratch[4 * MAX_EXPERTS], out[2 * MAX_EXPERTS], again[2 * MAX_EXPERTS];
    assert_true(route_scratch_floats(routing) <= 4 * MAX_EXPERTS);
    kernels_choose(NULL)->route(routing, logits, bias, scratch, out);
    memset(scratch, 0xff, sizeof(scratch));
    kernels_c()->route(routing, logits, bias, scratch, again);
    for (uint32_t i = 0; i < routing->n_used; i++) {
        assert_true(out[i] >= 0 && out[i] < (float)routing->n_expert && out[i] == floorf(out[i]));
        assert_true(i == 0 || out[i] > out[i - 1]);
        experts[i] = (uint32_t)out[i];
        weights[i] = out[routing->n_used + i];
        assert_true(out[i] == again[i]);
        assert_true(weights[i] == again[routing->n_used + i] ||
                    (isnan(weights[i]) && isnan(again[routing->n_used + i])));
    }
}

// ---- the model ----

static double model_score(const struct routing *routing, const float *logits, uint32_t expert)
{
    const double x = (double)logits[expert];
    double sum = 0;
    switch (routing->gating) {
    case GATING_SOFTMAX:
        for (uint32_t i = 0; i < routing->n_expert; i++)
            sum += exp((double)logits[i] - x);
        return 1 / sum;
    case GATING_SIGMOID:
        return 1 / (1 + exp(-x));
    case GATING_SQRT_SOFTPLUS:
        return sqrt(x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)));
    case GATING_SOFTMAX_SELECTED:
        return x;
    }
    return NAN;
}

// How many of n candidates come before the one at `index`: greater, or equal and lower.
static uint32_t rank_of(const double *keys, const bool *candidate, uint32_t n, uint32_t index)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < n; i++)
        rank += candidate[i] && (keys[i] > keys[index] || (keys[i] == keys[index] && i < index));
    return rank;
}

static double model_group_key(const double *keys, uint32_t n, uint32_t best)
{
    double first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (keys[i] > first) {
            second = first;
            first = keys[i];
        } else if (keys[i] > second) {
            second = keys[i];
        }
    }
    return best == 2 && n > 1 ? first + second : first;
}

// The chosen experts, ascending, and their weights.
static void model_route(const struct routing *routing, const float *logits, const float *bias, uint32_t *experts,
                        double *weights)
{
    static double scores[MAX_EXPERTS], keys[MAX_EXPERTS], group_keys[MAX_EXPERTS];
    static bool candidate[MAX_EXPERTS], any[MAX_EXPERTS];
    const uint32_t n = routing->n_expert, n_group = routing->n_group > 1 ? routing->n_group : 1, size = n / n_group;
    for (uint32_t i = 0; i < n; i++) {
        scores[i] = model_score(routing, logits, i);
        keys[i] = scores[i] + (bias ? (double)bias[i] : 0);
    }
    for (uint32_t g = 0; g < n_group; g++) {
        group_keys[g] = model_group_key(keys + g * size, size, routing->group_best);
        any[g] = true;
    }
    for (uint32_t i = 0; i < n; i++)
        candidate[i] = n_group == 1 || rank_of(group_keys, any, n_group, i / size) < routing->n_group_used;
    uint32_t n_chosen = 0;
    double sum = 0, exponentials = 0;
    for (uint32_t i = 0; i < n; i++)
        if (candidate[i] && rank_of(keys, candidate, n, i) < routing->n_used) {
            experts[n_chosen] = i;
            weights[n_chosen++] = scores[i];
        }
    assert_int_equal(n_chosen, routing->n_used);
    if (routing->gating == GATING_SOFTMAX_SELECTED) {
        for (uint32_t i = 0; i < n_chosen; i++)
            exponentials += weights[i] = exp(weights[i] - (double)logits[experts[0]]);
        for (uint32_t i = 0; i < n_chosen; i++)
            weights[i] /= exponentials;
    }
    for (uint32_t i = 0; i < n_chosen; i++)
        sum += weights[i];
    for (uint32_t i = 0; i < n_chosen; i++)
        weights[i] *= (double)routing->weight_scale / (routing->normalize ? sum + 1e-20 : 1);
}

static const struct {
    uint32_t n_expert, n_used, n_group, n_group_used;
} shapes[] = {
    {8, 2, 0, 0},  {8, 8, 1, 1},   {1, 1, 0, 0},   {60, 4, 0, 0}, {128, 8, 0, 0}, {512, 10, 0, 0},
    {64, 6, 8, 3}, {256, 8, 8, 4}, {16, 4, 16, 4}, {12, 5, 3, 2}, {6, 6, 2, 2},   {33, 3, 11, 1},
};
enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

// Logits on a grid that F32 and F64 order alike: eighths, shuffled by nothing, with many ties.
static void test_against_model(void **state)
{
    (void)state;
    for (int round = 0; round < 8000; round++) {
        const struct routing routing = {
            .gating = (enum gating)(round % 4),
            .n_expert = shapes[round % N_SHAPES].n_expert,
            .n_used = shapes[round % N_SHAPES].n_used,
            .n_group = shapes[round % N_SHAPES].n_group,
            .n_group_used = shapes[round % N_SHAPES].n_group_used,
            .group_best = 1 + (uint32_t)(round / 4 % 2),
            .normalize = round / 8 % 2,
            .weight_scale = round / 16 % 2 ? 1.0f : 2.5f,
        };
        float logits[MAX_EXPERTS], bias[MAX_EXPERTS], weights[MAX_EXPERTS];
        uint32_t experts[MAX_EXPERTS], expected[MAX_EXPERTS];
        double expected_weights[MAX_EXPERTS];
        const bool with_bias = round / 32 % 2;
        // A bias, or a sum of two, adds what F32 has rounded: where that is so there are no near ties, only exact ones.
        for (uint32_t i = 0; i < routing.n_expert; i++) {
            logits[i] = floorf(random_float() * 32.0f) / 8.0f;
            bias[i] = floorf(random_float() * 2.0f);
        }
        route(&routing, logits, with_bias ? bias : NULL, experts, weights);
        model_route(&routing, logits, with_bias ? bias : NULL, expected, expected_weights);
        double bound = 0;
        for (uint32_t i = 0; i < routing.n_used; i++)
            bound = fmax(bound, 2e-6 * fabs(expected_weights[i]));
        for (uint32_t i = 0; i < routing.n_used; i++) {
            if (experts[i] != expected[i])
                fail_msg("round %d: expert %u is %u, expected %u", round, i, experts[i], expected[i]);
            assert_near(expected_weights[i], (double)weights[i], bound);
        }
    }
}

static struct routing routing_of(enum gating gating, uint32_t n_expert, uint32_t n_used)
{
    return (struct routing){.gating = gating, .n_expert = n_expert, .n_used = n_used, .weight_scale = 1.0f};
}

static void assert_route(const struct routing *routing, const float *logits, const float *bias,
                         const uint32_t *expected)
{
    uint32_t experts[MAX_EXPERTS];
    float weights[MAX_EXPERTS];
    route(routing, logits, bias, experts, weights);
    for (uint32_t i = 0; i < routing->n_used; i++)
        assert_int_equal(experts[i], expected[i]);
}

static void test_ties(void **state)
{
    (void)state;
    for (int gating = 0; gating < 4; gating++) {
        struct routing routing = routing_of((enum gating)gating, 12, 3);
        float logits[12] = {0};
        assert_route(&routing, logits, NULL, (const uint32_t[]){0, 1, 2});
        logits[7] = 1.0f;
        assert_route(&routing, logits, NULL, (const uint32_t[]){0, 1, 7});
        logits[3] = logits[9] = logits[11] = 1.0f;
        assert_route(&routing, logits, NULL, (const uint32_t[]){3, 7, 9});
        // Groups {0 1 2} {3 4 5} {6 7 8} {9 10 11}: three are equally good, the lower two are used.
        routing.n_group = 4;
        routing.n_group_used = 2;
        routing.group_best = 1;
        assert_route(&routing, logits, NULL, (const uint32_t[]){3, 4, 7});
        routing.group_best = 2; // the last group has two
        assert_route(&routing, logits, NULL, (const uint32_t[]){3, 9, 11});
    }
}

// Logits whose scores F32 cannot tell apart are still told apart.
static void test_saturated(void **state)
{
    (void)state;
    const float high[4] = {20.0f, 30.0f, 25.0f, 40.0f}, low[4] = {-100.0f, 10.0f, -95.0f, -96.0f};
    const struct routing sigmoid = routing_of(GATING_SIGMOID, 4, 2), softmax = routing_of(GATING_SOFTMAX, 4, 3);
    assert_route(&sigmoid, high, NULL, (const uint32_t[]){1, 3});
    assert_route(&softmax, low, NULL, (const uint32_t[]){1, 2, 3});
}

// A bias changes the choice and not the weights.
static void test_bias(void **state)
{
    (void)state;
    const float logits[4] = {2.0f, 1.0f, 0.0f, -1.0f}, bias[4] = {-9.0f, -INFINITY, 0.0f, 5.0f};
    uint32_t experts[2];
    float weights[2];
    const struct routing routing = routing_of(GATING_SIGMOID, 4, 2);
    route(&routing, logits, bias, experts, weights);
    assert_true(experts[0] == 2 && experts[1] == 3);
    assert_near(0.5, (double)weights[0], 1e-7);
    assert_near(1 / (1 + exp(1.0)), (double)weights[1], 1e-7);
}

// Logits of -inf are the last to be chosen and weigh nothing; a sum of 0 does not divide.
static void test_infinite_logits(void **state)
{
    (void)state;
    const float none = -INFINITY, logits[5] = {none, 1.0f, none, none, 2.0f};
    uint32_t experts[3];
    float weights[3];
    for (int gating = 0; gating < 4; gating++) {
        struct routing routing = routing_of((enum gating)gating, 5, 3);
        routing.normalize = true;
        route(&routing, logits, NULL, experts, weights);
        assert_true(experts[0] == 0 && experts[1] == 1 && experts[2] == 4);
        assert_true(weights[0] == 0.0f && weights[1] > 0.0f && weights[2] > weights[1]);
        assert_near(1.0, (double)weights[0] + (double)weights[1] + (double)weights[2], 1e-6);
    }
    const float all[3] = {none, none, none};
    for (int gating = GATING_SIGMOID; gating <= GATING_SQRT_SOFTPLUS; gating++) {
        struct routing routing = routing_of((enum gating)gating, 3, 2);
        routing.normalize = true;
        route(&routing, all, NULL, experts, weights);
        assert_true(experts[0] == 0 && experts[1] == 1);
        if (gating != GATING_SOFTMAX_SELECTED) // a softmax over nothing is NaN
            assert_true(weights[0] == 0.0f && weights[1] == 0.0f);
        else
            assert_true(isnan(weights[0]) && isnan(weights[1]));
    }
}

// Whatever the logits are, the experts are valid (route checks that), and a NaN is never taken for a good score.
static void test_broken_logits(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f};
    float logits[64], bias[64], weights[64];
    uint32_t experts[64];
    for (int round = 0; round < 2000; round++) {
        struct routing routing = routing_of((enum gating)(round % 4), 64, 6);
        routing.n_group = round / 4 % 2 ? 8 : 0;
        routing.n_group_used = 4;
        routing.group_best = 1 + (uint32_t)(round / 8 % 2);
        routing.normalize = round / 16 % 2;
        for (int i = 0; i < 64; i++) {
            logits[i] = random_float() * 4.0f;
            bias[i] = random_float();
            if (random_float() > 0.9f)
                logits[i] = bad[(size_t)((random_float() + 1.0f) * 2.4f)];
            if (random_float() > 0.98f)
                bias[i] = bad[(size_t)((random_float() + 1.0f) * 2.4f)];
        }
        route(&routing, logits, round / 32 % 2 ? bias : NULL, experts, weights);
    }
    for (int i = 0; i < 64; i++)
        logits[i] = NAN;
    for (int gating = 0; gating < 4; gating++) {
        const struct routing routing = routing_of((enum gating)gating, 64, 6);
        route(&routing, logits, NULL, experts, weights);
        for (uint32_t i = 0; i < 6; i++)
            assert_true(experts[i] == i && isnan(weights[i]));
    }
    logits[40] = -5.0f;
    for (int gating = 0; gating < 4; gating++) {
        const struct routing routing = routing_of((enum gating)gating, 64, 1);
        assert_route(&routing, logits, NULL, (const uint32_t[]){40});
    }
}

// ---- primitives ----

static void test_pool(void **state)
{
    (void)state;
    const float x[6] = {3.0f, -1.0f, 4.0f, -1.5f, 5.0f, -9.0f};
    float y[8];
    kernels_c()->pool_1d(x, 6, true, 2, 2, 0, y);
    assert_true(y[0] == 3.0f && y[1] == 4.0f && y[2] == 5.0f);
    kernels_c()->pool_1d(x, 6, true, 6, 1, 0, y);
    assert_true(y[0] == 5.0f);
    kernels_c()->pool_1d(x, 6, false, 3, 2, 1, y); // windows {x0 x1} {x1 x2 x3} {x3 x4 x5}: padding does not count
    assert_true(y[0] == 1.0f && y[1] == 0.5f);
    assert_near(-5.5 / 3, (double)y[2], 1e-6);
    const float negative[2] = {-2.0f, -3.0f};
    kernels_c()->pool_1d(negative, 2, true, 3, 1, 2, y); // padding is not 0
    assert_true(y[0] == -2.0f && y[1] == -2.0f && y[2] == -2.0f && y[3] == -3.0f);
    const float nan[4] = {1.0f, NAN, 7.0f, -INFINITY};
    kernels_c()->pool_1d(nan, 4, true, 4, 1, 0, y);
    assert_true(isnan(y[0]));
    kernels_c()->pool_1d(nan, 4, true, 1, 1, 0, y);
    assert_true(y[0] == 1.0f && isnan(y[1]) && y[3] == -INFINITY);
    kernels_c()->pool_1d(nan, 4, false, 2, 2, 0, y);
    assert_true(isnan(y[0]) && y[1] == -INFINITY);
}

static void test_elementwise(void **state)
{
    (void)state;
    const struct kernels *k = kernels_c();
    const float x[8] = {-1.5f, 0.0f, -0.0f, 2.25f, INFINITY, -INFINITY, NAN, -0x1p-149f};
    float y[8];
    k->abs(x, 8, y);
    assert_true(y[0] == 1.5f && !signbit(y[2]) && y[5] == INFINITY && isnan(y[6]) && y[7] == 0x1p-149f);
    k->ceil(x, 8, y);
    assert_true(y[0] == -1.0f && signbit(y[2]) && y[3] == 3.0f && y[4] == INFINITY && isnan(y[6]) && y[7] == 0.0f);
    k->clamp(x, -1.0f, 2.0f, 8, y);
    assert_true(y[0] == -1.0f && y[3] == 2.0f && y[4] == 2.0f && y[5] == -1.0f && isnan(y[6]) && y[7] == x[7]);
    k->div(x, x, 8, y);
    assert_true(y[0] == 1.0f && isnan(y[1]) && y[3] == 1.0f && isnan(y[4]) && isnan(y[6]) && y[7] == 1.0f);
    k->exp(x, 8, y);
    assert_near(exp(-1.5), (double)y[0], 1e-7);
    assert_true(y[1] == 1.0f && y[4] == INFINITY && y[5] == 0.0f && isnan(y[6]) && y[7] == 1.0f);
    k->log(x, 8, y);
    assert_true(isnan(y[0]) && y[1] == -INFINITY && y[2] == -INFINITY && y[4] == INFINITY && isnan(y[6]) &&
                isnan(y[7]));
    assert_near(log(2.25), (double)y[3], 1e-7);
    memcpy(y, x, sizeof(y)); // in place
    k->abs(y, 8, y);
    k->log(y, 8, y);
    assert_near(log(1.5), (double)y[0], 1e-7);
}

// NaN goes through every gated unit of every table, from either side and at every place of a row.
static void test_gated_units(void **state)
{
    (void)state;
    enum { N = 37 };
    const struct kernels *const tables[] = {kernels_c(), kernels_avx2(), kernels_avx512(), kernels_neon()};
    float gate[N], up[N], y[N];
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (int i = 0; i < 2 * N && tables[t]; i++) {
            for (int j = 0; j < N; j++)
                gate[j] = up[j] = (float)(j - N / 2);
            (i < N ? gate : up)[i % N] = NAN;
            tables[t]->reglu(gate, up, N, y);
            for (int j = 0; j < N; j++)
                assert_true(j == i % N ? isnan(y[j]) : y[j] == (gate[j] > 0 ? gate[j] * up[j] : 0));
            tables[t]->swiglu_clamped(gate, up, N, 7.0f, 1.702f, y);
            for (int j = 0; j < N; j++)
                assert_int_equal(isnan(y[j]) != 0, j == i % N);
            tables[t]->sigmoid(gate, N, y);
            for (int j = 0; j < N; j++)
                assert_int_equal(isnan(y[j]) != 0, i < N && j == i);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_saturated),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_infinite_logits),
        cmocka_unit_test(test_broken_logits),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_gated_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

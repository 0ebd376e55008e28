// Routes of tokens to experts, and pooling: kernels that all tables share, so this compares builds of them. What they
// compute is checked by tests/unit/route_test.c.
#include "check.h"

#include <math.h>
#include <string.h>

static const struct routing routings[] = {
    {GATING_SOFTMAX, 8, 2, 0, 0, 0, true, 1.0f},        {GATING_SOFTMAX, 128, 8, 0, 0, 0, true, 1.0f},
    {GATING_SOFTMAX, 64, 6, 8, 3, 1, false, 16.0f},     {GATING_SIGMOID, 256, 8, 8, 4, 2, true, 2.5f},
    {GATING_SIGMOID, 33, 33, 1, 1, 1, false, 1.0f},     {GATING_SOFTMAX_SELECTED, 32, 4, 0, 0, 0, false, 1.0f},
    {GATING_SQRT_SOFTPLUS, 48, 5, 6, 2, 2, true, 1.5f}, {GATING_SOFTMAX, 1, 1, 0, 0, 0, true, 1.0f},
};
enum { N_ROUTINGS = sizeof(routings) / sizeof(routings[0]) };

struct route_case {
    const struct kernels *kernels;
    const struct routing *routing;
    const float *logits, *bias;
    float *scratch, *out;
};

static void run_route(void *user)
{
    struct route_case *c = user;
    c->kernels->route(c->routing, c->logits, c->bias, c->scratch, c->out);
}

static void check_route(struct check *check, const struct routing *routing, int input, bool with_bias)
{
    const size_t n = routing->n_expert, n_out = 2 * (size_t)routing->n_used;
    struct guarded logits, bias, scratch, expected, got;
    float *logit_data = guarded_floats(&logits, n, 1), *bias_data = guarded_floats(&bias, n, 2);
    struct route_case c = {
        .routing = routing,
        .logits = logit_data,
        .bias = with_bias ? bias_data : NULL,
        .scratch = guarded_floats(&scratch, route_scratch_floats(routing), 0),
    };
    float *a = guarded_floats(&expected, n_out, 0), *b = guarded_floats(&got, n_out, 0);
    check_fill(check, input, logit_data, n);
    check_fill(check, INPUT_NORMAL, bias_data, n);
    for (size_t i = 0; i + 1 < n && input == INPUT_NORMAL; i += 1 + check_random_below(check, 4))
        logit_data[i + 1] = logit_data[i]; // ties
    check_case(check, "gating=%d experts=%zu used=%u input=%s", (int)routing->gating, n, routing->n_used,
               input_names[input]);
    c.kernels = check->tested;
    c.out = b;
    if (check->bench) {
        check_bench(check, run_route, &c, 0, (double)n);
    } else {
        run_route(&c);
        c.kernels = check->reference;
        c.out = a;
        run_route(&c);
        check_floats(check, "route", a, b, n_out);
        check_guards(check, &got);
        check_guards(check, &scratch);
    }
    guarded_free(&logits);
    guarded_free(&bias);
    guarded_free(&scratch);
    guarded_free(&expected);
    guarded_free(&got);
}

static void check_pool(struct check *check, size_t n, int input)
{
    for (size_t kernel = 1; kernel <= n; kernel = kernel * 2 + 1)
        for (int max = 0; max < 2; max++) {
            const size_t stride = 1 + check_random_below(check, 3), padding = check_random_below(check, kernel);
            const size_t n_out = (n + 2 * padding - kernel) / stride + 1;
            struct guarded x, expected, got;
            float *data = guarded_floats(&x, n, 1);
            float *a = guarded_floats(&expected, n_out, 0), *b = guarded_floats(&got, n_out, 0);
            check_fill(check, input, data, n);
            check_case(check, "n=%zu kernel=%zu stride=%zu padding=%zu max=%d input=%s", n, kernel, stride, padding,
                       max, input_names[input]);
            check->reference->pool_1d(data, n, max, kernel, stride, padding, a);
            check->tested->pool_1d(data, n, max, kernel, stride, padding, b);
            check_floats(check, "pool_1d", a, b, n_out);
            check_guards(check, &got);
            guarded_free(&x);
            guarded_free(&expected);
            guarded_free(&got);
        }
}

void check_routes(struct check *check)
{
    static const size_t lengths[] = {1, 2, 16, 33, 257};
    if (check_begin(check, check->tested->route, "route"))
        for (size_t i = 0; i < N_ROUTINGS; i++)
            for (int input = 0; input < (check->bench ? 1 : INPUT_COUNT); input++)
                for (int bias = 0; bias < 2; bias++)
                    check_route(check, &routings[i], input, bias);
    if (check_begin(check, check->tested->pool_1d, "pool_1d") && !check->bench)
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
            for (int input = 0; input < INPUT_COUNT; input++)
                check_pool(check, lengths[i], input);
}

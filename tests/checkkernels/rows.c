// Row operations: every input kind, lengths that are no multiple of anything, unaligned, in place and not.
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t lengths[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 64, 80, 100, 576, 1000, 1024};
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]), MAX_LENGTH = 1024 };

// What a row operation takes, so that one loop serves all.
struct row_case {
    const struct kernels *kernels;
    const float *a, *b;
    size_t n;
    float factor;
    float *y;
};

static void run_rms_norm(void *user)
{
    struct row_case *c = user;
    c->kernels->rms_norm(c->a, c->b, c->n, 1e-6f, c->y);
}

static void run_rms_norm_unweighted(void *user)
{
    struct row_case *c = user;
    c->kernels->rms_norm(c->a, NULL, c->n, 1e-5f, c->y);
}

static void run_add(void *user)
{
    struct row_case *c = user;
    c->kernels->add(c->a, c->b, c->n, c->y);
}

static void run_mul(void *user)
{
    struct row_case *c = user;
    c->kernels->mul(c->a, c->b, c->n, c->y);
}

static void run_scale(void *user)
{
    struct row_case *c = user;
    c->kernels->scale(c->a, c->factor, c->n, c->y);
}

static void run_swiglu(void *user)
{
    struct row_case *c = user;
    c->kernels->swiglu(c->a, c->b, c->n, c->y);
}

static void run_geglu(void *user)
{
    struct row_case *c = user;
    c->kernels->geglu(c->a, c->b, c->n, c->y);
}

static void run_exp_minus(void *user)
{
    struct row_case *c = user;
    c->kernels->exp_minus(c->a, c->factor, c->n, c->y);
}

static void run_reglu(void *user)
{
    struct row_case *c = user;
    c->kernels->reglu(c->a, c->b, c->n, c->y);
}

static void run_swiglu_clamped(void *user)
{
    struct row_case *c = user;
    c->kernels->swiglu_clamped(c->a, c->b, c->n, 7.0f, 1.702f, c->y);
}

static void run_swiglu_clamped_tight(void *user)
{
    struct row_case *c = user;
    c->kernels->swiglu_clamped(c->a, c->b, c->n, c->factor, 1.0f, c->y);
}

static void run_sigmoid(void *user)
{
    struct row_case *c = user;
    c->kernels->sigmoid(c->a, c->n, c->y);
}

static void run_abs(void *user)
{
    struct row_case *c = user;
    c->kernels->abs(c->a, c->n, c->y);
}

static void run_ceil(void *user)
{
    struct row_case *c = user;
    c->kernels->ceil(c->a, c->n, c->y);
}

static void run_clamp(void *user)
{
    struct row_case *c = user;
    c->kernels->clamp(c->a, -c->factor, c->factor, c->n, c->y);
}

static void run_div(void *user)
{
    struct row_case *c = user;
    c->kernels->div(c->a, c->b, c->n, c->y);
}

static void run_exp(void *user)
{
    struct row_case *c = user;
    c->kernels->exp(c->a, c->n, c->y);
}

static void run_log(void *user)
{
    struct row_case *c = user;
    c->kernels->log(c->a, c->n, c->y);
}

// One operation on one case: out of place, and in place.
static void check_row_case(struct check *check, void (*run)(void *user), struct row_case *c, size_t offset)
{
    struct guarded expected, got;
    float *expected_y = guarded_floats(&expected, c->n, offset), *got_y = guarded_floats(&got, c->n, offset);
    c->kernels = check->reference;
    c->y = expected_y;
    run(c);
    c->kernels = check->tested;
    c->y = got_y;
    run(c);
    check_floats(check, "y", expected_y, got_y, c->n);
    check_guards(check, &got);

    const float *a = c->a;
    memcpy(got_y, a, c->n * sizeof(*a));
    c->a = got_y;
    run(c);
    c->a = a;
    check_floats(check, "y in place", expected_y, got_y, c->n);
    check_guards(check, &got);
    guarded_free(&expected);
    guarded_free(&got);
}

static void check_operation(struct check *check, void (*run)(void *user))
{
    struct guarded a, b, y;
    float *a_data = guarded_floats(&a, MAX_LENGTH, 1), *b_data = guarded_floats(&b, MAX_LENGTH, 3);
    float *y_data = guarded_floats(&y, MAX_LENGTH, 0);
    struct row_case c = {.a = a_data, .b = b_data, .factor = 0.37f};
    if (check->bench) {
        check_fill(check, INPUT_NORMAL, a_data, MAX_LENGTH);
        check_fill(check, INPUT_NORMAL, b_data, MAX_LENGTH);
        check_case(check, "n=%d", MAX_LENGTH);
        c.kernels = check->tested;
        c.n = MAX_LENGTH;
        c.y = y_data;
        check_bench(check, run, &c, 0, MAX_LENGTH);
    }
    for (int input = 0; input < INPUT_COUNT && !check->bench; input++)
        for (size_t i = 0; i < N_LENGTHS; i++) {
            c.n = lengths[i];
            check_fill(check, input, a_data, c.n);
            check_fill(check, i % 2 ? INPUT_NORMAL : (enum input)input, b_data, c.n);
            check_case(check, "n=%zu input=%s", c.n, input_names[input]);
            check_row_case(check, run, &c, i % 4);
        }
    guarded_free(&a);
    guarded_free(&b);
    guarded_free(&y);
}

// y is a source too, so it has no in-place form.
static void run_add_scaled(void *user)
{
    struct row_case *c = user;
    c->kernels->add_scaled(c->a, c->factor, c->n, c->y);
}

static void check_add_scaled(struct check *check)
{
    static const float factors[] = {0.37f, -1.0f, 0.0f, 0x1p112f, 1e-30f, INFINITY, NAN};
    for (size_t i = 0; i < N_LENGTHS; i++)
        for (int input = 0; input < INPUT_COUNT; input++) {
            struct guarded a, expected, got;
            struct row_case c = {.a = guarded_floats(&a, lengths[i], 1), .n = lengths[i], .factor = factors[i % 7]};
            float *expected_y = guarded_floats(&expected, c.n, i % 4), *got_y = guarded_floats(&got, c.n, i % 4);
            check_case(check, "n=%zu input=%s factor=%g", c.n, input_names[input], (double)c.factor);
            check_fill(check, input, (float *)(void *)a.data, c.n);
            check_fill(check, i % 2 ? INPUT_NORMAL : (enum input)input, expected_y, c.n);
            memcpy(got_y, expected_y, c.n * sizeof(*got_y));
            c.kernels = check->reference;
            c.y = expected_y;
            run_add_scaled(&c);
            c.kernels = check->tested;
            c.y = got_y;
            run_add_scaled(&c);
            check_floats(check, "y", expected_y, got_y, c.n);
            check_guards(check, &got);
            guarded_free(&a);
            guarded_free(&expected);
            guarded_free(&got);
        }
}

// exp and the activations over many arguments: around every binade and the borders of exp.
static void check_sweep(struct check *check, void (*run)(void *user))
{
    static const float centres[] = {-104, -88.0f, -87.3f, -87.33655f, -1,       0,    0.625f,
                                    1,    20,     87.3f,  88.5f,      88.7228f, 88.8f};
    struct guarded a, b;
    float *a_data = guarded_floats(&a, MAX_LENGTH, 0), *b_data = guarded_floats(&b, MAX_LENGTH, 0);
    struct row_case c = {.a = a_data, .b = b_data, .n = MAX_LENGTH};
    for (int i = 0; i < MAX_LENGTH; i++)
        b_data[i] = 1.0f;
    for (int round = 0; round < 26; round++) {
        const float centre = centres[round / 2];
        for (int i = 0; i < MAX_LENGTH; i++)
            a_data[i] = centre + check_random_normal(check) * (round % 2 ? 0.5f : 1e-3f);
        a_data[0] = centre;
        check_case(check, "sweep around %g", (double)centre);
        check_row_case(check, run, &c, 0);
    }
    guarded_free(&a);
    guarded_free(&b);
}

struct rope_case {
    const struct kernels *kernels;
    float *x;
    const float *cos_sin;
    size_t n_rot;
    bool neox;
};

static void run_rope(void *user)
{
    struct rope_case *c = user;
    c->kernels->rope(c->x, c->n_rot, c->cos_sin, c->neox);
}

static void check_rope(struct check *check, bool neox)
{
    static const size_t sizes[] = {2, 4, 16, 20, 32, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int input = 0; input < INPUT_COUNT; input++) {
            const size_t n_rot = sizes[i], offset = i % 3;
            struct guarded expected, got, table;
            float *expected_x = guarded_floats(&expected, n_rot, offset), *got_x = guarded_floats(&got, n_rot, offset);
            float *cos_sin = guarded_floats(&table, n_rot, 0);
            check_fill(check, input, expected_x, n_rot);
            check_fill(check, INPUT_NORMAL, cos_sin, n_rot);
            memcpy(got_x, expected_x, n_rot * sizeof(*got_x));
            check_case(check, "n_rot=%zu input=%s", n_rot, input_names[input]);
            struct rope_case c = {check->reference, expected_x, cos_sin, n_rot, neox};
            if (check->bench) {
                c.kernels = check->tested;
                if (n_rot == 64 && input == INPUT_NORMAL)
                    check_bench(check, run_rope, &c, 0, (double)n_rot);
            } else {
                run_rope(&c);
                c.kernels = check->tested;
                c.x = got_x;
                run_rope(&c);
                check_floats(check, "x", expected_x, got_x, n_rot);
                check_guards(check, &got);
            }
            guarded_free(&expected);
            guarded_free(&got);
            guarded_free(&table);
        }
}

void check_rows(struct check *check)
{
    const struct kernels *k = check->tested;
    const struct {
        const char *name;
        bool present;
        void (*run)(void *user);
        bool sweep;
    } operations[] = {
        {"rms_norm", k->rms_norm, run_rms_norm, false},
        {"rms_norm.unweighted", k->rms_norm, run_rms_norm_unweighted, false},
        {"add", k->add, run_add, false},
        {"mul", k->mul, run_mul, false},
        {"scale", k->scale, run_scale, false},
        {"swiglu", k->swiglu, run_swiglu, true},
        {"geglu", k->geglu, run_geglu, true},
        {"reglu", k->reglu, run_reglu, true},
        {"swiglu_clamped", k->swiglu_clamped, run_swiglu_clamped, true},
        {"swiglu_clamped.tight", k->swiglu_clamped, run_swiglu_clamped_tight, true},
        {"sigmoid", k->sigmoid, run_sigmoid, true},
        {"exp_minus", k->exp_minus, run_exp_minus, true},
        {"abs", k->abs, run_abs, false},
        {"ceil", k->ceil, run_ceil, true},
        {"clamp", k->clamp, run_clamp, true},
        {"div", k->div, run_div, false},
        {"exp", k->exp, run_exp, true},
        {"log", k->log, run_log, true},
    };
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
        if (!check_begin(check, operations[i].present, "%s", operations[i].name))
            continue;
        check_operation(check, operations[i].run);
        if (operations[i].sweep && !check->bench)
            check_sweep(check, operations[i].run);
    }
    if (check_begin(check, k->add_scaled, "add_scaled")) {
        if (check->bench)
            check_operation(check, run_add_scaled);
        else
            check_add_scaled(check);
    }
    for (int neox = 0; neox < 2; neox++)
        if (check_begin(check, k->rope, "rope.%s", neox ? "neox" : "pairs"))
            check_rope(check, neox);
}

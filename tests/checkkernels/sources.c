// The rounding of source rows.
#include "check.h"

#include <string.h>

static const size_t block_sizes[] = {32, 64, 96, 160, 256, 288, 576, 1056, 2048, 4096};
static const size_t plain_sizes[] = {1, 5, 15, 16, 17, 31, 48, 100, 128, 129, 575, 1000, 4096};

struct source_case {
    const struct kernels *kernels;
    const float *x;
    size_t k;
    struct segments segments;
    void *row;
};

static void run_quantize(void *user)
{
    struct source_case *c = user;
    c->kernels->quantize_q8(c->x, c->k, c->row);
}

static void run_round(void *user)
{
    struct source_case *c = user;
    c->kernels->round_f16(c->x, c->k, &c->segments, c->row);
}

static void run_round_unscaled(void *user)
{
    struct source_case *c = user;
    c->kernels->round_f16(c->x, c->k, NULL, c->row);
}

static void run_round_bf16(void *user)
{
    struct source_case *c = user;
    c->kernels->round_bf16(c->x, c->k, c->row);
}

// Integers that lie exactly between two, and the largest.
static void fill_ties(struct check *check, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)check_random_below(check, 255) * 0.5f - 63.5f;
    for (size_t i = 0; i < n; i += 32)
        x[i] = check_random_below(check, 2) ? 127.0f : -127.0f;
}

static void check_quantize(struct check *check, size_t k, int input)
{
    struct guarded x, expected = guarded_make(q8_row_bytes(k), 0), got = guarded_make(q8_row_bytes(k), 0);
    struct source_case c = {.k = k, .x = guarded_floats(&x, k, k % 3)};
    if (input < INPUT_COUNT)
        check_fill(check, input, (float *)(void *)x.data, k);
    else
        fill_ties(check, (float *)(void *)x.data, k);
    check_case(check, "k=%zu input=%s", k, input < INPUT_COUNT ? input_names[input] : "ties");
    if (check->bench) {
        c.kernels = check->tested;
        c.row = got.data;
        check_bench(check, run_quantize, &c, 0, (double)k);
    } else {
        c.kernels = check->reference;
        c.row = expected.data;
        run_quantize(&c);
        c.kernels = check->tested;
        c.row = got.data;
        run_quantize(&c);
        const struct q8_row a = q8_row_parts(expected.data, k), b = q8_row_parts(got.data, k);
        check_bytes(check, "q", a.q, b.q, k);
        check_floats(check, "d", a.d, b.d, k / 32);
        check_bytes(check, "sums", a.sums, b.sums, k / 16 * 2);
        check_guards(check, &got);
    }
    guarded_free(&x);
    guarded_free(&expected);
    guarded_free(&got);
}

static void check_round(struct check *check, void (*run)(void *user), size_t k, int input)
{
    struct guarded x, expected = guarded_make(f32_row_bytes(k), 0), got = guarded_make(f32_row_bytes(k), 0);
    struct source_case c = {.k = k, .x = guarded_floats(&x, k, k % 3)};
    segments_make(&c.segments, k, 16);
    check_fill(check, input, (float *)(void *)x.data, k);
    check_case(check, "k=%zu input=%s", k, input_names[input]);
    if (check->bench) {
        c.kernels = check->tested;
        c.row = got.data;
        check_bench(check, run, &c, 0, (double)k);
    } else {
        c.kernels = check->reference;
        c.row = expected.data;
        run(&c);
        c.kernels = check->tested;
        c.row = got.data;
        run(&c);
        check_floats(check, "row", (const float *)(const void *)expected.data, c.row, f32_row_scales(k) + MAX_SEGMENTS);
        check_guards(check, &got);
    }
    guarded_free(&x);
    guarded_free(&expected);
    guarded_free(&got);
}

void check_sources(struct check *check)
{
    if (check_begin(check, check->tested->quantize_q8, "quantize_q8")) {
        if (check->bench)
            check_quantize(check, 4096, INPUT_NORMAL);
        for (size_t i = 0; i < sizeof(block_sizes) / sizeof(block_sizes[0]) && !check->bench; i++)
            for (int input = 0; input <= INPUT_COUNT; input++)
                check_quantize(check, block_sizes[i], input);
    }
    const struct {
        const char *name;
        bool present;
        void (*run)(void *user);
    } rounds[] = {
        {"round_f16", check->tested->round_f16, run_round},
        {"round_f16.unscaled", check->tested->round_f16, run_round_unscaled},
        {"round_bf16", check->tested->round_bf16, run_round_bf16},
    };
    for (size_t r = 0; r < sizeof(rounds) / sizeof(rounds[0]); r++) {
        if (!check_begin(check, rounds[r].present, "%s", rounds[r].name))
            continue;
        if (check->bench)
            check_round(check, rounds[r].run, 4096, INPUT_NORMAL);
        for (size_t i = 0; i < sizeof(plain_sizes) / sizeof(plain_sizes[0]) && !check->bench; i++)
            for (int input = 0; input < INPUT_COUNT; input++)
                check_round(check, rounds[r].run, plain_sizes[i], input);
    }
}

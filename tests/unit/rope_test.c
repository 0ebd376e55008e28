// Rotations against a table computed with 50 digits: frequencies under every scaling, and cosines and sines up to
// position 1,000,000, where an F32 angle would be worthless.
#include "model/rope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

enum { N_POSITIONS = 6, MAX_PAIRS = 64 };

enum case_type {
    CASE_NONE,
    CASE_LINEAR,
    CASE_YARN,
    CASE_LLAMA3,
};

struct rope_case {
    enum case_type type;
    uint32_t n_rot;
    double base, factor, context;
    struct {
        uint32_t pair;
        double frequency; // 0: fewer pairs are listed
        double divisor;   // of Llama 3
        struct {
            double cosine, sine;
        } at[N_POSITIONS];
    } pairs[8];
};

#include "rope_table.h"

static void make(const struct rope_case *c, struct rope *rope, double *frequencies, float *factors)
{
    struct rope_scaling scaling = {.factor = c->factor,
                                   .original_context = c->context,
                                   .beta_fast = 32,
                                   .beta_slow = 1,
                                   .ext_factor = 1,
                                   .attn_factor = 1};
    if (c->type == CASE_LINEAR)
        scaling.type = ROPE_SCALING_LINEAR;
    if (c->type == CASE_YARN)
        scaling.type = ROPE_SCALING_YARN;
    if (c->type == CASE_LLAMA3) {
        for (uint32_t i = 0; i < c->n_rot / 2; i++)
            factors[i] = 1; // those that are not in the table
        for (size_t i = 0; i < 8 && c->pairs[i].frequency != 0; i++)
            factors[c->pairs[i].pair] = (float)c->pairs[i].divisor;
        scaling.factors = factors;
    }
    rope_init(rope, c->n_rot, c->base, &scaling, frequencies);
}

static void test_table(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof(rope_cases) / sizeof(rope_cases[0]); n++) {
        const struct rope_case *c = &rope_cases[n];
        double frequencies[MAX_PAIRS], worst = 0;
        float factors[MAX_PAIRS], cos_sin[2 * MAX_PAIRS];
        struct rope rope;
        make(c, &rope, frequencies, factors);
        // Llama 3's divisors are F32 in the file, which is all the error there is.
        double relative = c->type == CASE_LLAMA3 ? 0x1p-24 : 1e-14;
        size_t n_checked = 0;
        for (size_t p = 0; p < N_POSITIONS; p++) {
            rope_fill(&rope, rope_positions[p], cos_sin);
            for (size_t i = 0; i < 8 && c->pairs[i].frequency != 0; i++, n_checked++) {
                uint32_t pair = c->pairs[i].pair;
                double frequency = c->pairs[i].frequency;
                if (fabs(frequencies[pair] / frequency - 1) > relative)
                    fail_msg("case %zu, pair %u: frequency %.17g, not %.17g", n, pair, frequencies[pair], frequency);
                double cosine = fabs((double)cos_sin[pair] - c->pairs[i].at[p].cosine);
                double sine = fabs((double)cos_sin[c->n_rot / 2 + pair] - c->pairs[i].at[p].sine);
                double allowed = rope.magnitude * 0x1p-24 + relative * frequency * rope_positions[p];
                if (!(cosine <= allowed && sine <= allowed))
                    fail_msg("case %zu, pair %u, position %u: off by %g and %g", n, pair, rope_positions[p], cosine,
                             sine);
                if (c->type != CASE_LLAMA3)
                    worst = fmax(worst, fmax(cosine, sine) / rope.magnitude);
            }
        }
        assert_true(n_checked >= 5 * N_POSITIONS);
        assert_true(worst <= 0x1p-24);
    }
}

// Where the magnitude is: 0.1 ln(factor) + 1, or what the file gives instead, times attn_factor.
static void test_yarn_magnitude(void **state)
{
    (void)state;
    double frequencies[32];
    struct rope rope;
    struct rope_scaling scaling = {.type = ROPE_SCALING_YARN,
                                   .factor = 4,
                                   .original_context = 4096,
                                   .beta_fast = 32,
                                   .beta_slow = 1,
                                   .ext_factor = 1,
                                   .attn_factor = 0.5};
    rope_init(&rope, 64, 10000, &scaling, frequencies);
    assert_true(fabs(rope.magnitude - 0.5 * (0.1 * log(4) + 1)) < 1e-15);
    scaling.attention_factor = 1.25;
    rope_init(&rope, 64, 10000, &scaling, frequencies);
    assert_true(rope.magnitude == 0.5 * 1.25);
    scaling.attention_factor = 0;
    scaling.factor = 1; // changes nothing
    scaling.attn_factor = 1;
    rope_init(&rope, 64, 10000, &scaling, frequencies);
    assert_true(rope.magnitude == 1 && frequencies[0] == 1);
    scaling.factor = 4;
    scaling.ext_factor = 0; // all pairs are interpolated
    rope_init(&rope, 64, 10000, &scaling, frequencies);
    for (int i = 0; i < 32; i++)
        assert_true(fabs(frequencies[i] * 4 / pow(10000, -i / 32.0) - 1) < 1e-14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_yarn_magnitude),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Precisions of sources, for all and for kinds of tensors, against the float64 oracle; and what the range scale is for:
// without it the overflow twins do overflow.
#include "golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// The largest difference from the oracle's logits, in their deviations; NaN where one is NaN.
static double difference(const struct golden *oracle, const struct setup *setup)
{
    size_t n;
    float *logits = golden_run(oracle, setup, &n);
    double largest = golden_difference(logits + n - oracle->n_logits, oracle->logits, oracle->n_logits);
    free(logits);
    return largest / golden_deviation(oracle->logits, oracle->n_logits);
}

struct expectation {
    const char *folder, *name, *precision;
    double low, high; // difference in deviations: precisions are seen to do something, and not too much
};

static const struct expectation expectations[] = {
    // BF16 has 3 bits fewer than F16: 8 times its difference.
    {"models", "llama", "bf16", 5e-3, 0.15},
    {"models", "qwen3", "bf16", 5e-3, 0.15},
    {"models", "llama-overflow", "bf16", 5e-3, 0.15},
    {"models", "mixtral", "ffn_down=bf16", 1e-3, 0.1},
    {"models", "llama", "f32,ffn_down=bf16", 1e-3, 0.1},
    {"models", "llama", "f32,ffn_down=bf16,ffn=f32", 0, 2e-4},
    {"models", "llama-overflow", "f32,ffn_down=f16", 1e-5, 1e-2},
    {"models", "llama", "f16", 1e-4, 2.5e-2},
    // Block formats by way of F32 kernels: nearer than with Q8.
    {"odd", "qwen3-blocks", "f32", 0, 1e-4},
    {"odd", "qwen3-blocks", "f16", 1e-5, 2e-2},
    {"odd", "qwen3-blocks", "bf16", 1e-4, 0.15},
    {"odd", "qwen3-blocks", "attn=f16,ffn_down=bf16", 1e-4, 0.2},
    {"odd", "qwen2-mxfp4", "f16", 1e-5, 2e-2},
    {"odd", "qwen2-mxfp4", "bf16", 1e-4, 0.15},
};

static void test_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(expectations) / sizeof(expectations[0]); i++) {
        const struct expectation *e = &expectations[i];
        char folder[512];
        struct golden oracle;
        snprintf(folder, sizeof(folder), "%s/%s", TEST_DATA, e->folder);
        golden_load(&oracle, folder, e->name);
        double apart = difference(&oracle, &(struct setup){.precision = e->precision});
        print_message("%s --precision %s: %.2e deviations from the oracle (%.1e to %.1e)\n", e->name, e->precision,
                      apart, e->low, e->high);
        assert_true(apart >= e->low && apart <= e->high);
        golden_free(&oracle);
    }
}

static void assert_same(const struct golden *oracle, const struct setup *a, const struct setup *b)
{
    size_t n;
    float *x = golden_run(oracle, a, &n), *y = golden_run(oracle, b, &n);
    if (memcmp(x, y, n * sizeof(float)) != 0)
        fail_msg("%s: other bits (%s, %s)", oracle->path, a->precision, b->precision);
    free(x);
    free(y);
}

static void test_one_answer(void **state)
{
    (void)state;
    static const char *const precisions[] = {"bf16", "ffn_down=bf16,attn=f32", "f16"};
    static const char *const names[] = {"models/llama-overflow", "models/qwen3moe", "odd/qwen3-blocks"};
    for (size_t i = 0; i < 3; i++) {
        struct golden oracle;
        golden_load(&oracle, TEST_DATA, names[i]);
        for (size_t p = 0; p < 3; p++) {
            struct setup reference = {.precision = precisions[p], .isa = "c", .n_threads = 1};
            assert_same(&oracle, &reference, &(struct setup){.precision = precisions[p], .n_threads = 3, .n_batch = 7});
            assert_same(&oracle, &reference, &(struct setup){.precision = precisions[p], .n_batch = 1});
        }
        golden_free(&oracle);
    }
}

// Lists say what their rules say, the later ones first.
static void test_lists(void **state)
{
    (void)state;
    struct golden oracle;
    golden_load(&oracle, TEST_DATA, "models/llama");
    static const char *const same[][2] = {
        {NULL, "default"},
        {NULL, ""},
        {NULL, "bf16,default"},
        {NULL, "f16"},
        {NULL, "ffn_down=bf16,ffn=default"},
        {"f32", "bf16,f32"},
        {"f32", "attn=bf16,f32"},
        {"bf16", "attn_q=bf16,attn_k=bf16,attn_v=bf16,attn_output=bf16,ffn=bf16,output=bf16"},
        {"attn=f32", "attn_q=f32,attn_k=f32,attn_v.weight=f32,attn_output=f32"},
    };
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        assert_same(&oracle, &(struct setup){.precision = same[i][0]}, &(struct setup){.precision = same[i][1]});
    // For all, f32 is for the cache too; for kinds it is not.
    assert_same(&oracle, &(struct setup){.precision = "f32", .kv = MOTE_KV_F16},
                &(struct setup){.precision = "attn=f32,ffn=f32,output=f32"});
    golden_free(&oracle);
    // A router is rounded only where it is named.
    golden_load(&oracle, TEST_DATA, "models/mixtral");
    assert_same(&oracle, &(struct setup){.precision = "ffn=bf16"},
                &(struct setup){.precision = "ffn_gate=bf16,ffn_up=bf16,ffn_down=bf16,ffn_gate_inp=f32"});
    assert_true(difference(&oracle, &(struct setup){.precision = "f32,ffn_gate_inp=bf16"}) > 2e-4);
    golden_free(&oracle);
}

// ---- without the range scale ----

static mote_status run(const char *name, const struct setup *setup, mote_error *error)
{
    struct golden oracle;
    struct runner runner;
    mote_session *session = NULL;
    golden_load(&oracle, TEST_DATA, name);
    runner_open(&runner, oracle.path, setup);
    assert_int_equal(mote_session_create(runner.engine, &session, error), MOTE_OK);
    mote_input input = {
        .session = session, .tokens = oracle.tokens, .n_tokens = oracle.n_tokens, .want = MOTE_WANT_ALL};
    mote_status status = mote_engine_run(runner.engine, &input, 1, NULL, NULL, error);
    mote_session_destroy(session);
    runner_close(&runner);
    golden_free(&oracle);
    return status;
}

static void test_range_off(void **state)
{
    (void)state;
    static const char *const twins[] = {"models/llama-overflow", "models/mixtral-overflow", "models/qwen3moe-overflow",
                                        "models/mellum-overflow"};
    for (size_t i = 0; i < sizeof(twins) / sizeof(twins[0]); i++) {
        for (size_t n_batch = 1; n_batch <= 48; n_batch += 47) {
            mote_error error = {0};
            struct setup on = {.n_batch = n_batch}, off = {.n_batch = n_batch, .range_off = true};
            assert_int_equal(run(twins[i], &on, &error), MOTE_OK);
            if (run(twins[i], &off, &error) != MOTE_INVALID)
                fail_msg("%s does not overflow without range scale", twins[i]);
            assert_non_null(strstr(error.message, "mote doctor"));
            // BF16 and F32 need none.
            off.precision = n_batch == 1 ? "bf16" : "f32";
            assert_int_equal(run(twins[i], &off, &error), MOTE_OK);
        }
    }
    // What fits is not touched: the base models have the same bits with it and without.
    static const char *const bases[] = {"models/llama", "models/mixtral", "models/qwen3moe", "models/mellum"};
    for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
        struct golden oracle;
        golden_load(&oracle, TEST_DATA, bases[i]);
        assert_same(&oracle, &(struct setup){.range_off = true}, &(struct setup){0});
        golden_free(&oracle);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_one_answer),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_range_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

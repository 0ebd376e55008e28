// What an observing engine counts: the same for every batch and thread count, and counting changes no
// bit of an answer.
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 40 };

struct setting {
    const char *precision;
    size_t n_threads, n_batch, n_logits;
    bool observe;
};

struct result {
    char *json; // NULL: the engine does not observe
    float *logits;
    size_t n_logits;
};

static int keep(void *user, size_t input, size_t index, const float *logits)
{
    struct result *result = user;
    (void)input;
    memcpy(result->logits + index * result->n_logits, logits, result->n_logits * sizeof(float));
    return 0;
}

static void run(const char *name, const struct setting *setting, struct result *result)
{
    char path[512];
    mote_error error = {0};
    mote_model *model = NULL;
    mote_engine *engine = NULL;
    mote_session *session = NULL;
    mote_engine_params params;
    int32_t tokens[N_TOKENS];
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % 256;
    mote_engine_params_default(&params);
    params.precision = setting->precision;
    params.n_threads = setting->n_threads;
    params.n_batch = setting->n_batch;
    params.n_logits = setting->n_logits;
    params.n_context = 64;
    params.observe = setting->observe;
    snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, name);
    if (mote_model_open(path, NULL, &model, &error) != MOTE_OK ||
        mote_engine_create(model, &params, &engine, &error) != MOTE_OK ||
        mote_session_create(engine, &session, &error) != MOTE_OK)
        fail_msg("%s: %s", name, error.message);
    result->n_logits = mote_model_n_vocab(model);
    result->logits = calloc(N_TOKENS * result->n_logits, sizeof(float));
    result->json = NULL;
    mote_input input = {.session = session, .tokens = tokens, .n_tokens = N_TOKENS, .want = MOTE_WANT_ALL};
    if (mote_engine_run(engine, &input, 1, keep, result, &error) != MOTE_OK)
        fail_msg("%s: %s", name, error.message);
    mote_status status = mote_engine_observed(engine, &result->json, &error);
    assert_int_equal(status, setting->observe ? MOTE_OK : MOTE_INVALID);
    assert_true((result->json != NULL) == setting->observe);
    mote_session_destroy(session);
    mote_engine_destroy(engine);
    mote_model_close(model);
}

static void release(struct result *result)
{
    mote_free(result->json);
    free(result->logits);
}

static void test_counts_and_bits(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-overflow", "qwen3moe-overflow", "mistral4-overflow", "gpt-oss",
                                        "gemma3"};
    static const char *const precisions[] = {NULL, "f32", "bf16"};
    static const struct setting settings[] = {{.n_threads = 3, .n_batch = 1, .n_logits = 1},
                                              {.n_threads = 2, .n_batch = 7, .n_logits = 3},
                                              {.n_threads = 1, .n_batch = 64, .n_logits = 16}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (size_t p = 0; p < 3; p++) {
            struct result first, plain;
            run(names[i], &(struct setting){.precision = precisions[p], .n_threads = 2, .observe = true}, &first);
            run(names[i], &(struct setting){.precision = precisions[p], .n_threads = 2}, &plain);
            size_t bytes = N_TOKENS * first.n_logits * sizeof(float);
            assert_memory_equal(first.logits, plain.logits, bytes);
            for (size_t s = 0; s < 3; s++) {
                struct setting setting = settings[s];
                struct result other;
                setting.precision = precisions[p];
                setting.observe = true;
                run(names[i], &setting, &other);
                assert_string_equal(first.json, other.json);
                assert_memory_equal(first.logits, other.logits, bytes);
                release(&other);
            }
            release(&first);
            release(&plain);
        }
    }
}

// ---- what a row counts as ----

struct counts {
    size_t n_sources, n_over;
};

static void count(void *user, const struct observation *seen)
{
    struct counts *counts = user;
    if (seen->what != OBSERVED_SOURCE)
        return;
    counts->n_sources++;
    counts->n_over += seen->n_over > 0;
    assert_true((seen->largest >= 65520.0f) == (seen->exponent > 0));
    assert_int_equal(seen->n_over > 0, seen->exponent > 0);
    assert_int_equal(seen->n_not_finite, 0);
    assert_true(seen->n_over <= seen->n_rows);
}

static void test_sources(void **state)
{
    (void)state;
    char path[512];
    mote_error error = {0};
    mote_model *model = NULL;
    mote_engine *engine = NULL;
    mote_session *session = NULL;
    mote_engine_params params;
    int32_t tokens[] = {1, 2, 3, 65, 66, 67, 200};
    mote_engine_params_default(&params);
    params.observe = true;
    params.n_context = 64;
    snprintf(path, sizeof(path), "%s/models/mistral4-overflow.gguf", TEST_DATA);
    assert_int_equal(mote_model_open(path, NULL, &model, &error), MOTE_OK);
    assert_int_equal(mote_engine_create(model, &params, &engine, &error), MOTE_OK);
    assert_int_equal(mote_session_create(engine, &session, &error), MOTE_OK);
    // Before a run there is nothing, and no row of it overflows.
    struct counts before = {0}, after = {0};
    assert_true(engine->device->ops->observed(engine->plan, count, &before));
    assert_int_equal(before.n_over, 0);
    mote_input input = {.session = session, .tokens = tokens, .n_tokens = 7, .want = MOTE_WANT_LAST};
    assert_int_equal(mote_engine_run(engine, &input, 1, NULL, NULL, &error), MOTE_OK);
    assert_true(engine->device->ops->observed(engine->plan, count, &after));
    assert_int_equal(after.n_sources, before.n_sources);
    assert_int_equal(after.n_over, 6); // the down projections of experts and of the shared expert, three layers
    mote_session_destroy(session);
    mote_engine_destroy(engine);
    mote_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_and_bits),
        cmocka_unit_test(test_sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

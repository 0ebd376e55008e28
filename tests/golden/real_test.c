// Real models against float64 references. SmolLM2's are in tests/data/real; Gemma's are under Gemma's terms and are not
// committed: they are read from a folder beside the source where it is there. The models are in MOTE_CACHE.
#include "reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct real {
    const char *model;  // in the cache
    const char *folder; // of the references
    const char *logits[3], *greedy[2];
    uint64_t f32_hash, default_hash; // of the first 40 tokens' logits
};

static const struct real models[] = {
    {"smollm2",
     TEST_DATA "/real",
     {"smollm2-english", "smollm2-long", "smollm2-chat"},
     {"smollm2-greedy", "smollm2-greedy-count"},
     0xac9aa12c70a3937b,
     0xc99cbbdecb88195f},
    {"gemma3-270m",
     TEST_SHARED "/real",
     {"gemma3-270m-english", "gemma3-270m-long", NULL},
     {"gemma3-270m-greedy", "gemma3-270m-greedy-count"},
     0xafe69612fedb3378,
     0xcfd18eb5b0860277},
};

enum { N_MODELS = sizeof(models) / sizeof(models[0]), N_HASHED = 40 };

static bool reference_path(const struct real *real, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s.gguf", real->folder, name);
    if (access(path, R_OK) == 0)
        return true;
    print_message("skipped: %s: %s is not there\n", name, path);
    return false;
}

static void check_logits(const struct real *real, const char *name, struct runner *runner, bool f32)
{
    char path[1024], what[256];
    struct reference reference;
    struct score score;
    if (!reference_path(real, name, path, sizeof(path)))
        return;
    reference_load(&reference, path);
    score_run(&score, runner, &reference, f32 ? 2e-3 : 0.5);
    snprintf(what, sizeof(what), "%s %s", name, f32 ? "f32" : "default");
    score_print(&score, what);
    bool chat = strstr(name, "chat") != NULL;
    assert_true(fabs(score_perplexity(&score) / score_oracle(&score) - 1) <= (f32 ? 1e-5 : chat ? 0.05 : 0.01));
    assert_int_equal(score.n_clear_wrong, 0);
    assert_true(f32 ? score.largest <= 1e-3 : score_mean_kl(&score) <= 0.01);
    reference_free(&reference);
}

struct last {
    size_t n_vocab;
    int32_t best;
};

static int keep_last(void *user, size_t input, size_t index, const float *logits)
{
    (void)input;
    (void)index;
    struct last *last = user;
    last->best = best_of(logits, last->n_vocab);
    return 0;
}

// Free running: prompt in, 64 greedy tokens out.
static void check_free(struct runner *runner, const char *name, const int32_t *tokens, size_t n_tokens,
                       const int32_t *expected, const float *gaps, size_t n)
{
    mote_error error = {0};
    mote_session *session = NULL;
    struct last last = {.n_vocab = runner->n_vocab};
    assert_int_equal(mote_session_create(runner->engine, &session, &error), MOTE_OK);
    for (size_t i = 0; i < n && (double)gaps[i] >= 2e-3; i++) {
        mote_input input = {.session = session,
                            .tokens = i == 0 ? tokens : &expected[i - 1],
                            .n_tokens = i == 0 ? n_tokens : 1,
                            .want = MOTE_WANT_LAST};
        assert_int_equal(mote_engine_run(runner->engine, &input, 1, keep_last, &last, &error), MOTE_OK);
        if (last.best != expected[i])
            fail_msg("%s: greedy step %zu gives token %d, not %d", name, i, last.best, expected[i]);
    }
    mote_session_destroy(session);
}

static void check_greedy(const struct real *real, const char *file_name, const char *prompt, struct runner *runner)
{
    char path[1024], name[128];
    size_t n_tokens, n, n_gaps;
    if (!reference_path(real, file_name, path, sizeof(path)))
        return;
    mote_model *file = golden_open(path);
    snprintf(name, sizeof(name), "%s.tokens", prompt);
    int32_t *tokens = golden_i32(file, name, &n_tokens);
    snprintf(name, sizeof(name), "%s.continuation", prompt);
    int32_t *continuation = golden_i32(file, name, &n);
    snprintf(name, sizeof(name), "%s.gap", prompt);
    float *gaps = golden_f32(file, name, &n_gaps);
    assert_int_equal(n, n_gaps);
    check_free(runner, prompt, tokens, n_tokens, continuation, gaps, n);
    free(tokens);
    free(continuation);
    free(gaps);
    mote_model_close(file);
}

// One answer on real formats: the first tokens' logits under other kernels, batches and threads, and the committed
// hash.
static void check_one_answer(const struct real *real, const char *path, const int32_t *tokens, bool f32)
{
    static const char *const isas[] = {"c", "avx2", "avx512", "neon"};
    static const size_t batches[] = {512, 1, 7, 40}, threads[] = {2, 3, 2, 1};
    uint64_t committed = f32 ? real->f32_hash : real->default_hash;
    for (size_t i = 0; i < 4; i++) {
        if (strstr(mote_machine_isas(), isas[i]) == NULL)
            continue;
        struct runner runner;
        runner_open(&runner, path,
                    &(struct setup){.f32 = f32, .isa = isas[i], .n_batch = batches[i], .n_threads = threads[i]});
        float *logits = runner_logits(&runner, tokens, N_HASHED);
        uint64_t hash = golden_hash(logits, N_HASHED * runner.n_vocab);
        if (hash != committed)
            fail_msg("%s f32=%d %s: the hash of the logits is 0x%016llx, not the committed 0x%016llx", real->model, f32,
                     isas[i], (unsigned long long)hash, (unsigned long long)committed);
        free(logits);
        runner_close(&runner);
    }
}

static void check_model(const struct real *real, bool f32)
{
    static const char *const prompts[] = {"prompt1", "prompt2", "prompt3", "chat"};
    char path[1024], reference[1024];
    struct runner runner;
    cached_model_path(real->model, path, sizeof(path));
    runner_open(&runner, path, &(struct setup){.f32 = f32});
    for (size_t i = 0; i < 3 && real->logits[i] != NULL; i++)
        check_logits(real, real->logits[i], &runner, f32);
    bool chat = strcmp(real->model, "smollm2") == 0;
    for (size_t i = 0; f32 && i < (chat ? 4 : 3); i++)
        check_greedy(real, real->greedy[0], prompts[i], &runner);
    check_greedy(real, real->greedy[1], "count", &runner);
    runner_close(&runner);
    if (reference_path(real, real->logits[0], reference, sizeof(reference))) {
        size_t n;
        mote_model *file = golden_open(reference);
        int32_t *tokens = golden_i32(file, "tokens", &n);
        check_one_answer(real, path, tokens, f32);
        free(tokens);
        mote_model_close(file);
    }
}

static void test_smollm2_f32(void **state)
{
    (void)state;
    check_model(&models[0], true);
}

static void test_smollm2_default(void **state)
{
    (void)state;
    check_model(&models[0], false);
}

static void test_gemma3_f32(void **state)
{
    (void)state;
    check_model(&models[1], true);
}

static void test_gemma3_default(void **state)
{
    (void)state;
    check_model(&models[1], false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_f32),
        cmocka_unit_test(test_smollm2_default),
        cmocka_unit_test(test_gemma3_f32),
        cmocka_unit_test(test_gemma3_default),
    };
    _Static_assert(N_MODELS == 2, "a test a model and precision");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

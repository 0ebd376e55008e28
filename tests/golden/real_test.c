// Real models against float64 references. SmolLM2's are in tests/data/real; Gemma's are under Gemma's terms and are not
// committed: they are read from a folder beside the source where it is there. The models are in MOTE_CACHE.
#include "golden.h"

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

enum { N_MODELS = sizeof(models) / sizeof(models[0]), TOP = 32, N_HASHED = 40 };

// The path of a model in the cache; ends the test where it is not there: this suite is for machines that fetched it.
static void model_path(const char *name, char *path, size_t size)
{
    const char *cache = getenv("MOTE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL)
        snprintf(path, size, "%s/%s.gguf", cache, name);
    else if (xdg != NULL && *xdg != 0)
        snprintf(path, size, "%s/mote/%s.gguf", xdg, name);
    else
        snprintf(path, size, "%s/.cache/mote/%s.gguf", home != NULL ? home : "", name);
    if (access(path, R_OK) != 0)
        fail_msg("%s is not there: tools/fetch_model.py %s fetches it", path, name);
}

static bool reference_path(const struct real *real, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s.gguf", real->folder, name);
    if (access(path, R_OK) == 0)
        return true;
    print_message("skipped: %s: %s is not there\n", name, path);
    return false;
}

struct reference {
    size_t n;
    int32_t *tokens, *top_ids, *full_positions;
    float *top_logits, *logsumexp, *nll, *full_logits;
};

static void reference_load(struct reference *reference, const char *path)
{
    size_t n;
    mote_model *file = golden_open(path);
    reference->tokens = golden_i32(file, "tokens", &reference->n);
    reference->top_ids = golden_i32(file, "top_ids", &n);
    reference->full_positions = golden_i32(file, "full_positions", &n);
    reference->top_logits = golden_f32(file, "top_logits", &n);
    reference->logsumexp = golden_f32(file, "logsumexp", &n);
    reference->nll = golden_f32(file, "nll", &n);
    reference->full_logits = golden_f32(file, "full_logits", &n);
    mote_model_close(file);
}

static void reference_free(struct reference *reference)
{
    free(reference->tokens);
    free(reference->top_ids);
    free(reference->full_positions);
    free(reference->top_logits);
    free(reference->logsumexp);
    free(reference->nll);
    free(reference->full_logits);
}

static int32_t best_of(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

static double logsumexp(const float *logits, size_t n)
{
    double largest = (double)logits[best_of(logits, n)], sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

struct score {
    const struct reference *reference;
    size_t n_vocab;
    double nll, kl, largest;       // sums, and the largest difference of a stored logit
    size_t n_clear, n_clear_wrong; // positions whose gap is at least `gap`, and where the best token is another
    double gap;
};

// NaN is the largest and stays. (fmax drops it, and its vectorization crashes gcc 12 for AArch64.)
static void note_difference(struct score *score, double difference)
{
    if (difference > score->largest || isnan(difference))
        score->largest = difference;
}

static void score_full(struct score *score, size_t index, const float *logits)
{
    for (size_t p = 0; p < 4; p++) {
        if ((size_t)score->reference->full_positions[p] != index)
            continue;
        const float *full = score->reference->full_logits + p * score->n_vocab;
        for (size_t i = 0; i < score->n_vocab; i++)
            note_difference(score, fabs((double)logits[i] - (double)full[i]));
    }
}

// KL over the 32 likeliest tokens and the rest as one: at most the whole KL, and here nearly that.
static int score_row(void *user, size_t input, size_t index, const float *logits)
{
    struct score *score = user;
    const struct reference *reference = score->reference;
    const int32_t *ids = reference->top_ids + index * TOP;
    const float *top = reference->top_logits + index * TOP;
    double lse = logsumexp(logits, score->n_vocab), rest_p = 1, rest_q = 1;
    (void)input;
    for (size_t k = 0; k < TOP; k++) {
        double log_p = (double)top[k] - (double)reference->logsumexp[index];
        double log_q = (double)logits[ids[k]] - lse;
        score->kl += exp(log_p) * (log_p - log_q);
        rest_p -= exp(log_p);
        rest_q -= exp(log_q);
        note_difference(score, fabs((double)logits[ids[k]] - (double)top[k]));
    }
    if (rest_p > 1e-9 && rest_q > 1e-9)
        score->kl += rest_p * log(rest_p / rest_q);
    if (index + 1 < reference->n)
        score->nll += lse - (double)logits[reference->tokens[index + 1]];
    if ((double)top[0] - (double)top[1] >= score->gap) {
        score->n_clear++;
        score->n_clear_wrong += best_of(logits, score->n_vocab) != ids[0];
    }
    score_full(score, index, logits);
    return 0;
}

static void check_logits(const struct real *real, const char *name, struct runner *runner, bool f32)
{
    char path[1024];
    mote_error error = {0};
    struct reference reference;
    if (!reference_path(real, name, path, sizeof(path)))
        return;
    reference_load(&reference, path);
    struct score score = {.reference = &reference, .n_vocab = runner->n_vocab, .gap = f32 ? 2e-3 : 0.5};
    mote_session *session = NULL;
    assert_int_equal(mote_session_create(runner->engine, &session, &error), MOTE_OK);
    mote_input input = {.session = session, .tokens = reference.tokens, .n_tokens = reference.n, .want = MOTE_WANT_ALL};
    if (mote_engine_run(runner->engine, &input, 1, score_row, &score, &error) != MOTE_OK)
        fail_msg("%s: %s", name, error.message);
    double expected = 0;
    for (size_t i = 0; i + 1 < reference.n; i++)
        expected += (double)reference.nll[i];
    double n = (double)(reference.n - 1), ratio = exp((score.nll - expected) / n), kl = score.kl / (double)reference.n;
    print_message(
        "%s %s: perplexity %.4f (oracle %.4f), mean KL %.5f, largest difference %.1e, best token differs at %zu "
        "of %zu clear positions\n",
        name, f32 ? "f32" : "default", exp(score.nll / n), exp(expected / n), kl, score.largest, score.n_clear_wrong,
        score.n_clear);
    bool chat = strstr(name, "chat") != NULL;
    assert_true(fabs(ratio - 1) <= (f32 ? 1e-5 : chat ? 0.05 : 0.01));
    assert_int_equal(score.n_clear_wrong, 0);
    assert_true(f32 ? score.largest <= 1e-3 : kl <= 0.01);
    mote_session_destroy(session);
    reference_free(&reference);
}

static int keep_last(void *user, size_t input, size_t index, const float *logits)
{
    (void)input;
    (void)index;
    struct score *score = user;
    score->n_clear = (size_t)best_of(logits, score->n_vocab);
    return 0;
}

// Free running: prompt in, 64 greedy tokens out.
static void check_free(struct runner *runner, const char *name, const int32_t *tokens, size_t n_tokens,
                       const int32_t *expected, const float *gaps, size_t n)
{
    mote_error error = {0};
    mote_session *session = NULL;
    struct score score = {.n_vocab = runner->n_vocab};
    assert_int_equal(mote_session_create(runner->engine, &session, &error), MOTE_OK);
    for (size_t i = 0; i < n && (double)gaps[i] >= 2e-3; i++) {
        mote_input input = {.session = session,
                            .tokens = i == 0 ? tokens : &expected[i - 1],
                            .n_tokens = i == 0 ? n_tokens : 1,
                            .want = MOTE_WANT_LAST};
        assert_int_equal(mote_engine_run(runner->engine, &input, 1, keep_last, &score, &error), MOTE_OK);
        if ((int32_t)score.n_clear != expected[i])
            fail_msg("%s: greedy step %zu gives token %zu, not %d", name, i, score.n_clear, expected[i]);
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
    model_path(real->model, path, sizeof(path));
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

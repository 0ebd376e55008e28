// Sessions through the public interface where callers do odd things: inputs without tokens, contexts of one
// token, runs that are stopped, two engines on one model at once. A session must stay usable, and its bits right.
#include "mote.h"

#include "test_paths.h"

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#define LLAMA TEST_DATA "/models/llama.gguf"
#define GEMMA TEST_DATA "/models/gemma3.gguf" // windows of 8

enum { N_VOCAB_MAX = 1024, N_TOKENS = 300, N_SESSIONS = 3, N_TOGETHER = 40 };

static mote_error error;

static mote_model *open_model(const char *path)
{
    mote_model *model = NULL;
    if (mote_model_open(path, NULL, &model, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    return model;
}

static mote_engine *make_engine(mote_model *model, size_t n_context, size_t n_batch, size_t n_sessions)
{
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = 2;
    params.n_context = n_context;
    params.n_batch = n_batch;
    params.n_sessions = n_sessions;
    params.n_logits = 1;
    mote_engine *engine = NULL;
    if (mote_engine_create(model, &params, &engine, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    return engine;
}

static mote_session *make_session(mote_engine *engine)
{
    mote_session *session = NULL;
    assert_int_equal(mote_session_create(engine, &session, &error), MOTE_OK);
    return session;
}

static void fill_tokens(int32_t tokens[N_TOKENS])
{
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + i / 7) % 250;
}

// The last logits that a run gave, and when it is to be stopped.
struct last {
    float logits[N_VOCAB_MAX];
    size_t n_vocab, n_calls, stop_after;
};

static int keep_last(void *user, size_t input, size_t index, const float *logits)
{
    struct last *last = user;
    (void)input;
    (void)index;
    memcpy(last->logits, logits, last->n_vocab * sizeof(float));
    return ++last->n_calls == last->stop_after;
}

static mote_status feed(mote_engine *engine, mote_session *session, const int32_t *tokens, size_t n, struct last *last)
{
    mote_input input = {.session = session, .tokens = tokens, .n_tokens = n, .want = MOTE_WANT_LAST};
    return mote_engine_run(engine, &input, 1, last == NULL ? NULL : keep_last, last, &error);
}

// Logits after n tokens in a fresh session of the engine.
static void logits_of(mote_engine *engine, const int32_t *tokens, size_t n, struct last *last)
{
    mote_session *session = make_session(engine);
    assert_int_equal(feed(engine, session, tokens, n, last), MOTE_OK);
    mote_session_destroy(session);
}

static struct last empty_last(const mote_model *model)
{
    return (struct last){.n_vocab = mote_model_n_vocab(model)};
}

static void assert_same(const struct last *a, const struct last *b)
{
    assert_memory_equal(a->logits, b->logits, a->n_vocab * sizeof(float));
}

static void test_inputs_without_tokens(void **state)
{
    (void)state;
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens);
    mote_model *model = open_model(LLAMA);
    mote_engine *engine = make_engine(model, 100, 1, 1);
    struct last last = empty_last(model), expected = empty_last(model);
    logits_of(engine, tokens, 5, &expected);
    mote_session *sessions[6];
    mote_input inputs[6];
    for (size_t i = 0; i < 6; i++) {
        sessions[i] = make_session(engine);
        inputs[i] = (mote_input){.session = sessions[i], .want = MOTE_WANT_ALL};
    }
    assert_int_equal(mote_engine_run(engine, NULL, 0, keep_last, &last, &error), MOTE_OK);
    assert_int_equal(mote_engine_run(engine, inputs, 6, keep_last, &last, &error), MOTE_OK);
    assert_int_equal(last.n_calls, 0);
    inputs[4].tokens = tokens;
    inputs[4].n_tokens = 5;
    assert_int_equal(mote_engine_run(engine, inputs, 6, keep_last, &last, &error), MOTE_OK);
    assert_int_equal(last.n_calls, 5);
    assert_same(&last, &expected);
    inputs[5].session = sessions[0];
    assert_int_equal(mote_engine_run(engine, inputs, 6, keep_last, &last, &error), MOTE_INVALID);
    inputs[5].session = NULL;
    assert_int_equal(mote_engine_run(engine, inputs, 6, keep_last, &last, &error), MOTE_INVALID);
    inputs[5].session = sessions[5];
    inputs[4].n_tokens = 0;
    assert_int_equal(mote_engine_run(engine, inputs, 6, keep_last, &last, &error), MOTE_OK);
    static const size_t order[6] = {3, 0, 5, 4, 1, 2};
    for (size_t i = 0; i < 6; i++)
        mote_session_destroy(sessions[order[i]]);
    mote_engine_destroy(engine);
    mote_model_close(model);
}

static void test_small_contexts(void **state)
{
    (void)state;
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens);
    static const char *const paths[] = {LLAMA, GEMMA};
    static const size_t contexts[] = {1, 63, 64, 65, 129};
    for (size_t p = 0; p < 2; p++) {
        mote_model *model = open_model(paths[p]);
        for (size_t i = 0; i < 5; i++) {
            mote_engine *small = make_engine(model, contexts[i], 7, 1), *large = make_engine(model, 256, 512, 1);
            struct last last = empty_last(model), expected = empty_last(model);
            logits_of(large, tokens, contexts[i], &expected);
            mote_session *session = make_session(small);
            for (int again = 0; again < 2; again++) {
                assert_int_equal(feed(small, session, tokens, contexts[i] + 1, &last), MOTE_FULL);
                assert_int_equal(mote_session_n_tokens(session), 0);
                assert_int_equal(feed(small, session, tokens, contexts[i], &last), MOTE_OK);
                assert_same(&last, &expected);
                assert_int_equal(feed(small, session, tokens, 1, &last), MOTE_FULL);
                mote_session_clear(session);
            }
            mote_session_destroy(session);
            mote_engine_destroy(small);
            mote_engine_destroy(large);
        }
        mote_model_close(model);
    }
}

// A callback stops a run at its n-th row; the session keeps whole batches and goes on from there.
static void test_stopped_runs(void **state)
{
    (void)state;
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens);
    mote_model *model = open_model(GEMMA);
    mote_engine *engine = make_engine(model, N_TOKENS, 32, 1);
    struct last expected = empty_last(model);
    logits_of(engine, tokens, N_TOKENS, &expected);
    for (size_t stop = 1; stop <= 200; stop += 33) {
        struct last last = empty_last(model);
        mote_session *session = make_session(engine);
        last.stop_after = stop;
        mote_input input = {.session = session, .tokens = tokens, .n_tokens = 200, .want = MOTE_WANT_ALL};
        assert_int_equal(mote_engine_run(engine, &input, 1, keep_last, &last, &error), MOTE_CANCELLED);
        assert_int_equal(last.n_calls, stop);
        size_t n = mote_session_n_tokens(session);
        assert_int_equal(n, (stop - 1) / 32 * 32);
        last.stop_after = 0;
        int32_t wrong = 1 << 20;
        assert_int_equal(feed(engine, session, &wrong, 1, &last), MOTE_INVALID);
        for (; n < N_TOKENS; n++)
            assert_int_equal(feed(engine, session, tokens + n, 1, &last), MOTE_OK);
        assert_same(&last, &expected);
        mote_session_destroy(session);
    }
    mote_engine_destroy(engine);
    mote_model_close(model);
}

struct side {
    mote_model *model;
    struct last last;
    const int32_t *tokens;
};

static void *run_side(void *user)
{
    struct side *side = user;
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = 2;
    params.n_context = N_TOKENS;
    params.n_batch = 16;
    mote_engine *engine = NULL;
    mote_session *session = NULL;
    mote_error mine;
    if (mote_engine_create(side->model, &params, &engine, &mine) == MOTE_OK &&
        mote_session_create(engine, &session, &mine) == MOTE_OK) {
        mote_input input = {.session = session, .tokens = side->tokens, .n_tokens = N_TOKENS, .want = MOTE_WANT_LAST};
        mote_engine_run(engine, &input, 1, keep_last, &side->last, &mine);
    }
    mote_session_destroy(session);
    mote_engine_destroy(engine);
    return NULL;
}

static void test_two_engines_at_once(void **state)
{
    (void)state;
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens);
    mote_model *model = open_model(GEMMA);
    static struct side sides[2];
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        sides[i] = (struct side){.model = model, .last = empty_last(model), .tokens = tokens};
        assert_int_equal(pthread_create(&threads[i], NULL, run_side, &sides[i]), 0);
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(sides[0].last.n_calls, 1);
    assert_int_equal(sides[1].last.n_calls, 1);
    assert_same(&sides[0].last, &sides[1].last);
    mote_model_close(model);
}

// Windows of 8 over thousands of tokens, fed in pieces of every size, against one engine that takes them one by one.
static void test_windows_over_thousands(void **state)
{
    (void)state;
    enum { N = 2500 };
    static int32_t tokens[N];
    for (int32_t i = 0; i < N; i++)
        tokens[i] = (i * 41 + i / 11) % 256;
    mote_model *model = open_model(GEMMA);
    mote_engine *one = make_engine(model, N, 1, 1), *many = make_engine(model, N, 100, 1);
    mote_session *a = make_session(one), *b = make_session(many);
    struct last x = empty_last(model), y = empty_last(model);
    size_t piece = 1;
    for (size_t n = 0; n < N; piece = piece * 5 % 131 + 1) {
        size_t size = N - n < piece ? N - n : piece;
        for (size_t i = 0; i < size; i++)
            assert_int_equal(feed(one, a, tokens + n + i, 1, &x), MOTE_OK);
        assert_int_equal(feed(many, b, tokens + n, size, &y), MOTE_OK);
        assert_same(&x, &y);
        n += size;
    }
    mote_session_destroy(a);
    mote_session_destroy(b);
    mote_engine_destroy(one);
    mote_engine_destroy(many);
    mote_model_close(model);
}

// Logits of all tokens of each input of a run, by input and token.
struct all {
    float *values; // [n_inputs][N_TOGETHER][n_vocab]
    size_t n_vocab;
    size_t done[N_SESSIONS]; // tokens that earlier runs gave
};

static int keep_all(void *user, size_t input, size_t index, const float *logits)
{
    struct all *all = user;
    memcpy(all->values + (input * N_TOGETHER + all->done[input] + index) * all->n_vocab, logits,
           all->n_vocab * sizeof(float));
    return 0;
}

// All sessions' tokens: each session by itself, a token at a time, or all in one run, each as many as is its turn.
static void run_sessions(mote_engine *engine, bool together, const int32_t *tokens, struct all *all)
{
    static const size_t steps[N_SESSIONS] = {1, 4, 9};
    mote_input inputs[N_SESSIONS];
    memset(all->done, 0, sizeof(all->done));
    for (size_t s = 0; s < N_SESSIONS; s++)
        inputs[s] = (mote_input){.session = make_session(engine), .want = MOTE_WANT_ALL};
    for (size_t left = N_SESSIONS * N_TOGETHER; left > 0;) {
        for (size_t s = 0; s < N_SESSIONS; s++) {
            size_t rest = N_TOGETHER - all->done[s], step = together ? steps[s] : 1;
            inputs[s].tokens = tokens + 50 * s + all->done[s];
            inputs[s].n_tokens = rest < step ? rest : step;
            left -= inputs[s].n_tokens;
        }
        if (mote_engine_run(engine, inputs, N_SESSIONS, keep_all, all, &error) != MOTE_OK)
            fail_msg("%s", error.message);
        for (size_t s = 0; s < N_SESSIONS; s++)
            all->done[s] += inputs[s].n_tokens;
    }
    for (size_t s = 0; s < N_SESSIONS; s++)
        mote_session_destroy(inputs[s].session);
}

// Rows of several sessions meet in one expert's product; what a session is answered does not depend on the others.
static void test_experts_of_sessions_together(void **state)
{
    static const char *const names[] = {"mixtral", "qwen2moe", "gpt-oss", "glm4moe", "deepseek2", "mistral4"};
    (void)state;
    int32_t tokens[N_TOKENS];
    fill_tokens(tokens);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, names[i]);
        mote_model *model = open_model(path);
        mote_engine *alone = make_engine(model, N_TOGETHER, 1, N_SESSIONS);
        mote_engine *together = make_engine(model, N_TOGETHER, 11, N_SESSIONS);
        struct all a = {.n_vocab = mote_model_n_vocab(model)}, b = a;
        size_t bytes = N_SESSIONS * N_TOGETHER * a.n_vocab * sizeof(float);
        a.values = malloc(bytes);
        b.values = malloc(bytes);
        assert_true(a.values != NULL && b.values != NULL);
        run_sessions(alone, false, tokens, &a);
        run_sessions(together, true, tokens, &b);
        if (memcmp(a.values, b.values, bytes) != 0)
            fail_msg("%s: sessions together are answered otherwise than alone", names[i]);
        free(a.values);
        free(b.values);
        mote_engine_destroy(alone);
        mote_engine_destroy(together);
        mote_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs_without_tokens),  cmocka_unit_test(test_small_contexts),
        cmocka_unit_test(test_stopped_runs),           cmocka_unit_test(test_two_engines_at_once),
        cmocka_unit_test(test_windows_over_thousands), cmocka_unit_test(test_experts_of_sessions_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Engines and sessions through the public interface: memory that does not suffice, pages that come and go, contexts
// that are full, runs that are stopped. What the machine has free is set by the test.
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t available;

uint64_t __wrap_memory_available(void);
uint64_t __real_memory_available(void);

uint64_t __wrap_memory_available(void)
{
    return available;
}

static void must(mote_status status, const mote_error *error)
{
    if (status != MOTE_OK)
        fail_msg("%s", error->message);
}

static mote_model *open_model(const char *name)
{
    char path[512];
    mote_model *model = NULL;
    mote_error error = {0};
    snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, name);
    must(mote_model_open(path, NULL, &model, &error), &error);
    return model;
}

struct fixture {
    mote_model *model;
    mote_engine *engine;
    size_t n_vocab;
};

static void fixture_open(struct fixture *f, const char *name, size_t n_context, size_t n_batch, size_t n_sessions)
{
    mote_engine_params params;
    mote_error error = {0};
    mote_engine_params_default(&params);
    params.n_threads = 2;
    params.n_context = n_context;
    params.n_batch = n_batch;
    params.n_sessions = n_sessions;
    available = 0;
    f->model = open_model(name);
    must(mote_engine_create(f->model, &params, &f->engine, &error), &error);
    f->n_vocab = mote_model_n_vocab(f->model);
}

static void fixture_close(struct fixture *f)
{
    mote_engine_destroy(f->engine);
    mote_model_close(f->model);
}

static mote_session *make_session(const struct fixture *f)
{
    mote_session *session = NULL;
    mote_error error = {0};
    must(mote_session_create(f->engine, &session, &error), &error);
    return session;
}

static int32_t token_at(size_t i)
{
    return (int32_t)(i * 31 % 250);
}

// Runs n tokens that follow what the session has.
static mote_status run(const struct fixture *f, mote_session *session, size_t n, mote_logits_fn logits, void *user,
                       mote_error *error)
{
    int32_t tokens[1024];
    assert_true(n <= 1024);
    for (size_t i = 0; i < n; i++)
        tokens[i] = token_at(session->n_tokens + i);
    mote_input input = {.session = session, .tokens = tokens, .n_tokens = n, .want = MOTE_WANT_ALL};
    return mote_engine_run(f->engine, &input, 1, logits, user, error);
}

struct kept {
    float *logits; // of the last row
    size_t n_vocab, n_calls;
};

static int keep(void *user, size_t input, size_t index, const float *logits)
{
    struct kept *kept = user;
    (void)input;
    (void)index;
    memcpy(kept->logits, logits, kept->n_vocab * sizeof(float));
    kept->n_calls++;
    return 0;
}

// The logits after n tokens in a session of their own.
static float *logits_after(const struct fixture *f, size_t n)
{
    struct kept kept = {.logits = malloc(f->n_vocab * sizeof(float)), .n_vocab = f->n_vocab};
    mote_error error = {0};
    mote_session *session = make_session(f);
    assert_non_null(kept.logits);
    must(run(f, session, n, keep, &kept, &error), &error);
    assert_int_equal(kept.n_calls, n);
    mote_session_destroy(session);
    return kept.logits;
}

// ---- memory ----

static mote_memory predict(mote_model *model, const mote_engine_params *params)
{
    mote_memory memory;
    mote_error error = {0};
    must(mote_engine_predict(model, params, &memory, &error), &error);
    return memory;
}

static void test_context_fits(void **state)
{
    (void)state;
    mote_model *model = open_model("llama");
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = 1;
    params.n_batch = 16;
    params.n_sessions = 3;
    params.n_context = 1 << 20;
    available = 64 << 20;
    mote_memory memory = predict(model, &params);
    size_t fits = (size_t)memory.n_context_fits;
    assert_true(memory.available == available && memory.total > available);
    assert_true(fits > 0 && fits < params.n_context && fits % KV_PAGE_POSITIONS == 0);

    // Too much: an error that names the context that fits; exactly that one is accepted.
    mote_error error = {0};
    mote_engine *engine = NULL;
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "-c %zu ", fits);
    assert_int_equal(mote_engine_create(model, &params, &engine, &error), MOTE_MEMORY);
    assert_null(engine);
    assert_non_null(strstr(error.message, wanted));
    params.n_context = fits + 1;
    assert_true(predict(model, &params).total > available);
    assert_int_equal(mote_engine_create(model, &params, &engine, &error), MOTE_MEMORY);
    params.n_context = fits;
    assert_true(predict(model, &params).total <= available);
    must(mote_engine_create(model, &params, &engine, &error), &error);
    assert_int_equal(mote_engine_n_context(engine), fits);
    mote_engine_destroy(engine);

    // Not even the weights fit; forced; unknown.
    params.n_context = 64;
    available = 1000;
    assert_int_equal(predict(model, &params).n_context_fits, 0);
    assert_int_equal(mote_engine_create(model, &params, &engine, &error), MOTE_MEMORY);
    assert_non_null(strstr(error.message, "weights"));
    assert_null(strstr(error.message, "-c "));
    params.force = true;
    must(mote_engine_create(model, &params, &engine, &error), &error);
    mote_engine_destroy(engine);
    params.force = false;
    available = 0;
    must(mote_engine_create(model, &params, &engine, &error), &error);
    mote_engine_destroy(engine);
    assert_true(__real_memory_available() > 1 << 20);

    // The largest context there is, and beyond.
    available = 64 << 20;
    params.n_context = 1 << 28;
    params.n_sessions = 65536;
    memory = predict(model, &params);
    assert_true(memory.total > memory.kv && memory.kv > 1ull << 45);
    assert_int_equal(mote_engine_create(model, &params, &engine, &error), MOTE_MEMORY);
    params.n_context++;
    assert_int_equal(mote_engine_create(model, &params, &engine, &error), MOTE_INVALID);
    mote_model_close(model);
}

// What each parameter adds.
static void test_prediction(void **state)
{
    (void)state;
    mote_model *model = open_model("gemma3");
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = 1;
    params.n_batch = 64;
    params.n_context = 4096;
    available = 1 << 30;
    mote_memory one = predict(model, &params);
    // 64 pages of the one layer that sees all; those with a window of 8: (8 + 64 + 63) / 64 + 1 = 3 pages of 6 layers.
    const uint64_t layer = 2 * 64 * 2 * (16 * 2 + 4);
    assert_int_equal(one.kv, 64 * layer + 3 * 6 * layer);
    params.n_sessions = 5;
    mote_memory five = predict(model, &params);
    assert_int_equal(five.kv, 5 * one.kv);
    assert_int_equal(five.work, one.work);
    params.n_logits = 32;
    assert_int_equal(predict(model, &params).logits, 2 * five.logits);
    params.kv = MOTE_KV_F32;
    assert_true(predict(model, &params).kv > five.kv);
    params.precision = "f32";
    params.kv = MOTE_KV_DEFAULT;
    assert_true(predict(model, &params).kv > five.kv);
    params.n_threads = 3;
    assert_true(predict(model, &params).work > five.work);
    mote_model_close(model);
}

// ---- pages ----

static void assert_all_free(const mote_engine *engine)
{
    for (uint32_t kind = 0; kind < engine->n_kinds; kind++) {
        const struct page_pool *pool = &engine->pools[kind];
        assert_int_equal(pool->n_free, pool->n_pages);
        uint8_t seen[256] = {0}; // each page once
        for (size_t i = 0; i < pool->n_free; i++) {
            assert_in_range(pool->free[i], 0, pool->n_pages - 1);
            assert_int_equal(seen[pool->free[i]]++, 0);
        }
    }
}

// A session holds the pages of its tokens, of window layers only those that a later position sees.
static void assert_holds(const struct fixture *f, const mote_session *session)
{
    size_t n = session->n_tokens, all = (n + KV_PAGE_POSITIONS - 1) / KV_PAGE_POSITIONS;
    for (uint32_t kind = 0; kind < f->engine->n_kinds; kind++) {
        const struct page_table *table = &session->tables[kind];
        size_t window = f->engine->kinds[kind].window;
        size_t first = window != 0 && n + 1 > window ? (n + 1 - window) / KV_PAGE_POSITIONS : 0;
        assert_int_equal(table->end, all);
        assert_int_equal(table->first, first < all ? first : all);
        assert_true(table->end - table->first <=
                    pages_per_session(&f->engine->kinds[kind], f->engine->n_context, f->engine->n_batch));
    }
}

static void test_window_pages(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "gemma3", 1024, 48, 2);
    assert_int_equal(f.engine->n_kinds, 2);
    mote_session *sessions[2] = {make_session(&f), make_session(&f)};
    mote_error error = {0};
    for (size_t n = 1; sessions[0]->n_tokens + n <= 1024; n = n * 7 % 150 + 1) {
        must(run(&f, sessions[0], n, NULL, NULL, &error), &error);
        assert_holds(&f, sessions[0]);
    }
    must(run(&f, sessions[1], 1024, NULL, NULL, &error), &error); // there is memory for both
    assert_holds(&f, sessions[1]);
    for (uint32_t kind = 0; kind < 2; kind++) {
        size_t held = 0;
        for (size_t s = 0; s < 2; s++)
            held += sessions[s]->tables[kind].end - sessions[s]->tables[kind].first;
        assert_int_equal(held + f.engine->pools[kind].n_free, f.engine->pools[kind].n_pages);
    }
    mote_session_clear(sessions[0]);
    assert_int_equal(mote_session_n_tokens(sessions[0]), 0);
    must(run(&f, sessions[0], 5, NULL, NULL, &error), &error);
    mote_session_destroy(sessions[0]);
    mote_session_destroy(sessions[1]);
    assert_all_free(f.engine);
    fixture_close(&f);
}

// More sessions than there is memory for: MOTE_FULL, nothing was run, nothing is kept, the others go on.
static void test_no_page_left(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "llama", 256, 32, 1); // four pages
    float *expected = logits_after(&f, 256);
    mote_session *a = make_session(&f), *b = make_session(&f);
    mote_error error = {0};
    struct kept kept = {.logits = malloc(f.n_vocab * sizeof(float)), .n_vocab = f.n_vocab};
    assert_non_null(kept.logits);
    must(run(&f, a, 130, NULL, NULL, &error), &error); // three of them
    assert_int_equal(run(&f, b, 65, keep, &kept, &error), MOTE_FULL);
    assert_non_null(strstr(error.message, "1 sessions of 256 tokens"));
    assert_int_equal(kept.n_calls, 0);
    assert_int_equal(b->n_tokens, 0);
    assert_int_equal(f.engine->pools[0].n_free, 1);
    must(run(&f, b, 64, keep, &kept, &error), &error);
    assert_int_equal(run(&f, a, 126, NULL, NULL, &error), MOTE_FULL); // b has the fourth
    assert_int_equal(a->n_tokens, 130);
    assert_int_equal(run(&f, b, 1, NULL, NULL, &error), MOTE_FULL);
    must(run(&f, a, 62, NULL, NULL, &error), &error); // what its own pages hold
    mote_session_clear(b);
    must(run(&f, a, 64, keep, &kept, &error), &error);
    assert_memory_equal(kept.logits, expected, f.n_vocab * sizeof(float));
    assert_int_equal(run(&f, a, 1, NULL, NULL, &error), MOTE_FULL); // its context
    assert_non_null(strstr(error.message, "-c"));
    mote_session_destroy(b);
    mote_session_destroy(a);
    assert_all_free(f.engine);
    free(kept.logits);
    free(expected);
    fixture_close(&f);
}

static void test_bad_inputs(void **state)
{
    (void)state;
    struct fixture f, other;
    fixture_open(&f, "llama", 64, 16, 2);
    fixture_open(&other, "llama", 64, 16, 1);
    mote_session *a = make_session(&f), *b = make_session(&f), *foreign = make_session(&other);
    int32_t tokens[] = {1, 2, -1, (int32_t)f.n_vocab};
    mote_input inputs[2] = {{.session = a, .tokens = tokens, .n_tokens = 2},
                            {.session = a, .tokens = tokens, .n_tokens = 1}};
    mote_error error = {0};
    assert_int_equal(mote_engine_run(f.engine, inputs, 2, NULL, NULL, &error), MOTE_INVALID); // one session twice
    inputs[1].session = foreign;
    assert_int_equal(mote_engine_run(f.engine, inputs, 2, NULL, NULL, &error), MOTE_INVALID);
    inputs[1].session = NULL;
    assert_int_equal(mote_engine_run(f.engine, inputs, 2, NULL, NULL, &error), MOTE_INVALID);
    inputs[1].session = b;
    inputs[1].n_tokens = 3;
    assert_int_equal(mote_engine_run(f.engine, inputs, 2, NULL, NULL, &error), MOTE_INVALID);
    assert_non_null(strstr(error.message, "token 2 is -1"));
    inputs[1] = (mote_input){.session = b, .tokens = tokens + 3, .n_tokens = 1};
    assert_int_equal(mote_engine_run(f.engine, inputs, 2, NULL, NULL, &error), MOTE_INVALID);
    assert_int_equal(mote_engine_run(f.engine, inputs, 2, NULL, NULL, NULL), MOTE_INVALID); // without an error
    assert_int_equal(a->n_tokens + b->n_tokens, 0);
    inputs[1].n_tokens = 0; // nothing is nothing
    must(mote_engine_run(f.engine, inputs, 2, NULL, NULL, &error), &error);
    must(mote_engine_run(f.engine, NULL, 0, NULL, NULL, &error), &error);
    assert_int_equal(a->n_tokens, 2);
    mote_session_destroy(a);
    mote_session_destroy(b);
    // Far more inputs than a batch has rows, most of them empty.
    mote_session *sessions[200];
    mote_input many[200];
    for (size_t i = 0; i < 200; i++) {
        sessions[i] = make_session(&f);
        many[i] = (mote_input){.session = sessions[i], .tokens = tokens, .n_tokens = i % 100 == 99};
    }
    must(mote_engine_run(f.engine, many, 200, NULL, NULL, &error), &error);
    for (size_t i = 0; i < 200; i++) {
        assert_int_equal(sessions[i]->n_tokens, i % 100 == 99);
        mote_session_destroy(sessions[i]);
    }
    assert_all_free(f.engine);
    mote_session_destroy(foreign);
    mote_session_destroy(NULL);
    fixture_close(&other);
    fixture_close(&f);
}

// ---- the caller's floating-point environment ----

// Logits after 30 tokens and a draw from them, everything made under the rounding mode that is set.
static float *logits_under(int mode, const char *name, int32_t *id)
{
    assert_int_equal(fesetround(mode), 0);
    struct fixture f;
    fixture_open(&f, name, 64, 16, 1);
    float *logits = logits_after(&f, 30);
    mote_sampling sampling = {.size = sizeof(sampling), .temperature = 1.5f, .top_p = 0.99f, .min_p = 0.001f};
    mote_sampler *sampler = NULL;
    mote_error error = {0};
    must(mote_sampler_create(&sampling, f.n_vocab, &sampler, &error), &error);
    must(mote_sampler_sample(sampler, logits, 30, id, &error), &error);
    mote_sampler_destroy(sampler);
    fixture_close(&f);
    assert_int_equal(fegetround(), mode); // it was given back
    return logits;
}

static void test_rounding_mode(void **state)
{
    (void)state;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static const char *const names[] = {"llama-rope3", "gemma3"};
    for (size_t n = 0; n < 2; n++) {
        int32_t expected_id = -1, id = -1;
        float *expected = logits_under(FE_TONEAREST, names[n], &expected_id);
        for (size_t i = 0; i < 3; i++) {
            float *logits = logits_under(modes[i], names[n], &id);
            fesetround(FE_TONEAREST);
            assert_memory_equal(logits, expected, 288 * sizeof(float));
            assert_int_equal(id, expected_id);
            free(logits);
        }
        free(expected);
    }
}

// ---- stopping ----

static int stop_at(void *user, size_t input, size_t index, const float *logits)
{
    (void)input;
    (void)logits;
    return index == *(const size_t *)user;
}

// After a run that was stopped, the session holds whole batches and goes on with the same bits.
static void check_goes_on(const struct fixture *f, mote_session *session, size_t n_tokens, const float *expected)
{
    mote_error error = {0};
    struct kept kept = {.logits = malloc(f->n_vocab * sizeof(float)), .n_vocab = f->n_vocab};
    assert_non_null(kept.logits);
    assert_int_equal(mote_session_n_tokens(session), n_tokens);
    assert_holds(f, session);
    must(run(f, session, 100 - n_tokens, keep, &kept, &error), &error);
    assert_memory_equal(kept.logits, expected, f->n_vocab * sizeof(float));
    free(kept.logits);
}

static void test_stop_from_callback(void **state)
{
    (void)state;
    static const size_t stops[] = {0, 15, 16, 70, 99};
    struct fixture f;
    fixture_open(&f, "gemma3", 128, 16, 2);
    float *expected = logits_after(&f, 100);
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        mote_session *session = make_session(&f);
        mote_error error = {0};
        size_t stop = stops[i];
        assert_int_equal(run(&f, session, 100, stop_at, &stop, &error), MOTE_CANCELLED);
        assert_int_equal(error.status, MOTE_CANCELLED);
        check_goes_on(&f, session, stop / 16 * 16, expected);
        mote_session_destroy(session);
    }
    assert_all_free(f.engine);
    free(expected);
    fixture_close(&f);
}

struct canceller {
    mote_engine *engine;
    sem_t begin, done;
};

static void *cancel_thread(void *user)
{
    struct canceller *canceller = user;
    sem_wait(&canceller->begin);
    mote_engine_cancel(canceller->engine);
    sem_post(&canceller->done);
    return NULL;
}

// At the 40th row another thread cancels: the callback itself says to go on.
static int let_cancel(void *user, size_t input, size_t index, const float *logits)
{
    struct canceller *canceller = user;
    (void)input;
    (void)logits;
    if (index == 40) {
        sem_post(&canceller->begin);
        sem_wait(&canceller->done);
    }
    return 0;
}

static void test_cancel_from_thread(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, "llama", 128, 16, 2);
    float *expected = logits_after(&f, 100);
    mote_session *session = make_session(&f);
    mote_error error = {0};
    struct canceller canceller = {.engine = f.engine};
    pthread_t thread;
    sem_init(&canceller.begin, 0, 0);
    sem_init(&canceller.done, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, cancel_thread, &canceller), 0);
    assert_int_equal(run(&f, session, 100, let_cancel, &canceller, &error), MOTE_CANCELLED);
    pthread_join(thread, NULL);
    check_goes_on(&f, session, 32, expected);
    mote_session_destroy(session);
    mote_engine_cancel(f.engine); // no run is going on: the next one is not stopped
    session = make_session(&f);
    must(run(&f, session, 3, NULL, NULL, &error), &error);
    mote_session_destroy(session);
    assert_all_free(f.engine);
    sem_destroy(&canceller.begin);
    sem_destroy(&canceller.done);
    free(expected);
    fixture_close(&f);
}

// ---- engines side by side ----

struct beside {
    struct fixture f;
    float *logits;
};

// cmocka's assertions belong to the test's thread: what goes wrong here leaves no logits.
static void *run_beside(void *user)
{
    struct beside *beside = user;
    struct fixture *f = &beside->f;
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = 2;
    params.n_context = 128;
    params.n_batch = 16;
    mote_session *session = NULL;
    int32_t tokens[100];
    for (size_t i = 0; i < 100; i++)
        tokens[i] = token_at(i);
    struct kept kept = {.logits = calloc(f->n_vocab, sizeof(float)), .n_vocab = f->n_vocab};
    if (kept.logits != NULL && mote_engine_create(f->model, &params, &f->engine, NULL) == MOTE_OK &&
        mote_session_create(f->engine, &session, NULL) == MOTE_OK) {
        mote_input input = {.session = session, .tokens = tokens, .n_tokens = 100, .want = MOTE_WANT_LAST};
        if (mote_engine_run(f->engine, &input, 1, keep, &kept, NULL) == MOTE_OK)
            beside->logits = kept.logits;
    }
    mote_session_destroy(session);
    mote_engine_destroy(f->engine);
    if (beside->logits == NULL)
        free(kept.logits);
    return NULL;
}

// Engines of one model are made and run at the same time, each by its thread.
static void test_engines_side_by_side(void **state)
{
    (void)state;
    mote_model *model = open_model("qwen3");
    struct beside beside[3];
    pthread_t threads[3];
    available = 0;
    for (size_t i = 0; i < 3; i++) {
        beside[i] = (struct beside){.f = {.model = model, .n_vocab = mote_model_n_vocab(model)}};
        assert_int_equal(pthread_create(&threads[i], NULL, run_beside, &beside[i]), 0);
    }
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(beside[i].logits);
        assert_memory_equal(beside[i].logits, beside[0].logits, mote_model_n_vocab(model) * sizeof(float));
    }
    for (size_t i = 0; i < 3; i++)
        free(beside[i].logits);
    mote_model_close(model);
}

static int stop_loading(void *user, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    return ++*(int *)user == 2;
}

static int watch_loading(void *user, uint64_t done, uint64_t total)
{
    *(bool *)user = done == total;
    return 0;
}

// Loading that is stopped leaves a model that can be loaded.
static void test_stop_loading(void **state)
{
    (void)state;
    mote_model *model = open_model("llama");
    mote_engine_params params;
    mote_engine_params_default(&params);
    mote_engine *engine = NULL;
    mote_error error = {0};
    int calls = 0;
    bool complete = false;
    available = 0;
    params.n_threads = 2;
    params.progress = stop_loading;
    params.progress_user = &calls;
    assert_int_equal(mote_engine_create(model, &params, &engine, &error), MOTE_CANCELLED);
    assert_null(engine);
    params.progress = watch_loading;
    params.progress_user = &complete;
    must(mote_engine_create(model, &params, &engine, &error), &error);
    assert_true(complete);
    mote_engine_destroy(engine);
    mote_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context_fits),       cmocka_unit_test(test_prediction),
        cmocka_unit_test(test_window_pages),       cmocka_unit_test(test_no_page_left),
        cmocka_unit_test(test_rounding_mode),      cmocka_unit_test(test_bad_inputs),
        cmocka_unit_test(test_stop_from_callback), cmocka_unit_test(test_cancel_from_thread),
        cmocka_unit_test(test_stop_loading),       cmocka_unit_test(test_engines_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

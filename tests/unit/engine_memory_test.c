// What an engine allocates: as much as was predicted when it is made, and nothing at all when it runs.
#include "base/threads.h"
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "counting_heap.h"

static const char *const names[] = {"llama",    "llama-rope3", "qwen2",   "qwen3",        "gemma3",
                                    "qwen2moe", "mellum",      "gpt-oss", "deepseek2-old"};

enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static mote_model *open_model(const char *name)
{
    char path[512];
    mote_model *model = NULL;
    mote_error error = {0};
    snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, name);
    if (mote_model_open(path, NULL, &model, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    return model;
}

static void must(mote_status status, const mote_error *error)
{
    if (status != MOTE_OK)
        fail_msg("%s", error->message);
}

// Aligned bytes of a pool of threads, which every engine has.
static size_t pool_bytes(size_t n_threads)
{
    struct pool *pool = NULL;
    arm();
    enum status status = pool_create(&(struct pool_params){.n_threads = n_threads}, &pool, NULL);
    disarm();
    assert_int_equal(status, STATUS_OK);
    pool_destroy(pool);
    return heap.aligned_bytes;
}

// Aligned memory is the device's: packed weights, work area, KV pages. The tables of rotations are the engine's.
static void test_prediction(void **state)
{
    (void)state;
    static const mote_kv kvs[] = {MOTE_KV_F32, MOTE_KV_F16};
    for (size_t i = 0; i < N_NAMES; i++) {
        mote_engine_params params;
        mote_error error = {0};
        mote_engine_params_default(&params);
        params.n_threads = 1 + i % 3;
        params.n_context = 100 + 200 * (i % 8);
        params.n_batch = 16 << (i % 8);
        params.n_sessions = 1 + i % 8;
        params.n_logits = 3;
        params.kv = kvs[i % 2];
        mote_model *model = open_model(names[i]);
        mote_memory memory;
        must(mote_engine_predict(model, &params, &memory, &error), &error);
        assert_int_equal(memory.total, memory.weights + memory.kv + memory.work + memory.logits);
        assert_true(memory.weights > 0 && memory.kv > 0 && memory.work > 0 && memory.logits > 0);
        size_t pool = pool_bytes(params.n_threads);
        mote_engine *engine = NULL;
        arm();
        mote_status status = mote_engine_create(model, &params, &engine, &error);
        disarm();
        must(status, &error);
        size_t ropes = 0;
        for (uint32_t r = 0; r < engine->graph.n_ropes; r++)
            ropes += params.n_batch * engine->graph.ropes[r].n_rot * sizeof(float);
        assert_int_equal(heap.aligned_bytes, memory.total - ropes + pool);
        // A second engine shares the weights.
        mote_engine *second = NULL;
        arm();
        status = mote_engine_create(model, &params, &second, &error);
        disarm();
        must(status, &error);
        assert_int_equal(heap.aligned_bytes, memory.total - ropes + pool - memory.weights);
        mote_engine_destroy(second);
        mote_engine_destroy(engine);
        mote_model_close(model);
    }
}

static int take(void *user, size_t input, size_t index, const float *logits)
{
    (void)input;
    (void)index;
    *(float *)user += logits[0];
    return 0;
}

static size_t n_allocations(mote_engine *engine, const mote_input *inputs, size_t n_inputs)
{
    float sum = 0;
    mote_error error = {0};
    arm();
    mote_status status = mote_engine_run(engine, inputs, n_inputs, take, &sum, &error);
    disarm();
    must(status, &error);
    return heap.n;
}

// Of a mesh: what is predicted, and what its devices allocate, are within 2% of each other (what is left are the pools'
// and the transport's own lines of cache), and running allocates nothing.
static void test_mesh(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        for (size_t n_devices = 2; n_devices <= 4; n_devices++) {
            mote_engine_params params;
            mote_error error = {0};
            mote_engine_params_default(&params);
            params.n_threads = n_devices;
            params.n_devices = n_devices;
            params.n_context = 1000;
            params.n_batch = 64;
            params.n_sessions = 2;
            mote_model *model = open_model(names[i]);
            mote_memory memory;
            must(mote_engine_predict(model, &params, &memory, &error), &error);
            mote_engine *engine = NULL;
            arm();
            mote_status status = mote_engine_create(model, &params, &engine, &error);
            disarm();
            must(status, &error);
            size_t ropes = 0;
            for (uint32_t r = 0; r < engine->graph.n_ropes; r++)
                ropes += params.n_batch * engine->graph.ropes[r].n_rot * sizeof(float);
            double predicted = (double)(memory.total - ropes), allocated = (double)heap.aligned_bytes;
            if (allocated < predicted || allocated > 1.02 * predicted)
                fail_msg("%s on %zu devices: %.0f bytes predicted, %.0f allocated", names[i], n_devices, predicted,
                         allocated);
            mote_session *session;
            must(mote_session_create(engine, &session, &error), &error);
            int32_t tokens[70];
            for (int t = 0; t < 70; t++)
                tokens[t] = t * 7 % 250;
            mote_input input = {.session = session, .tokens = tokens, .n_tokens = 70, .want = MOTE_WANT_LAST};
            assert_int_equal(n_allocations(engine, &input, 1), 0);
            input.n_tokens = 1;
            assert_int_equal(n_allocations(engine, &input, 1), 0);
            mote_session_destroy(session);
            mote_engine_destroy(engine);
            mote_model_close(model);
        }
    }
}

// Prompts in several batches, decoding (alone and together), windows that give pages back, cleared sessions.
static void test_running_allocates_nothing(void **state)
{
    (void)state;
    enum { N = 150 };
    int32_t tokens[N];
    for (int i = 0; i < N; i++)
        tokens[i] = i * 7 % 250;
    arm(); // the heap does count
    void *volatile piece = calloc(1, 8);
    disarm();
    free(piece);
    assert_int_equal(heap.n, 1);
    for (size_t i = 0; i < N_NAMES; i++) {
        mote_engine_params params;
        mote_error error = {0};
        mote_engine_params_default(&params);
        params.n_threads = 2;
        params.n_context = 512;
        params.n_batch = 32;
        params.n_sessions = 3;
        params.n_logits = 5;
        mote_model *model = open_model(names[i]);
        mote_engine *engine = NULL;
        must(mote_engine_create(model, &params, &engine, &error), &error);
        mote_session *sessions[3];
        mote_input inputs[3];
        for (size_t s = 0; s < 3; s++) {
            must(mote_session_create(engine, &sessions[s], &error), &error);
            inputs[s] = (mote_input){.session = sessions[s],
                                     .tokens = tokens + s,
                                     .n_tokens = N - 40 * s - s,
                                     .want = (mote_want)s}; // none, the last, all
        }
        assert_int_equal(n_allocations(engine, inputs, 3), 0);
        for (size_t s = 0; s < 3; s++) {
            inputs[s].n_tokens = 1;
            inputs[s].want = MOTE_WANT_ALL;
        }
        for (int step = 0; step < 70; step++) // over the border of a page
            assert_int_equal(n_allocations(engine, inputs, 1 + (size_t)step % 3), 0);
        mote_session_clear(sessions[0]);
        inputs[0].n_tokens = N;
        assert_int_equal(n_allocations(engine, inputs, 1), 0);
        for (size_t s = 0; s < 3; s++)
            mote_session_destroy(sessions[s]);
        mote_engine_destroy(engine);
        mote_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prediction),
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_running_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

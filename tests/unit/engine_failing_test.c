// Every allocation on the way from a file to a drawn token fails once: each time an error says so, and nothing leaks.
#include "mote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "failing_heap.h"

static const char *name; // under tests/data
static const mote_adapter *adapters;
static size_t n_adapters, n_devices;

struct parts {
    mote_model *model;
    mote_engine *engine;
    mote_session *session;
    mote_sampler *sampler;
};

struct drawing {
    mote_sampler *sampler;
    int32_t id;
};

static int draw(void *user, size_t input, size_t index, const float *logits)
{
    struct drawing *drawing = user;
    (void)input;
    return mote_sampler_sample(drawing->sampler, logits, index, &drawing->id, NULL) != MOTE_OK;
}

static mote_status make(struct parts *parts, mote_error *error)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.gguf", TEST_DATA, name);
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = 1;
    params.n_devices = n_devices;
    params.n_context = 128;
    params.n_batch = 4;
    params.observe = n_devices == 0 && strcmp(name, "models/mixtral") == 0;
    params.precision = params.observe ? "ffn_down=bf16,attn=f32" : NULL;
    params.adapters = adapters;
    params.n_adapters = n_adapters;
    mote_sampling sampling;
    mote_sampling_default(NULL, &sampling);
    mote_status status = mote_model_open(path, NULL, &parts->model, error);
    if (status == MOTE_OK)
        status = mote_engine_create(parts->model, &params, &parts->engine, error);
    if (status == MOTE_OK)
        status = mote_session_create(parts->engine, &parts->session, error);
    if (status == MOTE_OK)
        status = mote_sampler_create(&sampling, mote_model_n_vocab(parts->model), &parts->sampler, error);
    if (status != MOTE_OK)
        return status;
    static const int32_t tokens[] = {5, 6, 7, 8, 9};
    struct drawing drawing = {.sampler = parts->sampler, .id = -1};
    mote_input input = {.session = parts->session, .tokens = tokens, .n_tokens = 5, .want = MOTE_WANT_LAST};
    status = mote_engine_run(parts->engine, &input, 1, draw, &drawing, error);
    return status == MOTE_OK && drawing.id < 0 ? MOTE_INVALID : status;
}

static enum status step(struct error *error)
{
    struct parts parts = {0};
    mote_status status = make(&parts, (mote_error *)(void *)error);
    mote_sampler_destroy(parts.sampler);
    mote_session_destroy(parts.session);
    mote_engine_destroy(parts.engine);
    mote_model_close(parts.model);
    return (enum status)status;
}

static void test_every_allocation(void **state)
{
    (void)state;
    static const char *const names[] = {"models/llama",    "models/gemma3",   "models/gpt-oss",
                                        "models/qwen2moe", "models/mistral4", "models/mixtral"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        name = names[i];
        exhaust(step);
    }
}

// Whichever device it is that has no memory, the others do not wait for it.
static void test_devices(void **state)
{
    (void)state;
    static const char *const names[] = {"models/llama", "models/qwen2moe"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        name = names[i];
        n_devices = 2 + i;
        exhaust(step);
    }
    n_devices = 0;
}

static void test_adapters(void **state)
{
    (void)state;
    static const mote_adapter two[] = {{TEST_DATA "/lora/qwen3moe-tiny.lora-experts.gguf", 1},
                                       {TEST_DATA "/lora/qwen3moe-tiny.lora-attention.gguf", 0.5f}};
    name = "lora/qwen3moe-tiny";
    adapters = two;
    n_adapters = 2;
    exhaust(step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation), cmocka_unit_test(test_devices),
                                       cmocka_unit_test(test_adapters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// Adapters: against float64 references of merged weights, against models whose weights were merged here, and the
// promise of one answer with sessions of different adapters in one batch.
#include "random_adapter.h"
#include "reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDER TEST_DATA "/lora/"

static float *logits_of(const char *path, const struct setup *setup, const int32_t *tokens, size_t n, size_t *n_vocab)
{
    struct runner runner;
    runner_open(&runner, path, setup);
    float *logits = runner_logits(&runner, tokens, n);
    *n_vocab = runner.n_vocab;
    runner_close(&runner);
    return logits;
}

// ---- references ----

struct reference_case {
    const char *name;
    mote_adapter adapters[2];
    size_t n_adapters;
};

static void test_tiny_references(void **state)
{
    (void)state;
    static const struct reference_case cases[] = {
        {"base", {{0}}, 0},
        {"experts", {{FOLDER "qwen3moe-tiny.lora-experts.gguf", 1}}, 1},
        {"attention", {{FOLDER "qwen3moe-tiny.lora-attention.gguf", 1}}, 1},
        {"both",
         {{FOLDER "qwen3moe-tiny.lora-experts.gguf", 0.5f}, {FOLDER "qwen3moe-tiny.lora-attention.gguf", -0.75f}},
         2},
    };
    mote_model *file = golden_open(FOLDER "qwen3moe-tiny.golden.gguf");
    size_t n_tokens, n, n_vocab;
    int32_t *tokens = golden_i32(file, "tokens", &n_tokens);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s.logits", cases[i].name);
        float *expected = golden_f32(file, name, &n);
        struct setup setup = {.f32 = true, .adapters = cases[i].adapters, .n_adapters = cases[i].n_adapters};
        float *logits = logits_of(FOLDER "qwen3moe-tiny.gguf", &setup, tokens, n_tokens, &n_vocab);
        assert_int_equal(n, n_tokens * n_vocab);
        double difference = golden_difference(logits, expected, n) / golden_deviation(expected, n);
        print_message("%s: %.1e of the standard deviation\n", cases[i].name, difference);
        assert_true(difference <= 2e-4);
        free(expected);
        free(logits);
    }
    free(tokens);
    mote_model_close(file);
}

static void test_smollm2(void **state)
{
    (void)state;
    static const struct reference_case cases[] = {
        {"full", {{FOLDER "smollm2.lora.gguf", 1}}, 1},
        {"half", {{FOLDER "smollm2.lora.gguf", 0.5f}}, 1},
    };
    char path[1024], name[64];
    cached_model_path("smollm2", path, sizeof(path));
    mote_model *file = golden_open(FOLDER "smollm2.golden.gguf");
    size_t n_tokens, n, n_last, n_vocab;
    int32_t *tokens = golden_i32(file, "tokens", &n_tokens);
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "%s.top_ids", cases[i].name);
        int32_t *ids = golden_i32(file, name, &n);
        snprintf(name, sizeof(name), "%s.top_logits", cases[i].name);
        float *top = golden_f32(file, name, &n);
        snprintf(name, sizeof(name), "%s.last_logits", cases[i].name);
        float *last = golden_f32(file, name, &n_last);
        struct setup setup = {.f32 = true, .adapters = cases[i].adapters, .n_adapters = 1};
        float *logits = logits_of(path, &setup, tokens, n_tokens, &n_vocab);
        assert_int_equal(n, 32 * n_tokens);
        assert_int_equal(n_last, n_vocab);
        double largest = golden_difference(logits + (n_tokens - 1) * n_vocab, last, n_vocab);
        for (size_t j = 0; j < n; j++) {
            double difference = fabs((double)logits[j / 32 * n_vocab + (size_t)ids[j]] - (double)top[j]);
            largest = difference <= largest ? largest : difference;
        }
        print_message("smollm2 %s: %.1e\n", cases[i].name, largest);
        assert_true(largest <= 1e-3);
        free(ids);
        free(top);
        free(last);
        free(logits);
    }
    free(tokens);
    mote_model_close(file);
}

// ---- merged models ----

struct folder {
    char path[64], adapters[2][96], merged[96];
};

static void folder_make(struct folder *folder)
{
    snprintf(folder->path, sizeof(folder->path), "/tmp/mote-lora-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    char path[sizeof(folder->path)]; // apart from what is written, as snprintf wants it
    memcpy(path, folder->path, sizeof(path));
    for (int i = 0; i < 2; i++)
        snprintf(folder->adapters[i], sizeof(folder->adapters[i]), "%s/adapter%d.gguf", path, i);
    snprintf(folder->merged, sizeof(folder->merged), "%s/merged.gguf", path);
}

static void folder_remove(const struct folder *folder)
{
    unlink(folder->adapters[0]);
    unlink(folder->adapters[1]);
    unlink(folder->merged);
    rmdir(folder->path);
}

// Every product of every family, and the embedding, tied (llama-rope3, qwen3, gemma3, granitemoe) and not.
static const char *const models[] = {
    "models/llama",
    "models/llama-rope3",
    "models/qwen2",
    "models/qwen3",
    "models/gemma3",
    "models/granite",
    "models/mixtral",
    "models/qwen2moe",
    "models/qwen3moe",
    "models/qwen3moe-overflow",
    "models/olmoe",
    "models/granitemoe",
    "models/mellum",
    "models/gpt-oss",
    "models/gpt-oss-mxfp4",
    "models/glm4moe",
    "models/mistral3-far",
    "models/mistral4",
    "models/mistral4-overflow",
    "models/deepseek2",
    "models/deepseek2-lite",
    "models/deepseek2-groups",
    "models/deepseek2-blocks",
    "odd/bailingmoe-ling",
    "odd/gpt-oss-odd",
    "odd/granite-biases",
    "odd/granitemoe-shared",
    "odd/llama-experts",
    "odd/mellum-odd",
    "odd/olmoe-bounds",
    "odd/qwen2moe-merged",
    "odd/qwen3-blocks",
};
enum { N_MODELS = sizeof(models) / sizeof(models[0]) };

static const struct random_adapter kinds[] = {
    {.seed = 1, .rank = 4, .alpha = 2, .dtype = DTYPE_F32, .scale = 0.5},
    {.seed = 2, .rank = 19, .alpha = 0, .dtype = DTYPE_F16, .scale = -0.25},
    {.seed = 3, .rank = 32, .alpha = 3, .dtype = DTYPE_Q8_0, .scale = 1},
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void check_merged(const char *name, const struct random_adapter *kind)
{
    struct golden golden;
    struct folder folder;
    golden_load(&golden, TEST_DATA, name);
    folder_make(&folder);
    random_adapter_write(golden.path, kind, folder.adapters[0], folder.merged);
    mote_adapter adapter = {.path = folder.adapters[0], .scale = (float)kind->scale};
    struct setup setup = {.f32 = true, .adapters = &adapter, .n_adapters = 1};
    struct setup odd = {
        .f32 = true, .adapters = &adapter, .n_adapters = 1, .isa = "c", .n_batch = 7, .n_threads = 3, .n_logits = 2};
    size_t n_vocab;
    float *logits = logits_of(golden.path, &setup, golden.tokens, golden.n_tokens, &n_vocab);
    size_t n = golden.n_tokens * n_vocab;
    float *same = logits_of(golden.path, &odd, golden.tokens, golden.n_tokens, &n_vocab);
    float *merged = logits_of(folder.merged, &(struct setup){.f32 = true}, golden.tokens, golden.n_tokens, &n_vocab);
    float *base = logits_of(golden.path, &(struct setup){.f32 = true}, golden.tokens, golden.n_tokens, &n_vocab);
    double std = golden_deviation(merged, n), difference = golden_difference(logits, merged, n) / std;
    double effect = golden_difference(base, merged, n) / std;
    if (!(difference <= 2e-4) || !(effect > 0.05))
        fail_msg(
            "%s, rank %u: the adapter differs from merged weights by %.2g of the standard deviation, merged weights "
            "from the model by %.2g",
            name, kind->rank, difference, effect);
    if (memcmp(logits, same, n * sizeof(*logits)) != 0)
        fail_msg("%s, rank %u: other bits with other kernels, batches and threads", name, kind->rank);
    for (size_t n_devices = 2; n_devices <= 8; n_devices += 3) {
        struct setup mesh = {.f32 = true,
                             .adapters = &adapter,
                             .n_adapters = 1,
                             .n_devices = n_devices,
                             .n_threads = 8,
                             .n_batch = n_devices == 5 ? 1 : 512};
        float *sharded = logits_of(golden.path, &mesh, golden.tokens, golden.n_tokens, &n_vocab);
        if (memcmp(logits, sharded, n * sizeof(*logits)) != 0)
            fail_msg("%s, rank %u: other bits on %zu devices", name, kind->rank, n_devices);
        free(sharded);
    }
    free(logits);
    free(same);
    free(merged);
    free(base);
    folder_remove(&folder);
    golden_free(&golden);
}

static void test_merged(void **state)
{
    (void)state;
    const size_t stride = golden_stride();
    for (size_t i = 0; i < N_MODELS; i += stride) {
        for (size_t j = 0; j < N_KINDS; j++)
            check_merged(models[i], &kinds[j]);
    }
}

// ---- one answer ----

struct kept {
    float *logits[4];
    size_t n_vocab;
};

static int keep(void *user, size_t input, size_t index, const float *logits)
{
    struct kept *kept = user;
    memcpy(kept->logits[input] + index * kept->n_vocab, logits, kept->n_vocab * sizeof(float));
    return 0;
}

// Sessions without adapters, with one, with the other and with both, in one batch, and, token after token, in one batch
// again, also over three devices: each as an engine that has nothing else.
static void check_neighbours(const char *name, bool f32, size_t n_devices)
{
    static const float scales[4][2] = {{0, 0}, {1, 0}, {0, -0.75f}, {0.5f, -0.75f}};
    struct golden golden;
    struct folder folder;
    golden_load(&golden, TEST_DATA "/models", name);
    folder_make(&folder);
    for (int i = 0; i < 2; i++)
        random_adapter_write(golden.path, &kinds[i], folder.adapters[i], NULL);
    mote_adapter both[2] = {{folder.adapters[0], 1}, {folder.adapters[1], 1}};
    size_t n = golden.n_tokens, n_vocab;
    struct setup setup = {.f32 = f32, .adapters = both, .n_adapters = 2, .n_devices = n_devices, .n_threads = 3};
    struct runner runner;
    runner_open(&runner, golden.path, &setup);
    assert_int_equal(mote_engine_n_adapters(runner.engine), 2);
    struct kept kept = {.n_vocab = runner.n_vocab};
    mote_error error = {0};
    mote_session *sessions[4];
    mote_input inputs[4];
    for (size_t i = 0; i < 4; i++) {
        kept.logits[i] = calloc(n * runner.n_vocab, sizeof(float));
        assert_non_null(kept.logits[i]);
        assert_int_equal(mote_session_create(runner.engine, &sessions[i], &error), MOTE_OK);
        assert_int_equal(mote_session_set_adapters(sessions[i], scales[i], 2, &error), MOTE_OK);
        inputs[i] =
            (mote_input){.session = sessions[i], .tokens = golden.tokens, .n_tokens = n - 3 - i, .want = MOTE_WANT_ALL};
    }
    assert_int_equal(mote_engine_run(runner.engine, inputs, 4, keep, &kept, &error), MOTE_OK);
    struct kept ends = kept;
    for (size_t step = 0; step < 3; step++) {
        for (size_t i = 0; i < 4; i++) {
            ends.logits[i] = kept.logits[i] + (n - 3 - i + step) * runner.n_vocab;
            inputs[i].tokens = golden.tokens + n - 3 - i + step;
            inputs[i].n_tokens = 1;
        }
        assert_int_equal(mote_engine_run(runner.engine, inputs, 4, keep, &ends, &error), MOTE_OK);
    }
    for (size_t i = 0; i < 4; i++)
        mote_session_destroy(sessions[i]);
    runner_close(&runner);
    for (size_t i = 0; i < 4; i++) {
        mote_adapter alone[2];
        struct setup single = {.f32 = f32, .adapters = alone};
        for (size_t j = 0; j < 2; j++) {
            if (scales[i][j] != 0)
                alone[single.n_adapters++] = (mote_adapter){folder.adapters[j], scales[i][j]};
        }
        float *logits = logits_of(golden.path, &single, golden.tokens, n, &n_vocab);
        for (size_t j = 0; j < n * n_vocab; j++)
            assert_true(isfinite(logits[j]));
        if (memcmp(logits, kept.logits[i], (n - i) * n_vocab * sizeof(float)) != 0)
            fail_msg("%s: session %zu beside others has other bits than alone", name, i);
        free(logits);
        free(kept.logits[i]);
    }
    folder_remove(&folder);
    golden_free(&golden);
}

static void test_neighbours(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-rope3", "gpt-oss", "qwen2moe", "qwen3moe-overflow", "mistral4"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        check_neighbours(names[i], false, 1);
        check_neighbours(names[i], true, 1);
        check_neighbours(names[i], i % 2 == 0, 3);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_references),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_neighbours),
    };
    const struct CMUnitTest real[] = {cmocka_unit_test(test_smollm2)};
    if (argc > 1 && strcmp(argv[1], "real") == 0)
        return cmocka_run_group_tests(real, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

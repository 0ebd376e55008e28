// See golden.h.
#include "golden.h"

#include "engine/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void must(mote_status status, const mote_error *error, const char *what)
{
    if (status != MOTE_OK)
        fail_msg("%s: %s", what, error->message);
}

void runner_open(struct runner *runner, const char *path, const struct setup *setup)
{
    mote_error error = {0};
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.precision = setup->precision != NULL ? setup->precision : setup->f32 ? "f32" : NULL;
    params.kv = setup->kv;
    params.n_threads = setup->n_threads != 0 ? setup->n_threads : 2;
    params.n_devices = setup->n_devices;
    params.split = setup->split;
    params.n_split = setup->split == NULL ? 0 : setup->n_devices;
    params.n_batch = setup->n_batch;
    params.n_logits = setup->n_logits;
    params.n_sessions = 4;
    params.n_context = 1024;
    params.isa = setup->isa;
    params.adapters = setup->adapters;
    params.n_adapters = setup->n_adapters;
    must(mote_model_open(path, NULL, &runner->model, &error), &error, path);
    const struct engine_extras extras = {.range_off = setup->range_off};
    mote_status status =
        (mote_status)engine_create(runner->model, &params, &extras, &runner->engine, inner_error(&error));
    must(status, &error, path);
    runner->n_vocab = mote_model_n_vocab(runner->model);
}

void runner_close(struct runner *runner)
{
    mote_engine_destroy(runner->engine);
    mote_model_close(runner->model);
}

struct kept_rows {
    float *logits;
    size_t n_vocab;
};

static int keep_row(void *user, size_t input, size_t index, const float *logits)
{
    const struct kept_rows *rows = user;
    (void)input;
    memcpy(rows->logits + index * rows->n_vocab, logits, rows->n_vocab * sizeof(float));
    return 0;
}

float *runner_logits(struct runner *runner, const int32_t *tokens, size_t n)
{
    mote_error error = {0};
    mote_session *session = NULL;
    struct kept_rows rows = {.logits = malloc(n * runner->n_vocab * sizeof(float)), .n_vocab = runner->n_vocab};
    assert_non_null(rows.logits);
    must(mote_session_create(runner->engine, &session, &error), &error, "session");
    mote_input input = {.session = session, .tokens = tokens, .n_tokens = n, .want = MOTE_WANT_ALL};
    must(mote_engine_run(runner->engine, &input, 1, keep_row, &rows, &error), &error, "run");
    assert_int_equal(mote_session_n_tokens(session), n);
    mote_session_destroy(session);
    return rows.logits;
}

mote_model *golden_open(const char *path)
{
    mote_error error = {0};
    mote_model *file = NULL;
    must(mote_model_open(path, NULL, &file, &error), &error, path);
    return file;
}

int32_t *golden_i32(mote_model *file, const char *name, size_t *n)
{
    mote_error error = {0};
    mote_tensor_info info;
    must(mote_tensor_find(file, name, &info, &error), &error, name);
    int32_t *values = malloc(info.n_elements * sizeof(*values));
    assert_non_null(values);
    must(mote_tensor_read_i32(file, name, values, info.n_elements, &error), &error, name);
    *n = (size_t)info.n_elements;
    return values;
}

float *golden_f32(mote_model *file, const char *name, size_t *n)
{
    mote_error error = {0};
    mote_tensor_info info;
    must(mote_tensor_find(file, name, &info, &error), &error, name);
    float *values = malloc(info.n_elements * sizeof(*values));
    assert_non_null(values);
    must(mote_tensor_read_f32(file, name, 0, info.n_elements, values, &error), &error, name);
    *n = (size_t)info.n_elements;
    return values;
}

void golden_load(struct golden *golden, const char *folder, const char *name)
{
    char path[512];
    snprintf(golden->path, sizeof(golden->path), "%s/%s.gguf", folder, name);
    snprintf(path, sizeof(path), "%s/%s.golden.gguf", folder, name);
    mote_model *file = golden_open(path);
    golden->tokens = golden_i32(file, "tokens", &golden->n_tokens);
    golden->logits = golden_f32(file, "logits", &golden->n_logits);
    mote_model_close(file);
}

void golden_free(struct golden *golden)
{
    free(golden->tokens);
    free(golden->logits);
}

float *golden_run(const struct golden *golden, const struct setup *setup, size_t *n)
{
    struct runner runner;
    runner_open(&runner, golden->path, setup);
    float *logits = runner_logits(&runner, golden->tokens, golden->n_tokens);
    *n = golden->n_tokens * runner.n_vocab;
    runner_close(&runner);
    assert_true(*n >= golden->n_logits);
    return logits;
}

double golden_deviation(const float *values, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    double mean = sum / (double)n;
    return sqrt(squares / (double)n - mean * mean);
}

double golden_difference(const float *a, const float *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n && !isnan(largest); i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= largest)) // also NaN
            largest = difference;
    }
    return largest;
}

size_t golden_stride(void)
{
#ifdef __SANITIZE_THREAD__
    print_message("skipped: two models of three, under the thread sanitizer\n");
    return 3;
#else
    return 1;
#endif
}

uint64_t golden_hash(const float *values, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        if ((bits & 0x7fffffffu) > 0x7f800000u)
            bits = 0x7fc00000u;
        for (int byte = 0; byte < 4; byte++)
            hash = (hash ^ (bits >> (8 * byte) & 0xff)) * 0x100000001b3u;
    }
    return hash;
}

void golden_check_hash(const char *name, bool f32, const float *logits, size_t n, uint64_t committed)
{
    uint64_t hash = golden_hash(logits, n);
    if (hash != committed)
        fail_msg(
            "%s f32=%d: the hash of the logits is 0x%016llx, not the committed 0x%016llx: another compiler, CPU or "
            "change of the numerics gives other bits",
            name, f32, (unsigned long long)hash, (unsigned long long)committed);
}

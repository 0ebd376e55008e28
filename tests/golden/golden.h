// What the golden tests share: a reference file, and running a model over its tokens.
#ifndef MOTE_TESTS_GOLDEN_H
#define MOTE_TESTS_GOLDEN_H

#include "mote.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How a model is run; zeros are the defaults.
struct setup {
    bool f32;
    const char *precision; // instead of f32: see mote.h
    bool range_off;        // F16 sources are not range-scaled
    mote_kv kv;
    size_t n_threads, n_batch, n_logits;
    const char *isa;
    const mote_adapter *adapters;
    size_t n_adapters;
    size_t n_devices;
    const double *split; // [n_devices] or NULL
};

// A model with its engine. Failures end the test with the error's message.
struct runner {
    mote_model *model;
    mote_engine *engine;
    size_t n_vocab;
};
void runner_open(struct runner *runner, const char *path, const struct setup *setup);
void runner_close(struct runner *runner);

// Logits [n][n_vocab] after each token, in a new session; free() them.
float *runner_logits(struct runner *runner, const int32_t *tokens, size_t n);

// Tensors of a reference file; free() them.
mote_model *golden_open(const char *path);
int32_t *golden_i32(mote_model *file, const char *name, size_t *n);
float *golden_f32(mote_model *file, const char *name, size_t *n);

// A model of tests/data with what the oracle says of it: logits after each token, or after the last of them.
struct golden {
    char path[512];
    int32_t *tokens;
    float *logits;
    size_t n_tokens, n_logits;
};
// FOLDER/NAME.gguf and FOLDER/NAME.golden.gguf
void golden_load(struct golden *golden, const char *folder, const char *name);
void golden_free(struct golden *golden);
// The model's own logits after each token under a setup: *n of them; free() them.
float *golden_run(const struct golden *golden, const struct setup *setup, size_t *n);

// The standard deviation of values, and the largest difference between two lists of them: NaN where one is NaN.
double golden_deviation(const float *values, size_t n);
double golden_difference(const float *a, const float *b, size_t n);

// How far it is from one model of a table to the next that a test of all models takes: 1, but more where the thread
// sanitizer makes each run many times as long (what is left out is printed).
size_t golden_stride(void);

// FNV-1a over the bits of values, -0 as they are and every NaN as one.
uint64_t golden_hash(const float *values, size_t n);
// Fails where the hash is not the committed one: that of every machine and instruction set.
void golden_check_hash(const char *name, bool f32, const float *logits, size_t n, uint64_t committed);

#endif

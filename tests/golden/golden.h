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
    mote_kv kv;
    size_t n_threads, n_batch, n_logits;
    const char *isa;
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

// FNV-1a over the bits of values, -0 as they are and every NaN as one.
uint64_t golden_hash(const float *values, size_t n);

#endif

// Adapters: GGUF files of LoRA pairs, checked against the model that they are for.
#ifndef MOTE_MODEL_ADAPTER_H
#define MOTE_MODEL_ADAPTER_H

#include "gguf/gguf.h"
#include "tensor/graph.h"

// The pairs of some adapters.
struct adapters {
    struct gguf **files; // [n]
    size_t n;
    struct lora_pair *pairs; // in the order of the adapters
    size_t n_pairs;
    struct arena arena; // the pairs and their names
};

// Opens the files. What is no adapter, or does not fit the model, is an error that names the first tensor that does
// not. On failure *adapters holds nothing.
enum status adapters_open(const char *const *paths, size_t n, const struct gguf *model, struct adapters *adapters,
                          struct error *error);
// After building a graph with the pairs: whether it had a place for all of them.
enum status adapters_check_used(const struct adapters *adapters, struct error *error);
void adapters_close(struct adapters *adapters);

#endif

// Random adapters, and models with the same changes merged into their weights: what an adapter must be equal to.
#ifndef MOTE_TESTS_RANDOM_ADAPTER_H
#define MOTE_TESTS_RANDOM_ADAPTER_H

#include "tensor/dtype.h"

#include <stdint.h>

struct random_adapter {
    uint64_t seed;
    uint32_t rank;
    float alpha;
    enum dtype dtype; // F32, F16, or Q8_0 (tensors whose rows are no whole blocks are F16 then)
    double scale;     // of the merged file
};

// An adapter with a pair for every matrix of the model that products or the embedding take, and the model with the
// pairs merged: w + scale · alpha / rank · b a in F64, stored as F32. merged_path NULL: no such file.
void random_adapter_write(const char *model_path, const struct random_adapter *options, const char *adapter_path,
                          const char *merged_path);

#endif

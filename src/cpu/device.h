// The CPU device: a pool of threads, the kernels of one instruction set, packed weights.
#ifndef MOTE_CPU_DEVICE_H
#define MOTE_CPU_DEVICE_H

#include "base/threads.h"
#include "cpu/kernels/kernels.h"
#include "tensor/device.h"

struct cpu_device {
    struct device base;
    struct pool *pool;
    size_t n_threads;
    const struct kernels *kernels;
};

struct cpu_device_params {
    struct pool_params pool;
    const char *isa; // "c", "avx2", "avx512", "neon", or NULL for the best that this CPU has
};
enum status cpu_device_create(const struct cpu_device_params *params, struct device **device, struct error *error);

// A weight on the CPU: matrices (also a stack of them: experts, heads) are packed, vectors (norms, biases, a bias an
// expert) are F32.
struct cpu_weight {
    struct packed packed; // of the first matrix; format NULL: vectors
    size_t n;             // matrices, or vectors
    size_t bytes;         // of one
    float *vector;        // [n][ne0 rounded up to 16]
};

static inline struct packed cpu_weight_matrix(const struct cpu_weight *weight, size_t index)
{
    struct packed packed = weight->packed;
    packed.data += index * weight->bytes;
    return packed;
}

static inline const float *cpu_weight_vector(const struct cpu_weight *weight, size_t index)
{
    return weight->vector + index * (weight->bytes / sizeof(float));
}

struct weights {
    struct cpu_weight *items; // by tensor index
    size_t n_items;
    size_t bytes; // of all of them
    void *memory; // in one piece
};

// Fills the shapes of all items (no data); fails where mote has no packed form of a dtype.
enum status cpu_weights_describe(const struct graph *graph, struct weights *weights, struct error *error);
enum status cpu_adapters_describe(const struct graph *graph, struct weights *weights, struct error *error);
enum status cpu_weights_pack(struct device *device, const struct graph *graph, const struct weight_reader *reader,
                             struct weights **weights, struct error *error);
enum status cpu_adapters_pack(struct device *device, const struct graph *graph, const struct weight_reader *reader,
                              struct weights **weights, struct error *error);
void cpu_weights_free(struct weights *weights);

// size bytes aligned to 64 (to 2 MiB, with huge pages asked for, where it is large); free with free().
void *cpu_allocate(size_t size);

#endif

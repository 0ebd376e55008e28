// How a tensor lies on a mesh of devices. The words are those of GSPMD and of PyTorch's DTensor.
#ifndef MOTE_TENSOR_PLACEMENT_H
#define MOTE_TENSOR_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

enum placement_kind {
    PLACED_REPLICATE, // every device holds all of it
    PLACED_SHARD,     // each device holds a range of dimension `dim`
    PLACED_PARTIAL,   // each device holds a term; the tensor is their sum (in tree order)
};

struct placement {
    enum placement_kind kind;
    uint32_t dim; // of a shard
};

static inline struct placement placement_replicate(void)
{
    return (struct placement){.kind = PLACED_REPLICATE};
}

static inline struct placement placement_shard(uint32_t dim)
{
    return (struct placement){.kind = PLACED_SHARD, .dim = dim};
}

static inline struct placement placement_partial(void)
{
    return (struct placement){.kind = PLACED_PARTIAL};
}

static inline bool placement_equal(struct placement a, struct placement b)
{
    return a.kind == b.kind && (a.kind != PLACED_SHARD || a.dim == b.dim);
}

#endif

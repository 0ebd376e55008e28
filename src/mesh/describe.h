// A mesh's plan as JSON; the keys are documented in docs/cli.md.
#ifndef MOTE_MESH_DESCRIBE_H
#define MOTE_MESH_DESCRIBE_H

#include "base/buffer.h"
#include "mesh/shard.h"

struct mesh_part_plan {
    const struct device_ops *ops;
    const struct plan *plan;
};

struct mesh_description {
    const struct graph *graph; // of the whole model
    const struct mesh_split *split;
    size_t n_rows; // of a batch
    const struct mesh_part_plan *local;
    uint32_t n_local, first_rank;
};

bool mesh_describe_placements(const struct mesh_description *mesh, struct buffer *json);

#endif

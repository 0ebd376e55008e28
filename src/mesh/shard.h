// The shard pass: from the graph of a model to the graph that each device of a mesh runs.
//
// First every tensor gets a placement. Sums over K are cut where their source can be made in parts: from each product
// the pass walks back through the ops, asks each one's rule (op_desc.place) whether a shard of its result comes of
// shards of its sources, and ends at products that are then cut by output row. So attention is cut by query head, a
// feed-forward block by hidden unit, the head and the embedding by vocabulary row, and nothing here knows an
// architecture. Then each device's graph is written, with a collective where a value is needed whole that is not, once
// a value, and a slice where the reverse is true.
#ifndef MOTE_MESH_SHARD_H
#define MOTE_MESH_SHARD_H

#include "mesh/mesh.h"
#include "tensor/graph.h"
#include "tensor/placement.h"

// How a tensor lies on the devices.
struct part {
    struct placement placement;
    bool pick;                            // PARTIAL: not a sum; each row is on one device
    struct row_range ranges[MAX_DEVICES]; // SHARD: elements of its dimension; pick: tokens
    // PARTIAL, and a weight cut along K, and the value it is multiplied with: segments of the sum.
    struct leaves leaves[MAX_DEVICES];
};

struct sharding {
    const struct graph *graph;
    struct mesh_split split;
    struct part *values;  // by value index
    struct part *weights; // by weight index
    bool *apart;          // by value index, of MUL_MAT_ID_SUM: the shared expert is a product of its own
};

// Infers all placements. The graph must outlive the sharding.
enum status sharding_create(const struct graph *graph, const struct mesh_split *split, struct sharding *sharding,
                            struct error *error);
void sharding_free(struct sharding *sharding);

// For tests and other passes: everything replicated; set parts, then settle, which follows what the weights' parts
// imply for products whose results have none.
enum status sharding_init(const struct graph *graph, const struct mesh_split *split, struct sharding *sharding,
                          struct error *error);
void sharding_settle(struct sharding *sharding);

// The graph of one device. local: from graph_init; the whole graph must outlive it.
enum status shard_graph(const struct sharding *sharding, uint32_t rank, struct graph *local, struct error *error);

// The leaves of a sum of n segments that device `rank` has.
struct leaves split_leaves(const struct mesh_split *split, uint32_t rank, uint32_t n);
// What a device needs of source `index` of a node, given the part of its result.
struct part sharding_need(const struct sharding *sharding, const struct node *node, uint32_t index);

#endif

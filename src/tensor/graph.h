// A graph: the ops of a forward pass, in order, with no memory yet. An architecture builds it once; a device makes a
// plan of it. Values are rows: [width, n_rows], where n_rows is only known when the plan runs.
#ifndef MOTE_TENSOR_GRAPH_H
#define MOTE_TENSOR_GRAPH_H

#include "base/arena.h"
#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/placement.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum op {
    OP_EMBED,
    OP_RMS_NORM,
    OP_MATMUL,
    OP_ADD,
    OP_MUL,
    OP_SCALE,
    OP_GLU,
    OP_ROPE,
    OP_ATTENTION,
    OP_SELECT_ROWS,
    OP_COUNT,
};

// What a source of a matmul is rounded to. It is part of the answer, so it is an attribute and not a device's choice.
enum precision {
    PRECISION_F32,
    PRECISION_F16, // range-exact: per segment of K, by a power of two
    PRECISION_Q8,  // blocks of 32 with an F32 scale
};
const char *precision_name(enum precision precision);

enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU, // the tanh form
};

// Which rows a value has.
enum rows {
    ROWS_NONE,  // a weight
    ROWS_BATCH, // one a token of the batch
    ROWS_LOGITS // one a token whose logits are wanted
};

struct node;

struct tensor {
    const char *name;
    enum dtype dtype;
    uint32_t n_dims; // of a weight; values have 1 and rows
    size_t ne[4];    // ne[0] is contiguous
    enum rows rows;
    struct node *producer; // NULL: a weight
    uint32_t n_uses;
    uint32_t index; // among the graph's weights, or among its values
};

struct attributes {
    enum precision precision; // MATMUL: of the source
    uint32_t segment_unit; // MATMUL: segments are cut at multiples of this many elements (a head); 0: the dtype's grain
    float epsilon;         // RMS_NORM
    float factor;          // SCALE
    enum activation activation; // GLU
    uint32_t head_dim;          // RMS_NORM (0: over the whole row), ROPE, ATTENTION
    uint32_t rope;              // ROPE: which of the model's rotations
    uint32_t n_rot;             // ROPE: elements of a head that are rotated
    bool neox;                  // ROPE: halves, not neighbours
    uint32_t layer;             // ATTENTION: which layer of the KV cache
    uint32_t n_head, n_kv_head; // ATTENTION
    uint32_t v_dim;             // ATTENTION
    uint32_t window;            // ATTENTION: 0, or how many positions a query sees, its own included
    float score_scale;          // ATTENTION
    float softcap;              // ATTENTION: 0 or the cap on scores
};

enum { MAX_SOURCES = 3 };

struct node {
    enum op op;
    struct tensor *sources[MAX_SOURCES];
    uint32_t n_sources;
    struct attributes attributes;
    struct tensor *result;
};

// One layer of the KV cache.
struct kv_layer {
    uint32_t n_head; // KV heads
    uint32_t k_dim, v_dim;
    uint32_t window; // 0: all positions are kept
};

struct graph {
    struct arena arena;
    struct node **nodes;
    size_t n_nodes, nodes_capacity;
    struct tensor **weights;
    size_t n_weights, weights_capacity;
    size_t n_values;
    struct kv_layer *kv_layers;
    size_t n_kv_layers, kv_layers_capacity;
    struct tensor *output; // the logits
    bool force_f32;        // --precision f32: every source
    struct error error;    // the first thing that went wrong while building; later calls do nothing
};

void graph_init(struct graph *graph);
void graph_free(struct graph *graph);

// Building. Where something does not fit, the first error is kept in graph->error, and all further calls return NULL,
// so that an architecture reads as a list of steps and checks once.
struct tensor *graph_weight(struct graph *graph, const char *name, enum dtype dtype, uint32_t n_dims, const size_t *ne);
struct tensor *graph_apply(struct graph *graph, enum op op, const struct attributes *attributes, struct tensor *a,
                           struct tensor *b, struct tensor *c);

struct tensor *graph_embed(struct graph *graph, struct tensor *weight);
struct tensor *graph_rms_norm(struct graph *graph, struct tensor *x, struct tensor *weight, float epsilon,
                              uint32_t head_dim);
// weight [k, n] · x [k] → [n]. segment_unit: see attributes.
struct tensor *graph_matmul(struct graph *graph, struct tensor *weight, struct tensor *x, uint32_t segment_unit);
struct tensor *graph_add(struct graph *graph, struct tensor *a, struct tensor *b); // b: a value or a weight (bias)
struct tensor *graph_scale(struct graph *graph, struct tensor *x, float factor);
struct tensor *graph_glu(struct graph *graph, struct tensor *gate, struct tensor *up, enum activation activation);
struct tensor *graph_rope(struct graph *graph, struct tensor *x, uint32_t head_dim, uint32_t n_rot, uint32_t rope,
                          bool neox);
uint32_t graph_kv_layer(struct graph *graph, struct kv_layer layer);
struct tensor *graph_attention(struct graph *graph, struct tensor *q, struct tensor *k, struct tensor *v,
                               const struct attributes *attributes);
struct tensor *graph_select_rows(struct graph *graph, struct tensor *x);

#endif

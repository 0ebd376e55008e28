// A graph: the ops of a forward pass, in order, with no memory yet. An architecture builds it once; a device makes a
// plan of it. Values are rows: [width, n_rows], where n_rows is only known when the plan runs.
#ifndef MOTE_TENSOR_GRAPH_H
#define MOTE_TENSOR_GRAPH_H

#include "base/arena.h"
#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/placement.h"
#include "tensor/segments.h"
#include "tensor/transport.h"

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
    // mixture of experts
    OP_ROUTE,
    OP_MUL_MAT_ID,
    OP_ADD_ID,
    OP_MUL_MAT_ID_SUM,
    OP_ADD_ID_SUM,
    // adapters
    OP_LORA,
    OP_LORA_HIDDEN,
    // parts of heads
    OP_SLICE,
    OP_CONCAT,
    OP_MATMUL_HEADS,
    OP_POSITION_SCALE,
    // elementwise, and pooling
    OP_SIGMOID,
    OP_DIV,
    OP_ABS,
    OP_EXP,
    OP_LOG,
    OP_CEIL,
    OP_CLAMP,
    OP_POOL_1D,
    // between the devices of a mesh
    OP_ALL_REDUCE,
    OP_ALL_GATHER,
    OP_ADD_SCALED,
    OP_COUNT,
};

// What a source of a matmul is rounded to. It is part of the answer, so it is an attribute and not a device's choice.
enum precision {
    PRECISION_F32,
    PRECISION_BF16, // has the exponents of F32, so it needs no scale
    PRECISION_F16,  // range-exact: per segment of K, by a power of two
    PRECISION_Q8,   // blocks of 32 with an F32 scale
    PRECISION_COUNT,
};
const char *precision_name(enum precision precision);
// What a weight's dtype asks of its source: F16 weights F16, block formats Q8, F32 and BF16 weights F32.
enum precision precision_of_weight(enum dtype dtype);

// What a user asks for instead of the weights' own: for all matmuls, or for those of some kind of tensor.
struct precision_rule {
    char kind[48];            // "attn", "ffn_down": the name without "blk.N.", or its first words; "": all
    enum precision precision; // PRECISION_COUNT: the weights' own again
};
// Whether a rule is meant for the weight of this name. A router's scores decide which experts run, so it is rounded
// only where a rule names it (ffn_gate_inp), not by one for "ffn", "ffn_gate" or all.
bool precision_rule_fits(const struct precision_rule *rule, const char *name);
// The kind of tensor that a name says: "ffn_down_exps" of "blk.7.ffn_down_exps.weight". *length gets its bytes.
const char *tensor_kind(const char *name, size_t *length);

// Of a gated unit. ReLU² of one projection is RELU with gate and up the same.
enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU, // the tanh form
    ACTIVATION_RELU,
    ACTIVATION_SILU_CLAMPED, // gpt-oss: min(g, limit) · sigmoid(alpha · that) · (clamp(up, ±limit) + 1)
    ACTIVATION_COUNT,
};
const char *activation_name(enum activation activation); // of the unit: "swiglu", "geglu" …

enum gating {
    GATING_SOFTMAX, // over all experts
    GATING_SIGMOID,
    GATING_SOFTMAX_SELECTED, // chosen by logit, weighted by the softmax over the chosen
    GATING_SQRT_SOFTPLUS,
};

// How a router's logits become experts and weights: see docs/moe.md.
struct routing {
    enum gating gating;
    uint32_t n_expert, n_used;
    uint32_t n_group, n_group_used; // 0 or 1 group: none
    uint32_t group_best;            // 1 or 2: a group's score is the sum of its best one or two
    bool normalize;                 // weights divided by their sum
    float weight_scale;             // multiplies them at last
};

// Which rows a value has.
enum rows {
    ROWS_NONE,   // a weight
    ROWS_BATCH,  // one a token of the batch
    ROWS_LOGITS, // one a token whose logits are wanted
    ROWS_PAIRS,  // one a (token, expert) that the route chose, sorted by expert, then by token
};

// A collective: what the devices of a mesh hold of one value, and who gets it whole. The same on all devices.
enum collective_kind {
    COLLECTIVE_SUM,    // each device has the sums of some subtrees: all_reduce, in the tree's order
    COLLECTIVE_PICK,   // each row is on the device that has its token's row of the embedding: all_reduce of one term
    COLLECTIVE_CONCAT, // each device has a range of the elements: all_gather
};
struct collective {
    enum collective_kind kind;
    uint32_t n_devices;
    int root;      // CONCAT: the only device that gets the value; -1: all
    bool adapters; // of what adapters need: left out where no row of a run has one
    size_t width;  // of the value
    enum rows rows;
    uint32_t per_row;
    struct leaves leaves[MAX_DEVICES];    // SUM: of each device; first = end: it has nothing
    struct row_range ranges[MAX_DEVICES]; // CONCAT: elements of the value; PICK: tokens; empty: it has nothing
};

struct node;

struct tensor {
    const char *name;
    enum dtype dtype;
    uint32_t n_dims; // of a weight; values have 1 and rows
    size_t ne[4];    // ne[0] is contiguous
    enum rows rows;
    uint32_t per_row;    // PAIRS: pairs a token
    size_t first_row;    // of a weight that is a part of the file's tensor: rows from here on, of each of its matrices,
    size_t rows_in_file; // of this many
    // Of a weight of which a device holds a part: columns from here on, of this many, and which segments they are; and
    // of a stack, matrices from here on. columns_in_file 0: all columns, in one tree.
    size_t first_column, columns_in_file;
    struct leaves leaves;
    size_t first_matrix;
    uint32_t n_parts; // of a value, not 0: a partial sum, of which a row holds this many subtrees' sums, one behind
                      // the other, each of ne[0] elements rounded up to 16
    // Of an adapter's first matrix: its sums are cut as those of the weight that it belongs to (segment_unit: see
    // attributes), so that a device that has a part of that sum has the same part of this one. NULL: by its own dtype.
    const struct tensor *segments_of;
    uint32_t segment_unit;
    size_t turned_rows; // of a weight, not 0: F32, and its columns are the first ne[0] of each turned_rows rows there
    struct node *producer; // NULL: a weight
    uint32_t adapter;      // of an adapter's weight: which of the graph's adapters has it
    uint32_t n_uses;
    uint32_t index; // among the graph's weights, its adapters' weights, or its values
};

// A tensor of an adapter's file.
struct lora_tensor {
    const char *name;
    enum dtype dtype;
    size_t ne[3];
};

// What an adapter (LoRA) adds to one weight of the model: factor · b (a x). Whoever opens adapters makes the pairs, in
// the order of the adapters; the graph says which it has a place for.
struct lora_pair {
    uint32_t adapter;
    const char *weight;      // the weight's name in the model's file
    struct lora_tensor a, b; // [k, rank(, n_expert)], [rank, n(, n_expert)]; flipped: [rank, n_vocab], [rank, n_embd]
    bool flipped;            // of the embedding, which is a table and not a product
    float factor;            // alpha / rank
    bool used;               // set while building
};

// One adapter's term of OP_LORA: factor · second (first x), first x from OP_LORA_HIDDEN where that is a value. Where
// the op looks up, first is a table of rows.
struct lora_term {
    uint32_t adapter;
    float factor;
    struct tensor *first;  // [k, rank(, count)]
    struct tensor *second; // [rank, n(, count)]
};
struct lora {
    uint32_t n_terms; // in the order of the adapters
    struct lora_term *terms;
};

struct attributes {
    enum precision precision;        // MATMUL, MUL_MAT_ID, MUL_MAT_ID_SUM, MATMUL_HEADS: of the source
    enum precision shared_precision; // MUL_MAT_ID_SUM: of the shared expert's source
    struct leaves leaves; // MATMUL, MUL_MAT_ID_SUM: n not 0: the result is a partial sum of these segments of the whole
    uint32_t first_token; // EMBED: the token of the table's first row
    const struct collective *collective; // ALL_REDUCE, ALL_GATHER
    uint32_t segment_unit; // MATMUL: segments are cut at multiples of this many elements (a head); 0: the dtype's grain
    float epsilon;         // RMS_NORM
    float factor;          // SCALE
    enum activation activation; // GLU
    float limit, alpha;         // GLU: of SILU_CLAMPED
    float low, high;            // CLAMP
    struct routing routing;     // ROUTE
    uint32_t layer_number;      // ROUTE: for messages
    bool weighted;              // MUL_MAT_ID: the product is multiplied by the pair's weight; LORA: the term
    bool unweighted;            // MUL_MAT_ID_SUM, ADD_ID_SUM: all weights are 1
    const struct lora *lora;    // LORA, LORA_HIDDEN
    const int32_t *slots;       // MUL_MAT_ID(_SUM): where each expert lies in the weight, -1: absent; NULL: in order
    uint32_t begin, width;      // SLICE: elements [begin, begin + width) of each head
    float temperature_scale;    // POSITION_SCALE
    uint32_t temperature_length;
    bool pool_max; // POOL_1D: the maximum, else the mean
    uint32_t pool_kernel, pool_stride, pool_padding;
    uint32_t head_dim;          // RMS_NORM (0: over the whole row), ROPE, ATTENTION
    uint32_t rope;              // ROPE: which of the model's rotations
    uint32_t n_rot;             // ROPE: elements of a head that are rotated
    bool neox;                  // ROPE: halves, not neighbours
    uint32_t layer;             // ATTENTION: which layer of the KV cache
    uint32_t n_head, n_kv_head; // ATTENTION
    uint32_t group;             // ATTENTION: query heads a KV head; 0: n_head / n_kv_head
    uint32_t first_in_group;    // ATTENTION: which of its group the first query head is (of a part of the heads)
    uint32_t v_dim;             // ATTENTION
    uint32_t window;            // ATTENTION: 0, or how many positions a query sees, its own included
    float score_scale;          // ATTENTION
    float softcap;              // ATTENTION: 0 or the cap on scores
    bool v_in_k;                // ATTENTION: the value is the first v_dim elements of the key (MLA)
};

enum { MAX_SOURCES = 7 };

struct node {
    enum op op;
    struct tensor *sources[MAX_SOURCES]; // optional ones may be NULL
    uint32_t n_sources;
    struct attributes attributes;
    struct tensor *result;
};

// One layer of the KV cache.
struct kv_layer {
    uint32_t n_head;     // KV heads
    uint32_t first_head; // of the model's, which of a device that has a part of them is its first
    uint32_t k_dim, v_dim;
    uint32_t window; // 0: all positions are kept
    bool v_in_k;     // no value is stored: it is the beginning of the key
};

struct graph {
    struct arena arena;
    struct node **nodes;
    size_t n_nodes, nodes_capacity;
    struct tensor **weights;
    size_t n_weights, weights_capacity;
    struct lora_pair *lora_pairs; // read while building only
    size_t n_lora_pairs;
    struct tensor **adapter_weights;
    size_t n_adapter_weights, adapter_weights_capacity;
    size_t n_values;
    struct kv_layer *kv_layers;
    size_t n_kv_layers, kv_layers_capacity;
    struct tensor *output;              // the logits
    const struct precision_rule *rules; // later ones win
    size_t n_rules;
    struct error error; // the first thing that went wrong while building; later calls do nothing
};

// Bytes of a row of what device d has of a collective's value.
size_t collective_row_bytes(const struct collective *c, uint32_t d);

void graph_init(struct graph *graph);
void graph_free(struct graph *graph);

// Building. Where something does not fit, the first error is kept in graph->error, and all further calls return NULL,
// so that an architecture reads as a list of steps and checks once.
struct tensor *graph_weight(struct graph *graph, const char *name, enum dtype dtype, uint32_t n_dims, const size_t *ne);
// Rows [first_row, first_row + ne[1]) of each matrix of the file's tensor of that name, which has rows_in_file of them.
struct tensor *graph_weight_part(struct graph *graph, const char *name, enum dtype dtype, uint32_t n_dims,
                                 const size_t *ne, size_t first_row, size_t rows_in_file);
// A weight like `like` (of another graph too), with the parts, cuts and shape that it has.
struct tensor *graph_weight_like(struct graph *graph, const struct tensor *like);
// Appends a node. sources: as many as the op's descriptor has; optional ones may be NULL.
struct tensor *graph_apply(struct graph *graph, enum op op, const struct attributes *attributes,
                           struct tensor *const *sources);

struct tensor *graph_embed(struct graph *graph, struct tensor *weight);
struct tensor *graph_rms_norm(struct graph *graph, struct tensor *x, struct tensor *weight, float epsilon,
                              uint32_t head_dim);
// weight [k, n] · x [k] → [n]. segment_unit: see attributes.
struct tensor *graph_matmul(struct graph *graph, struct tensor *weight, struct tensor *x, uint32_t segment_unit);
struct tensor *graph_add(struct graph *graph, struct tensor *a, struct tensor *b); // b: a value or a weight (bias)
struct tensor *graph_scale(struct graph *graph, struct tensor *x, float factor);
struct tensor *graph_glu(struct graph *graph, struct tensor *gate, struct tensor *up, enum activation activation);
struct tensor *graph_unary(struct graph *graph, enum op op, struct tensor *x); // SIGMOID, ABS, EXP, LOG, CEIL
struct tensor *graph_rope(struct graph *graph, struct tensor *x, uint32_t head_dim, uint32_t n_rot, uint32_t rope,
                          bool neox);
uint32_t graph_kv_layer(struct graph *graph, struct kv_layer layer);
// v NULL with attributes->v_in_k. sinks [n_head] or NULL.
struct tensor *graph_attention(struct graph *graph, struct tensor *q, struct tensor *k, struct tensor *v,
                               struct tensor *sinks, const struct attributes *attributes);
struct tensor *graph_select_rows(struct graph *graph, struct tensor *x);
// What the devices hold of a value, on this one `part` (NULL: nothing), becomes the value. The collective is kept.
struct tensor *graph_collective(struct graph *graph, struct tensor *part, const struct collective *collective);
// y + scale · x, in one rounding; scale [1, rows] or NULL: 1
struct tensor *graph_add_scaled(struct graph *graph, struct tensor *y, struct tensor *x, struct tensor *scale);

// Experts. route: [2 n_used, rows]: the chosen experts in ascending order (as numbers), then their weights.
struct tensor *graph_route(struct graph *graph, struct tensor *logits, struct tensor *bias,
                           const struct routing *routing, uint32_t layer);
// weight [k, n, n_expert] · x [k, rows or pairs] → [n, pairs]; scale [n_expert] or NULL. weighted: see attributes.
struct tensor *graph_mul_mat_id(struct graph *graph, struct tensor *weight, struct tensor *x, struct tensor *route,
                                struct tensor *scale, bool weighted);
// x [n, pairs] + bias [n, n_expert] of the pair's expert
struct tensor *graph_add_id(struct graph *graph, struct tensor *x, struct tensor *bias, struct tensor *route);
// What a shared expert adds within the sum: weight [k', n] · hidden [k', rows], times gate [1, rows] where there is
// one.
struct shared_expert {
    struct tensor *weight, *hidden, *gate;
};
// Σ over the route's experts of weight · x: [n, rows], segment by segment as docs/numerics.md says. shared may be NULL.
struct tensor *graph_mul_mat_id_sum(struct graph *graph, struct tensor *weight, struct tensor *x, struct tensor *route,
                                    struct tensor *scale, const struct shared_expert *shared, bool unweighted);
// y [n, rows] + Σ over the route's experts of its weight · bias [n, n_expert]
struct tensor *graph_add_id_sum(struct graph *graph, struct tensor *y, struct tensor *bias, struct tensor *route,
                                bool unweighted);

// y, which is weight · x, plus what the adapters that have a pair for this weight add to it (graph_lora.c): one
// OP_LORA, or y itself where there is no pair. All graph_… functions that multiply with a weight end in it.
struct lora_place {
    const struct tensor *weight;
    struct tensor *x;     // NULL: y is the embedding of the tokens
    struct tensor *route; // of experts
    struct tensor *gate;  // [1, rows]: multiplies the term; or NULL
    bool weighted;        // each pair's term is multiplied by the pair's weight
};
struct tensor *graph_lora(struct graph *graph, struct tensor *y, const struct lora_place *place);
// A weight of an adapter like `like` (of another graph too).
struct tensor *graph_adapter_weight_like(struct graph *graph, const struct tensor *like);

// Parts of heads: x is [n_heads · head_dim, rows].
struct tensor *graph_slice(struct graph *graph, struct tensor *x, uint32_t head_dim, uint32_t begin, uint32_t width);
// Each head of a behind it the same head of b (or b's only one): a [n_heads · head_dim], b [n_heads · width or width].
struct tensor *graph_concat(struct graph *graph, struct tensor *a, uint32_t head_dim, struct tensor *b, uint32_t width);
// weight [k, n, n_heads] · each head of x [n_heads · k, rows] → [n_heads · n, rows]
struct tensor *graph_matmul_heads(struct graph *graph, struct tensor *weight, struct tensor *x);
// x · (1 + scale · ln(1 + ⌊position / length⌋))
struct tensor *graph_position_scale(struct graph *graph, struct tensor *x, uint32_t head_dim, float scale,
                                    uint32_t length);

#endif

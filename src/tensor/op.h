// The op table: one descriptor an op, which is all that the rest of mote knows about it. A new op is one file in
// src/tensor/ops/ and a line in src/tensor/ops.c, and its kernels.
#ifndef MOTE_TENSOR_OP_H
#define MOTE_TENSOR_OP_H

#include "base/error.h"
#include "tensor/graph.h"

// What a node does for n_rows rows; n_past: positions of the session before them (attention).
struct op_cost {
    double f32_ops;  // two a fused multiply-add
    double int8_ops; // two a product of a block format
    double bytes;    // weights and KV cache read
};

struct op_desc {
    enum op op;
    const char *name;
    const char *doc; // one sentence: result from sources, with shapes
    uint32_t n_sources;
    uint32_t n_optional; // of them, the last ones, which may be NULL
    // Checks the sources' shapes and fills the result's (width and rows).
    enum status (*infer)(const struct node *node, struct tensor *result, struct error *error);
    // What the sources must be, given what they are, and what the result then is. NULL: replicate everything.
    void (*place)(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result);
    // Which elements of a source that is a shard make elements [begin, end) of the result. NULL: as many in proportion.
    struct row_range (*range)(const struct node *node, uint32_t source, struct row_range result);
    void (*cost)(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost);
};

const struct op_desc *op_get(enum op op);

// The one way to ask for placements: the op's rule, or, where it has none, everything replicated.
void op_place(const struct op_desc *desc, const struct node *node, const struct placement *have, struct placement *need,
              struct placement *result);

extern const struct op_desc op_embed;
extern const struct op_desc op_rms_norm;
extern const struct op_desc op_matmul;
extern const struct op_desc op_add;
extern const struct op_desc op_mul;
extern const struct op_desc op_scale;
extern const struct op_desc op_glu;
extern const struct op_desc op_rope;
extern const struct op_desc op_attention;
extern const struct op_desc op_select_rows;
extern const struct op_desc op_route;
extern const struct op_desc op_mul_mat_id;
extern const struct op_desc op_add_id;
extern const struct op_desc op_mul_mat_id_sum;
extern const struct op_desc op_add_id_sum;
extern const struct op_desc op_lora;
extern const struct op_desc op_lora_hidden;
extern const struct op_desc op_slice;
extern const struct op_desc op_concat;
extern const struct op_desc op_matmul_heads;
extern const struct op_desc op_position_scale;
extern const struct op_desc op_sigmoid;
extern const struct op_desc op_div;
extern const struct op_desc op_abs;
extern const struct op_desc op_exp;
extern const struct op_desc op_log;
extern const struct op_desc op_ceil;
extern const struct op_desc op_clamp;
extern const struct op_desc op_pool_1d;
extern const struct op_desc op_all_reduce;
extern const struct op_desc op_all_gather;
extern const struct op_desc op_add_scaled;

// Shared by elementwise ops. All sources as the first one is; a partial sum is completed first.
void op_place_elementwise(const struct node *node, const struct placement *have, struct placement *need,
                          struct placement *result);
void op_cost_elementwise(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost);
// Of elements of which one costs as much as a polynomial.
void op_cost_transcendental(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost);
// Of reading a weight of n_matrices matrices and multiplying n_rows rows with it.
void op_cost_product(const struct tensor *weight, enum precision precision, double n_matrices, double n_rows,
                     struct op_cost *cost);
enum status op_infer_same(const struct node *node, struct tensor *result, struct error *error);
// The result's shape is that of `first`.
enum status op_infer_first(const struct tensor *first, struct tensor *result);
// Of a sum over only some segments of K (attributes.leaves): the result is a partial sum.
void op_infer_partial(const struct node *node, struct tensor *result);
// "attn_q.weight [576, 192]" for messages.
void op_describe_tensor(const struct tensor *tensor, char *text, size_t size);

#endif

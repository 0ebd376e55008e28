// The op table, and what several ops share.
#include "tensor/op.h"

#include <stdio.h>

static const struct op_desc *const table[OP_COUNT] = {
    [OP_EMBED] = &op_embed,
    [OP_RMS_NORM] = &op_rms_norm,
    [OP_MATMUL] = &op_matmul,
    [OP_ADD] = &op_add,
    [OP_MUL] = &op_mul,
    [OP_SCALE] = &op_scale,
    [OP_GLU] = &op_glu,
    [OP_ROPE] = &op_rope,
    [OP_ATTENTION] = &op_attention,
    [OP_SELECT_ROWS] = &op_select_rows,
    [OP_ROUTE] = &op_route,
    [OP_MUL_MAT_ID] = &op_mul_mat_id,
    [OP_ADD_ID] = &op_add_id,
    [OP_MUL_MAT_ID_SUM] = &op_mul_mat_id_sum,
    [OP_ADD_ID_SUM] = &op_add_id_sum,
    [OP_LORA] = &op_lora,
    [OP_LORA_HIDDEN] = &op_lora_hidden,
    [OP_SLICE] = &op_slice,
    [OP_CONCAT] = &op_concat,
    [OP_MATMUL_HEADS] = &op_matmul_heads,
    [OP_POSITION_SCALE] = &op_position_scale,
    [OP_SIGMOID] = &op_sigmoid,
    [OP_DIV] = &op_div,
    [OP_ABS] = &op_abs,
    [OP_EXP] = &op_exp,
    [OP_LOG] = &op_log,
    [OP_CEIL] = &op_ceil,
    [OP_CLAMP] = &op_clamp,
    [OP_POOL_1D] = &op_pool_1d,
    [OP_ALL_REDUCE] = &op_all_reduce,
    [OP_ALL_GATHER] = &op_all_gather,
    [OP_ADD_SCALED] = &op_add_scaled,
};

const struct op_desc *op_get(enum op op)
{
    return table[op];
}

void op_place(const struct op_desc *desc, const struct node *node, const struct placement *have, struct placement *need,
              struct placement *result)
{
    if (desc->place != NULL) {
        desc->place(node, have, need, result);
        return;
    }
    for (uint32_t i = 0; i < node->n_sources; i++)
        need[i] = placement_replicate();
    *result = placement_replicate();
}

void op_describe_tensor(const struct tensor *tensor, char *text, size_t size)
{
    if (tensor->rows != ROWS_NONE)
        snprintf(text, size, "%s [%zu, rows]", tensor->name, tensor->ne[0]);
    else if (tensor->n_dims == 3)
        snprintf(text, size, "%s [%zu, %zu, %zu]", tensor->name, tensor->ne[0], tensor->ne[1], tensor->ne[2]);
    else if (tensor->n_dims == 1)
        snprintf(text, size, "%s [%zu]", tensor->name, tensor->ne[0]);
    else
        snprintf(text, size, "%s [%zu, %zu]", tensor->name, tensor->ne[0], tensor->ne[1]);
}

enum status op_infer_first(const struct tensor *first, struct tensor *result)
{
    result->ne[0] = first->ne[0];
    result->rows = first->rows;
    result->per_row = first->per_row;
    return STATUS_OK;
}

void op_infer_partial(const struct node *node, struct tensor *result)
{
    struct leaves subtrees[MAX_SUBTREES];
    if (node->attributes.leaves.n != 0)
        result->n_parts = leaves_subtrees(node->attributes.leaves, subtrees);
}

enum status op_infer_same(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *first = node->sources[0];
    for (uint32_t i = 1; i < node->n_sources; i++) {
        const struct tensor *other = node->sources[i];
        bool bias = other->rows == ROWS_NONE && other->n_dims == 1;
        if (other->ne[0] != first->ne[0] || (!bias && other->rows != first->rows)) {
            char a[128], b[128];
            op_describe_tensor(first, a, sizeof(a));
            op_describe_tensor(other, b, sizeof(b));
            return error_set(error, STATUS_INVALID, "%s: the shapes of %s and %s do not fit", op_get(node->op)->name, a,
                             b);
        }
    }
    return op_infer_first(first, result);
}

void op_place_elementwise(const struct node *node, const struct placement *have, struct placement *need,
                          struct placement *result)
{
    struct placement all = have[0].kind == PLACED_PARTIAL ? placement_replicate() : have[0];
    for (uint32_t i = 0; i < node->n_sources; i++)
        need[i] = all;
    *result = all;
}

static double elements(const struct node *node, size_t n_rows)
{
    double pairs = node->result->rows == ROWS_PAIRS ? node->result->per_row : 1;
    return (double)node->result->ne[0] * (double)n_rows * pairs;
}

void op_cost_transcendental(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    cost->f32_ops = 16.0 * elements(node, n_rows); // a polynomial
}

void op_cost_product(const struct tensor *weight, enum precision precision, double n_matrices, double n_rows,
                     struct op_cost *cost)
{
    const struct dtype_desc *dtype = dtype_get(weight->dtype);
    double elements = (double)weight->ne[0] * (double)weight->ne[1];
    double ops = 2.0 * elements * n_rows;
    if (precision == PRECISION_Q8)
        cost->int8_ops += ops;
    else
        cost->f32_ops += ops;
    cost->bytes += n_matrices * elements / dtype->block * dtype->bytes;
}

void op_cost_elementwise(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    cost->f32_ops = elements(node, n_rows);
}

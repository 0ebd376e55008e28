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
    else if (tensor->n_dims == 1)
        snprintf(text, size, "%s [%zu]", tensor->name, tensor->ne[0]);
    else
        snprintf(text, size, "%s [%zu, %zu]", tensor->name, tensor->ne[0], tensor->ne[1]);
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
    result->ne[0] = first->ne[0];
    result->rows = first->rows;
    return STATUS_OK;
}

void op_place_elementwise(const struct node *node, const struct placement *have, struct placement *need,
                          struct placement *result)
{
    struct placement all = have[0].kind == PLACED_PARTIAL ? placement_replicate() : have[0];
    for (uint32_t i = 0; i < node->n_sources; i++)
        need[i] = all;
    *result = all;
}

void op_cost_elementwise(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    cost->f32_ops = (double)node->result->ne[0] * (double)n_rows;
}

// rope: rotary position embedding of each head. Source: Su et al., RoFormer, 2021.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *x = node->sources[0];
    const struct attributes *a = &node->attributes;
    if (a->head_dim == 0 || x->ne[0] % a->head_dim != 0 || a->n_rot > a->head_dim || a->n_rot % 2 != 0)
        return error_set(error, STATUS_INVALID, "rope: %u rotated elements in heads of %u do not fit %s [%zu, rows]",
                         a->n_rot, a->head_dim, x->name, x->ne[0]);
    result->ne[0] = x->ne[0];
    result->rows = x->rows;
    result->per_row = x->per_row;
    return STATUS_OK;
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    cost->f32_ops = 3.0 * (double)node->result->ne[0] * (double)n_rows;
}

const struct op_desc op_rope = {
    .op = OP_ROPE,
    .name = "rope",
    .doc = "x [n_head * head_dim, rows] -> same: pairs of each head turned by position * frequency",
    .n_sources = 1,
    .infer = infer,
    .place = op_place_elementwise,
    .cost = cost,
};

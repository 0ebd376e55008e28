// slice: a range of the elements of each head.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *x = node->sources[0];
    const struct attributes *a = &node->attributes;
    if (a->head_dim == 0 || x->ne[0] % a->head_dim != 0 || a->width == 0 || a->begin > a->head_dim ||
        a->width > a->head_dim - a->begin)
        return error_set(error, STATUS_INVALID,
                         "slice: %u elements from %u on of heads of %u do not fit %s [%zu, rows]", a->width, a->begin,
                         a->head_dim, x->name, x->ne[0]);
    result->ne[0] = x->ne[0] / a->head_dim * a->width;
    result->rows = x->rows;
    result->per_row = x->per_row;
    return STATUS_OK;
}

const struct op_desc op_slice = {
    .op = OP_SLICE,
    .name = "slice",
    .doc = "x [n_head * head_dim, rows] -> [n_head * width, rows]: elements begin ... begin + width of each head",
    .n_sources = 1,
    .infer = infer,
    .place = op_place_elementwise,
    .cost = op_cost_elementwise,
};

// add_scaled: a row plus another one times a number of the row's, in one rounding an element.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *y = node->sources[0], *x = node->sources[1], *scale = node->sources[2];
    if (x->ne[0] != y->ne[0] || x->rows != y->rows || (scale != NULL && (scale->ne[0] != 1 || scale->rows != y->rows)))
        return error_set(error, STATUS_INVALID, "add_scaled: %s [%zu, rows] and %s [%zu, rows] do not fit", y->name,
                         y->ne[0], x->name, x->ne[0]);
    return op_infer_first(y, result);
}

static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    op_place_elementwise(node, have, need, result);
    need[2] = placement_replicate();
}

const struct op_desc op_add_scaled = {
    .op = OP_ADD_SCALED,
    .name = "add_scaled",
    .doc = "y [n, rows], x [n, rows], scale [1, rows] -> [n, rows]: fma(scale, x, y)",
    .n_sources = 3,
    .n_optional = 1,
    .infer = infer,
    .place = place,
    .cost = op_cost_elementwise,
};

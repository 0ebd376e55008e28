// select_rows: keeps the rows whose logits are wanted, so that nothing behind it is computed for the others.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *x = node->sources[0];
    if (x->rows != ROWS_BATCH)
        return error_set(error, STATUS_INVALID, "select_rows: %s has no rows of the batch", x->name);
    result->ne[0] = x->ne[0];
    result->rows = ROWS_LOGITS;
    return STATUS_OK;
}

const struct op_desc op_select_rows = {
    .op = OP_SELECT_ROWS,
    .name = "select_rows",
    .doc = "x [n, rows] -> [n, logit rows]: the rows whose logits are wanted, in order",
    .n_sources = 1,
    .infer = infer,
    .place = op_place_elementwise,
    .cost = op_cost_elementwise,
};

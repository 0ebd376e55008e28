// all_gather: the devices' ranges of a row become the row, whole on each of them, or on the one that wants it.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct collective *c = node->attributes.collective;
    const struct tensor *part = node->sources[0];
    if (part != NULL && (part->ne[0] > c->width || part->rows != c->rows))
        return error_set(error, STATUS_INVALID, "all_gather: %s [%zu, rows] is not a part of rows of %zu", part->name,
                         part->ne[0], c->width);
    result->ne[0] = c->width;
    result->rows = c->rows;
    result->per_row = c->per_row;
    return STATUS_OK;
}

const struct op_desc op_all_gather = {
    .op = OP_ALL_GATHER,
    .name = "all_gather",
    .doc = "a range of the elements of each device [n of it, rows] -> [n, rows]",
    .n_sources = 1,
    .n_optional = 1, // a device may have no element
    .infer = infer,
    .cost = op_cost_elementwise,
};

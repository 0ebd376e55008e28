// all_reduce: the devices' partial sums become the sum, whole on each of them. Added in the order of the tree over the
// segments of K (docs/numerics.md), so that any number of devices gives the bits of one.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct collective *c = node->attributes.collective;
    const struct tensor *part = node->sources[0];
    if (part != NULL && (part->ne[0] != c->width || part->rows != c->rows))
        return error_set(error, STATUS_INVALID, "all_reduce: %s [%zu, rows] is not a part of sums of %zu", part->name,
                         part->ne[0], c->width);
    result->ne[0] = c->width;
    result->rows = c->rows;
    result->per_row = c->per_row;
    return STATUS_OK;
}

const struct op_desc op_all_reduce = {
    .op = OP_ALL_REDUCE,
    .name = "all_reduce",
    .doc = "partial sums of each device [parts, n, rows] -> [n, rows], the same on all of them",
    .n_sources = 1,
    .n_optional = 1, // a device may have no segment
    .infer = infer,
    .cost = op_cost_elementwise,
};

// concat: the heads of one value, each followed by the same head of another (or by its only one).
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *a = node->sources[0], *b = node->sources[1];
    size_t head_dim = node->attributes.head_dim, width = node->attributes.width;
    size_t n_head = head_dim == 0 ? 0 : a->ne[0] / head_dim;
    if (n_head == 0 || a->ne[0] % head_dim != 0 || width == 0 || a->rows != b->rows ||
        (b->ne[0] != n_head * width && b->ne[0] != width))
        return error_set(error, STATUS_INVALID, "concat: heads of %zu of %s [%zu] and of %zu of %s [%zu] do not fit",
                         head_dim, a->name, a->ne[0], width, b->name, b->ne[0]);
    result->ne[0] = n_head * (head_dim + width);
    result->rows = a->rows;
    result->per_row = a->per_row;
    return STATUS_OK;
}

// Cut between heads; a single head of b is everybody's.
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    bool shared =
        node->sources[0]->ne[0] / node->attributes.head_dim != node->sources[1]->ne[0] / node->attributes.width;
    need[0] = have[0].kind == PLACED_PARTIAL ? placement_replicate() : have[0];
    need[1] = shared ? placement_replicate() : need[0];
    *result = need[0];
}

const struct op_desc op_concat = {
    .op = OP_CONCAT,
    .name = "concat",
    .doc = "a [n_head * head_dim, rows], b [n_head * width, rows] or [width, rows] -> [n_head * (head_dim + width), "
           "rows]: "
           "each head of a, then that of b",
    .n_sources = 2,
    .infer = infer,
    .place = place,
    .cost = op_cost_elementwise,
};

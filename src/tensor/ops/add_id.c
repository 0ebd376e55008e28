// add_id: each pair's row plus its expert's bias.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *x = node->sources[0], *bias = node->sources[1], *route = node->sources[2];
    if (x->rows != ROWS_PAIRS || bias->rows != ROWS_NONE || bias->ne[0] != x->ne[0] || route->producer == NULL ||
        route->producer->op != OP_ROUTE || bias->ne[1] != route->producer->attributes.routing.n_expert) {
        char a[128], b[128];
        op_describe_tensor(x, a, sizeof(a));
        op_describe_tensor(bias, b, sizeof(b));
        return error_set(error, STATUS_INVALID, "add_id: the shapes of %s, %s and the route do not fit", a, b);
    }
    return op_infer_first(x, result);
}

static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    (void)node;
    need[0] = need[1] = have[0].kind == PLACED_PARTIAL ? placement_replicate() : have[0];
    need[2] = placement_replicate();
    *result = need[0];
}

const struct op_desc op_add_id = {
    .op = OP_ADD_ID,
    .name = "add_id",
    .doc = "x [n, pairs], bias [n, n_expert], route -> [n, pairs]: x plus the bias of the pair's expert",
    .n_sources = 3,
    .infer = infer,
    .place = place,
    .cost = op_cost_elementwise,
};

// add_id_sum: a row plus the biases of its experts, each times the expert's weight: summed in ascending order of
// expert, then added.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *y = node->sources[0], *bias = node->sources[1], *route = node->sources[2];
    if (bias->rows != ROWS_NONE || bias->ne[0] != y->ne[0] || route->producer == NULL ||
        route->producer->op != OP_ROUTE || route->rows != y->rows ||
        bias->ne[1] != route->producer->attributes.routing.n_expert) {
        char a[128], b[128];
        op_describe_tensor(y, a, sizeof(a));
        op_describe_tensor(bias, b, sizeof(b));
        return error_set(error, STATUS_INVALID, "add_id_sum: the shapes of %s, %s and the route do not fit", a, b);
    }
    return op_infer_first(y, result);
}

static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    (void)node;
    need[0] = need[1] = have[0].kind == PLACED_PARTIAL ? placement_replicate() : have[0];
    need[2] = placement_replicate();
    *result = need[0];
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    const struct routing *r = &node->sources[2]->producer->attributes.routing;
    cost->f32_ops = 2.0 * r->n_used * (double)node->result->ne[0] * (double)n_rows;
}

const struct op_desc op_add_id_sum = {
    .op = OP_ADD_ID_SUM,
    .name = "add_id_sum",
    .doc =
        "y [n, rows], bias [n, n_expert], route -> [n, rows]: y plus the sum over the row's experts of weight * bias",
    .n_sources = 3,
    .infer = infer,
    .place = place,
    .cost = cost,
};

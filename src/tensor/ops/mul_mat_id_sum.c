// mul_mat_id_sum: the down projections of a token's experts and of the shared expert, as one sum. Each segment of K is
// summed over the experts in ascending order first, then the segments as a tree: so one collective serves them all.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *weight = node->sources[0], *x = node->sources[1], *route = node->sources[2];
    const struct tensor *scale = node->sources[3], *shared = node->sources[4], *hidden = node->sources[5];
    const struct tensor *gate = node->sources[6];
    bool good = weight->rows == ROWS_NONE && weight->n_dims == 3 && weight->ne[0] == x->ne[0] &&
                x->rows == ROWS_PAIRS && route->producer != NULL && route->producer->op == OP_ROUTE;
    if (good) {
        size_t n_expert = route->producer->attributes.routing.n_expert;
        good = (node->attributes.slots != NULL || weight->ne[2] == n_expert) &&
               (scale == NULL || scale->ne[0] == n_expert);
    }
    good = good && (shared == NULL) == (hidden == NULL) &&
           (shared == NULL || (shared->n_dims == 2 && shared->ne[0] == hidden->ne[0] &&
                               shared->ne[1] == weight->ne[1] && hidden->rows == route->rows)) &&
           (gate == NULL || (shared != NULL && gate->ne[0] == 1 && gate->rows == route->rows));
    if (!good) {
        char a[128], b[128];
        op_describe_tensor(weight, a, sizeof(a));
        op_describe_tensor(x, b, sizeof(b));
        return error_set(error, STATUS_INVALID,
                         "mul_mat_id_sum: the shapes of %s, %s, the route and the shared expert do not fit", a, b);
    }
    result->ne[0] = weight->ne[1];
    result->rows = route->rows;
    op_infer_partial(node, result);
    return STATUS_OK;
}

// Cut by output row: a shard. Cut by K at segment borders: the hidden rows are shards too, and the result is a partial
// sum. The shared expert is cut as the experts are.
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    (void)node;
    for (uint32_t i = 0; i < node->n_sources; i++)
        need[i] = placement_replicate();
    *result = placement_replicate();
    if (have[0].kind != PLACED_SHARD || have[0].dim == 2)
        return;
    need[0] = need[4] = have[0];
    if (have[0].dim == 0) {
        need[1] = need[5] = placement_shard(0);
        *result = placement_partial();
    } else {
        *result = placement_shard(0);
    }
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    const struct tensor *weight = node->sources[0], *shared = node->sources[4];
    double pairs = (double)n_rows * node->sources[1]->per_row;
    double read = pairs < (double)weight->ne[2] ? pairs : (double)weight->ne[2]; // at most: tokens may share experts
    op_cost_product(weight, node->attributes.precision, read, pairs, cost);
    if (shared != NULL)
        op_cost_product(shared, node->attributes.shared_precision, n_rows == 0 ? 0 : 1, (double)n_rows, cost);
}

const struct op_desc op_mul_mat_id_sum = {
    .op = OP_MUL_MAT_ID_SUM,
    .name = "mul_mat_id_sum",
    .doc =
        "weight [k, n, n_expert], x [k, pairs], route, scale [n_expert], shared [k2, n], hidden [k2, rows], gate [1, "
        "rows] -> [n, rows]: the sum over a row's pairs of weight * scale * (weight of the expert) x, and of gate * "
        "shared hidden",
    .n_sources = 7,
    .n_optional = 4,
    .infer = infer,
    .place = place,
    .cost = cost,
};

// mul_mat_id: each pair's row times its expert's matrix, times the expert's scale.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *weight = node->sources[0], *x = node->sources[1], *route = node->sources[2];
    const struct tensor *scale = node->sources[3];
    bool good = weight->rows == ROWS_NONE && weight->n_dims == 3 && weight->ne[0] == x->ne[0] &&
                route->producer != NULL && route->producer->op == OP_ROUTE;
    if (good) {
        size_t n_expert = route->producer->attributes.routing.n_expert;
        good = (node->attributes.slots != NULL || weight->ne[2] == n_expert) &&
               (scale == NULL || scale->ne[0] == n_expert);
    }
    if (!good) {
        char a[128], b[128];
        op_describe_tensor(weight, a, sizeof(a));
        op_describe_tensor(x, b, sizeof(b));
        return error_set(error, STATUS_INVALID, "mul_mat_id: the shapes of %s, %s and the route do not fit", a, b);
    }
    result->ne[0] = weight->ne[1];
    result->rows = ROWS_PAIRS;
    result->per_row = route->producer->attributes.routing.n_used;
    return STATUS_OK;
}

// Cut within the experts, by hidden unit, so that every device works on every expert. Not by K: nothing needs the
// pairs' sums apart (mul_mat_id_sum adds them).
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    (void)node;
    bool by_row = have[0].kind == PLACED_SHARD && have[0].dim == 1;
    need[0] = by_row ? have[0] : placement_replicate();
    need[1] = need[2] = need[3] = placement_replicate();
    *result = by_row ? placement_shard(0) : placement_replicate();
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    const struct tensor *weight = node->sources[0];
    double pairs = (double)n_rows * node->result->per_row;
    double read = pairs < (double)weight->ne[2] ? pairs : (double)weight->ne[2]; // at most: tokens may share experts
    op_cost_product(weight, node->attributes.precision, read, pairs, cost);
}

const struct op_desc op_mul_mat_id = {
    .op = OP_MUL_MAT_ID,
    .name = "mul_mat_id",
    .doc = "weight [k, n, n_expert], x [k, rows or pairs], route, scale [n_expert] -> [n, pairs]: weight of the pair's "
           "expert times its row, times the expert's scale (and the pair's weight where it is applied before the "
           "experts)",
    .n_sources = 4,
    .n_optional = 1,
    .infer = infer,
    .place = place,
    .cost = cost,
};

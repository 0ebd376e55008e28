// matmul: weight · x. The source is rounded to the node's precision; the sum is F32 in the contract's order.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *weight = node->sources[0], *x = node->sources[1];
    if (weight->rows != ROWS_NONE || weight->n_dims != 2 || weight->ne[0] != x->ne[0]) {
        char a[128], b[128];
        op_describe_tensor(weight, a, sizeof(a));
        op_describe_tensor(x, b, sizeof(b));
        return error_set(error, STATUS_INVALID, "matmul: the shapes of %s and %s do not fit", a, b);
    }
    result->ne[0] = weight->ne[1];
    result->rows = x->rows;
    result->per_row = x->per_row;
    op_infer_partial(node, result);
    return STATUS_OK;
}

// A weight cut by output row gives a shard; one cut by K (at segment borders) takes a shard of x and gives a partial
// sum.
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    (void)node;
    need[0] = have[0];
    if (have[0].kind == PLACED_SHARD && have[0].dim == 0) {
        need[1] = placement_shard(0);
        *result = placement_partial();
    } else {
        need[1] = placement_replicate();
        *result = have[0].kind == PLACED_SHARD ? placement_shard(0) : placement_replicate();
    }
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    op_cost_product(node->sources[0], node->attributes.precision, n_rows == 0 ? 0 : 1, (double)n_rows, cost);
}

const struct op_desc op_matmul = {
    .op = OP_MATMUL,
    .name = "matmul",
    .doc =
        "weight [k, n], x [k, rows] -> [n, rows]: x rounded to the source precision, sums in F32 over up to 8 segments "
        "of k",
    .n_sources = 2,
    .infer = infer,
    .place = place,
    .cost = cost,
};

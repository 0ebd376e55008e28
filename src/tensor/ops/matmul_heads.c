// matmul_heads: each head of a row times a matrix of its own. The absorbed projections of MLA are two of these.
// Source: DeepSeek-AI, DeepSeek-V2, 2024 (section 2.1).
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *weight = node->sources[0], *x = node->sources[1];
    if (weight->rows != ROWS_NONE || weight->n_dims != 3 || x->ne[0] != weight->ne[0] * weight->ne[2]) {
        char a[128], b[128];
        op_describe_tensor(weight, a, sizeof(a));
        op_describe_tensor(x, b, sizeof(b));
        return error_set(error, STATUS_INVALID, "matmul_heads: the shapes of %s and %s do not fit", a, b);
    }
    result->ne[0] = weight->ne[1] * weight->ne[2];
    result->rows = x->rows;
    result->per_row = x->per_row;
    return STATUS_OK;
}

// Cut between heads, the weight with them.
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    (void)node;
    bool heads = have[0].kind == PLACED_SHARD && have[0].dim == 2;
    need[0] = heads ? have[0] : placement_replicate();
    need[1] = heads ? placement_shard(0) : placement_replicate();
    *result = need[1];
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    double n_heads = (double)node->sources[0]->ne[2];
    op_cost_product(node->sources[0], node->attributes.precision, n_rows == 0 ? 0 : n_heads, n_heads * (double)n_rows,
                    cost);
}

const struct op_desc op_matmul_heads = {
    .op = OP_MATMUL_HEADS,
    .name = "matmul_heads",
    .doc = "weight [k, n, n_head], x [n_head * k, rows] -> [n_head * n, rows]: each head times its own matrix",
    .n_sources = 2,
    .infer = infer,
    .place = place,
    .cost = cost,
};

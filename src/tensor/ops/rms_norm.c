// rms_norm: x / sqrt(mean(x²) + epsilon) · weight, over the row or over each head.
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *x = node->sources[0], *weight = node->sources[1];
    size_t width = node->attributes.head_dim ? node->attributes.head_dim : x->ne[0];
    if (weight->rows != ROWS_NONE || weight->n_dims != 1 || weight->ne[0] != width || x->ne[0] % width != 0) {
        char a[128], b[128];
        op_describe_tensor(weight, a, sizeof(a));
        op_describe_tensor(x, b, sizeof(b));
        return error_set(error, STATUS_INVALID, "rms_norm: %s does not fit a norm of %s over %zu elements", a, b,
                         width);
    }
    result->ne[0] = x->ne[0];
    result->rows = x->rows;
    result->per_row = x->per_row;
    return STATUS_OK;
}

// A norm over heads may be cut between heads; one over the row needs the whole row (a collective of partial sums of
// squares per segment is the mesh's business).
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    bool heads = node->attributes.head_dim != 0 && have[0].kind == PLACED_SHARD;
    need[0] = heads ? have[0] : placement_replicate();
    need[1] = placement_replicate();
    *result = need[0];
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    cost->f32_ops = 4.0 * (double)node->result->ne[0] * (double)n_rows;
}

const struct op_desc op_rms_norm = {
    .op = OP_RMS_NORM,
    .name = "rms_norm",
    .doc = "x [n, rows], weight [n or head_dim] -> [n, rows]: x / sqrt(mean(x^2) + epsilon) * weight, over the row or "
           "each head",
    .n_sources = 2,
    .infer = infer,
    .place = place,
    .cost = cost,
};

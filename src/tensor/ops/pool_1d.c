// pool_1d: the maximum or the mean of windows along a row. With a kernel as long as the row it is the row's own
// maximum. Source: the usual definition, as in torch.nn.functional.max_pool1d and avg_pool1d (count_include_pad=False).
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *x = node->sources[0];
    const struct attributes *a = &node->attributes;
    size_t padded = x->ne[0] + 2 * (size_t)a->pool_padding;
    if (a->pool_kernel == 0 || a->pool_stride == 0 || a->pool_padding >= a->pool_kernel || padded < a->pool_kernel)
        return error_set(error, STATUS_INVALID,
                         "pool_1d: a kernel of %u with stride %u and padding %u does not fit rows of %zu (the padding "
                         "must be below the kernel)",
                         a->pool_kernel, a->pool_stride, a->pool_padding, x->ne[0]);
    result->ne[0] = (padded - a->pool_kernel) / a->pool_stride + 1;
    result->rows = x->rows;
    result->per_row = x->per_row;
    return STATUS_OK;
}

// Of windows that lie side by side, a row that is cut between windows gives a shard of their maxima (or means): so the
// largest magnitude of each segment lives where the segment lives. Anything else needs the whole row.
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    const struct attributes *a = &node->attributes;
    bool side_by_side =
        a->pool_kernel == a->pool_stride && a->pool_padding == 0 && node->sources[0]->ne[0] % a->pool_kernel == 0;
    need[0] = side_by_side && have[0].kind == PLACED_SHARD ? have[0] : placement_replicate();
    *result = need[0];
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    cost->f32_ops = (double)node->result->ne[0] * node->attributes.pool_kernel * (double)n_rows;
}

const struct op_desc op_pool_1d = {
    .op = OP_POOL_1D,
    .name = "pool_1d",
    .doc =
        "x [n, rows] -> [(n + 2 padding - kernel) / stride + 1, rows]: the maximum or the mean of each window, padding "
        "left out",
    .n_sources = 1,
    .infer = infer,
    .place = place,
    .cost = cost,
};

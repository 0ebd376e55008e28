// embed: the row of a table that belongs to each token.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *weight = node->sources[0];
    if (weight->rows != ROWS_NONE || weight->n_dims != 2) {
        char text[128];
        op_describe_tensor(weight, text, sizeof(text));
        return error_set(error, STATUS_INVALID, "embed: %s is not a table [width, n_vocab]", text);
    }
    result->ne[0] = weight->ne[0];
    result->rows = ROWS_BATCH;
    return STATUS_OK;
}

// The table may be cut by vocabulary row: a device that lacks a token's row contributes nothing, so the result is a sum
// of one term; exact.
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    (void)node;
    bool by_row = have[0].kind == PLACED_SHARD && have[0].dim == 1;
    need[0] = by_row ? have[0] : placement_replicate();
    *result = by_row ? placement_partial() : placement_replicate();
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    const struct dtype_desc *dtype = dtype_get(node->sources[0]->dtype);
    cost->bytes = (double)n_rows * (double)node->sources[0]->ne[0] / dtype->block * dtype->bytes;
}

const struct op_desc op_embed = {
    .op = OP_EMBED,
    .name = "embed",
    .doc = "table [width, n_vocab], tokens of the batch -> [width, rows]: row `token` of the table, decoded exactly",
    .n_sources = 1,
    .infer = infer,
    .place = place,
    .cost = cost,
};

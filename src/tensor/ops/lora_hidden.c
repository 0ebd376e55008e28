// lora_hidden: what the first matrices of adapters make of x, as a value: where x is cut between devices, each makes a
// part of the sums, which must be complete before the second matrices take them (lora makes it itself elsewhere).
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *x = node->sources[0], *route = node->sources[1];
    const struct lora *lora = node->attributes.lora;
    size_t width = 0;
    for (uint32_t i = 0; i < lora->n_terms; i++) {
        const struct tensor *first = lora->terms[i].first;
        if (first->ne[0] != x->ne[0] || (route == NULL && first->ne[2] != 1)) {
            char a[128], b[128];
            op_describe_tensor(first, a, sizeof(a));
            op_describe_tensor(x, b, sizeof(b));
            return error_set(error, STATUS_INVALID, "lora_hidden: the shapes of %s and %s do not fit", a, b);
        }
        width += (first->ne[1] + 15) / 16 * 16;
    }
    result->ne[0] = width;
    result->rows = route != NULL ? ROWS_PAIRS : x->rows;
    result->per_row = route != NULL ? route->producer->attributes.routing.n_used : 0;
    op_infer_partial(node, result);
    return STATUS_OK;
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    const struct lora *lora = node->attributes.lora;
    double rows = (double)n_rows * (node->sources[1] != NULL ? node->result->per_row : 1);
    for (uint32_t i = 0; i < lora->n_terms; i++) {
        double count = (double)lora->terms[i].first->ne[2], read = rows < count ? rows : count;
        op_cost_product(lora->terms[i].first, PRECISION_F32, read, rows, cost);
    }
}

const struct op_desc op_lora_hidden = {
    .op = OP_LORA_HIDDEN,
    .name = "lora_hidden",
    .doc =
        "x [k, rows or pairs], route -> [sum of the ranks, each rounded up to 16, rows or pairs]: A x of each adapter",
    .n_sources = 2,
    .n_optional = 1,
    .infer = infer, // the shard pass makes it, of a source that is cut as its product's is
    .cost = cost,
};

// route: which experts a token goes to, and with which weights. Ties go to the lower index.
// Sources: Shazeer et al., Outrageously Large Neural Networks, 2017; DeepSeek-AI, DeepSeek-V3, 2024 (groups, bias).
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *logits = node->sources[0], *bias = node->sources[1];
    const struct routing *r = &node->attributes.routing;
    if (r->n_expert == 0 || logits->ne[0] != r->n_expert || (bias != NULL && bias->ne[0] != r->n_expert))
        return error_set(error, STATUS_INVALID, "route: %zu logits do not fit %u experts", logits->ne[0], r->n_expert);
    if (r->n_used == 0 || r->n_used > r->n_expert)
        return error_set(error, STATUS_INVALID, "route: %u of %u experts cannot be used", r->n_used, r->n_expert);
    if (r->n_group > 1 && (r->n_expert % r->n_group != 0 || r->n_group_used == 0 || r->n_group_used > r->n_group ||
                           r->n_expert / r->n_group * r->n_group_used < r->n_used))
        return error_set(error, STATUS_INVALID, "route: %u experts, %u used, do not fit %u groups of which %u are used",
                         r->n_expert, r->n_used, r->n_group, r->n_group_used);
    result->ne[0] = 2 * (size_t)r->n_used;
    result->rows = logits->rows;
    return STATUS_OK;
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    cost->f32_ops = 16.0 * node->attributes.routing.n_expert * (double)n_rows;
}

const struct op_desc op_route = {
    .op = OP_ROUTE,
    .name = "route",
    .doc =
        "logits [n_expert, rows], selection bias [n_expert] -> [2 n_used, rows]: the chosen experts, ascending, then "
        "their weights",
    .n_sources = 2,
    .n_optional = 1,
    .infer = infer, // every device needs the whole route: no rule, so all is replicated
    .cost = cost,
};

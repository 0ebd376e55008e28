// attention: stores the rows' keys and values in the KV cache, then attends causally, in chunks of 64 positions.
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct attributes *a = &node->attributes;
    const struct tensor *q = node->sources[0], *k = node->sources[1], *v = node->sources[2], *sinks = node->sources[3];
    if ((v == NULL) != a->v_in_k || (a->v_in_k && a->v_dim > a->head_dim))
        return error_set(error, STATUS_INVALID, "attention: values of %u are missing, or not within keys of %u",
                         a->v_dim, a->head_dim);
    if (sinks != NULL && sinks->ne[0] != a->n_head)
        return error_set(error, STATUS_INVALID, "attention: %zu sinks do not fit %u heads", sinks->ne[0], a->n_head);
    // Of a part of the heads (group is given) the last group may be incomplete, and so may be the first.
    bool heads_fit = a->n_kv_head != 0 && a->n_head != 0;
    if (heads_fit && a->group == 0)
        heads_fit = a->first_in_group == 0 && a->n_head % a->n_kv_head == 0;
    else if (heads_fit)
        heads_fit =
            a->first_in_group < a->group && a->n_kv_head == (a->first_in_group + a->n_head + a->group - 1) / a->group;
    if (!heads_fit || q->ne[0] != (size_t)a->n_head * a->head_dim || k->ne[0] != (size_t)a->n_kv_head * a->head_dim ||
        (v != NULL && v->ne[0] != (size_t)a->n_kv_head * a->v_dim))
        return error_set(
            error, STATUS_INVALID,
            "attention: q [%zu], k [%zu] and v [%zu] do not fit %u query heads of %u and %u KV heads of %u", q->ne[0],
            k->ne[0], v == NULL ? 0 : v->ne[0], a->n_head, a->head_dim, a->n_kv_head, a->v_dim);
    result->ne[0] = (size_t)a->n_head * a->v_dim;
    result->rows = q->rows;
    return STATUS_OK;
}

// By query head: a device holds the KV heads that its query heads need (one may live on two devices).
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    (void)node;
    struct placement all = have[0].kind == PLACED_SHARD ? placement_shard(0) : placement_replicate();
    need[0] = need[1] = need[2] = need[3] = all;
    *result = all;
}

static struct row_range range(const struct node *node, uint32_t source, struct row_range result)
{
    const struct attributes *a = &node->attributes;
    size_t begin = result.begin / a->v_dim, end = result.end / a->v_dim; // query heads
    if (source == 3)
        return (struct row_range){begin, end};
    if (source == 0)
        return (struct row_range){begin * a->head_dim, end * a->head_dim};
    size_t group = a->n_head / a->n_kv_head, width = source == 1 ? a->head_dim : a->v_dim;
    if (begin == end)
        return (struct row_range){0, 0};
    return (struct row_range){begin / group * width, (end + group - 1) / group * width};
}

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    const struct attributes *a = &node->attributes;
    double keys = (double)n_past * (double)n_rows + (double)n_rows * ((double)n_rows + 1) / 2;
    double longest = (double)(n_past + n_rows);
    if (a->window != 0 && longest > a->window) {
        longest = a->window;
        if (keys > (double)n_rows * a->window)
            keys = (double)n_rows * a->window;
    }
    cost->f32_ops = 2.0 * keys * a->n_head * (a->head_dim + a->v_dim);
    cost->bytes = longest * a->n_kv_head * (a->head_dim + (a->v_in_k ? 0 : a->v_dim)) * 2.0; // F16
}

const struct op_desc op_attention = {
    .op = OP_ATTENTION,
    .name = "attention",
    .doc = "q [n_head * head_dim, rows], k [n_kv * head_dim, rows], v [n_kv * v_dim, rows] (or none: the first v_dim "
           "of k),"
           " sinks [n_head] -> [n_head * v_dim, rows]: softmax(q k^T * scale) v over the session's positions up to the "
           "row's own; a sink is a score without a value",
    .n_sources = 4,
    .n_optional = 2,
    .infer = infer,
    .place = place,
    .range = range,
    .cost = cost,
};

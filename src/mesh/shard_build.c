// Writing the graph of one device: the whole graph's nodes over the device's parts, with collectives and slices between
// them where a value lies otherwise than a node needs it.
#include "mesh/shard.h"

#include "tensor/op.h"

#include <stdlib.h>
#include <string.h>

// What this device's graph has of a value; NULL: nothing, or not yet.
struct lowered {
    struct tensor *part;
    struct tensor *whole;
    struct tensor *slice; // of a whole value: the last part that was taken of it
    size_t slice_begin;
};

struct lowering {
    const struct sharding *sharding;
    uint32_t rank;
    struct graph *graph; // of the device
    struct lowered *values;
};

static size_t length(struct row_range range)
{
    return range.end - range.begin;
}

static uint32_t n_devices(const struct lowering *lowering)
{
    return lowering->sharding->split.n_devices;
}

// ---- values ----

// What all devices have of a value (this one `mine`) becomes the value. like: its shape, and who wants it (root).
static struct tensor *collect(struct lowering *lowering, struct tensor *mine, const struct part *part,
                              const struct collective *like)
{
    struct collective *c = arena_alloc(&lowering->graph->arena, sizeof(*c));
    if (c == NULL) {
        error_memory(&lowering->graph->error, "the mesh's plan");
        return NULL;
    }
    bool partial = part->placement.kind == PLACED_PARTIAL;
    *c = *like;
    c->kind = !partial ? COLLECTIVE_CONCAT : part->pick ? COLLECTIVE_PICK : COLLECTIVE_SUM;
    c->n_devices = n_devices(lowering);
    memcpy(c->leaves, part->leaves, sizeof(c->leaves));
    memcpy(c->ranges, part->ranges, sizeof(c->ranges));
    return graph_collective(lowering->graph, mine, c);
}

static struct tensor *collect_value(struct lowering *lowering, const struct tensor *value, int root)
{
    const struct collective like = {
        .root = root, .width = value->ne[0], .rows = value->rows, .per_row = value->per_row};
    return collect(lowering, lowering->values[value->index].part, &lowering->sharding->values[value->index], &like);
}

static struct tensor *whole(struct lowering *lowering, const struct tensor *value)
{
    struct lowered *lowered = &lowering->values[value->index];
    if (lowered->whole == NULL)
        lowered->whole = collect_value(lowering, value, -1);
    return lowered->whole;
}

// A value as a node needs it; NULL: this device needs nothing of it.
static struct tensor *fetch(struct lowering *lowering, const struct tensor *value, const struct part *need)
{
    const struct part *part = &lowering->sharding->values[value->index];
    struct lowered *lowered = &lowering->values[value->index];
    if (need->placement.kind != PLACED_SHARD)
        return whole(lowering, value);
    if (part->placement.kind == PLACED_SHARD &&
        memcmp(part->ranges, need->ranges, n_devices(lowering) * sizeof(part->ranges[0])) == 0)
        return lowered->part;
    struct tensor *source = whole(lowering, value); // on all devices, as the collective is for all
    struct row_range range = need->ranges[lowering->rank];
    if (length(range) == 0)
        return NULL;
    if (length(range) == value->ne[0])
        return source;
    if (lowered->slice == NULL || lowered->slice_begin != range.begin || lowered->slice->ne[0] != length(range)) {
        lowered->slice = graph_slice(lowering->graph, source, (uint32_t)value->ne[0], (uint32_t)range.begin,
                                     (uint32_t)length(range));
        lowered->slice_begin = range.begin;
    }
    return lowered->slice;
}

// ---- weights ----

// This device's part of a weight, into a tensor that describes it; false: it has nothing of it.
static bool cut_tensor(const struct lowering *lowering, const struct tensor *weight, const struct part *part,
                       struct tensor *cut)
{
    *cut = *weight;
    if (part->placement.kind != PLACED_SHARD)
        return true;
    struct row_range range = part->ranges[lowering->rank];
    cut->ne[part->placement.dim] = length(range);
    if (part->placement.dim == 0) {
        cut->first_column = range.begin;
        cut->columns_in_file = weight->ne[0];
        cut->leaves = part->leaves[lowering->rank];
    } else if (part->placement.dim == 1) {
        cut->first_row += range.begin;
    } else {
        cut->first_matrix += range.begin;
    }
    return length(range) > 0;
}

static struct tensor *lower_weight(struct lowering *lowering, const struct tensor *weight, const struct part *part)
{
    struct tensor cut;
    return cut_tensor(lowering, weight, part, &cut) ? graph_weight_like(lowering->graph, &cut) : NULL;
}

// ---- nodes ----

// Whether this device has nothing of a node's result.
static bool has_nothing(const struct lowering *lowering, const struct node *node)
{
    const struct part *part = &lowering->sharding->values[node->result->index];
    uint32_t rank = lowering->rank;
    if (part->placement.kind == PLACED_SHARD || part->pick)
        return length(part->ranges[rank]) == 0;
    return part->placement.kind == PLACED_PARTIAL && part->leaves[rank].first == part->leaves[rank].end;
}

static struct attributes lower_attributes(const struct lowering *lowering, const struct node *node)
{
    const struct sharding *sharding = lowering->sharding;
    const struct part *result = &sharding->values[node->result->index];
    uint32_t rank = lowering->rank;
    struct attributes a = node->attributes;
    if (result->pick)
        a.first_token = (uint32_t)result->ranges[rank].begin;
    else if (result->placement.kind == PLACED_PARTIAL)
        a.leaves = result->leaves[rank];
    if (node->op == OP_ATTENTION && result->placement.kind == PLACED_SHARD) {
        size_t first = result->ranges[rank].begin / a.v_dim, end = result->ranges[rank].end / a.v_dim;
        uint32_t group = a.n_head / a.n_kv_head;
        a.group = group;
        a.first_in_group = (uint32_t)(first % group);
        a.n_head = (uint32_t)(end - first);
        a.n_kv_head = (uint32_t)((end + group - 1) / group - first / group);
    }
    return a;
}

static struct tensor *lower_source(struct lowering *lowering, const struct node *node, uint32_t index)
{
    const struct tensor *source = node->sources[index];
    if (source == NULL)
        return NULL;
    struct part need = sharding_need(lowering->sharding, node, index);
    return source->rows == ROWS_NONE ? lower_weight(lowering, source, &need) : fetch(lowering, source, &need);
}

// A shared expert whose segments are not those of the experts: two sums, added behind their collectives.
static struct tensor *lower_apart(struct lowering *lowering, const struct node *node)
{
    const struct tensor *weight = node->sources[4], *hidden = node->sources[5], *gate = node->sources[6];
    const struct part *part = &lowering->sharding->weights[weight->index];
    struct part need = {.placement = placement_replicate()}, along = {.placement = placement_replicate()};
    bool partial = part->placement.kind == PLACED_SHARD;
    if (partial) {
        along.placement = placement_shard(0);
        memcpy(along.ranges, part->ranges, sizeof(along.ranges));
    }
    struct tensor *x = fetch(lowering, hidden, &along), *w = lower_weight(lowering, weight, part), *product = NULL;
    struct attributes a = {.precision = node->attributes.shared_precision};
    if (partial)
        a.leaves = part->leaves[lowering->rank];
    if (x != NULL && w != NULL)
        product = graph_apply(lowering->graph, OP_MATMUL, &a, (struct tensor *[MAX_SOURCES]){w, x});
    if (partial) {
        struct part sums = *part;
        sums.placement = placement_partial();
        product = collect(lowering, product, &sums,
                          &(struct collective){.root = -1, .width = weight->ne[1], .rows = node->result->rows});
    }
    struct tensor *y = whole(lowering, node->result);
    return graph_add_scaled(lowering->graph, y, product, gate == NULL ? NULL : fetch(lowering, gate, &need));
}

// ---- adapters ----

static struct tensor *lower_adapter_weight(struct lowering *lowering, const struct tensor *weight,
                                           const struct part *part)
{
    struct tensor cut;
    return cut_tensor(lowering, weight, part, &cut) ? graph_adapter_weight_like(lowering->graph, &cut) : NULL;
}

// The terms with this device's parts of their matrices. first, second: how each one's are cut; NULL: the whole graph's
// own, which are named and not used.
static const struct lora *lower_terms(struct lowering *lowering, const struct lora *whole_terms,
                                      const struct part *first, const struct part *second)
{
    struct arena *arena = &lowering->graph->arena;
    struct lora *lora = arena_alloc(arena, sizeof(*lora));
    struct lora_term *terms = arena_alloc_array(arena, whole_terms->n_terms, sizeof(*terms));
    if (lora == NULL || terms == NULL) {
        error_memory(&lowering->graph->error, "the mesh's plan");
        return NULL;
    }
    *lora = (struct lora){.n_terms = whole_terms->n_terms, .terms = terms};
    for (uint32_t i = 0; i < lora->n_terms; i++) {
        terms[i] = whole_terms->terms[i];
        if (first != NULL)
            terms[i].first = lower_adapter_weight(lowering, terms[i].first, first);
        if (second != NULL)
            terms[i].second = lower_adapter_weight(lowering, terms[i].second, second);
    }
    return lora;
}

// Whether A x is made in parts, of a source that is cut as the weight's K is.
static bool makes_hidden_parts(const struct lowering *lowering, const struct node *node)
{
    const struct lora *lora = node->attributes.lora;
    const struct tensor *x = node->sources[1];
    const struct part *part = x == NULL ? NULL : &lowering->sharding->values[x->index];
    bool parts = part != NULL && part->placement.kind == PLACED_SHARD && part->leaves[0].n != 0 &&
                 lowering->sharding->values[node->result->index].placement.kind == PLACED_REPLICATE;
    for (uint32_t i = 0; parts && i < lora->n_terms; i++)
        parts = lora->terms[i].first->segments_of != NULL && lora->terms[i].first->ne[0] == x->ne[0];
    return parts;
}

// Whether the terms belong to a product that was a partial sum, and come behind its collective.
static bool comes_after_sum(const struct lowering *lowering, const struct node *node)
{
    const struct tensor *product = node->sources[0];
    while (product->producer->op == OP_LORA)
        product = product->producer->sources[0];
    return node->sources[1] != NULL && lowering->sharding->values[product->index].placement.kind == PLACED_PARTIAL;
}

// A x as a value, of a whole x.
static struct tensor *whole_hidden(struct lowering *lowering, const struct node *node, struct tensor *x,
                                   struct tensor *route)
{
    const struct part part = {.placement = placement_replicate()};
    struct attributes a = {.lora = lower_terms(lowering, node->attributes.lora, &part, NULL)};
    if (a.lora == NULL)
        return NULL;
    return graph_apply(lowering->graph, OP_LORA_HIDDEN, &a, (struct tensor *[MAX_SOURCES]){x, route});
}

// A x of a cut x: each device's part of the sums, then the sums.
static struct tensor *lower_hidden(struct lowering *lowering, const struct node *node, struct tensor *route)
{
    const struct tensor *x = node->sources[1];
    struct part part = lowering->sharding->values[x->index], sums = part;
    struct leaves leaves = part.leaves[lowering->rank];
    struct tensor *hidden = NULL;
    struct collective like = {.root = -1, .adapters = true};
    sums.placement = placement_partial();
    like.rows = node->sources[2] != NULL ? ROWS_PAIRS : x->rows;
    like.per_row = node->sources[2] != NULL ? node->sources[2]->producer->attributes.routing.n_used : 0;
    for (uint32_t i = 0; i < node->attributes.lora->n_terms; i++)
        like.width += (node->attributes.lora->terms[i].first->ne[1] + 15) / 16 * 16;
    if (leaves.first < leaves.end) {
        struct attributes a = {.lora = lower_terms(lowering, node->attributes.lora, &part, NULL), .leaves = leaves};
        if (a.lora != NULL)
            hidden = graph_apply(lowering->graph, OP_LORA_HIDDEN, &a,
                                 (struct tensor *[MAX_SOURCES]){lowering->values[x->index].part, route});
    }
    return collect(lowering, hidden, &sums, &like);
}

static void lower_lora(struct lowering *lowering, const struct node *node)
{
    const struct part *part = &lowering->sharding->values[node->result->index];
    struct lowered *result = &lowering->values[node->result->index];
    const struct part whole_part = {.placement = placement_replicate()};
    struct part first = whole_part, second = whole_part;
    struct attributes attributes = node->attributes;
    struct tensor *sources[MAX_SOURCES] = {0};
    bool after = comes_after_sum(lowering, node), parts = after && makes_hidden_parts(lowering, node);
    for (uint32_t i = 0; i < node->n_sources; i++) {
        if (!(parts && i == 1))
            sources[i] = lower_source(lowering, node, i);
    }
    if (parts)
        sources[4] = lower_hidden(lowering, node, sources[2]);
    else if (after)
        sources[4] = whole_hidden(lowering, node, sources[1], sources[2]);
    if (after)
        sources[1] = NULL;
    if (has_nothing(lowering, node))
        return;
    if (part->placement.kind == PLACED_SHARD) {
        const struct tensor *matrix = attributes.lora->terms[0].second;
        bool heads = node->sources[2] == NULL && matrix->ne[2] > 1;
        second = *part;
        second.placement = placement_shard(heads ? 2 : 1);
        for (uint32_t d = 0; heads && d < n_devices(lowering); d++)
            second.ranges[d] =
                (struct row_range){part->ranges[d].begin / matrix->ne[1], part->ranges[d].end / matrix->ne[1]};
        first = heads ? second : whole_part;
    }
    attributes.lora = lower_terms(lowering, attributes.lora, after ? NULL : &first, &second);
    if (attributes.lora == NULL)
        return;
    result->part = graph_apply(lowering->graph, OP_LORA, &attributes, sources);
    if (part->placement.kind == PLACED_REPLICATE)
        result->whole = result->part;
}

static void lower_node(struct lowering *lowering, const struct node *node)
{
    const struct sharding *sharding = lowering->sharding;
    const struct part *part = &sharding->values[node->result->index];
    struct lowered *result = &lowering->values[node->result->index];
    bool apart = sharding->apart[node->result->index];
    struct tensor *sources[MAX_SOURCES] = {0};
    // Sources are fetched on all devices, as there may be collectives for it, even where this one needs none.
    for (uint32_t i = 0; i < node->n_sources && !(apart && i >= 4); i++)
        sources[i] = lower_source(lowering, node, i);
    struct tensor *made = NULL;
    if (!has_nothing(lowering, node)) {
        struct attributes attributes = lower_attributes(lowering, node);
        made = graph_apply(lowering->graph, node->op, &attributes, sources);
    }
    result->part = made;
    if (part->placement.kind == PLACED_REPLICATE)
        result->whole = made;
    if (apart)
        result->whole = lower_apart(lowering, node);
}

// Each layer of the KV cache with the heads that this device's query heads need; none where it has no query head.
static void lower_kv_layers(struct lowering *lowering)
{
    const struct graph *graph = lowering->sharding->graph;
    for (size_t i = 0; i < graph->n_kv_layers; i++) {
        struct kv_layer layer = graph->kv_layers[i];
        for (size_t n = 0; n < graph->n_nodes; n++) {
            const struct node *node = graph->nodes[n];
            if (node->op != OP_ATTENTION || node->attributes.layer != i)
                continue;
            struct attributes attributes = lower_attributes(lowering, node);
            struct part keys = sharding_need(lowering->sharding, node, 1);
            bool cut = keys.placement.kind == PLACED_SHARD;
            layer.first_head = cut ? (uint32_t)(keys.ranges[lowering->rank].begin / layer.k_dim) : 0;
            layer.n_head = has_nothing(lowering, node) ? 0 : attributes.n_kv_head;
        }
        graph_kv_layer(lowering->graph, layer);
    }
}

enum status shard_graph(const struct sharding *sharding, uint32_t rank, struct graph *local, struct error *error)
{
    const struct graph *graph = sharding->graph;
    struct lowering lowering = {.sharding = sharding, .rank = rank, .graph = local};
    lowering.values = calloc(graph->n_values + 1, sizeof(*lowering.values));
    if (lowering.values == NULL)
        return error_memory(error, "the mesh's plan");
    lower_kv_layers(&lowering);
    for (size_t i = 0; i < graph->n_nodes && local->error.status == STATUS_OK; i++)
        (graph->nodes[i]->op == OP_LORA ? lower_lora : lower_node)(&lowering, graph->nodes[i]);
    const struct tensor *output = graph->output;
    if (local->error.status == STATUS_OK) {
        bool whole = sharding->values[output->index].placement.kind == PLACED_REPLICATE;
        local->output = whole ? lowering.values[output->index].whole : collect_value(&lowering, output, 0);
    }
    free(lowering.values);
    if (local->error.status == STATUS_OK)
        return STATUS_OK;
    if (error != NULL)
        *error = local->error;
    return local->error.status;
}

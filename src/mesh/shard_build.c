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

// What all devices have of a value becomes the value. root: who wants it; -1: all.
static struct tensor *collect(struct lowering *lowering, const struct tensor *value, int root)
{
    const struct part *part = &lowering->sharding->values[value->index];
    struct collective *c = arena_alloc(&lowering->graph->arena, sizeof(*c));
    if (c == NULL) {
        error_memory(&lowering->graph->error, "the mesh's plan");
        return NULL;
    }
    bool partial = part->placement.kind == PLACED_PARTIAL;
    *c = (struct collective){
        .kind = !partial     ? COLLECTIVE_CONCAT
                : part->pick ? COLLECTIVE_PICK
                             : COLLECTIVE_SUM,
        .n_devices = n_devices(lowering),
        .root = root,
        .width = value->ne[0],
        .rows = value->rows,
        .per_row = value->per_row,
    };
    memcpy(c->leaves, part->leaves, sizeof(c->leaves));
    memcpy(c->ranges, part->ranges, sizeof(c->ranges));
    return graph_collective(lowering->graph, lowering->values[value->index].part, c);
}

static struct tensor *whole(struct lowering *lowering, const struct tensor *value)
{
    struct lowered *lowered = &lowering->values[value->index];
    if (lowered->whole == NULL)
        lowered->whole = collect(lowering, value, -1);
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
        struct collective *c = arena_alloc(&lowering->graph->arena, sizeof(*c));
        if (c == NULL) {
            error_memory(&lowering->graph->error, "the mesh's plan");
            return NULL;
        }
        *c = (struct collective){.kind = COLLECTIVE_SUM,
                                 .n_devices = n_devices(lowering),
                                 .root = -1,
                                 .width = weight->ne[1],
                                 .rows = node->result->rows};
        memcpy(c->leaves, part->leaves, sizeof(c->leaves));
        product = graph_collective(lowering->graph, product, c);
    }
    struct tensor *y = whole(lowering, node->result);
    return graph_add_scaled(lowering->graph, y, product, gate == NULL ? NULL : fetch(lowering, gate, &need));
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
        lower_node(&lowering, graph->nodes[i]);
    const struct tensor *output = graph->output;
    if (local->error.status == STATUS_OK) {
        bool whole = sharding->values[output->index].placement.kind == PLACED_REPLICATE;
        local->output = whole ? lowering.values[output->index].whole : collect(&lowering, output, 0);
    }
    free(lowering.values);
    if (local->error.status == STATUS_OK)
        return STATUS_OK;
    if (error != NULL)
        *error = local->error;
    return local->error.status;
}

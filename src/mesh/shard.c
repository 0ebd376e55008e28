// Inferring placements: which products are cut, and what that makes of everything between them.
#include "mesh/shard.h"

#include "tensor/op.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT_ROWS = 16 }; // vocabulary rows are cut between groups of this many: panels of the CPU

// What was decided on the way of one attempt, so that it can be taken back.
struct attempt {
    struct sharding *sharding;
    struct part **decided;
    size_t n, capacity;
    bool failed_memory;
};

static bool is_shard(const struct part *part)
{
    return part->placement.kind == PLACED_SHARD;
}

static bool same_ranges(const struct sharding *sharding, const struct part *a, const struct part *b)
{
    return memcmp(a->ranges, b->ranges, sharding->split.n_devices * sizeof(a->ranges[0])) == 0;
}

static bool is_weight(const struct tensor *tensor)
{
    return tensor->rows == ROWS_NONE;
}

struct leaves split_leaves(const struct mesh_split *split, uint32_t rank, uint32_t n)
{
    return (struct leaves){.n = (uint8_t)n,
                           .first = (uint8_t)((split->eighth[rank] * n + 4) / 8),
                           .end = (uint8_t)((split->eighth[rank + 1] * n + 4) / 8)};
}

// ---- what a node needs ----

// The placements a node's sources have as far as they are decided. whole: values are taken as whole.
static void known_placements(const struct sharding *sharding, const struct node *node, bool whole,
                             struct placement have[MAX_SOURCES])
{
    for (uint32_t i = 0; i < node->n_sources; i++) {
        const struct tensor *source = node->sources[i];
        have[i] = placement_replicate();
        if (source != NULL && is_weight(source))
            have[i] = sharding->weights[source->index].placement;
        else if (source != NULL && !whole)
            have[i] = sharding->values[source->index].placement;
    }
}

// Which elements of dimension dim of source `index` make each device's of the result; false: not whole ones.
static bool map_ranges(const struct sharding *sharding, const struct node *node, uint32_t index, uint32_t dim,
                       const struct part *result, struct part *part)
{
    const struct op_desc *desc = op_get(node->op);
    size_t of = node->sources[index]->ne[dim], n = node->result->ne[0];
    uint32_t head_dim = index == 0 ? node->attributes.head_dim : 0;
    *part = (struct part){.placement = placement_shard(dim)};
    for (uint32_t d = 0; d < sharding->split.n_devices; d++) {
        struct row_range range = result->ranges[d];
        if (desc->range != NULL) { // of heads of v_dim
            if (range.begin % node->attributes.v_dim != 0 || range.end % node->attributes.v_dim != 0)
                return false;
            part->ranges[d] = desc->range(node, index, range);
            continue;
        }
        if (range.begin * of % n != 0 || range.end * of % n != 0)
            return false;
        part->ranges[d] = (struct row_range){range.begin * of / n, range.end * of / n};
        if (head_dim != 0 && (part->ranges[d].begin % head_dim != 0 || part->ranges[d].end % head_dim != 0))
            return false;
    }
    return true;
}

// Whether every device that has something of an attention's keys or values needs all of them: one KV head for all query
// heads. They are then made on every device.
static bool all_need_all(const struct sharding *sharding, const struct node *node, uint32_t index,
                         const struct part *part)
{
    if (node->op != OP_ATTENTION || (index != 1 && index != 2))
        return false;
    for (uint32_t d = 0; d < sharding->split.n_devices; d++) {
        const struct row_range *range = &part->ranges[d];
        if (range->begin != range->end && (range->begin != 0 || range->end != node->sources[index]->ne[0]))
            return false;
    }
    return true;
}

// A node's placements where its result is a shard: what its sources then must be, with its weight cut along the
// dimension that gives such a result. False: its result can't be a shard.
static bool shard_rule(const struct node *node, struct placement need[MAX_SOURCES])
{
    const struct op_desc *desc = op_get(node->op);
    for (uint32_t dim = 3; dim-- > 0;) {
        struct placement have[MAX_SOURCES], result;
        bool cuts = false; // whether a weight has that dimension
        for (uint32_t i = 0; i < node->n_sources; i++) {
            const struct tensor *source = node->sources[i];
            bool weight = source != NULL && is_weight(source);
            have[i] = weight ? placement_shard(dim < source->n_dims ? dim : 0) : placement_shard(0);
            cuts = cuts || (weight && dim < source->n_dims);
        }
        if (!cuts && dim > 0)
            continue;
        op_place(desc, node, have, need, &result);
        if (result.kind == PLACED_SHARD && result.dim == 0)
            return true;
    }
    return false;
}

struct part sharding_need(const struct sharding *sharding, const struct node *node, uint32_t index)
{
    const struct part *result = &sharding->values[node->result->index];
    const struct tensor *source = node->sources[index];
    struct placement have[MAX_SOURCES], need[MAX_SOURCES], unused;
    struct part part = {.placement = placement_replicate()};
    if (result->placement.kind == PLACED_SHARD && shard_rule(node, need)) {
        if (need[index].kind == PLACED_SHARD && map_ranges(sharding, node, index, need[index].dim, result, &part) &&
            !all_need_all(sharding, node, index, &part))
            return part;
        return (struct part){.placement = placement_replicate()};
    }
    if (result->placement.kind != PLACED_PARTIAL)
        return part;
    known_placements(sharding, node, true, have);
    op_place(op_get(node->op), node, have, need, &unused);
    if (is_weight(source))
        return sharding->weights[source->index];
    if (need[index].kind == PLACED_SHARD) // as the weight that contracts it
        memcpy(part.ranges, sharding->weights[node->sources[index - 1]->index].ranges, sizeof(part.ranges));
    part.placement = need[index];
    return part;
}

// ---- attempts ----

static void decide(struct attempt *attempt, struct part *part, const struct part *as)
{
    if (attempt->n == attempt->capacity) {
        size_t capacity = attempt->capacity == 0 ? 64 : 2 * attempt->capacity;
        struct part **grown = realloc(attempt->decided, capacity * sizeof(*grown));
        if (grown == NULL) {
            attempt->failed_memory = true;
            return;
        }
        attempt->decided = grown;
        attempt->capacity = capacity;
    }
    attempt->decided[attempt->n++] = part;
    *part = *as;
}

static void take_back(struct attempt *attempt, size_t n)
{
    while (attempt->n > n)
        *attempt->decided[--attempt->n] = (struct part){.placement = placement_replicate()};
}

static bool cut_weight(struct attempt *attempt, const struct tensor *weight, const struct part *part)
{
    struct part *known = &attempt->sharding->weights[weight->index];
    if (is_shard(known))
        return placement_equal(known->placement, part->placement) && same_ranges(attempt->sharding, known, part);
    decide(attempt, known, part);
    return !attempt->failed_memory;
}

static bool cut_value(struct attempt *attempt, const struct tensor *value, const struct part *part);

// A value that must be whole where it is made, but of which a device then takes a part: what it is made of may be cut
// even so, and gathered (norms over all heads).
static void cut_behind(struct attempt *attempt, const struct tensor *value, const struct part *part)
{
    const struct node *node = value->producer;
    struct placement need[MAX_SOURCES];
    struct part source;
    bool keeps = shard_rule(node, need) && need[0].kind == PLACED_SHARD;
    if (is_weight(node->sources[0]) || (!keeps && node->op != OP_RMS_NORM) ||
        !map_ranges(attempt->sharding, node, 0, 0, part, &source))
        return;
    size_t before = attempt->n;
    if (keeps)
        cut_behind(attempt, node->sources[0], &source);
    else if (!cut_value(attempt, node->sources[0], &source))
        take_back(attempt, before);
}

// One source of a node whose result is to be `result`.
static bool cut_source(struct attempt *attempt, const struct node *node, uint32_t index, struct placement need,
                       const struct part *result)
{
    const struct tensor *source = node->sources[index];
    struct part part;
    if (source == NULL || need.kind != PLACED_SHARD)
        return true;
    if (!map_ranges(attempt->sharding, node, index, need.dim, result, &part))
        return false;
    if (is_weight(source))
        return cut_weight(attempt, source, &part);
    if (all_need_all(attempt->sharding, node, index, &part))
        return true;
    size_t before = attempt->n;
    if (cut_value(attempt, source, &part))
        return true;
    take_back(attempt, before);
    if (node->op != OP_ATTENTION)
        return false;
    cut_behind(attempt, source, &part); // else every device makes all heads and takes its own
    return true;
}

// Whether a value can be made as this shard; decides what that takes, of which nothing may stay where it is false.
static bool cut_value(struct attempt *attempt, const struct tensor *value, const struct part *part)
{
    struct part *known = &attempt->sharding->values[value->index];
    const struct node *node = value->producer;
    struct placement need[MAX_SOURCES];
    if (is_shard(known))
        return same_ranges(attempt->sharding, known, part);
    if (known->placement.kind == PLACED_PARTIAL || !shard_rule(node, need))
        return false;
    decide(attempt, known, part);
    for (uint32_t i = 0; i < node->n_sources; i++) {
        if (attempt->failed_memory || !cut_source(attempt, node, i, need[i], part))
            return false;
    }
    return true;
}

// ---- where it begins ----

// A weight along K, for the devices' leaves of its sum.
static struct part cut_along_k(const struct sharding *sharding, const struct tensor *weight, uint32_t unit)
{
    struct part part = {.placement = placement_shard(0)};
    struct segments segments;
    segments_of_product(&segments, weight->dtype, weight->ne[0], unit);
    for (uint32_t d = 0; d < sharding->split.n_devices; d++) {
        struct leaves leaves = split_leaves(&sharding->split, d, segments.n);
        size_t begin = (size_t)segments.border[leaves.first] * segments.grain;
        size_t end = (size_t)segments.border[leaves.end] * segments.grain;
        part.leaves[d] = leaves;
        part.ranges[d] = (struct row_range){begin < weight->ne[0] ? begin : weight->ne[0],
                                            end < weight->ne[0] ? end : weight->ne[0]};
    }
    return part;
}

// Rows of the vocabulary.
static struct part cut_rows(const struct sharding *sharding, size_t n)
{
    struct part part = {.placement = placement_shard(1)};
    size_t n_units = (n + UNIT_ROWS - 1) / UNIT_ROWS;
    for (uint32_t d = 0; d < sharding->split.n_devices; d++) {
        size_t begin = n_units * sharding->split.eighth[d] / 8 * UNIT_ROWS;
        size_t end = n_units * sharding->split.eighth[d + 1] / 8 * UNIT_ROWS;
        part.ranges[d] = (struct row_range){begin < n ? begin : n, end < n ? end : n};
    }
    return part;
}

// A product's weight along K and its source, together or not at all.
static bool cut_product(struct attempt *attempt, const struct tensor *weight, const struct tensor *source,
                        uint32_t unit)
{
    struct part along_k = cut_along_k(attempt->sharding, weight, unit), part = along_k;
    size_t before = attempt->n;
    if (cut_weight(attempt, weight, &along_k) && cut_value(attempt, source, &part)) {
        struct part *value = &attempt->sharding->values[source->index];
        memcpy(value->leaves, along_k.leaves, sizeof(value->leaves));
        return true;
    }
    take_back(attempt, before);
    return false;
}

// Of an embedding each row is on one device; else the result is a sum of what the weight's leaves are.
static void make_partial(struct sharding *sharding, const struct node *node)
{
    struct part *result = &sharding->values[node->result->index];
    *result = sharding->weights[node->sources[0]->index];
    result->placement = placement_partial();
    result->pick = node->op == OP_EMBED;
    if (!result->pick)
        memset(result->ranges, 0, sizeof(result->ranges));
}

static void begin_at(struct attempt *attempt, const struct node *node)
{
    struct sharding *sharding = attempt->sharding;
    const struct tensor *weight = node->sources[0];
    if (node->op == OP_EMBED) {
        struct part part = cut_rows(sharding, weight->ne[1]);
        if (cut_weight(attempt, weight, &part))
            make_partial(sharding, node);
    } else if (node->op == OP_MATMUL || node->op == OP_MUL_MAT_ID_SUM) {
        const struct tensor *shared = node->op == OP_MATMUL ? NULL : node->sources[4];
        if (!cut_product(attempt, weight, node->sources[1], node->attributes.segment_unit))
            return;
        make_partial(sharding, node);
        if (shared != NULL &&
            (!cut_product(attempt, shared, node->sources[5], 0) ||
             sharding->weights[shared->index].leaves[0].n != sharding->weights[weight->index].leaves[0].n))
            sharding->apart[node->result->index] = true;
    }
}

// ---- all of it ----

enum status sharding_init(const struct graph *graph, const struct mesh_split *split, struct sharding *sharding,
                          struct error *error)
{
    *sharding = (struct sharding){.graph = graph, .split = *split};
    sharding->values = calloc(graph->n_values + 1, sizeof(*sharding->values));
    sharding->weights = calloc(graph->n_weights + 1, sizeof(*sharding->weights));
    sharding->apart = calloc(graph->n_values + 1, sizeof(*sharding->apart));
    if (sharding->values != NULL && sharding->weights != NULL && sharding->apart != NULL)
        return STATUS_OK;
    sharding_free(sharding);
    return error_memory(error, "the mesh's plan");
}

void sharding_settle(struct sharding *sharding)
{
    for (size_t i = 0; i < sharding->graph->n_nodes; i++) {
        const struct node *node = sharding->graph->nodes[i];
        struct part *part = &sharding->values[node->result->index];
        struct placement have[MAX_SOURCES], need[MAX_SOURCES], result;
        if (part->placement.kind != PLACED_REPLICATE || node->sources[0] == NULL || !is_weight(node->sources[0]))
            continue;
        known_placements(sharding, node, true, have);
        op_place(op_get(node->op), node, have, need, &result);
        if (result.kind == PLACED_SHARD) {
            *part = sharding->weights[node->sources[0]->index];
            part->placement = result;
        } else if (result.kind == PLACED_PARTIAL) {
            make_partial(sharding, node);
        }
    }
}

enum status sharding_create(const struct graph *graph, const struct mesh_split *split, struct sharding *sharding,
                            struct error *error)
{
    enum status status = sharding_init(graph, split, sharding, error);
    if (status != STATUS_OK)
        return status;
    struct attempt attempt = {.sharding = sharding};
    for (size_t i = 0; i < graph->n_nodes; i++) {
        attempt.n = 0; // what is behind us stays
        begin_at(&attempt, graph->nodes[i]);
    }
    struct part output = cut_rows(sharding, graph->output->ne[0]);
    output.placement = placement_shard(0);
    attempt.n = 0;
    if (!cut_value(&attempt, graph->output, &output))
        take_back(&attempt, 0);
    free(attempt.decided);
    if (attempt.failed_memory) {
        sharding_free(sharding);
        return error_memory(error, "the mesh's plan");
    }
    sharding_settle(sharding);
    return STATUS_OK;
}

void sharding_free(struct sharding *sharding)
{
    free(sharding->values);
    free(sharding->weights);
    free(sharding->apart);
    memset(sharding, 0, sizeof(*sharding));
}

// A mesh's plan as JSON: where every tensor lies, what the devices say to each other, and what each one takes and does.
#include "mesh/describe.h"

#include "tensor/op.h"

#include <stdlib.h>
#include <string.h>

// The layer that a tensor's name says, or -1.
static int layer_of(const struct tensor *tensor)
{
    return tensor != NULL && strncmp(tensor->name, "blk.", 4) == 0 ? (int)strtol(tensor->name + 4, NULL, 10) : -1;
}

static void append_layer(struct buffer *json, int layer)
{
    if (layer < 0)
        buffer_append_text(json, "{\"layer\": null");
    else
        buffer_append_format(json, "{\"layer\": %d", layer);
}

static void describe_ranges(const struct sharding *sharding, const struct part *part, struct buffer *json)
{
    for (uint32_t d = 0; d < sharding->split.n_devices; d++)
        buffer_append_format(json, "%s[%zu, %zu]", d == 0 ? "" : ", ", part->ranges[d].begin, part->ranges[d].end);
}

static void describe_tensor(const struct sharding *sharding, const struct tensor *weight, struct buffer *json)
{
    const struct part *part = &sharding->weights[weight->index];
    append_layer(json, layer_of(weight));
    buffer_append_format(json, ", \"name\": \"%s\", \"dtype\": \"%s\", \"shape\": [", weight->name,
                         dtype_get(weight->dtype)->name);
    for (uint32_t i = 0; i < weight->n_dims; i++)
        buffer_append_format(json, "%s%zu", i == 0 ? "" : ", ", weight->ne[i]);
    if (part->placement.kind == PLACED_SHARD) {
        buffer_append_format(json, "], \"placement\": \"Shard(%u)\", \"ranges\": [", part->placement.dim);
        describe_ranges(sharding, part, json);
        buffer_append_text(json, "]}");
    } else {
        buffer_append_text(json, "], \"placement\": \"Replicate\"}");
    }
}

static const char *collective_name(const struct collective *c)
{
    return c->kind == COLLECTIVE_CONCAT ? c->root < 0 ? "all_gather" : "gather" : "all_reduce";
}

static const char *placement_before(const struct collective *c)
{
    return c->kind == COLLECTIVE_CONCAT ? "Shard(0)" : "Partial(sum)";
}

// Collectives are the same on all devices, and in the same order: those of device 0's graph.
static void describe_collectives(const struct graph *local, struct buffer *json)
{
    const char *comma = "";
    int layer = -1;
    for (size_t i = 0; i < local->n_nodes; i++) {
        const struct node *node = local->nodes[i];
        const struct collective *c = node->attributes.collective;
        for (uint32_t s = 0; s < node->n_sources; s++) {
            if (node->sources[s] != NULL && node->sources[s]->rows == ROWS_NONE)
                layer = layer_of(node->sources[s]);
        }
        if (c == NULL)
            continue;
        buffer_append_text(json, comma);
        append_layer(json, c->rows == ROWS_LOGITS ? -1 : layer);
        buffer_append_format(json,
                             ", \"kind\": \"%s\", \"from\": \"%s\", \"of\": \"%s\", \"width\": %zu, \"rows\": \"%s\", "
                             "\"adapters\": %s, \"row_bytes\": [",
                             collective_name(c), placement_before(c),
                             node->sources[0] == NULL ? "" : op_get(node->sources[0]->producer->op)->name, c->width,
                             c->rows == ROWS_LOGITS  ? "logits"
                             : c->rows == ROWS_PAIRS ? "pairs"
                                                     : "batch",
                             c->adapters ? "true" : "false");
        for (uint32_t d = 0; d < c->n_devices; d++)
            buffer_append_format(json, "%s%zu", d == 0 ? "" : ", ", collective_row_bytes(c, d));
        buffer_append_text(json, "]}");
        comma = ", ";
    }
}

static void describe_cost(const struct graph *local, size_t n_rows, const char *name, struct buffer *json)
{
    struct op_cost sum = {0};
    for (size_t i = 0; i < local->n_nodes; i++) {
        const struct node *node = local->nodes[i];
        struct op_cost one = {0};
        op_get(node->op)->cost(node, node->result->rows == ROWS_LOGITS ? 1 : n_rows, 0, &one);
        sum.int8_ops += one.int8_ops;
        sum.f32_ops += one.f32_ops;
        sum.bytes += one.bytes;
    }
    buffer_append_format(json, ", \"%s\": {\"rows\": %zu, \"int8_ops\": %.0f, \"f32_ops\": %.0f, \"bytes\": %.0f}",
                         name, n_rows, sum.int8_ops, sum.f32_ops, sum.bytes);
}

// What a device of this process takes.
static void describe_memory(const struct mesh_part_plan *part, struct buffer *json)
{
    struct plan_memory memory = {0};
    struct kv_kind_layout kinds[MAX_KV_KINDS];
    part->ops->plan_memory(part->plan, &memory);
    uint32_t n_kinds = part->ops->kv_kinds(part->plan, kinds);
    buffer_append_format(json, ", \"memory\": {\"weights\": %zu, \"work\": %zu, \"logits\": %zu, \"kv_pages\": [",
                         memory.weights, memory.work, memory.logits);
    for (uint32_t kind = 0; kind < n_kinds; kind++)
        buffer_append_format(json, "%s%zu", kind == 0 ? "" : ", ", kinds[kind].page_bytes);
    buffer_append_text(json, "]}");
}

static bool describe_device(const struct sharding *sharding, uint32_t d, const struct mesh_part_plan *part,
                            size_t n_rows, struct buffer *json)
{
    struct graph local;
    graph_init(&local);
    bool good = shard_graph(sharding, d, &local, NULL) == STATUS_OK;
    buffer_append_format(json, "%s{\"device\": %u, \"eighths\": [%u, %u]", d == 0 ? "" : ", ", d,
                         sharding->split.eighth[d], sharding->split.eighth[d + 1]);
    if (good) {
        describe_cost(&local, 1, "token", json);
        describe_cost(&local, n_rows, "batch", json);
    }
    if (part != NULL)
        describe_memory(part, json);
    buffer_append_text(json, "}");
    graph_free(&local);
    return good;
}

bool mesh_describe_placements(const struct mesh_description *mesh, struct buffer *json)
{
    struct sharding sharding;
    struct graph first;
    if (sharding_create(mesh->graph, mesh->split, &sharding, NULL) != STATUS_OK)
        return false;
    bool good = true;
    buffer_append_text(json, "{\"devices\": [");
    for (uint32_t d = 0; d < mesh->split->n_devices && good; d++) {
        bool local = d >= mesh->first_rank && d < mesh->first_rank + mesh->n_local;
        good = describe_device(&sharding, d, local ? &mesh->local[d - mesh->first_rank] : NULL, mesh->n_rows, json);
    }
    buffer_append_text(json, "], \"one\": {\"devices\": 1");
    describe_cost(mesh->graph, 1, "token", json);
    describe_cost(mesh->graph, mesh->n_rows, "batch", json);
    buffer_append_text(json, "}, \"tensors\": [");
    for (size_t i = 0; i < mesh->graph->n_weights; i++) {
        buffer_append_text(json, i == 0 ? "" : ", ");
        describe_tensor(&sharding, mesh->graph->weights[i], json);
    }
    buffer_append_text(json, "], \"collectives\": [");
    graph_init(&first);
    good = good && shard_graph(&sharding, 0, &first, NULL) == STATUS_OK;
    if (good)
        describe_collectives(&first, json);
    buffer_append_text(json, "]}");
    graph_free(&first);
    sharding_free(&sharding);
    return good && !json->failed;
}

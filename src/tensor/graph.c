// Building graphs: nodes in order, shapes inferred as they are added.
#include "tensor/graph.h"

#include "base/buffer.h"
#include "tensor/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *precision_name(enum precision precision)
{
    static const char *const names[] = {[PRECISION_F32] = "f32", [PRECISION_F16] = "f16", [PRECISION_Q8] = "q8"};
    return names[precision];
}

void graph_init(struct graph *graph)
{
    memset(graph, 0, sizeof(*graph));
    arena_init(&graph->arena, 0);
}

void graph_free(struct graph *graph)
{
    free(graph->nodes);
    free(graph->weights);
    free(graph->kv_layers);
    arena_free(&graph->arena);
    memset(graph, 0, sizeof(*graph));
}

static void *fail_memory(struct graph *graph)
{
    error_memory(&graph->error, "the graph");
    return NULL;
}

struct tensor *graph_weight(struct graph *graph, const char *name, enum dtype dtype, uint32_t n_dims, const size_t *ne)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    for (size_t i = 0; i < graph->n_weights; i++) { // tied tensors are asked for twice
        if (strcmp(graph->weights[i]->name, name) == 0)
            return graph->weights[i];
    }
    struct tensor *tensor = arena_alloc(&graph->arena, sizeof(*tensor));
    char *copy = arena_copy_text(&graph->arena, name, strlen(name));
    if (tensor == NULL || copy == NULL ||
        !array_grow((void **)&graph->weights, &graph->weights_capacity, graph->n_weights + 1, sizeof(*graph->weights)))
        return fail_memory(graph);
    *tensor = (struct tensor){.name = copy, .dtype = dtype, .n_dims = n_dims, .rows = ROWS_NONE};
    for (uint32_t i = 0; i < 4; i++)
        tensor->ne[i] = i < n_dims ? ne[i] : 1;
    tensor->index = (uint32_t)graph->n_weights;
    graph->weights[graph->n_weights++] = tensor;
    return tensor;
}

struct tensor *graph_apply(struct graph *graph, enum op op, const struct attributes *attributes, struct tensor *a,
                           struct tensor *b, struct tensor *c)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    const struct op_desc *desc = op_get(op);
    struct tensor *sources[MAX_SOURCES] = {a, b, c};
    struct node *node = arena_alloc(&graph->arena, sizeof(*node));
    struct tensor *result = arena_alloc(&graph->arena, sizeof(*result));
    char name[32];
    int length = snprintf(name, sizeof(name), "%s.%zu", desc->name, graph->n_nodes);
    char *copy = arena_copy_text(&graph->arena, name, (size_t)length);
    if (node == NULL || result == NULL || copy == NULL ||
        !array_grow((void **)&graph->nodes, &graph->nodes_capacity, graph->n_nodes + 1, sizeof(*graph->nodes)))
        return fail_memory(graph);
    node->op = op;
    node->n_sources = desc->n_sources;
    memcpy(node->sources, sources, sizeof(sources));
    if (attributes != NULL)
        node->attributes = *attributes;
    *result = (struct tensor){.name = copy, .dtype = DTYPE_F32, .n_dims = 1, .ne = {0, 1, 1, 1}, .producer = node};
    node->result = result;
    if (desc->infer(node, result, &graph->error) != STATUS_OK)
        return NULL;
    for (uint32_t i = 0; i < node->n_sources; i++)
        sources[i]->n_uses++;
    result->index = (uint32_t)graph->n_values++;
    graph->nodes[graph->n_nodes++] = node;
    return result;
}

struct tensor *graph_embed(struct graph *graph, struct tensor *weight)
{
    return graph_apply(graph, OP_EMBED, NULL, weight, NULL, NULL);
}

struct tensor *graph_rms_norm(struct graph *graph, struct tensor *x, struct tensor *weight, float epsilon,
                              uint32_t head_dim)
{
    struct attributes attributes = {.epsilon = epsilon, .head_dim = head_dim};
    return graph_apply(graph, OP_RMS_NORM, &attributes, x, weight, NULL);
}

// The precision that a weight asks of its source: F16 weights take F16, block formats Q8, F32 and BF16 weights F32.
static enum precision source_precision(const struct graph *graph, enum dtype weight)
{
    if (graph->force_f32 || weight == DTYPE_F32 || weight == DTYPE_BF16)
        return PRECISION_F32;
    return weight == DTYPE_F16 ? PRECISION_F16 : PRECISION_Q8;
}

struct tensor *graph_matmul(struct graph *graph, struct tensor *weight, struct tensor *x, uint32_t segment_unit)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    struct attributes attributes = {.precision = source_precision(graph, weight->dtype), .segment_unit = segment_unit};
    return graph_apply(graph, OP_MATMUL, &attributes, weight, x, NULL);
}

struct tensor *graph_add(struct graph *graph, struct tensor *a, struct tensor *b)
{
    return graph_apply(graph, OP_ADD, NULL, a, b, NULL);
}

struct tensor *graph_scale(struct graph *graph, struct tensor *x, float factor)
{
    struct attributes attributes = {.factor = factor};
    return graph_apply(graph, OP_SCALE, &attributes, x, NULL, NULL);
}

struct tensor *graph_glu(struct graph *graph, struct tensor *gate, struct tensor *up, enum activation activation)
{
    struct attributes attributes = {.activation = activation};
    return graph_apply(graph, OP_GLU, &attributes, gate, up, NULL);
}

struct tensor *graph_rope(struct graph *graph, struct tensor *x, uint32_t head_dim, uint32_t n_rot, uint32_t rope,
                          bool neox)
{
    struct attributes attributes = {.head_dim = head_dim, .n_rot = n_rot, .rope = rope, .neox = neox};
    return graph_apply(graph, OP_ROPE, &attributes, x, NULL, NULL);
}

uint32_t graph_kv_layer(struct graph *graph, struct kv_layer layer)
{
    if (graph->error.status != STATUS_OK)
        return 0;
    if (!array_grow((void **)&graph->kv_layers, &graph->kv_layers_capacity, graph->n_kv_layers + 1, sizeof(layer))) {
        fail_memory(graph);
        return 0;
    }
    graph->kv_layers[graph->n_kv_layers] = layer;
    return (uint32_t)graph->n_kv_layers++;
}

struct tensor *graph_attention(struct graph *graph, struct tensor *q, struct tensor *k, struct tensor *v,
                               const struct attributes *attributes)
{
    return graph_apply(graph, OP_ATTENTION, attributes, q, k, v);
}

struct tensor *graph_select_rows(struct graph *graph, struct tensor *x)
{
    return graph_apply(graph, OP_SELECT_ROWS, NULL, x, NULL, NULL);
}

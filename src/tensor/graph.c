// Building graphs: nodes in order, shapes inferred as they are added.
#include "tensor/graph.h"

#include "base/buffer.h"
#include "tensor/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *precision_name(enum precision precision)
{
    static const char *const names[] = {
        [PRECISION_F32] = "f32", [PRECISION_BF16] = "bf16", [PRECISION_F16] = "f16", [PRECISION_Q8] = "q8"};
    return names[precision];
}

const char *activation_name(enum activation activation)
{
    static const char *const names[] = {[ACTIVATION_SILU] = "swiglu",
                                        [ACTIVATION_GELU] = "geglu",
                                        [ACTIVATION_RELU] = "reglu",
                                        [ACTIVATION_SILU_CLAMPED] = "swiglu_clamped"};
    return names[activation];
}

size_t collective_row_bytes(const struct collective *c, uint32_t d)
{
    struct leaves subtrees[MAX_SUBTREES];
    size_t width = c->kind == COLLECTIVE_CONCAT ? c->ranges[d].end - c->ranges[d].begin : c->width, n_parts = 1;
    if (c->kind == COLLECTIVE_SUM)
        n_parts = leaves_subtrees(c->leaves[d], subtrees);
    if (c->kind == COLLECTIVE_PICK && c->ranges[d].begin == c->ranges[d].end)
        n_parts = 0;
    return n_parts * ((width + 15) / 16 * 16) * sizeof(float);
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
    free(graph->adapter_weights);
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
    return graph_weight_part(graph, name, dtype, n_dims, ne, 0, n_dims > 1 ? ne[1] : 1);
}

struct tensor *graph_weight_part(struct graph *graph, const char *name, enum dtype dtype, uint32_t n_dims,
                                 const size_t *ne, size_t first_row, size_t rows_in_file)
{
    struct tensor like = {.name = name,
                          .dtype = dtype,
                          .n_dims = n_dims,
                          .rows = ROWS_NONE,
                          .first_row = first_row,
                          .rows_in_file = rows_in_file};
    for (uint32_t i = 0; i < 4; i++)
        like.ne[i] = i < n_dims ? ne[i] : 1;
    return graph_weight_like(graph, &like);
}

static bool same_part(const struct tensor *a, const struct tensor *b)
{
    return a->first_row == b->first_row && a->first_column == b->first_column && a->first_matrix == b->first_matrix &&
           memcmp(a->ne, b->ne, sizeof(a->ne)) == 0 && strcmp(a->name, b->name) == 0;
}

struct tensor *graph_weight_like(struct graph *graph, const struct tensor *like)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    for (size_t i = 0; i < graph->n_weights; i++) { // tied tensors are asked for twice
        if (same_part(graph->weights[i], like))
            return graph->weights[i];
    }
    struct tensor *tensor = arena_alloc(&graph->arena, sizeof(*tensor));
    char *copy = arena_copy_text(&graph->arena, like->name, strlen(like->name));
    if (tensor == NULL || copy == NULL ||
        !array_grow((void **)&graph->weights, &graph->weights_capacity, graph->n_weights + 1, sizeof(*graph->weights)))
        return fail_memory(graph);
    *tensor = *like;
    tensor->name = copy;
    tensor->n_uses = 0;
    tensor->index = (uint32_t)graph->n_weights;
    graph->weights[graph->n_weights++] = tensor;
    return tensor;
}

struct tensor *graph_apply(struct graph *graph, enum op op, const struct attributes *attributes,
                           struct tensor *const *sources)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    const struct op_desc *desc = op_get(op);
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
    memcpy(node->sources, sources, desc->n_sources * sizeof(*sources));
    if (attributes != NULL)
        node->attributes = *attributes;
    *result = (struct tensor){.name = copy, .dtype = DTYPE_F32, .n_dims = 1, .ne = {0, 1, 1, 1}, .producer = node};
    node->result = result;
    if (desc->infer(node, result, &graph->error) != STATUS_OK)
        return NULL;
    for (uint32_t i = 0; i < node->n_sources; i++) {
        if (sources[i] != NULL)
            sources[i]->n_uses++;
    }
    result->index = (uint32_t)graph->n_values++;
    graph->nodes[graph->n_nodes++] = node;
    return result;
}

// The sources of a node, the optional ones NULL.
#define SOURCES(...) ((struct tensor *[MAX_SOURCES]){__VA_ARGS__})

struct tensor *graph_embed(struct graph *graph, struct tensor *weight)
{
    struct tensor *y = graph_apply(graph, OP_EMBED, NULL, SOURCES(weight));
    return graph_lora(graph, y, &(struct lora_place){.weight = weight});
}

struct tensor *graph_rms_norm(struct graph *graph, struct tensor *x, struct tensor *weight, float epsilon,
                              uint32_t head_dim)
{
    struct attributes attributes = {.epsilon = epsilon, .head_dim = head_dim};
    return graph_apply(graph, OP_RMS_NORM, &attributes, SOURCES(x, weight));
}

const char *tensor_kind(const char *name, size_t *length)
{
    if (strncmp(name, "blk.", 4) == 0) {
        const char *dot = strchr(name + 4, '.');
        name = dot == NULL ? name : dot + 1;
    }
    *length = strcspn(name, ".");
    return name;
}

// Whether the words of a kind begin a name: "ffn_down" that of "ffn_down_exps.weight", but not of "ffn_downward".
static bool begins(const char *name, const char *kind)
{
    size_t length = strlen(kind);
    return strncmp(name, kind, length) == 0 && (name[length] == '\0' || name[length] == '_' || name[length] == '.');
}

bool precision_rule_fits(const struct precision_rule *rule, const char *name)
{
    size_t length;
    const char *kind = tensor_kind(name, &length);
    bool rounds = rule->precision != PRECISION_F32 && rule->precision != PRECISION_COUNT;
    if (rounds && begins(kind, "ffn_gate_inp") && !begins(rule->kind, "ffn_gate_inp"))
        return false;
    return rule->kind[0] == '\0' || begins(kind, rule->kind);
}

enum precision precision_of_weight(enum dtype dtype)
{
    return dtype == DTYPE_F16                          ? PRECISION_F16
           : dtype == DTYPE_F32 || dtype == DTYPE_BF16 ? PRECISION_F32
                                                       : PRECISION_Q8;
}

static enum precision source_precision(const struct graph *graph, const struct tensor *weight)
{
    enum precision own = precision_of_weight(weight->dtype), precision = own;
    for (size_t i = 0; i < graph->n_rules; i++) {
        if (precision_rule_fits(&graph->rules[i], weight->name))
            precision = graph->rules[i].precision == PRECISION_COUNT ? own : graph->rules[i].precision;
    }
    return precision;
}

struct tensor *graph_matmul(struct graph *graph, struct tensor *weight, struct tensor *x, uint32_t segment_unit)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    struct attributes attributes = {.precision = source_precision(graph, weight), .segment_unit = segment_unit};
    struct tensor *y = graph_apply(graph, OP_MATMUL, &attributes, SOURCES(weight, x));
    return graph_lora(graph, y, &(struct lora_place){.weight = weight, .x = x});
}

struct tensor *graph_add(struct graph *graph, struct tensor *a, struct tensor *b)
{
    return graph_apply(graph, OP_ADD, NULL, SOURCES(a, b));
}

struct tensor *graph_scale(struct graph *graph, struct tensor *x, float factor)
{
    struct attributes attributes = {.factor = factor};
    return graph_apply(graph, OP_SCALE, &attributes, SOURCES(x));
}

struct tensor *graph_glu(struct graph *graph, struct tensor *gate, struct tensor *up, enum activation activation)
{
    struct attributes attributes = {.activation = activation};
    return graph_apply(graph, OP_GLU, &attributes, SOURCES(gate, up));
}

struct tensor *graph_unary(struct graph *graph, enum op op, struct tensor *x)
{
    return graph_apply(graph, op, NULL, SOURCES(x));
}

struct tensor *graph_rope(struct graph *graph, struct tensor *x, uint32_t head_dim, uint32_t n_rot, uint32_t rope,
                          bool neox)
{
    struct attributes attributes = {.head_dim = head_dim, .n_rot = n_rot, .rope = rope, .neox = neox};
    return graph_apply(graph, OP_ROPE, &attributes, SOURCES(x));
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
                               struct tensor *sinks, const struct attributes *attributes)
{
    return graph_apply(graph, OP_ATTENTION, attributes, SOURCES(q, k, v, sinks));
}

struct tensor *graph_select_rows(struct graph *graph, struct tensor *x)
{
    return graph_apply(graph, OP_SELECT_ROWS, NULL, SOURCES(x));
}

struct tensor *graph_collective(struct graph *graph, struct tensor *part, const struct collective *collective)
{
    struct attributes attributes = {.collective = collective};
    enum op op = collective->kind == COLLECTIVE_CONCAT ? OP_ALL_GATHER : OP_ALL_REDUCE;
    return graph_apply(graph, op, &attributes, SOURCES(part));
}

struct tensor *graph_add_scaled(struct graph *graph, struct tensor *y, struct tensor *x, struct tensor *scale)
{
    return graph_apply(graph, OP_ADD_SCALED, NULL, SOURCES(y, x, scale));
}

// ---- experts ----

struct tensor *graph_route(struct graph *graph, struct tensor *logits, struct tensor *bias,
                           const struct routing *routing, uint32_t layer)
{
    struct attributes attributes = {.routing = *routing, .layer_number = layer};
    return graph_apply(graph, OP_ROUTE, &attributes, SOURCES(logits, bias));
}

struct tensor *graph_mul_mat_id(struct graph *graph, struct tensor *weight, struct tensor *x, struct tensor *route,
                                struct tensor *scale, bool weighted)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    struct attributes attributes = {.precision = source_precision(graph, weight), .weighted = weighted};
    struct tensor *y = graph_apply(graph, OP_MUL_MAT_ID, &attributes, SOURCES(weight, x, route, scale));
    return graph_lora(graph, y, &(struct lora_place){.weight = weight, .x = x, .route = route, .weighted = weighted});
}

struct tensor *graph_add_id(struct graph *graph, struct tensor *x, struct tensor *bias, struct tensor *route)
{
    return graph_apply(graph, OP_ADD_ID, NULL, SOURCES(x, bias, route));
}

struct tensor *graph_mul_mat_id_sum(struct graph *graph, struct tensor *weight, struct tensor *x, struct tensor *route,
                                    struct tensor *scale, const struct shared_expert *shared, bool unweighted)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    struct attributes attributes = {.precision = source_precision(graph, weight), .unweighted = unweighted};
    struct shared_expert none = {0};
    if (shared == NULL)
        shared = &none;
    else
        attributes.shared_precision = source_precision(graph, shared->weight);
    struct tensor *y = graph_apply(graph, OP_MUL_MAT_ID_SUM, &attributes,
                                   SOURCES(weight, x, route, scale, shared->weight, shared->hidden, shared->gate));
    y = graph_lora(graph, y, &(struct lora_place){.weight = weight, .x = x, .route = route, .weighted = !unweighted});
    if (shared->weight != NULL)
        y = graph_lora(graph, y,
                       &(struct lora_place){.weight = shared->weight, .x = shared->hidden, .gate = shared->gate});
    return y;
}

struct tensor *graph_add_id_sum(struct graph *graph, struct tensor *y, struct tensor *bias, struct tensor *route,
                                bool unweighted)
{
    struct attributes attributes = {.unweighted = unweighted};
    return graph_apply(graph, OP_ADD_ID_SUM, &attributes, SOURCES(y, bias, route));
}

// ---- parts of heads ----

struct tensor *graph_slice(struct graph *graph, struct tensor *x, uint32_t head_dim, uint32_t begin, uint32_t width)
{
    struct attributes attributes = {.head_dim = head_dim, .begin = begin, .width = width};
    return graph_apply(graph, OP_SLICE, &attributes, SOURCES(x));
}

struct tensor *graph_concat(struct graph *graph, struct tensor *a, uint32_t head_dim, struct tensor *b, uint32_t width)
{
    struct attributes attributes = {.head_dim = head_dim, .width = width};
    return graph_apply(graph, OP_CONCAT, &attributes, SOURCES(a, b));
}

struct tensor *graph_matmul_heads(struct graph *graph, struct tensor *weight, struct tensor *x)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    struct attributes attributes = {.precision = source_precision(graph, weight)};
    struct tensor *y = graph_apply(graph, OP_MATMUL_HEADS, &attributes, SOURCES(weight, x));
    return graph_lora(graph, y, &(struct lora_place){.weight = weight, .x = x});
}

struct tensor *graph_position_scale(struct graph *graph, struct tensor *x, uint32_t head_dim, float scale,
                                    uint32_t length)
{
    struct attributes attributes = {.head_dim = head_dim, .temperature_scale = scale, .temperature_length = length};
    return graph_apply(graph, OP_POSITION_SCALE, &attributes, SOURCES(x));
}

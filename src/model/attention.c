// The attention block that most transformers share: grouped queries, optional biases and norms, rotation.
#include "model/model.h"

#include <math.h>

// A projection [n_embd] → [n], with its bias where the file has one (added later, so that q, k and v are one step).
struct projection {
    struct tensor *value, *bias;
};

// The rows of q, k and v: in one tensor each, or in attn_qkv, one behind the other.
struct widths {
    size_t q, k, v;
};

static struct projection project(struct builder *builder, struct tensor *x, const char *weight, const char *bias,
                                 uint32_t layer, size_t n)
{
    struct tensor *matrix = build_matrix(builder, weight, layer, builder->h->n_embd, n);
    return (struct projection){.value = graph_matmul(builder->graph, matrix, x, 0),
                               .bias = build_optional_vector(builder, bias, layer, n)};
}

static struct tensor *project_part(struct builder *builder, struct tensor *x, uint32_t layer, size_t n,
                                   size_t first_row, size_t rows)
{
    struct tensor *part =
        build_matrix_part(builder, "blk.%u.attn_qkv.weight", layer, builder->h->n_embd, n, first_row, rows);
    return graph_matmul(builder->graph, part, x, 0);
}

static struct tensor *with_bias(struct builder *builder, struct projection projection)
{
    return projection.bias == NULL ? projection.value : graph_add(builder->graph, projection.value, projection.bias);
}

static void project_all(struct builder *builder, uint32_t layer, struct tensor *x, const struct widths *n,
                        struct tensor **q, struct tensor **k, struct tensor **v)
{
    if (build_has_tensor(builder, "blk.%u.attn_qkv.weight", layer)) {
        size_t rows = n->q + n->k + n->v;
        *q = project_part(builder, x, layer, n->q, 0, rows);
        *k = project_part(builder, x, layer, n->k, n->q, rows);
        *v = project_part(builder, x, layer, n->v, n->q + n->k, rows);
        return;
    }
    struct projection pq = project(builder, x, "blk.%u.attn_q.weight", "blk.%u.attn_q.bias", layer, n->q);
    struct projection pk = project(builder, x, "blk.%u.attn_k.weight", "blk.%u.attn_k.bias", layer, n->k);
    struct projection pv = project(builder, x, "blk.%u.attn_v.weight", "blk.%u.attn_v.bias", layer, n->v);
    *q = with_bias(builder, pq);
    *k = with_bias(builder, pk);
    *v = with_bias(builder, pv);
}

static void normalize(struct builder *builder, uint32_t layer, const struct widths *n, enum head_norms norms,
                      struct tensor **q, struct tensor **k)
{
    const struct hyperparameters *h = builder->h;
    if (norms == HEAD_NORMS_NONE)
        return;
    bool each = norms == HEAD_NORMS_EACH;
    uint32_t width = each ? h->head_dim : 0; // 0: the whole row
    struct tensor *q_norm = build_vector(builder, "blk.%u.attn_q_norm.weight", layer, each ? h->head_dim : n->q);
    struct tensor *k_norm = build_vector(builder, "blk.%u.attn_k_norm.weight", layer, each ? h->head_dim : n->k);
    *q = graph_rms_norm(builder->graph, *q, q_norm, h->epsilon, width);
    *k = graph_rms_norm(builder->graph, *k, k_norm, h->epsilon, width);
}

static struct tensor *clamp(struct builder *builder, struct tensor *x, float bound)
{
    struct attributes attributes = {.low = -bound, .high = bound};
    return graph_apply(builder->graph, OP_CLAMP, &attributes, (struct tensor *[MAX_SOURCES]){x});
}

struct temperature build_temperature(struct builder *builder)
{
    struct temperature temperature = {.scale = build_f32(builder, "attention.temperature_scale", 0)};
    uint32_t original = build_u32(builder, "rope.scaling.original_context_length", 0);
    temperature.length = build_u32(builder, "attention.temperature_length", original);
    if (temperature.scale != 0 && temperature.length == 0)
        build_fail(builder, STATUS_INVALID,
                   "%s.attention.temperature_scale is given, but neither attention.temperature_length nor "
                   "rope.scaling.original_context_length",
                   builder->h->architecture);
    return temperature;
}

struct tensor *build_attention(struct builder *builder, uint32_t layer, struct tensor *x,
                               const struct attention_options *options)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    struct widths n = {.q = (size_t)h->n_head * h->head_dim,
                       .k = (size_t)h->n_kv_head * h->head_dim,
                       .v = (size_t)h->n_kv_head * h->v_dim};
    size_t n_o = (size_t)h->n_head * h->v_dim;

    struct tensor *q = NULL, *k = NULL, *v = NULL; // [n_head · head_dim, rows], [n_kv_head · head_dim or v_dim, rows]
    project_all(builder, layer, x, &n, &q, &k, &v);
    if (!options->norms_after_rope)
        normalize(builder, layer, &n, options->head_norms, &q, &k);
    if (options->clamp > 0) {
        q = clamp(builder, q, options->clamp);
        k = clamp(builder, k, options->clamp);
        v = clamp(builder, v, options->clamp);
    }
    if (!options->no_rope) {
        q = graph_rope(graph, q, h->head_dim, h->n_rot, options->rope, options->neox);
        k = graph_rope(graph, k, h->head_dim, h->n_rot, options->rope, options->neox);
    }
    if (options->norms_after_rope)
        normalize(builder, layer, &n, options->head_norms, &q, &k);

    if (options->temperature.scale != 0)
        q = graph_position_scale(graph, q, h->head_dim, options->temperature.scale, options->temperature.length);

    struct tensor *sinks = NULL;
    if (options->sinks)
        sinks = build_vector(builder, "blk.%u.attn_sinks.weight", layer, h->n_head);
    struct kv_layer cache = {
        .n_head = h->n_kv_head, .k_dim = h->head_dim, .v_dim = h->v_dim, .window = options->window};
    struct attributes attributes = {
        .layer = graph_kv_layer(graph, cache),
        .n_head = h->n_head,
        .n_kv_head = h->n_kv_head,
        .head_dim = h->head_dim,
        .v_dim = h->v_dim,
        .window = options->window,
        .score_scale = options->scale != 0 ? options->scale : (float)(1 / sqrt((double)h->head_dim)),
    };
    struct tensor *o = graph_attention(graph, q, k, v, sinks, &attributes); // [n_head · v_dim, rows]

    struct tensor *output = build_matrix(builder, "blk.%u.attn_output.weight", layer, n_o, h->n_embd);
    struct tensor *bias = build_optional_vector(builder, "blk.%u.attn_output.bias", layer, h->n_embd);
    o = graph_matmul(graph, output, o, h->v_dim); // segments are whole heads
    return bias == NULL ? o : graph_add(graph, o, bias);
}

bool build_layer_has_window(struct builder *builder, uint32_t layer, uint32_t period)
{
    const struct hyperparameters *h = builder->h;
    build_find_key(builder, "attention.sliding_window"); // is h->window
    const struct gguf_value *pattern = build_find_key(builder, "attention.sliding_window_pattern");
    if (h->window == 0)
        return false;
    if (pattern == NULL || pattern->type != GGUF_ARRAY) {
        period = build_u32(builder, "attention.sliding_window_pattern", period);
        return period == 0 || (layer + 1) % period != 0;
    }
    const struct gguf_value *array = NULL;
    struct error error = {0};
    if (gguf_get_integer_array(builder->gguf, pattern->key.text, true, &array, &error) != STATUS_OK)
        build_fail(builder, error.status, "%s", error.message);
    else if (array->count < h->n_layer)
        build_fail(builder, STATUS_INVALID, "%s has %llu elements, but block_count asks for %u: one a layer",
                   pattern->key.text, (unsigned long long)array->count, h->n_layer);
    else
        return gguf_array_integer(array, layer) != 0;
    return false;
}

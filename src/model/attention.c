// The attention block that most transformers share: grouped queries, optional biases and head norms, rotation.
#include "model/model.h"

#include <math.h>

// A projection [n_embd] → [n], with its bias where the file has one (added later, so that q, k and v are one step).
struct projection {
    struct tensor *value, *bias;
};

static struct projection project(struct builder *builder, struct tensor *x, const char *weight, const char *bias,
                                 uint32_t layer, size_t n)
{
    struct tensor *matrix = build_matrix(builder, weight, layer, builder->h->n_embd, n);
    return (struct projection){.value = graph_matmul(builder->graph, matrix, x, 0),
                               .bias = build_optional_vector(builder, bias, layer, n)};
}

static struct tensor *with_bias(struct builder *builder, struct projection projection)
{
    return projection.bias == NULL ? projection.value : graph_add(builder->graph, projection.value, projection.bias);
}

struct tensor *build_attention(struct builder *builder, uint32_t layer, struct tensor *x,
                               const struct attention_options *options)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    size_t n_q = (size_t)h->n_head * h->head_dim, n_k = (size_t)h->n_kv_head * h->head_dim;
    size_t n_v = (size_t)h->n_kv_head * h->v_dim, n_o = (size_t)h->n_head * h->v_dim;

    struct projection pq = project(builder, x, "blk.%u.attn_q.weight", "blk.%u.attn_q.bias", layer, n_q);
    struct projection pk = project(builder, x, "blk.%u.attn_k.weight", "blk.%u.attn_k.bias", layer, n_k);
    struct projection pv = project(builder, x, "blk.%u.attn_v.weight", "blk.%u.attn_v.bias", layer, n_v);
    struct tensor *q = with_bias(builder, pq); // [n_head · head_dim, rows]
    struct tensor *k = with_bias(builder, pk); // [n_kv_head · head_dim, rows]
    struct tensor *v = with_bias(builder, pv); // [n_kv_head · v_dim, rows]

    if (options->head_norms) {
        struct tensor *q_norm = build_vector(builder, "blk.%u.attn_q_norm.weight", layer, h->head_dim);
        struct tensor *k_norm = build_vector(builder, "blk.%u.attn_k_norm.weight", layer, h->head_dim);
        q = graph_rms_norm(graph, q, q_norm, h->epsilon, h->head_dim);
        k = graph_rms_norm(graph, k, k_norm, h->epsilon, h->head_dim);
    }
    q = graph_rope(graph, q, h->head_dim, h->n_rot, options->rope, options->neox);
    k = graph_rope(graph, k, h->head_dim, h->n_rot, options->rope, options->neox);

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
    struct tensor *o = graph_attention(graph, q, k, v, NULL, &attributes); // [n_head · v_dim, rows]

    struct tensor *output = build_matrix(builder, "blk.%u.attn_output.weight", layer, n_o, h->n_embd);
    struct tensor *bias = build_optional_vector(builder, "blk.%u.attn_output.bias", layer, h->n_embd);
    o = graph_matmul(graph, output, o, h->v_dim); // segments are whole heads
    return bias == NULL ? o : graph_add(graph, o, bias);
}

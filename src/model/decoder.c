// The decoder that Llama made common: pre-norm attention and a feed-forward block (or experts) in each layer, both
// added to the residual.
#include "model/model.h"

void build_decoder_options(struct builder *builder, struct decoder_options *options)
{
    float base = build_f32(builder, "rope.freq_base", 10000);
    float window_base = build_f32(builder, "rope.freq_base_swa", base);
    enum rope_use use = options->yarn_unrounded ? ROPE_SCALED_UNROUNDED : ROPE_SCALED;
    options->attention.rope = options->window_rope = build_rope(builder, base, use);
    if (builder->h->window != 0 && (window_base != base || options->window_unscaled))
        options->window_rope = build_rope(builder, window_base, options->window_unscaled ? ROPE_UNSCALED : use);
    options->attention.scale = build_f32(builder, "attention.scale", 0);
    if (options->attention.scale < 0)
        build_fail(builder, STATUS_INVALID, "%s.attention.scale is %g, but it must not be negative",
                   builder->h->architecture, (double)options->attention.scale);
}

static struct tensor *scaled(struct builder *builder, struct tensor *x, float scale)
{
    return scale == 0 || scale == 1 ? x : graph_scale(builder->graph, x, scale);
}

static struct tensor *build_any_attention(struct builder *builder, uint32_t layer, struct tensor *x,
                                          const struct decoder_options *options,
                                          const struct attention_options *windowed)
{
    if (options->mla != NULL)
        return build_mla(builder, layer, x, options->mla);
    bool has_window = build_layer_has_window(builder, layer, options->window_period);
    return build_attention(builder, layer, x, has_window ? windowed : &options->attention);
}

static struct tensor *build_feed_forward(struct builder *builder, uint32_t layer, struct tensor *x,
                                         const struct moe_options *moe)
{
    if (moe != NULL && build_layer_has_experts(builder, layer, moe))
        return build_moe(builder, layer, x, moe);
    return build_mlp(builder, layer, x, ACTIVATION_SILU);
}

void build_decoder(struct builder *builder, const struct decoder_options *options)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    const char *ffn_norm_name = options->ffn_norm != NULL ? options->ffn_norm : "blk.%u.ffn_norm.weight";
    struct attention_options windowed = options->attention;
    windowed.window = h->window;
    windowed.rope = options->window_rope;

    struct tensor *x = build_embedding(builder); // [n_embd, rows]
    x = scaled(builder, x, options->embedding_scale);
    for (uint32_t layer = 0; layer < h->n_layer && graph->error.status == STATUS_OK; layer++) {
        struct tensor *attn_norm = build_vector(builder, "blk.%u.attn_norm.weight", layer, h->n_embd);
        struct tensor *ffn_norm = build_vector(builder, ffn_norm_name, layer, h->n_embd);

        struct tensor *y = graph_rms_norm(graph, x, attn_norm, h->epsilon, 0);
        y = build_any_attention(builder, layer, y, options, &windowed);
        x = graph_add(graph, x, scaled(builder, y, options->residual_scale));

        y = graph_rms_norm(graph, x, ffn_norm, h->epsilon, 0);
        y = build_feed_forward(builder, layer, y, options->moe);
        x = graph_add(graph, x, scaled(builder, y, options->residual_scale));
    }
    build_head(builder, x);
    graph->output = scaled(builder, graph->output, options->logit_scale);
}

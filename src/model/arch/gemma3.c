// Gemma 3: five layers with a sliding window, then one that sees all; norms before and after each block; GELU.
// Source: Gemma Team, Gemma 3 Technical Report, 2025. The converter has added 1 to the norms' weights.
#include "model/model.h"

#include <math.h>

static void build(struct builder *builder)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    // Global layers turn slowly, and scaled where the file says so; window layers turn at their own base.
    struct attention_options global = {
        .rope = build_rope(builder, build_f32(builder, "rope.freq_base", 1000000), ROPE_SCALED),
        .neox = true,
        .head_norms = HEAD_NORMS_EACH,
    };
    if (h->n_layer == 62) // the 27B model scales by the width a head would have, 168, not by its head_dim of 128
        global.scale = (float)(1 / sqrt((double)h->n_embd / h->n_head));
    global.scale = build_f32(builder, "attention.scale", global.scale);
    struct attention_options local = global;
    local.rope = build_rope(builder, build_f32(builder, "rope.freq_base_swa", 10000), ROPE_UNSCALED);
    local.window = h->window;

    struct tensor *x = build_embedding(builder); // [n_embd, rows]
    x = graph_scale(graph, x, (float)sqrt((double)h->n_embd));
    for (uint32_t layer = 0; layer < h->n_layer && graph->error.status == STATUS_OK; layer++) {
        struct tensor *attn_norm = build_vector(builder, "blk.%u.attn_norm.weight", layer, h->n_embd);
        struct tensor *attn_post_norm = build_vector(builder, "blk.%u.post_attention_norm.weight", layer, h->n_embd);
        struct tensor *ffn_norm = build_vector(builder, "blk.%u.ffn_norm.weight", layer, h->n_embd);
        struct tensor *ffn_post_norm = build_vector(builder, "blk.%u.post_ffw_norm.weight", layer, h->n_embd);
        bool has_window = build_layer_has_window(builder, layer, 6);

        struct tensor *y = graph_rms_norm(graph, x, attn_norm, h->epsilon, 0);
        y = build_attention(builder, layer, y, has_window ? &local : &global);
        y = graph_rms_norm(graph, y, attn_post_norm, h->epsilon, 0);
        x = graph_add(graph, x, y);

        y = graph_rms_norm(graph, x, ffn_norm, h->epsilon, 0);
        y = build_mlp(builder, layer, y, ACTIVATION_GELU);
        y = graph_rms_norm(graph, y, ffn_post_norm, h->epsilon, 0);
        x = graph_add(graph, x, y);
    }
    build_head(builder, x);
}

const struct architecture arch_gemma3 = {.name = "gemma3", .build = build};

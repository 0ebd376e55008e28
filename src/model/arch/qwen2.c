// Qwen2 and Qwen2.5: Llama with biases on q, k and v.
// Source: Yang et al., Qwen2 Technical Report, 2024.
#include "model/model.h"

static void build(struct builder *builder)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    struct attention_options attention = {
        .rope = build_rope(builder, build_f32(builder, "rope.freq_base", 10000), true),
        .neox = true,
    };

    struct tensor *x = build_embedding(builder); // [n_embd, rows]
    for (uint32_t layer = 0; layer < h->n_layer && graph->error.status == STATUS_OK; layer++) {
        struct tensor *attn_norm = build_vector(builder, "blk.%u.attn_norm.weight", layer, h->n_embd);
        struct tensor *ffn_norm = build_vector(builder, "blk.%u.ffn_norm.weight", layer, h->n_embd);

        struct tensor *y = graph_rms_norm(graph, x, attn_norm, h->epsilon, 0);
        x = graph_add(graph, x, build_attention(builder, layer, y, &attention));

        y = graph_rms_norm(graph, x, ffn_norm, h->epsilon, 0);
        x = graph_add(graph, x, build_mlp(builder, layer, y, ACTIVATION_SILU));
    }
    build_head(builder, x);
}

const struct architecture arch_qwen2 = {.name = "qwen2", .build = build};

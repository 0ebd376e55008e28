// The decoder that Llama made common: pre-norm attention and a SwiGLU block in each layer, both added to the residual.
#include "model/model.h"

void build_decoder(struct builder *builder, const struct attention_options *attention)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    struct tensor *x = build_embedding(builder); // [n_embd, rows]
    for (uint32_t layer = 0; layer < h->n_layer && graph->error.status == STATUS_OK; layer++) {
        struct tensor *attn_norm = build_vector(builder, "blk.%u.attn_norm.weight", layer, h->n_embd);
        struct tensor *ffn_norm = build_vector(builder, "blk.%u.ffn_norm.weight", layer, h->n_embd);

        struct tensor *y = graph_rms_norm(graph, x, attn_norm, h->epsilon, 0);
        x = graph_add(graph, x, build_attention(builder, layer, y, attention));

        y = graph_rms_norm(graph, x, ffn_norm, h->epsilon, 0);
        x = graph_add(graph, x, build_mlp(builder, layer, y, ACTIVATION_SILU));
    }
    build_head(builder, x);
}

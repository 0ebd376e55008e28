// The gated feed-forward block.
#include "model/model.h"

struct tensor *build_mlp(struct builder *builder, uint32_t layer, struct tensor *x, enum activation activation)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    struct tensor *w_gate = build_matrix(builder, "blk.%u.ffn_gate.weight", layer, h->n_embd, h->n_ff);
    struct tensor *w_up = build_matrix(builder, "blk.%u.ffn_up.weight", layer, h->n_embd, h->n_ff);
    struct tensor *w_down = build_matrix(builder, "blk.%u.ffn_down.weight", layer, h->n_ff, h->n_embd);

    struct tensor *gate = graph_matmul(graph, w_gate, x, 0); // [n_ff, rows]
    struct tensor *up = graph_matmul(graph, w_up, x, 0);     // [n_ff, rows]
    struct tensor *hidden = graph_glu(graph, gate, up, activation);
    return graph_matmul(graph, w_down, hidden, 0); // [n_embd, rows]
}

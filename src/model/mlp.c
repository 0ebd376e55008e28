// The gated feed-forward block.
#include "model/model.h"

static struct tensor *add_bias(struct builder *builder, const char *name, uint32_t layer, struct tensor *x, size_t n)
{
    struct tensor *bias = build_optional_vector(builder, name, layer, n);
    return bias == NULL ? x : graph_add(builder->graph, x, bias);
}

struct tensor *build_mlp(struct builder *builder, uint32_t layer, struct tensor *x, enum activation activation)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    if (h->n_ff == 0)
        build_fail(builder, STATUS_INVALID, "layer %u has no experts, and %s.feed_forward_length is missing", layer,
                   h->architecture);
    struct tensor *w_gate = build_matrix(builder, "blk.%u.ffn_gate.weight", layer, h->n_embd, h->n_ff);
    struct tensor *w_up = build_matrix(builder, "blk.%u.ffn_up.weight", layer, h->n_embd, h->n_ff);
    struct tensor *w_down = build_matrix(builder, "blk.%u.ffn_down.weight", layer, h->n_ff, h->n_embd);

    struct tensor *gate = graph_matmul(graph, w_gate, x, 0); // [n_ff, rows]
    struct tensor *up = graph_matmul(graph, w_up, x, 0);     // [n_ff, rows]
    gate = add_bias(builder, "blk.%u.ffn_gate.bias", layer, gate, h->n_ff);
    up = add_bias(builder, "blk.%u.ffn_up.bias", layer, up, h->n_ff);
    struct tensor *hidden = graph_glu(graph, gate, up, activation);
    return add_bias(builder, "blk.%u.ffn_down.bias", layer, graph_matmul(graph, w_down, hidden, 0), h->n_embd);
}

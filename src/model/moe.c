// A mixture of experts: keys and tensors of all families that have one. docs/moe.md goes through it step by step.
// Sources: Shazeer et al., Outrageously Large Neural Networks, 2017; Jiang et al., Mixtral of Experts, 2024;
// DeepSeek-AI, DeepSeekMoE, 2024, and DeepSeek-V3, 2024.
#include "model/model.h"

#include <stdio.h>
#include <string.h>

enum { MAX_EXPERTS = 1 << 16 };

static void check(struct builder *builder, bool good, const char *key, uint32_t value, const char *wanted)
{
    if (!good)
        build_fail(builder, STATUS_INVALID, "%s.%s is %u, but it must %s: the file is damaged or badly converted",
                   builder->h->architecture, key, value, wanted);
}

static void read_gating(struct builder *builder, struct routing *routing)
{
    // 0: the converter left it to the architecture
    uint32_t number = build_u32(builder, "expert_gating_func", 0);
    static const enum gating gatings[] = {GATING_SOFTMAX, GATING_SIGMOID, GATING_SOFTMAX_SELECTED,
                                          GATING_SQRT_SOFTPLUS};
    if (number > sizeof(gatings) / sizeof(gatings[0]))
        build_fail(
            builder, STATUS_UNSUPPORTED,
            "%s.expert_gating_func is %u: mote knows 1 (softmax), 2 (sigmoid), 3 (softmax over the selected) and "
            "4 (square root of softplus)",
            builder->h->architecture, number);
    else if (number != 0)
        routing->gating = gatings[number - 1];
}

static void read_groups(struct builder *builder, struct routing *routing)
{
    uint32_t n_group = build_u32(builder, "expert_group_count", 1);
    uint32_t n_used = build_u32(builder, "expert_group_used_count", n_group);
    if (n_group <= 1 || builder->graph->error.status != STATUS_OK)
        return; // one group: every expert may be chosen
    check(builder, routing->n_expert % n_group == 0, "expert_group_count", n_group, "divide expert_count");
    check(builder, n_used > 0 && n_used <= n_group, "expert_group_used_count", n_used,
          "be between 1 and expert_group_count");
    uint32_t size = routing->n_expert / n_group;
    check(builder, (uint64_t)size * n_used >= routing->n_used, "expert_group_used_count", n_used,
          "leave at least expert_used_count experts to choose from");
    routing->n_group = n_group;
    routing->n_group_used = n_used;
    if (routing->group_best == 0)
        routing->group_best = 2;
    if (routing->group_best > size)
        routing->group_best = size;
    // the file's own count of experts a group must agree
    uint32_t per_group = build_u32(builder, "experts_per_group", size);
    check(builder, per_group == size, "experts_per_group", per_group, "be expert_count / expert_group_count");
}

static void read_routing(struct builder *builder, struct routing *routing)
{
    if (build_find_key(builder, "expert_count") == NULL)
        build_fail(builder, STATUS_INVALID,
                   "key '%s.expert_count' is missing: a file of the architecture '%s' must say how many experts it has",
                   builder->h->architecture, builder->h->architecture);
    routing->n_expert = build_u32(builder, "expert_count", 0);
    routing->n_used = build_u32(builder, "expert_used_count", 0);
    check(builder, routing->n_expert > 0 && routing->n_expert <= MAX_EXPERTS, "expert_count", routing->n_expert,
          "be between 1 and 65536");
    check(builder, routing->n_used > 0 && routing->n_used <= routing->n_expert, "expert_used_count", routing->n_used,
          "be between 1 and expert_count");
    read_gating(builder, routing);
    read_groups(builder, routing);
    routing->normalize = build_bool(builder, "expert_weights_norm", routing->normalize);
    float scale = build_f32(builder, "expert_weights_scale", 0);
    if (scale != 0) // 0: converters write it for none
        routing->weight_scale = scale;
    else if (routing->weight_scale == 0)
        routing->weight_scale = 1;
}

static void read_sizes(struct builder *builder, struct moe_options *options)
{
    const struct hyperparameters *h = builder->h;
    bool given = build_find_key(builder, "expert_feed_forward_length") != NULL;
    options->n_ff = build_u32(builder, "expert_feed_forward_length", 0);
    given = given && options->n_ff > 0;
    if (!given) {
        options->n_ff = h->n_ff;
        // Older files of Qwen's families say the hidden units of all used experts together.
        const struct gguf_tensor *down = gguf_find_tensor(builder->gguf, "blk.0.ffn_down_exps.weight");
        if (down != NULL && down->ne[0] < h->n_ff && down->ne[0] * options->routing.n_used == h->n_ff)
            options->n_ff = (uint32_t)down->ne[0];
    }
    check(builder, options->n_ff > 0 && options->n_ff <= 1u << 24,
          given ? "expert_feed_forward_length" : "feed_forward_length", options->n_ff, "be between 1 and 16777216");

    uint64_t n_shared = build_u32(builder, "expert_shared_count", 0), n_hidden = n_shared * options->n_ff;
    if (n_shared > 0)
        options->n_ff_shared = n_hidden < UINT32_MAX ? (uint32_t)n_hidden : UINT32_MAX;
    options->n_ff_shared = build_u32(builder, "expert_shared_feed_forward_length", options->n_ff_shared);
    check(builder, options->n_ff_shared <= 1u << 24, "expert_shared_feed_forward_length", options->n_ff_shared,
          "be at most 16777216");
}

// Layers with experts: from leading_dense_block_count on, and of these every so many.
static void read_layers(struct builder *builder, struct moe_options *options)
{
    const char *dense = "leading_dense_block_count", *step = "interleave_moe_layer_step", *every = "moe_every_n_layers";
    uint32_t n_every = build_u32(builder, every, 0); // 0: none
    options->by_key = build_find_key(builder, dense) != NULL || build_find_key(builder, step) != NULL || n_every > 0;
    options->n_dense = build_u32(builder, dense, 0);
    options->period = 1;
    if (build_find_key(builder, step) != NULL) { // the last of each step
        options->period = build_u32(builder, step, 1);
        options->period_rest = options->period - (options->period > 0);
    } else if (n_every > 0) { // the second of each step
        options->period = n_every;
        options->period_rest = n_every > 1;
    }
}

bool build_has_experts(struct builder *builder)
{
    if (build_u32(builder, "expert_count", 0) > 0)
        return true;
    for (size_t i = 0; i < builder->gguf->n_tensors; i++) {
        const char *name = builder->gguf->tensors[i].name;
        if (strstr(name, ".ffn_gate_inp.weight") != NULL)
            build_fail(builder, STATUS_INVALID,
                       "%s.expert_count is missing or 0, but the file has the router '%s': it is damaged or badly "
                       "converted",
                       builder->h->architecture, name);
    }
    return false;
}

void build_moe_options(struct builder *builder, struct moe_options *options)
{
    read_routing(builder, &options->routing);
    if (builder->graph->error.status != STATUS_OK)
        return;
    read_sizes(builder, options);
    read_layers(builder, options);
}

bool build_layer_has_experts(const struct builder *builder, uint32_t layer, const struct moe_options *options)
{
    if (options->by_key)
        return layer >= options->n_dense && options->period > 0 && layer % options->period == options->period_rest;
    return build_has_tensor(builder, "blk.%u.ffn_gate_inp.weight", layer) ||
           !build_has_tensor(builder, "blk.%u.ffn_down.weight", layer);
}

// ---- one layer ----

static struct tensor *activate(struct builder *builder, const struct moe_options *options, struct tensor *gate,
                               struct tensor *up)
{
    struct attributes attributes = {
        .activation = options->activation, .limit = options->limit, .alpha = options->alpha};
    return graph_apply(builder->graph, OP_GLU, &attributes, (struct tensor *[MAX_SOURCES]){gate, up});
}

struct experts {
    struct builder *builder;
    const struct moe_options *options;
    uint32_t layer;
    struct tensor *x, *route;
};

// [n_embd] → [n_ff] of each pair's expert, times the expert's scale where the file has one.
static struct tensor *project(const struct experts *e, struct tensor *weight, const char *scale_name)
{
    const struct moe_options *o = e->options;
    struct tensor *scale = build_optional_vector(e->builder, scale_name, e->layer, o->routing.n_expert);
    return graph_mul_mat_id(e->builder->graph, weight, e->x, e->route, scale, o->weights_before);
}

static struct tensor *add_bias(const struct experts *e, struct tensor *product, const char *name)
{
    const struct moe_options *o = e->options;
    struct tensor *bias = build_optional_matrix(e->builder, name, e->layer, o->n_ff, o->routing.n_expert);
    return bias == NULL ? product : graph_add_id(e->builder->graph, product, bias, e->route);
}

// activation(gate x) · up x of each pair's expert: [n_ff, pairs]
static struct tensor *build_hidden(const struct experts *e)
{
    struct builder *builder = e->builder;
    const struct moe_options *o = e->options;
    size_t k = builder->h->n_embd, n = o->n_ff, count = o->routing.n_expert;
    struct tensor *w_gate = NULL, *w_up = NULL;
    if (build_has_tensor(builder, "blk.%u.ffn_gate_up_exps.weight", e->layer)) {
        const char *merged = "blk.%u.ffn_gate_up_exps.weight";
        w_gate = build_stack_part(builder, merged, e->layer, k, n, count, 0, 2 * n);
        w_up = build_stack_part(builder, merged, e->layer, k, n, count, n, 2 * n);
    } else {
        // Without a gate the unit is of one projection: only ReLU has a form for that here, its square.
        if (o->activation != ACTIVATION_RELU || build_has_tensor(builder, "blk.%u.ffn_gate_exps.weight", e->layer))
            w_gate = build_stack(builder, "blk.%u.ffn_gate_exps.weight", e->layer, k, n, count);
        w_up = build_stack(builder, "blk.%u.ffn_up_exps.weight", e->layer, k, n, count);
    }
    struct tensor *gate = NULL;
    if (w_gate != NULL)
        gate = project(e, w_gate, "blk.%u.ffn_gate_exps.scale");
    struct tensor *up = project(e, w_up, "blk.%u.ffn_up_exps.scale");
    if (w_gate != NULL)
        gate = add_bias(e, gate, "blk.%u.ffn_gate_exps.bias");
    up = add_bias(e, up, "blk.%u.ffn_up_exps.bias");
    return activate(builder, o, w_gate != NULL ? gate : up, up);
}

// ---- the shared expert ----

// The hidden units of the shared expert: by key, or, where no key speaks of it, as the layer has it.
static size_t shared_width(const struct builder *builder, uint32_t layer, const struct moe_options *options)
{
    char name[64];
    snprintf(name, sizeof(name), "blk.%u.ffn_up_shexp.weight", layer);
    const struct gguf_tensor *up = gguf_find_tensor(builder->gguf, name);
    return options->n_ff_shared != 0 || up == NULL ? options->n_ff_shared : (size_t)up->ne[1];
}

// The logit of its gate, beside the router's: [1, rows]; NULL where it has none.
static struct tensor *build_shared_logit(struct builder *builder, uint32_t layer, struct tensor *x)
{
    struct tensor *weight =
        build_optional_matrix(builder, "blk.%u.ffn_gate_inp_shexp.weight", layer, builder->h->n_embd, 1);
    return weight == NULL ? NULL : graph_matmul(builder->graph, weight, x, 0);
}

static void build_shared(struct builder *builder, uint32_t layer, struct tensor *x, size_t n,
                         const struct moe_options *options, struct shared_expert *shared)
{
    struct tensor *logit = build_shared_logit(builder, layer, x);
    struct graph *graph = builder->graph;
    size_t k = builder->h->n_embd;
    struct tensor *w_up = build_matrix(builder, "blk.%u.ffn_up_shexp.weight", layer, k, n), *w_gate = NULL;
    if (options->activation != ACTIVATION_RELU || build_has_tensor(builder, "blk.%u.ffn_gate_shexp.weight", layer))
        w_gate = build_matrix(builder, "blk.%u.ffn_gate_shexp.weight", layer, k, n);
    struct tensor *gate = w_gate != NULL ? graph_matmul(graph, w_gate, x, 0) : NULL; // [n, rows]
    struct tensor *up = graph_matmul(graph, w_up, x, 0);
    shared->weight = build_matrix(builder, "blk.%u.ffn_down_shexp.weight", layer, n, k);
    shared->hidden = activate(builder, options, w_gate != NULL ? gate : up, up);
    shared->gate = logit == NULL ? NULL : graph_unary(graph, OP_SIGMOID, logit);
}

// ---- the layer ----

// A bias that changes which experts are chosen, and not their weights. Converters disagree on its name's end.
static struct tensor *selection_bias(struct builder *builder, uint32_t layer, size_t n)
{
    static const char *const names[] = {"blk.%u.exp_probs_b.bias", "blk.%u.exp_probs_b.weight", "blk.%u.exp_probs_b"};
    struct tensor *bias = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && bias == NULL; i++)
        bias = build_optional_vector(builder, names[i], layer, n);
    return bias;
}

static struct tensor *build_router(struct builder *builder, uint32_t layer, struct tensor *x, size_t n)
{
    struct tensor *weight = build_matrix(builder, "blk.%u.ffn_gate_inp.weight", layer, builder->h->n_embd, n);
    struct tensor *bias = build_optional_vector(builder, "blk.%u.ffn_gate_inp.bias", layer, n);
    struct tensor *logits = graph_matmul(builder->graph, weight, x, 0); // [n_expert, rows]
    return bias == NULL ? logits : graph_add(builder->graph, logits, bias);
}

struct tensor *build_moe(struct builder *builder, uint32_t layer, struct tensor *x, const struct moe_options *options)
{
    struct graph *graph = builder->graph;
    size_t n_expert = options->routing.n_expert, n_embd = builder->h->n_embd;
    struct tensor *logits = build_router(builder, layer, x, n_expert);
    struct shared_expert shared = {0};
    size_t n_shared = shared_width(builder, layer, options);
    if (n_shared != 0) // else a gate alone is a tensor that nothing uses, and is refused
        build_shared(builder, layer, x, n_shared, options, &shared);

    struct experts e = {.builder = builder, .options = options, .layer = layer, .x = x};
    e.route = graph_route(graph, logits, selection_bias(builder, layer, n_expert), &options->routing, layer);
    struct tensor *hidden = build_hidden(&e); // [n_ff, pairs]
    struct tensor *down = build_stack(builder, "blk.%u.ffn_down_exps.weight", layer, options->n_ff, n_embd, n_expert);
    struct tensor *scale = build_optional_vector(builder, "blk.%u.ffn_down_exps.scale", layer, n_expert);
    struct tensor *bias = build_optional_matrix(builder, "blk.%u.ffn_down_exps.bias", layer, n_embd, n_expert);
    struct tensor *y = graph_mul_mat_id_sum(graph, down, hidden, e.route, scale, n_shared != 0 ? &shared : NULL,
                                            options->weights_before); // [n_embd, rows]
    return bias == NULL ? y : graph_add_id_sum(graph, y, bias, e.route, options->weights_before);
}

// gpt-oss: windows in every second layer, sinks, biases everywhere, a clamped SwiGLU, and a softmax over the chosen
// experts' logits.
// Source: OpenAI, gpt-oss-120b & gpt-oss-20b Model Card, 2025.
#include "model/model.h"

// The published models (20b, 120b) do not round YaRN's range of pairs. Their files have no key that says so: they are
// known by their numbers.
static bool is_published(struct builder *builder)
{
    return builder->h->n_rot == 64 && build_f32(builder, "rope.freq_base", 0) == 150000 &&
           build_f32(builder, "rope.scaling.factor", 0) == 32 &&
           build_u32(builder, "rope.scaling.original_context_length", 0) == 4096;
}

static void build(struct builder *builder)
{
    struct decoder_options options = {
        .attention = {.neox = true, .sinks = true},
        .window_period = 2,
        .yarn_unrounded = is_published(builder),
        .ffn_norm = "blk.%u.post_attention_norm.weight",
    };
    build_decoder_options(builder, &options);
    struct moe_options moe = {
        .routing = {.gating = GATING_SOFTMAX_SELECTED},
        .activation = ACTIVATION_SILU_CLAMPED,
        .limit = 7,
        .alpha = 1.702f,
    };
    build_moe_options(builder, &moe);
    options.moe = &moe;
    build_decoder(builder, &options);
}

const struct architecture arch_gpt_oss = {.name = "gpt-oss", .build = build};

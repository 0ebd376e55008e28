// gpt-oss: windows in every second layer, sinks, biases everywhere, a clamped SwiGLU, and a softmax over the chosen
// experts' logits.
// Source: OpenAI, gpt-oss-120b & gpt-oss-20b Model Card, 2025.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {
        .attention = {.neox = true, .sinks = true},
        .window_period = 2,
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

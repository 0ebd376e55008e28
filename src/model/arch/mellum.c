// Mellum 2: Qwen3-MoE with windows in some layers. Only layers that see all positions have their rotation scaled.
// Source: the definition of Mellum in Hugging Face transformers, 2026.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {
        .attention = {.neox = true, .head_norms = HEAD_NORMS_EACH},
        .window_unscaled = true,
        .window_period = 4,
    };
    build_decoder_options(builder, &options);
    struct moe_options moe = {.routing = {.gating = GATING_SOFTMAX, .normalize = true}};
    build_moe_options(builder, &moe);
    options.moe = &moe;
    build_decoder(builder, &options);
}

const struct architecture arch_mellum = {.name = "mellum", .build = build};

// OLMoE: experts whose weights are not normalized; q and k are normed over all heads together, and bounded where the
// file says so.
// Source: Muennighoff et al., OLMoE: Open Mixture-of-Experts Language Models, 2024.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {.attention = {.neox = true, .head_norms = HEAD_NORMS_ROW}};
    build_decoder_options(builder, &options);
    options.attention.clamp = build_f32(builder, "attention.clamp_kqv", 0);
    struct moe_options moe = {.routing = {.gating = GATING_SOFTMAX}};
    build_moe_options(builder, &moe);
    options.moe = &moe;
    build_decoder(builder, &options);
}

const struct architecture arch_olmoe = {.name = "olmoe", .build = build};

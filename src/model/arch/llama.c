// Llama, and all that took its form (SmolLM2, Mistral 7B, Yi …), with experts Mixtral.
// Source: Touvron et al., LLaMA, 2023; Dubey et al., The Llama 3 Herd of Models, 2024; Jiang et al., Mixtral of
// Experts, 2024.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {0}; // the converter permutes the rows of q and k so that neighbours turn together
    build_decoder_options(builder, &options);
    struct moe_options moe = {.routing = {.gating = GATING_SOFTMAX, .normalize = true}};
    if (build_has_experts(builder)) {
        build_moe_options(builder, &moe);
        options.moe = &moe;
    }
    build_decoder(builder, &options);
}

const struct architecture arch_llama = {.name = "llama", .build = build};

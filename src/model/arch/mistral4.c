// Mistral Small 4: latent attention with a temperature that grows with the position, experts weighted by softmax.
// Source: the definition in Hugging Face transformers (Mistral4ForCausalLM).
#include "model/model.h"

static void build(struct builder *builder)
{
    struct mla_options mla;
    build_mla_options(builder, &mla);
    struct moe_options moe = {.activation = ACTIVATION_SILU, .routing = {.gating = GATING_SOFTMAX, .group_best = 2}};
    struct decoder_options options = {.mla = &mla};
    if (build_has_experts(builder)) {
        build_moe_options(builder, &moe);
        options.moe = &moe;
    }
    build_decoder(builder, &options);
}

const struct architecture arch_mistral4 = {.name = "mistral4", .build = build};

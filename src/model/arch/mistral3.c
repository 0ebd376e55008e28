// Ministral 3 (and Mistral's dense models since): Llama whose queries grow with the position.
// Source: the definition in Hugging Face transformers (Ministral3ForCausalLM).
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {.attention = {.temperature = build_temperature(builder)}};
    build_decoder_options(builder, &options);
    struct moe_options moe = {.routing = {.gating = GATING_SOFTMAX, .normalize = true}};
    if (build_has_experts(builder)) {
        build_moe_options(builder, &moe);
        options.moe = &moe;
    }
    build_decoder(builder, &options);
}

const struct architecture arch_mistral3 = {.name = "mistral3", .build = build};

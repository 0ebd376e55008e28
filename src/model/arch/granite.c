// Granite 3: Llama with four scales (embedding, residual, scores, logits), dense or with experts, and with experts also
// with a shared one.
// Source: Granite Team, IBM, Granite 3.0 Language Models, 2024.
#include "model/model.h"

static float read_scale(struct builder *builder, const char *key)
{
    float scale = build_f32(builder, key, 1);
    return scale == 0 ? 1 : scale; // 0: none
}

static void build(struct builder *builder)
{
    struct decoder_options options = {0};
    // Granite 4 without layers that have a state is of this architecture, but its files describe such layers.
    build_skip_keys(builder, "ssm.");
    build_decoder_options(builder, &options);
    options.attention.no_rope = !build_bool(builder, "rope.scaling.finetuned", true); // this family's switch
    options.embedding_scale = read_scale(builder, "embedding_scale");
    options.residual_scale = read_scale(builder, "residual_scale");
    options.logit_scale = 1 / read_scale(builder, "logit_scale"); // logits are divided by it
    struct moe_options moe = {.routing = {.gating = GATING_SOFTMAX_SELECTED}};
    if (build_has_experts(builder)) {
        build_moe_options(builder, &moe);
        options.moe = &moe;
    }
    build_decoder(builder, &options);
}

const struct architecture arch_granite = {.name = "granite", .build = build};
const struct architecture arch_granitemoe = {.name = "granitemoe", .build = build};

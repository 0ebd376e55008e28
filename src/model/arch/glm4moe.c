// GLM-4.5 and 4.6: experts by sigmoid scores with a bias that only chooses, a shared expert, leading dense layers; half
// of each head is rotated. Norms of query and key heads are in the larger models only.
// Source: GLM-4.5 Team, GLM-4.5: Agentic, Reasoning, and Coding Foundation Models, 2025.
#include "model/model.h"

static void build(struct builder *builder)
{
    bool has_norms = build_has_tensor(builder, "blk.%u.attn_q_norm.weight", 0);
    struct decoder_options options = {
        .attention = {.neox = true, .head_norms = has_norms ? HEAD_NORMS_EACH : HEAD_NORMS_NONE},
        .ffn_norm = "blk.%u.post_attention_norm.weight",
    };
    // Models that see images turn parts of a head by positions of several dimensions, which for text are all the same.
    build_skip_keys(builder, "rope.dimension_sections");
    build_decoder_options(builder, &options);
    struct moe_options moe = {.routing = {.gating = GATING_SIGMOID, .group_best = 2}};
    build_moe_options(builder, &moe);
    options.moe = &moe;
    build_decoder(builder, &options);
}

const struct architecture arch_glm4moe = {.name = "glm4moe", .build = build};

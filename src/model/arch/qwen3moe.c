// Qwen3-MoE: many small experts, whose weights are normalized; norms of query and key heads, no shared expert.
// Source: Yang et al., Qwen3 Technical Report, 2025.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {.attention = {.neox = true, .head_norms = HEAD_NORMS_EACH}};
    build_decoder_options(builder, &options);
    struct moe_options moe = {.routing = {.gating = GATING_SOFTMAX, .normalize = true}};
    build_moe_options(builder, &moe);
    options.moe = &moe;
    build_decoder(builder, &options);
}

const struct architecture arch_qwen3moe = {.name = "qwen3moe", .build = build};

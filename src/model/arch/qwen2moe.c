// Qwen1.5-MoE and Qwen2-MoE: many small experts, whose weights are not normalized, and a shared expert with a gate.
// Source: Yang et al., Qwen2 Technical Report, 2024 (section 2.2.2).
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {.attention = {.neox = true}};
    build_decoder_options(builder, &options);
    struct moe_options moe = {.routing = {.gating = GATING_SOFTMAX}, .n_ff_shared = builder->h->n_ff};
    build_moe_options(builder, &moe);
    options.moe = &moe;
    build_decoder(builder, &options);
}

const struct architecture arch_qwen2moe = {.name = "qwen2moe", .build = build};

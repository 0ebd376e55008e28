// DeepSeek V2, V2-Lite and V3 (and models that took their form): latent attention, the first layers dense, the others
// with experts. Sources: DeepSeek-AI, DeepSeek-V2, 2024; DeepSeek-V3 Technical Report, 2024.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct mla_options mla;
    build_mla_options(builder, &mla);
    // V2 weighs by softmax and takes a group of experts for as good as its best one, V3 by sigmoid and its best two.
    // Files may leave it open which: only V3 (and what took its form) has a bias that chooses.
    uint32_t last = builder->h->n_layer - 1;
    uint32_t gating = build_u32(builder, "expert_gating_func", 0);
    if (gating == 0)
        gating = build_has_tensor(builder, "blk.%u.exp_probs_b.bias", last) ? 2 : 1;
    struct moe_options moe = {
        .activation = ACTIVATION_SILU,
        .routing = {.gating = gating == 2 ? GATING_SIGMOID : GATING_SOFTMAX, .group_best = gating == 1 ? 1 : 2},
    };
    struct decoder_options options = {.mla = &mla};
    if (build_has_experts(builder)) {
        build_moe_options(builder, &moe);
        options.moe = &moe;
    }
    build_decoder(builder, &options);
}

const struct architecture arch_deepseek2 = {.name = "deepseek2", .build = build};

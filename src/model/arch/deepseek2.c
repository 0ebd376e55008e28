// DeepSeek V2, V2-Lite and V3 (and models that took their form): latent attention, the first layers dense, the others
// with experts. Sources: DeepSeek-AI, DeepSeek-V2, 2024; DeepSeek-V3 Technical Report, 2024.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct mla_options mla;
    build_mla_options(builder, &mla);
    // V2 weighs by softmax and takes a group of experts for as good as its best one, V3 by sigmoid (the file says so)
    // and its best two. Files of V2 may say neither.
    struct moe_options moe = {.activation = ACTIVATION_SILU, .routing = {.gating = GATING_SOFTMAX}};
    moe.routing.group_best = build_u32(builder, "expert_gating_func", 1) == 1 ? 1 : 2;
    build_moe_options(builder, &moe);
    build_decoder(builder, &(struct decoder_options){.mla = &mla, .moe = &moe});
}

const struct architecture arch_deepseek2 = {.name = "deepseek2", .build = build};

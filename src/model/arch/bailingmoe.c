// Ling and Ring: Llama with experts and a shared one; whether weights are normalized is in the file.
// Source: Ling Team, Every FLOP Counts: Scaling a 300B Mixture-of-Experts LING LLM without Premium GPUs, 2025.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {0}; // the converter permutes the rows of q and k so that neighbours turn together
    build_decoder_options(builder, &options);
    struct moe_options moe = {.routing = {.gating = GATING_SOFTMAX}};
    build_moe_options(builder, &moe);
    options.moe = &moe;
    build_decoder(builder, &options);
}

const struct architecture arch_bailingmoe = {.name = "bailingmoe", .build = build};

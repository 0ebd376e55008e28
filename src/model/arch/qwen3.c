// Qwen3: Llama with a norm over each query and key head, before the rotation.
// Source: Yang et al., Qwen3 Technical Report, 2025.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {.attention = {.neox = true, .head_norms = HEAD_NORMS_EACH}};
    build_decoder_options(builder, &options);
    build_decoder(builder, &options);
}

const struct architecture arch_qwen3 = {.name = "qwen3", .build = build};

// Qwen2 and Qwen2.5: Llama with biases on q, k and v.
// Source: Yang et al., Qwen2 Technical Report, 2024.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct decoder_options options = {.attention = {.neox = true}};
    build_decoder_options(builder, &options);
    build_decoder(builder, &options);
}

const struct architecture arch_qwen2 = {.name = "qwen2", .build = build};

// Qwen3: Llama with a norm over each query and key head, before the rotation.
// Source: Yang et al., Qwen3 Technical Report, 2025.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct attention_options attention = {
        .rope = build_rope(builder, build_f32(builder, "rope.freq_base", 10000), true),
        .neox = true,
        .head_norms = true,
    };
    build_decoder(builder, &attention);
}

const struct architecture arch_qwen3 = {.name = "qwen3", .build = build};

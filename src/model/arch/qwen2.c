// Qwen2 and Qwen2.5: Llama with biases on q, k and v.
// Source: Yang et al., Qwen2 Technical Report, 2024.
#include "model/model.h"

static void build(struct builder *builder)
{
    struct attention_options attention = {
        .rope = build_rope(builder, build_f32(builder, "rope.freq_base", 10000), true),
        .neox = true,
    };
    build_decoder(builder, &attention);
}

const struct architecture arch_qwen2 = {.name = "qwen2", .build = build};

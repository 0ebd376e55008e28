// Llama, and all that took its form (SmolLM2, Mistral 7B, Yi …).
// Source: Touvron et al., LLaMA, 2023; Dubey et al., The Llama 3 Herd of Models, 2024.
#include "model/model.h"

static void build(struct builder *builder)
{
    build_refuse(builder, "expert_count", "experts");
    struct attention_options attention = {
        .rope = build_rope(builder, build_f32(builder, "rope.freq_base", 10000), true),
        .neox = false, // the converter permutes the rows of q and k so that neighbours turn together
        .window = builder->h->window,
    };
    build_decoder(builder, &attention);
}

const struct architecture arch_llama = {.name = "llama", .build = build};

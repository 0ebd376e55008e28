// Rotary frequencies. Sources: Su et al., RoFormer, 2021; Peng et al., YaRN, 2023 (section 3); Llama 3.1's factors come
// ready in the file's tensor rope_freqs.weight.
#include "model/rope.h"

#include "tensor/elementary.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

// The pair whose wavelength makes `turns` turns within the original context (YaRN's correction dimension).
static double pair_of_turns(const struct rope *rope, double base, double context, double turns)
{
    return rope->n_rot * elementary_log(context / (turns * two_pi)) / (2 * elementary_log(base));
}

// YaRN keeps fast pairs, divides slow ones by the factor, and blends linearly between the two.
static void scale_yarn(struct rope *rope, double base, const struct rope_scaling *scaling)
{
    double low = pair_of_turns(rope, base, scaling->original_context, scaling->beta_fast);
    double high = pair_of_turns(rope, base, scaling->original_context, scaling->beta_slow);
    if (!scaling->unrounded) {
        low = floor(low);
        high = ceil(high);
    }
    low = low < 0 ? 0 : low;
    high = high > rope->n_rot - 1.0 ? rope->n_rot - 1.0 : high;
    double width = high == low ? 0.001 : high - low; // negative where the betas are the wrong way round: then as given
    for (uint32_t i = 0; i < rope->n_rot / 2; i++) {
        double ramp = (i - low) / width;
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        double kept = (1 - ramp) * scaling->ext_factor;
        rope->frequencies[i] *= kept + (1 - kept) / scaling->factor;
    }
    rope->magnitude = scaling->attn_factor;
    if (scaling->attention_factor > 0)
        rope->magnitude *= scaling->attention_factor;
    else if (scaling->factor > 1)
        rope->magnitude *= 0.1 * elementary_log(scaling->factor) + 1;
}

void rope_init(struct rope *rope, uint32_t n_rot, double base, const struct rope_scaling *scaling, double *frequencies)
{
    *rope = (struct rope){.n_rot = n_rot, .frequencies = frequencies, .magnitude = 1};
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        frequencies[i] = elementary_pow(base, -2.0 * i / n_rot);
        if (scaling->factors != NULL)
            frequencies[i] /= (double)scaling->factors[i];
        if (scaling->type == ROPE_SCALING_LINEAR)
            frequencies[i] /= scaling->factor;
    }
    if (scaling->type == ROPE_SCALING_YARN)
        scale_yarn(rope, base, scaling);
}

void rope_fill(const struct rope *rope, uint32_t position, float *cos_sin)
{
    uint32_t n_pairs = rope->n_rot / 2;
    for (uint32_t i = 0; i < n_pairs; i++) {
        double sine, cosine;
        elementary_sincos(position * rope->frequencies[i], &sine, &cosine);
        cos_sin[i] = (float)(cosine * rope->magnitude);
        cos_sin[n_pairs + i] = (float)(sine * rope->magnitude);
    }
}

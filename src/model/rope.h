// Rotary position embedding: frequencies and their scalings (linear, YaRN, Llama 3's factors), in F64, once a model;
// cosines and sines once a position. Nothing here depends on the C library's functions.
#ifndef MOTE_MODEL_ROPE_H
#define MOTE_MODEL_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rope {
    uint32_t n_rot;      // elements of a head that are rotated
    double *frequencies; // [n_rot / 2]: radians a position
    double magnitude;    // multiplies cosine and sine (YaRN); 1 otherwise
};

struct rope_scaling {
    enum { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN } type;
    double factor;                           // the context is this many times the original one
    double original_context;                 // YaRN
    double beta_fast, beta_slow, ext_factor; // YaRN
    bool unrounded;                          // YaRN: the range of pairs is not rounded outwards
    double attention_factor;                 // YaRN: the magnitude; 0: the paper's, 0.1 ln(factor) + 1
    double attn_factor;                      // YaRN: multiplies that
    const float *factors;                    // [n_rot / 2] divisors of the frequencies (Llama 3), or NULL
};

// frequencies: memory for n_rot / 2 values, kept.
void rope_init(struct rope *rope, uint32_t n_rot, double base, const struct rope_scaling *scaling, double *frequencies);

// cos_sin: [n_rot]: the cosines of the n_rot / 2 pairs, then their sines.
void rope_fill(const struct rope *rope, uint32_t position, float *cos_sin);

#endif

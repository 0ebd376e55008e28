// Element types of tensors: the plain ones and GGUF's block formats. One table says all about each.
#ifndef MOTE_TENSOR_DTYPE_H
#define MOTE_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// The numbers are those of GGUF (ggml_type).
enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q8_1 = 9,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_Q8_K = 15,
    DTYPE_IQ2_XXS = 16,
    DTYPE_IQ2_XS = 17,
    DTYPE_IQ3_XXS = 18,
    DTYPE_IQ1_S = 19,
    DTYPE_IQ4_NL = 20,
    DTYPE_IQ3_S = 21,
    DTYPE_IQ2_S = 22,
    DTYPE_IQ4_XS = 23,
    DTYPE_I8 = 24,
    DTYPE_I16 = 25,
    DTYPE_I32 = 26,
    DTYPE_I64 = 27,
    DTYPE_F64 = 28,
    DTYPE_IQ1_M = 29,
    DTYPE_BF16 = 30,
    DTYPE_TQ1_0 = 34,
    DTYPE_TQ2_0 = 35,
    DTYPE_MXFP4 = 39,
    DTYPE_NVFP4 = 40,
    DTYPE_Q1_0 = 41,
    DTYPE_Q2_0 = 42,
};

struct dtype_desc {
    enum dtype dtype;
    const char *name; // "q4_K" is written "q4_k": lower case
    uint32_t block;   // elements of a block; 1 for plain types
    uint32_t bytes;   // bytes of a block
    // Decodes n elements (whole blocks) exactly, products in the order of the format's definition, no FMA.
    // NULL: the format is known (its size is), but mote cannot read its values.
    void (*decode)(const void *blocks, float *values, size_t n);
};

// NULL where the number names no dtype (or one that was removed).
const struct dtype_desc *dtype_find(uint32_t number);
// For a number known to be valid.
const struct dtype_desc *dtype_get(enum dtype dtype);
// By name, any case; NULL where unknown.
const struct dtype_desc *dtype_find_name(const char *name);

// IEEE half and bfloat16, to nearest even; NaN stays NaN (quiet), finite overflow gives infinity.
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
float bfloat_to_float(uint16_t bits);
uint16_t float_to_bfloat(float value);

// MXFP4's elements are E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. Here doubled, so that they are integers,
// plus MXFP4_ZERO, so that none is negative; by nibble. The scale that goes with them is half of the format's.
#define MXFP4_CODES 12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0
enum { MXFP4_ZERO = 12 };

// 2^(exponent - 128), exact for all 256: subnormal for 0 and 1. (The standard has NaN for 255; gguf-py and other
// engines read the power of two that it would be, and so does mote.)
static inline float mxfp4_scale(uint8_t exponent)
{
    const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (uint32_t)(exponent - 1) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif

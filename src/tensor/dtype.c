// The table of dtypes, and conversions of half precision by integer arithmetic: the same bits on every CPU.
#include "tensor/dtype.h"

#include "tensor/dtype_decode.h"

#include <string.h>
#include <strings.h>

// name, elements a block, bytes a block, decoder. Numbers missing here were never used or have been removed.
static const struct dtype_desc table[] = {
    [DTYPE_F32] = {DTYPE_F32, "f32", 1, 4, decode_f32},
    [DTYPE_F16] = {DTYPE_F16, "f16", 1, 2, decode_f16},
    [DTYPE_Q4_0] = {DTYPE_Q4_0, "q4_0", 32, 18, decode_q4_0},
    [DTYPE_Q4_1] = {DTYPE_Q4_1, "q4_1", 32, 20, decode_q4_1},
    [DTYPE_Q5_0] = {DTYPE_Q5_0, "q5_0", 32, 22, decode_q5_0},
    [DTYPE_Q5_1] = {DTYPE_Q5_1, "q5_1", 32, 24, decode_q5_1},
    [DTYPE_Q8_0] = {DTYPE_Q8_0, "q8_0", 32, 34, decode_q8_0},
    [DTYPE_Q8_1] = {DTYPE_Q8_1, "q8_1", 32, 36, NULL},
    [DTYPE_Q2_K] = {DTYPE_Q2_K, "q2_k", 256, 84, decode_q2_k},
    [DTYPE_Q3_K] = {DTYPE_Q3_K, "q3_k", 256, 110, decode_q3_k},
    [DTYPE_Q4_K] = {DTYPE_Q4_K, "q4_k", 256, 144, decode_q4_k},
    [DTYPE_Q5_K] = {DTYPE_Q5_K, "q5_k", 256, 176, decode_q5_k},
    [DTYPE_Q6_K] = {DTYPE_Q6_K, "q6_k", 256, 210, decode_q6_k},
    [DTYPE_Q8_K] = {DTYPE_Q8_K, "q8_k", 256, 292, NULL},
    [DTYPE_IQ2_XXS] = {DTYPE_IQ2_XXS, "iq2_xxs", 256, 66, NULL},
    [DTYPE_IQ2_XS] = {DTYPE_IQ2_XS, "iq2_xs", 256, 74, NULL},
    [DTYPE_IQ3_XXS] = {DTYPE_IQ3_XXS, "iq3_xxs", 256, 98, NULL},
    [DTYPE_IQ1_S] = {DTYPE_IQ1_S, "iq1_s", 256, 50, NULL},
    [DTYPE_IQ4_NL] = {DTYPE_IQ4_NL, "iq4_nl", 32, 18, NULL},
    [DTYPE_IQ3_S] = {DTYPE_IQ3_S, "iq3_s", 256, 110, NULL},
    [DTYPE_IQ2_S] = {DTYPE_IQ2_S, "iq2_s", 256, 82, NULL},
    [DTYPE_IQ4_XS] = {DTYPE_IQ4_XS, "iq4_xs", 256, 136, NULL},
    [DTYPE_I8] = {DTYPE_I8, "i8", 1, 1, decode_i8},
    [DTYPE_I16] = {DTYPE_I16, "i16", 1, 2, decode_i16},
    [DTYPE_I32] = {DTYPE_I32, "i32", 1, 4, decode_i32},
    [DTYPE_I64] = {DTYPE_I64, "i64", 1, 8, decode_i64},
    [DTYPE_F64] = {DTYPE_F64, "f64", 1, 8, decode_f64},
    [DTYPE_IQ1_M] = {DTYPE_IQ1_M, "iq1_m", 256, 56, NULL},
    [DTYPE_BF16] = {DTYPE_BF16, "bf16", 1, 2, decode_bf16},
    [DTYPE_TQ1_0] = {DTYPE_TQ1_0, "tq1_0", 256, 54, NULL},
    [DTYPE_TQ2_0] = {DTYPE_TQ2_0, "tq2_0", 256, 66, NULL},
    [DTYPE_MXFP4] = {DTYPE_MXFP4, "mxfp4", 32, 17, decode_mxfp4},
    [DTYPE_NVFP4] = {DTYPE_NVFP4, "nvfp4", 64, 36, NULL},
    [DTYPE_Q1_0] = {DTYPE_Q1_0, "q1_0", 128, 18, NULL},
    [DTYPE_Q2_0] = {DTYPE_Q2_0, "q2_0", 64, 18, NULL},
};

enum { TABLE_SIZE = sizeof table / sizeof table[0] };

const struct dtype_desc *dtype_find(uint32_t number)
{
    return number < TABLE_SIZE && table[number].name ? &table[number] : NULL;
}

const struct dtype_desc *dtype_get(enum dtype dtype)
{
    return &table[dtype];
}

const struct dtype_desc *dtype_find_name(const char *name)
{
    for (size_t i = 0; i < TABLE_SIZE; i++)
        if (table[i].name && strcasecmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float half_to_float(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 31;
    uint32_t mantissa = bits & 0x3ff;
    if (exponent == 31) // infinity, or NaN: made quiet, as the conversion instructions do
        return float_from_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent)
        return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    if (mantissa == 0)
        return float_from_bits(sign);
    uint32_t shift =
        (uint32_t)__builtin_clz(mantissa) - 21; // a subnormal, mantissa · 2^-24: brings its top bit to bit 10
    return float_from_bits(sign | (113 - shift) << 23 | (mantissa << shift & 0x3ff) << 13);
}

uint16_t float_to_half(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (bits >= 0x477ff000) // 65520: halfway between the largest half and the next power of two
        return (uint16_t)(sign | 0x7c00);
    if (bits >= 0x38800000) { // 2^-14: normal. A carry goes into the exponent, where it belongs
        bits += 0xfff + (bits >> 13 & 1);
        return (uint16_t)(sign | (bits - 0x38000000) >> 13);
    }
    if (bits <= 0x33000000) // 2^-25 is half of the smallest subnormal: to even, so to zero
        return (uint16_t)sign;
    uint32_t mantissa = (bits & 0x7fffff) | 0x800000;
    uint32_t shift = 126 - (bits >> 23); // the result counts 2^-24
    uint32_t quotient = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    quotient += rest > half || (rest == half && (quotient & 1));
    return (uint16_t)(sign | quotient);
}

float bfloat_to_float(uint16_t bits)
{
    return float_from_bits((uint32_t)bits << 16);
}

uint16_t float_to_bfloat(float value)
{
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

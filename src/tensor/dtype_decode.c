// Decoders, written for exactness and reading, not for speed: kernels unpack blocks in ways of their own and are
// tested against these. Per element at most one product of scales, one product with the integer, one subtraction or
// addition, in this order and each rounded. Blocks may lie at any address.
#include "tensor/dtype_decode.h"

#include "tensor/dtype.h"

#include <string.h>

enum { QK = 32, QK_K = 256 }; // elements of a block, of a super-block

static float load_half(const uint8_t *bytes)
{
    uint16_t bits;
    memcpy(&bits, bytes, sizeof bits);
    return half_to_float(bits);
}

void decode_f32(const void *blocks, float *values, size_t n)
{
    if (n)
        memcpy(values, blocks, n * sizeof *values);
}

// A plain type: every element is loaded and converted.
#define DECODE_PLAIN(name, type, convert)                                                                              \
    void decode_##name(const void *blocks, float *values, size_t n)                                                    \
    {                                                                                                                  \
        const uint8_t *bytes = blocks;                                                                                 \
        for (size_t i = 0; i < n; i++) {                                                                               \
            type element;                                                                                              \
            memcpy(&element, bytes + i * sizeof element, sizeof element);                                              \
            values[i] = convert(element);                                                                              \
        }                                                                                                              \
    }

DECODE_PLAIN(f16, uint16_t, half_to_float)
DECODE_PLAIN(bf16, uint16_t, bfloat_to_float)
DECODE_PLAIN(f64, double, (float))
DECODE_PLAIN(i8, int8_t, (float))
DECODE_PLAIN(i16, int16_t, (float))
DECODE_PLAIN(i32, int32_t, (float))
DECODE_PLAIN(i64, int64_t, (float))

// In the 32-element formats byte i of q holds elements i (low nibble) and i + 16 (high nibble); in the 5-bit ones
// bit e of `high` is bit 4 of element e.
static int quant_4(const uint8_t *q, int element)
{
    return element < 16 ? q[element] & 15 : q[element - 16] >> 4;
}

static int quant_5(const uint8_t *q, const uint8_t *high, int element)
{
    return quant_4(q, element) | (high[element / 8] >> element % 8 & 1) << 4;
}

// d F16, q [16]
void decode_q4_0(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK, block += 18) {
        float d = load_half(block);
        for (int e = 0; e < QK; e++)
            *values++ = d * (float)(quant_4(block + 2, e) - 8);
    }
}

// d F16, m F16, q [16]
void decode_q4_1(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK, block += 20) {
        float d = load_half(block), m = load_half(block + 2);
        for (int e = 0; e < QK; e++)
            *values++ = d * (float)quant_4(block + 4, e) + m;
    }
}

// d F16, high [4], q [16]
void decode_q5_0(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK, block += 22) {
        float d = load_half(block);
        for (int e = 0; e < QK; e++)
            *values++ = d * (float)(quant_5(block + 6, block + 2, e) - 16);
    }
}

// d F16, m F16, high [4], q [16]
void decode_q5_1(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK, block += 24) {
        float d = load_half(block), m = load_half(block + 2);
        for (int e = 0; e < QK; e++)
            *values++ = d * (float)quant_5(block + 8, block + 4, e) + m;
    }
}

// d F16, q [32] signed
void decode_q8_0(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK, block += 34) {
        float d = load_half(block);
        for (int e = 0; e < QK; e++)
            *values++ = d * (float)(int8_t)block[2 + e];
    }
}

// exponent, q [16]
void decode_mxfp4(const void *blocks, float *values, size_t n)
{
    static const uint8_t codes[16] = {MXFP4_CODES};
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK, block += 17) {
        float d = mxfp4_scale(block[0]);
        for (int e = 0; e < QK; e++)
            *values++ = d * (float)(codes[quant_4(block + 1, e)] - MXFP4_ZERO);
    }
}

// Two bits of element e of a super-block: each 128 elements lie in 32 bytes, four to a byte, 32 elements apart.
static int quant_2(const uint8_t *q, int e)
{
    return q[e / 128 * 32 + e % 32] >> e % 128 / 32 * 2 & 3;
}

// scales [16] (low nibble: scale, high: minimum, of 16 elements), q [64], d F16, dmin F16
void decode_q2_k(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK_K, block += 84) {
        float d = load_half(block + 80), dmin = load_half(block + 82);
        for (int e = 0; e < QK_K; e++) {
            uint8_t scale = block[e / 16];
            float product = d * (float)(scale & 15) * (float)quant_2(block + 16, e);
            *values++ = product - dmin * (float)(scale >> 4);
        }
    }
}

// Scale s of 16: the low four bits in the first 8 bytes (two to a byte, 8 apart), the high two in the last 4.
static int scale_q3_k(const uint8_t *scales, int s)
{
    int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
    int high = scales[8 + s % 4] >> s / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

// high [32] (bit e/32 of byte e%32 is bit 2 of element e), q [64], scales [12], d F16
void decode_q3_k(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK_K, block += 110) {
        float d = load_half(block + 108);
        for (int e = 0; e < QK_K; e++) {
            int high = block[e % 32] >> e / 32 & 1;
            float scale = d * (float)scale_q3_k(block + 96, e / 16);
            *values++ = scale * (float)((quant_2(block + 32, e) | high << 2) - 4);
        }
    }
}

// Scale and minimum s of 8, six bits each. Bytes 0 to 3: scales 0 to 3; 4 to 7: minimums 0 to 3; their top two bits
// are those of numbers 4 to 7, whose low four are in bytes 8 to 11 (low nibble: scale, high: minimum).
static void scale_q4_k(const uint8_t *scales, int s, int *scale, int *minimum)
{
    if (s < 4) {
        *scale = scales[s] & 63;
        *minimum = scales[s + 4] & 63;
    } else {
        *scale = (scales[s + 4] & 15) | scales[s - 4] >> 6 << 4;
        *minimum = scales[s + 4] >> 4 | scales[s] >> 6 << 4;
    }
}

// Four bits of element e of a super-block: each 64 elements lie in 32 bytes, two to a byte, 32 elements apart.
static int quant_4_k(const uint8_t *q, int e)
{
    return q[e / 64 * 32 + e % 32] >> e % 64 / 32 * 4 & 15;
}

// d F16, dmin F16, scales [12], q [128]
void decode_q4_k(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK_K, block += 144) {
        float d = load_half(block), dmin = load_half(block + 2);
        for (int e = 0; e < QK_K; e++) {
            int scale, minimum;
            scale_q4_k(block + 4, e / 32, &scale, &minimum);
            *values++ = d * (float)scale * (float)quant_4_k(block + 16, e) - dmin * (float)minimum;
        }
    }
}

// d F16, dmin F16, scales [12], high [32] (bit e/32 of byte e%32 is bit 4 of element e), q [128]
void decode_q5_k(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK_K, block += 176) {
        float d = load_half(block), dmin = load_half(block + 2);
        for (int e = 0; e < QK_K; e++) {
            int scale, minimum;
            scale_q4_k(block + 4, e / 32, &scale, &minimum);
            int q = quant_4_k(block + 48, e) | (block[16 + e % 32] >> e / 32 & 1) << 4;
            *values++ = d * (float)scale * (float)q - dmin * (float)minimum;
        }
    }
}

// low [128] (each 128 elements in 64 bytes, two to a byte, 64 apart), high [64] (as quant_2), scales [16] signed, d F16
void decode_q6_k(const void *blocks, float *values, size_t n)
{
    const uint8_t *block = blocks;
    for (size_t i = 0; i < n; i += QK_K, block += 210) {
        float d = load_half(block + 208);
        for (int e = 0; e < QK_K; e++) {
            int low = block[e / 128 * 64 + e % 64] >> e % 128 / 64 * 4 & 15;
            int q = (low | quant_2(block + 128, e) << 4) - 32;
            *values++ = d * (float)(int8_t)block[192 + e / 16] * (float)q;
        }
    }
}

// NEON: the loops of cpu/limits.h.
#include "cpu/limits.h"

#include <arm_neon.h>

enum { CHAINS = 12 }; // independent accumulators: latency × units of all CPUs so far is below that

static double spin_int8(size_t n, uint64_t *sink)
{
    volatile int start = 3;
    const int8x16_t a = vdupq_n_s8((int8_t)start), b = vdupq_n_s8((int8_t)(start + 1));
    int32x4_t sums[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        sums[j] = vdupq_n_s32(j + start);
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < CHAINS; j++)
            sums[j] = vdotq_s32(sums[j], a, b);
    }
    for (int j = 0; j < CHAINS; j++)
        *sink += (uint64_t)vaddvq_s32(sums[j]);
    return (double)n * CHAINS * 16 * 2;
}

static double spin_f32(size_t n, uint64_t *sink)
{
    volatile float start = 0.5f;
    const float32x4_t a = vdupq_n_f32(start), b = vdupq_n_f32(start * 2);
    float32x4_t sums[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        sums[j] = vdupq_n_f32((float)j);
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < CHAINS; j++)
            sums[j] = vfmaq_f32(b, sums[j], a);
    }
    for (int j = 0; j < CHAINS; j++)
        *sink += (uint64_t)vaddvq_f32(sums[j]);
    return (double)n * CHAINS * 4 * 2;
}

static void read_bytes(const uint8_t *bytes, size_t size, uint64_t *sink)
{
    uint8x16_t sums[8];
    for (int j = 0; j < 8; j++)
        sums[j] = vdupq_n_u8(0);
    for (size_t i = 0; i + 128 <= size; i += 128) {
        for (int j = 0; j < 8; j++)
            sums[j] = veorq_u8(sums[j], vld1q_u8(bytes + i + (size_t)j * 16));
    }
    for (int j = 0; j < 8; j++)
        *sink += vaddvq_u8(sums[j]);
}

const struct limits limits_neon = {"neon", spin_int8, spin_f32, read_bytes};

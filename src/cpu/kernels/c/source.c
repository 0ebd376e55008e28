// The rounding of source rows: Q8 in blocks of 32, and F16 range-exact by segment.
#include "cpu/kernels/c/math.h"
#include "cpu/kernels/c/table.h"

#include "tensor/dtype.h"

void C_NAME(c_quantize_q8)(const float *x, size_t k, uint8_t *row)
{
    int8_t *q = (int8_t *)row;
    float *d = (float *)(void *)(row + k);
    int16_t *sums = (int16_t *)(void *)(row + k + k / 32 * 4);
    for (size_t block = 0; block < k / 32; block++)
        d[block] = q8_block(x + 32 * block, q + 32 * block);
    for (size_t half = 0; half < k / 16; half++) {
        int sum = 0;
        for (int i = 0; i < 16; i++)
            sum += q[16 * half + i];
        sums[half] = (int16_t)sum;
    }
}

// The zeros after k elements, and scales of 1.
static void clear_row_end(size_t k, float *row)
{
    float *scales = row + f32_row_scales(k);
    for (size_t i = k; i < f32_row_scales(k); i++)
        row[i] = 0.0f;
    for (int s = 0; s < MAX_SEGMENTS; s++)
        scales[s] = 1.0f;
}

void C_NAME(c_round_bf16)(const float *x, size_t k, float *row)
{
    clear_row_end(k, row);
    for (size_t i = 0; i < k; i++)
        row[i] = round_bfloat(x[i]);
}

void C_NAME(c_round_f16)(const float *x, size_t k, const struct segments *segments, float *row)
{
    float *scales = row + f32_row_scales(k);
    clear_row_end(k, row);
    if (segments == NULL) {
        for (size_t i = 0; i < k; i++)
            row[i] = half_value(float_to_half(x[i]));
        return;
    }
    for (uint32_t s = 0; s < segments->n; s++) {
        size_t begin, end;
        segments_range(segments, s, k, &begin, &end);
        const int32_t e = half_exponent(amax_bits(x + begin, end - begin));
        const float down = power_of_two(-e);
        for (size_t i = begin; i < end; i++)
            row[i] = half_value(float_to_half(x[i] * down));
        scales[s] = power_of_two(e);
    }
}

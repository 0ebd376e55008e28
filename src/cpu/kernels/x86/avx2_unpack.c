// AVX2: a panel unpacked once for many tokens, to bytes and scales (unpack_q8) or to its exact values (unpack_f32).
#include "cpu/kernels/x86/avx2.h"

AVX2_INLINE void unpack_q8(const struct packed *weight, size_t panel, struct unpacked_q8 *out, avx2_load *load,
                           enum scaling scaling)
{
    const size_t unit_bytes = weight->format->unit_bytes;
    const struct avx2_panel at = avx2_panel_at(weight, panel);
    for (size_t i = 0; i < weight->k / 32; i++) {
        const uint8_t *super = avx2_super_of(weight, at, i);
        AVX2_UNROLL
        for (int half = 0; half < 2; half++) {
            const struct avx2_unit unit = load(at.units + i * unit_bytes, super, half);
            const size_t row = 16 * i + 8 * (size_t)half;
            AVX2_UNROLL
            for (int g = 0; g < AVX2_GROUPS; g++)
                _mm256_store_si256((__m256i *)(out->q + 512 * i + 64 * g + 32 * half), unit.q[g]);
            _mm256_store_ps(out->scale + row, unit.scale);
            if (scaling == SCALING_MIN32 || scaling == SCALING_MIN16)
                _mm256_store_ps(out->min + row, unit.min);
            if (avx2_scaling_has_sub(scaling))
                _mm256_store_si256((__m256i *)(out->sub + 2 * row), unit.sub);
            if (scaling == SCALING_MIN16)
                _mm256_store_si256((__m256i *)(out->sub_min + 2 * row), unit.sub_min);
        }
    }
}

AVX2_INLINE void unpack_f32_blocks(const struct packed *weight, size_t panel, float *out, avx2_load *load,
                                   enum scaling scaling, int zero)
{
    const size_t unit_bytes = weight->format->unit_bytes;
    const struct avx2_panel at = avx2_panel_at(weight, panel);
    for (size_t i = 0; i < weight->k / 32; i++) {
        const uint8_t *super = avx2_super_of(weight, at, i);
        AVX2_UNROLL
        for (int half = 0; half < 2; half++) {
            const struct avx2_unit unit = load(at.units + i * unit_bytes, super, half);
            AVX2_UNROLL
            for (int g = 0; g < AVX2_GROUPS; g++) {
                AVX2_UNROLL
                for (int j = 0; j < 4; j++)
                    _mm256_storeu_ps(out + PANEL_ROWS * (32 * i + 4 * (size_t)g + (size_t)j) + 8 * half,
                                     avx2_value(&unit, g, j, scaling, zero));
            }
        }
    }
}

#define UNPACK_BLOCK(name, kind, scaling, run, zero)                                                                   \
    void avx2_unpack_q8_##name(const struct packed *weight, size_t panel, struct unpacked_q8 *out)                     \
    {                                                                                                                  \
        unpack_q8(weight, panel, out, avx2_load_##name, scaling);                                                      \
    }                                                                                                                  \
    void avx2_unpack_f32_##name(const struct packed *weight, size_t panel, float *out)                                 \
    {                                                                                                                  \
        unpack_f32_blocks(weight, panel, out, avx2_load_##name, scaling, zero);                                        \
    }
AVX2_BLOCK_FORMATS(UNPACK_BLOCK)

AVX2_INLINE void unpack_f32_plain(const struct packed *weight, size_t panel, float *out, size_t element_bytes,
                                  avx2_load_plain *load)
{
    const uint8_t *data = weight->data + panel * weight->panel_bytes;
    for (size_t i = 0; i < weight->k * PANEL_ROWS; i += 8)
        _mm256_storeu_ps(out + i, load(data + i * element_bytes));
}

#define UNPACK_PLAIN(name, kind, element_bytes)                                                                        \
    void avx2_unpack_f32_##name(const struct packed *weight, size_t panel, float *out)                                 \
    {                                                                                                                  \
        unpack_f32_plain(weight, panel, out, element_bytes, avx2_load_##name);                                         \
    }
AVX2_PLAIN_FORMATS(UNPACK_PLAIN)

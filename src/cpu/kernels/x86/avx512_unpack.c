// Unpacking: a panel once for many tokens. unpack_q8 writes what gemm_q8 reads; unpack_f32 and matvec_f32 (in
// avx512_plain.c) take the dtype's exact values.
#include "avx512_dot.h"
#include "avx512_kernels.h"

static ALWAYS_INLINE void unpack_q8(const struct packed *weight, size_t panel, struct unpacked_q8 *out,
                                    grain_group *group, grain_read_scales *read_scales, enum scaling scaling,
                                    size_t unit_bytes, size_t super_units, size_t super_bytes)
{
    size_t n = weight->k / 32;
    const uint8_t *unit = weight->data + panel * weight->panel_bytes;
    const uint8_t *supers = unit + n * unit_bytes;
    for (size_t i = 0; i < n; i++, unit += unit_bytes) {
        dot_prefetch(unit, unit_bytes);
        struct grain_scales scales;
        UNROLL
        for (int j = 0; j < 8; j++)
            _mm512_store_si512(out->q + i * 512 + (size_t)j * 64, group(unit, j));
        read_scales(unit, super_units ? supers + (weight->super_offset + i) / super_units * super_bytes : supers,
                    &scales);
        _mm512_store_ps(out->scale + i * 16, scales.scale);
        if (scaling == SCALING_MIN32 || scaling == SCALING_MIN16)
            _mm512_store_ps(out->min + i * 16, scales.min);
        if (scaling == SCALING_16 || scaling == SCALING_MIN16)
            _mm512_store_si512(out->sub + i * 32, avx512_or_masked(_mm512_slli_epi32(scales.sub[1], 16), scales.sub[0],
                                                                   _mm512_set1_epi32(0xffff)));
        if (scaling == SCALING_MIN16)
            _mm512_store_si512(out->sub_min + i * 32, scales.sub_min);
    }
}

#define UNPACK(NAME, name, scaling, zero, unit_bytes, super_units, super_bytes, read_scales)                           \
    void avx512_unpack_q8_##name(const struct packed *weight, size_t panel, struct unpacked_q8 *out)                   \
    {                                                                                                                  \
        unpack_q8(weight, panel, out, name##_group, read_scales, scaling, unit_bytes, super_units, super_bytes);       \
    }
AVX512_BLOCK_FORMATS(UNPACK)
#undef UNPACK

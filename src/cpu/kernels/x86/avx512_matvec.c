// One token times one panel of a block format: decoding reads every weight once, so units go from memory to the integer
// product without being stored in between.
#include "avx512_dot.h"
#include "avx512_kernels.h"

static ALWAYS_INLINE void matvec_q8(const struct packed *weight, size_t panel, const uint8_t *row, float *y,
                                    size_t part_stride, grain_group *group, grain_read_scales *read_scales,
                                    enum scaling scaling, int zero, size_t unit_bytes, size_t super_units,
                                    size_t super_bytes)
{
    const uint8_t *units = weight->data + panel * weight->panel_bytes;
    struct dot_weight source = {
        .group = group,
        .read_scales = read_scales,
        .units = units,
        .unit_bytes = unit_bytes,
        .supers = units + weight->k / 32 * unit_bytes,
        .super_units = super_units,
        .super_bytes = super_bytes,
        .super_offset = weight->super_offset,
    };
    // A panel begins with the values that lie at its end: those of the next one are asked for here.
    for (size_t i = 0; i * 256 < weight->k + weight->super_offset * 32 && super_bytes; i++)
        _mm_prefetch((const char *)((uintptr_t)source.supers + weight->panel_bytes + i * super_bytes), _MM_HINT_T1);
    dot_tile(&source, scaling, zero, 1, &weight->segments, weight->k, row, 0, y, 0, part_stride);
}

#define MATVEC(NAME, name, scaling, zero, unit_bytes, super_units, super_bytes, read_scales)                           \
    void avx512_matvec_q8_##name(const struct packed *weight, size_t panel, const uint8_t *row, float *y,              \
                                 size_t part_stride)                                                                   \
    {                                                                                                                  \
        matvec_q8(weight, panel, row, y, part_stride, name##_group, read_scales, scaling, zero, unit_bytes,            \
                  super_units, super_bytes);                                                                           \
    }
AVX512_BLOCK_FORMATS(MATVEC)
#undef MATVEC

// Random weights in every format that mote packs. Include it once, after cmocka.h.
#ifndef MOTE_TESTS_RANDOM_WEIGHTS_H
#define MOTE_TESTS_RANDOM_WEIGHTS_H

#include "cpu/packed.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 7;

static uint64_t random_bits(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static float random_float(void) // [-1, 1)
{
    return (float)((double)(int64_t)random_bits() * 0x1p-63);
}

static const enum dtype dtypes[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q4_1,
                                    DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_Q2_K, DTYPE_Q3_K,
                                    DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_MXFP4};
enum { N_DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

// The halves of a block, to keep random bytes finite: their offsets. MXFP4 has none, but an exponent where others have
// d.
static void halves_offsets(enum dtype dtype, size_t offsets[2], size_t *n)
{
    const bool two =
        dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q2_K || dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K;
    const size_t first = dtype == DTYPE_Q2_K ? 80 : dtype == DTYPE_Q3_K ? 108 : dtype == DTYPE_Q6_K ? 208 : 0;
    *n = two ? 2 : 1;
    offsets[0] = first;
    offsets[1] = first + 2;
}

// Random rows of a dtype in the file's layout; scales about 2^-8.
static uint8_t *random_rows(enum dtype dtype, size_t n_rows, size_t k)
{
    const struct dtype_desc *desc = dtype_get(dtype);
    const size_t n_blocks = n_rows * k / desc->block;
    uint8_t *rows = malloc(n_blocks * desc->bytes);
    assert_non_null(rows);
    for (size_t i = 0; i < n_blocks * desc->bytes; i++)
        rows[i] = (uint8_t)random_bits();
    size_t offsets[2], n_halves;
    halves_offsets(dtype, offsets, &n_halves);
    for (size_t i = 0; i < n_blocks; i++) {
        uint8_t *block = rows + i * desc->bytes;
        const float value = random_float();
        if (dtype == DTYPE_F32)
            memcpy(block, &value, sizeof(value));
        const uint16_t plain = dtype == DTYPE_F16 ? float_to_half(value) : float_to_bfloat(value);
        if (dtype == DTYPE_F16 || dtype == DTYPE_BF16)
            memcpy(block, &plain, sizeof(plain));
        if (dtype == DTYPE_MXFP4) {
            block[0] = (uint8_t)(114 + random_bits() % 5);
            continue;
        }
        for (size_t j = 0; desc->block > 1 && j < n_halves; j++) {
            const uint16_t half = float_to_half(random_float() * 0.004f);
            memcpy(block + offsets[j], &half, sizeof(half));
        }
    }
    return rows;
}

// A packed weight of rows in the file's layout, [n_rows][k_file], of which elements [begin, begin + k) are packed.
static inline struct packed pack(enum dtype dtype, const uint8_t *rows, size_t n_rows, size_t k_file, size_t begin,
                                 size_t k)
{
    const struct packed_format *format = packed_format_of(dtype);
    const struct dtype_desc *desc = dtype_get(dtype);
    const size_t row_bytes = k_file / desc->block * desc->bytes;
    const size_t super_offset = desc->block == 256 ? begin % 256 / 32 : 0;
    struct packed packed;
    packed_describe(&packed, format, n_rows, k, super_offset);
    packed.data = aligned_alloc(64, packed.n_panels * packed.panel_bytes);
    assert_non_null(packed.data);
    for (size_t panel = 0; panel < packed.n_panels; panel++) {
        const size_t first = panel * PANEL_ROWS;
        const uint8_t *from = rows + first * row_bytes + begin / desc->block * desc->bytes;
        packed_pack_panel(&packed, panel, from, row_bytes, n_rows - first < PANEL_ROWS ? n_rows - first : PANEL_ROWS);
    }
    return packed;
}

#endif

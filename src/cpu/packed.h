// Weights as the kernels read them: panels of 16 output rows, interleaved, as dense as in the file (at most 1.05 ×).
// One layout serves every instruction set: a 64-byte vector is 16 rows × 4 consecutive k (halves and quarters of it for
// AVX2 and NEON).
//
// A panel is a run of units (32 elements of K for block formats, 1 for plain ones), then, for K-quants, the values of
// its super-blocks:
//   [unit 0][unit 1]…[unit n-1][super 0]…[super m-1]        panel_bytes in all
// Nibbles: 4 vectors of 64 bytes; low nibbles of vector j are k group j, high nibbles group j + 4 (a group is 4
// consecutive k, [16 rows][4 k]). High bits: one vector, bit g of a byte belongs to group g. Two-bit: 2 vectors, group
// g is in vector g/4 at bits 2·(g%4).
//   kind   a unit                                                               super-block (256 k)
//   Q4_0   d f16[16], nibbles[256]
//   Q4_1   d f16[16], m f16[16], nibbles[256]
//   Q5_0   d f16[16], nibbles[256], high bits[64]
//   Q5_1   d f16[16], m f16[16], nibbles[256], high bits[64]
//   Q8_0   d f16[16], bytes[512] (q + 128)
//   MXFP4  exponent u8[16], nibbles[256]; q = MXFP4_CODES[nibble], d = 2^(exponent - 128)
//   Q2_K   (scale | min << 4) u8 [2 halves][16], two-bit[128]                   d f16[16], dmin f16[16]
//   Q3_K   sub-scale i8 [2][16], two-bit[128], high bits[64]; q = bits - 4      d f16[16]
//   Q4_K   scale u8[16], min u8[16], nibbles[256]                               d f16[16], dmin f16[16]
//   Q5_K   scale u8[16], min u8[16], nibbles[256], high bits[64]                d f16[16], dmin f16[16]
//   Q6_K   sub-scale i8 [2][16], nibbles[256], two-bit high[128]; q = bits - 32 d f16[16]
//   F16    f16[16] an element of k       BF16  bf16[16]        F32  f32[16]
// Rows beyond the last (to fill a panel) are zeros.
#ifndef MOTE_CPU_PACKED_H
#define MOTE_CPU_PACKED_H

#include "tensor/dtype.h"
#include "tensor/segments.h"

#include <stddef.h>
#include <stdint.h>

enum { PANEL_ROWS = 16 };

enum packed_kind {
    PACKED_F32,
    PACKED_F16,
    PACKED_BF16,
    PACKED_Q4_0,
    PACKED_Q4_1,
    PACKED_Q5_0,
    PACKED_Q5_1,
    PACKED_Q8_0,
    PACKED_Q2_K,
    PACKED_Q3_K,
    PACKED_Q4_K,
    PACKED_Q5_K,
    PACKED_Q6_K,
    PACKED_MXFP4,
    PACKED_COUNT,
};

// How a block of 32 is scaled after its integer dot product.
enum scaling {
    SCALING_32,    // one scale (Q4_0, Q5_0, Q8_0, MXFP4)
    SCALING_MIN32, // one scale, one minimum (Q4_1, Q5_1, Q4_K, Q5_K)
    SCALING_16,    // two integer sub-scales (Q3_K, Q6_K)
    SCALING_MIN16, // two integer sub-scales and two integer sub-minimums (Q2_K)
    SCALING_COUNT,
    SCALING_NONE = SCALING_COUNT, // plain types
};

struct packed_format {
    enum packed_kind kind;
    enum dtype dtype;
    enum scaling scaling;
    uint32_t unit;        // elements of K in a unit: 32, or 1 for plain types
    uint32_t unit_bytes;  // bytes of a unit of 16 rows
    uint32_t super_units; // units of a super-block: 8, or 0 where there are none
    uint32_t super_bytes; // bytes of the super-block values of 16 rows
    uint32_t grain;       // the contract's grain in elements: segments are cut there (32; 16 for plain types)
    int zero;             // subtracted from the unsigned q: 8, 16, 128, 12, 4, 32 or 0
};

// NULL: mote has no packed form of that dtype.
const struct packed_format *packed_format_of(enum dtype dtype);

// A packed weight [n_rows outputs][k].
struct packed {
    const struct packed_format *format;
    struct segments segments;
    size_t n_rows;
    size_t k;
    size_t super_offset; // units of the first super-block that lie before k = 0: not 0 where K was cut inside one
    size_t n_panels;     // ⌈n_rows / 16⌉
    size_t panel_bytes;
    uint8_t *data; // 64-byte aligned; n_panels * panel_bytes
};

// Fills all but data, which stays NULL. k must be a multiple of the format's unit (checked by the caller).
void packed_describe(struct packed *packed, const struct packed_format *format, size_t n_rows, size_t k,
                     size_t super_offset);

// Packs one panel. rows: n_rows (≤ 16) rows in the file's layout, row_bytes apart, each beginning at the super-block
// that holds the first k of the range; rows that lack to 16 become zeros.
void packed_pack_panel(const struct packed *packed, size_t panel, const uint8_t *rows, size_t row_bytes, size_t n_rows);

// One row, bit for bit what the dtype's decode gives: for embedding lookups. values: k floats.
void packed_read_row(const struct packed *packed, size_t row, float *values);

#endif

// The tables of kernels: one struct of function pointers an instruction set, chosen at run time. The C table is the
// reference: every other kernel gives its bits (tests/checkkernels compares with memcmp).
//
// Two rules make that possible. Lanes are outputs: no sum crosses lanes, so it does not matter how many there are.
// And each output's sum has one order, written out in docs/numerics.md: up to 8 segments of K, each one chain, then a
// tree. Weights come in panels of 16 outputs (cpu/packed.h); a kernel works on one panel, drivers cut the work.
#ifndef MOTE_CPU_KERNELS_KERNELS_H
#define MOTE_CPU_KERNELS_KERNELS_H

#include "cpu/packed.h"
#include "tensor/device.h"
#include "tensor/graph.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A source row in Q8: k elements in blocks of 32. The parts follow each other, the row is 64-byte aligned: int8 q[k],
// float d[k/32], int16 sums[k/16] (the sum of q over each half of a block).
static inline size_t q8_row_bytes(size_t k)
{
    return (k + k / 32 * 4 + k / 16 * 2 + 63) & ~(size_t)63;
}

// The parts of a Q8 row.
struct q8_row {
    const int8_t *q;
    const float *d;
    const int16_t *sums;
};
static inline struct q8_row q8_row_parts(const uint8_t *row, size_t k)
{
    const void *d = row + k, *sums = row + k + k / 32 * 4;
    return (struct q8_row){(const int8_t *)row, d, sums};
}

// A source row in F32 (also for sources rounded to F16): float x[k rounded up to 16], then 8 floats: 2^e of each
// segment (1 where the segment was not scaled).
static inline size_t f32_row_bytes(size_t k)
{
    return ((k + 15) / 16 * 64 + MAX_SEGMENTS * 4 + 63) & ~(size_t)63;
}
static inline size_t f32_row_scales(size_t k) // where the scales begin, in floats
{
    return (k + 15) / 16 * 16;
}

static inline void f32_row_unscaled(float *row, size_t k) // no segment was scaled
{
    for (size_t s = 0; s < MAX_SEGMENTS; s++)
        row[f32_row_scales(k) + s] = 1.0f;
}

// A panel unpacked once for many tokens, n = k/32 grains: the form that gemm_q8 reads. Parts are 64-byte aligned.
struct unpacked_q8 {
    uint8_t *q;       // [n][8 groups of 4 k][16 rows][4]: unsigned, the zero point not yet subtracted
    float *scale;     // [n][16]: what multiplies dx · isum: d, or d · scale where a sub-block has 32 elements
    float *min;       // [n][16]: m (MIN32), or dmin (MIN16); else unused
    int16_t *sub;     // [n][16 rows][2 halves]: sub-scales (SCALING_16, MIN16); else unused
    int16_t *sub_min; // [n][16 rows][2 halves]: sub-minimums (MIN16); else unused
};
size_t unpacked_q8_bytes(size_t k);
void unpacked_q8_place(struct unpacked_q8 *unpacked, void *memory, size_t k);

// One page of keys and values of one KV head, and what a query may see of it. Layouts (head_dim d, positions p):
//   F32, F16   K [d][64 p]; V [64 p][d]
//   Q8_0       K i8 [d/4][64 p][4]; V i8 [64 p][d]
struct attention_chunk {
    const void *k;
    const void *v;
    const float *k_scale; // F16: [64] 2^e of each position's key; Q8_0: [d/32][64] block scales; F32: unused
    const float *v_scale; // F16: [64]; Q8_0: [64][d/32]; F32: unused
    float scale;          // of the scores: usually 1/sqrt(head_dim)
    float softcap;        // 0: none; else score = softcap · tanh(score / softcap)
    uint32_t first, last; // the positions of the page that the query sees: [first, last), not empty
};

struct kernels {
    const char *name; // "c", "avx2", "avx512", "neon"

    // ---- sources ----
    // x[k] → a Q8 row; k is a multiple of 32.
    void (*quantize_q8)(const float *x, size_t k, uint8_t *row);
    // x[k] → an F32 row whose values are rounded to F16, range-exact by segment. segments NULL: no range scale, what is
    // beyond F16 becomes inf (for tests and benches that show what the scale is for).
    void (*round_f16)(const float *x, size_t k, const struct segments *segments, float *row);
    // x[k] → an F32 row whose values are rounded to BF16. It has the exponents of F32: no scale.
    void (*round_bf16)(const float *x, size_t k, float *row);

    // ---- products of one panel: 16 outputs ----
    // part_stride 0: y gets the sums of the contract's tree over the segments. Else there is no tree: segment s's 16
    // sums (F32 sources: already times the segment's 2^e) go to y[s * part_stride + 0 … 15], s < segments.n; add_parts
    // over them gives the bits of part_stride 0. One token: y[16] = panel · row. NULL for the plain kinds in matvec_q8
    // and unpack_q8.
    void (*matvec_q8[PACKED_COUNT])(const struct packed *weight, size_t panel, const uint8_t *row, float *y,
                                    size_t part_stride);
    void (*matvec_f32[PACKED_COUNT])(const struct packed *weight, size_t panel, const float *row, float *y,
                                     size_t part_stride);
    // Many tokens: unpack once, then multiply. unpack_f32 writes float [k][16], the dtype's exact values.
    void (*unpack_q8[PACKED_COUNT])(const struct packed *weight, size_t panel, struct unpacked_q8 *out);
    void (*unpack_f32[PACKED_COUNT])(const struct packed *weight, size_t panel, float *out);
    // n source rows, row_stride bytes apart; y[t * y_stride + 0 … 15] for t < n.
    void (*gemm_q8[SCALING_COUNT])(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows,
                                   size_t row_stride, size_t n, float *y, size_t y_stride, size_t part_stride);
    void (*gemm_f32)(const struct packed *weight, const float *panel, const float *rows, size_t row_stride, size_t n,
                     float *y, size_t y_stride, size_t part_stride);

    // parts [n_segments][16], at most MAX_SEGMENTS → y[16]: the contract's tree.
    void (*add_parts)(const float *parts, uint32_t n_segments, float *y);

    // ---- rows of n floats; y may be the first source ----
    // y = (x · 1/sqrt(mean(x²) + epsilon)) · weight; weight NULL: ones.
    void (*rms_norm)(const float *x, const float *weight, size_t n, float epsilon, float *y);
    void (*add)(const float *a, const float *b, size_t n, float *y);
    void (*mul)(const float *a, const float *b, size_t n, float *y);
    void (*scale)(const float *x, float factor, size_t n, float *y);
    void (*add_scaled)(const float *x, float factor, size_t n, float *y);   // y = fma(factor, x, y); x is not y
    void (*swiglu)(const float *gate, const float *up, size_t n, float *y); // silu(gate) · up
    void (*geglu)(const float *gate, const float *up, size_t n, float *y);  // gelu(gate), tanh form, · up
    void (*reglu)(const float *gate, const float *up, size_t n, float *y);  // max(0, gate) · up; NaN stays
    // g · sigmoid(alpha · g) · (u + 1) with g = min(gate, limit), u = clamp(up, -limit, limit); NaN stays.
    void (*swiglu_clamped)(const float *gate, const float *up, size_t n, float limit, float alpha, float *y);
    void (*sigmoid)(const float *x, size_t n, float *y);
    void (*exp_minus)(const float *x, float max, size_t n, float *y); // exp(x - max)
    // Rotates pairs of the first n_rot elements in place. cos_sin: float cos[n_rot/2], then sin[n_rot/2].
    // neox: pairs (i, i + n_rot/2); else (2i, 2i + 1).
    void (*rope)(float *x, size_t n_rot, const float *cos_sin, bool neox);

    // ---- primitives (one version in all tables); y may be the first source ----
    void (*abs)(const float *x, size_t n, float *y);
    void (*ceil)(const float *x, size_t n, float *y);
    void (*clamp)(const float *x, float low, float high, size_t n, float *y); // NaN stays
    void (*div)(const float *a, const float *b, size_t n, float *y);
    void (*exp)(const float *x, size_t n, float *y);
    void (*log)(const float *x, size_t n, float *y); // ±0: -inf; below 0: NaN
    // y[i] for every window [i · stride, i · stride + kernel) within x and `padding` elements (fewer than kernel) on
    // each side: the maximum (NaN where one is) or the mean of those elements of the window that are x's. y is not x.
    void (*pool_1d)(const float *x, size_t n, bool max, size_t kernel, size_t stride, size_t padding, float *y);
    // One token's logits[n_expert], with the selection bias [n_expert] or NULL → out: n_used experts, ascending, as
    // floats, then their weights (docs/numerics.md). The routing must be one that op_route accepts. Experts are valid
    // whatever the logits are; where some are NaN, weights may be. scratch: route_scratch_floats.
    void (*route)(const struct routing *routing, const float *logits, const float *bias, float *scratch, float *out);

    // ---- attention ----
    // n_q query heads (sharing one KV head) over one chunk, each from its own maximum, for one query position.
    // q: rows of head_dim floats, q_stride floats apart. Out: m[n_q], l[n_q], o: rows of v_dim floats, o_stride apart.
    // scratch: attend_scratch_floats(n_q, head_dim). For Q8_0, q is quantized inside, per 32.
    void (*attend[KV_DTYPE_COUNT])(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,
                                   size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride,
                                   float *scratch);
    // Merges the next chunk's (m2, l2, o2) into (m, l, o).
    void (*attend_merge)(float *m, float *l, float *o, float m2, float l2, const float *o2, size_t v_dim);
    void (*attend_finish)(float l, const float *o, size_t v_dim, float *y); // y = o / l
    // One position's key (head_dim) or value (v_dim) of one KV head into its page, with its scales.
    void (*store_k[KV_DTYPE_COUNT])(const float *k, size_t head_dim, uint32_t position, void *page, float *scales);
    void (*store_v[KV_DTYPE_COUNT])(const float *v, size_t v_dim, uint32_t position, void *page, float *scales);
};

// Scores, and q in Q8 with its scales, of every query head; what a kernel wants besides lies on its stack.
static inline size_t attend_scratch_floats(size_t n_q, size_t head_dim)
{
    return (n_q * (KV_PAGE_POSITIONS + head_dim / 4 + head_dim / 32) + 31) / 16 * 16;
}

// Scores and keys of experts, and the groups.
static inline size_t route_scratch_floats(const struct routing *routing)
{
    return 2 * (size_t)routing->n_expert + 2 * (size_t)(routing->n_group > 1 ? routing->n_group : 1);
}

// NULL where the build lacks it (other architecture) or the CPU does.
const struct kernels *kernels_c(void);
const struct kernels *kernels_avx2(void);
const struct kernels *kernels_avx512(void);
const struct kernels *kernels_neon(void);

// The best for this CPU where name is NULL, else the one named; NULL where that is unknown or the CPU lacks it.
const struct kernels *kernels_choose(const char *name);

#endif

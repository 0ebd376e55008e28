// What the NEON kernels share: how a unit of each block format is loaded, the sum of a block, the tree of segments. A
// register holds 4 rows × 4 consecutive k; a panel of 16 rows is four quarters. SDOT takes signed bytes and cannot
// saturate: q below 128 goes in as it is (the zero point is subtracted through the sums of the source), a full byte
// (Q8_0) as q - 128.
#ifndef MOTE_CPU_KERNELS_ARM_NEON_H
#define MOTE_CPU_KERNELS_ARM_NEON_H

#include "cpu/kernels/kernels.h"

#include <arm_neon.h>

#define NEON_INLINE static inline __attribute__((always_inline))

// Before a loop of constant length over registers: it must disappear.
#ifdef __clang__
#define NEON_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NEON_UNROLL _Pragma("GCC unroll 8")
#endif

enum {
    NEON_GROUPS = 8,   // groups of 4 k in a unit of 32
    NEON_QUARTERS = 4, // registers of a panel's rows
};

// A unit of 4 rows.
struct neon_unit {
    uint8x16_t q[NEON_GROUPS]; // [4 rows][4 k], the zero point not subtracted
    float32x4_t scale;         // d, or d · scale where a sub-block has 32 elements
    float32x4_t min;           // m, or dmin where sub-minimums are integers
    int32x4_t sub[2];          // of each half block
    int32x4_t sub_min[2];
};

typedef struct neon_unit neon_load(const uint8_t *unit, const uint8_t *super, int quarter);

NEON_INLINE float32x4_t neon_load_half4(const uint8_t *halves)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(halves)));
}

NEON_INLINE uint32x4_t neon_load_u8(const uint8_t *bytes) // 4 bytes as u32
{
    uint32_t four;
    __builtin_memcpy(&four, bytes, sizeof four);
    return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)))));
}

NEON_INLINE int32x4_t neon_load_i8(const uint8_t *bytes)
{
    uint32_t four;
    __builtin_memcpy(&four, bytes, sizeof four);
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)))));
}

// ---- the parts of a unit ----

// Shifts each byte left (by > 0) or right and keeps the bits of mask.
NEON_INLINE uint8x16_t neon_bits(uint8x16_t v, int by, int mask)
{
    return vandq_u8(vshlq_u8(v, vdupq_n_s8((int8_t)by)), vdupq_n_u8((uint8_t)mask));
}

NEON_INLINE void neon_nibbles(const uint8_t *nibbles, int quarter, uint8x16_t q[NEON_GROUPS])
{
    NEON_UNROLL
    for (int j = 0; j < 4; j++) {
        const uint8x16_t v = vld1q_u8(nibbles + 64 * j + 16 * quarter);
        q[j] = neon_bits(v, 0, 15);
        q[j + 4] = neon_bits(v, -4, 15);
    }
}

NEON_INLINE void neon_two_bits(const uint8_t *pairs, int quarter, uint8x16_t q[NEON_GROUPS])
{
    NEON_UNROLL
    for (int g = 0; g < NEON_GROUPS; g++)
        q[g] = neon_bits(vld1q_u8(pairs + 64 * (g / 4) + 16 * quarter), -2 * (g % 4), 3);
}

// Adds one bit a group at bit `at`.
NEON_INLINE void neon_add_high_bits(const uint8_t *high, int quarter, int at, uint8x16_t q[NEON_GROUPS])
{
    const uint8x16_t v = vld1q_u8(high + 16 * quarter);
    NEON_UNROLL
    for (int g = 0; g < NEON_GROUPS; g++)
        q[g] = vorrq_u8(q[g], neon_bits(v, at - g, 1 << at));
}

// Adds two bits a group at bits 4 and 5.
NEON_INLINE void neon_add_high_pairs(const uint8_t *pairs, int quarter, uint8x16_t q[NEON_GROUPS])
{
    NEON_UNROLL
    for (int g = 0; g < NEON_GROUPS; g++) {
        const uint8x16_t v = vld1q_u8(pairs + 64 * (g / 4) + 16 * quarter);
        q[g] = vorrq_u8(q[g], neon_bits(v, 4 - 2 * (g % 4), 0x30));
    }
}

// ---- one loader a format: cpu/packed.h has the layouts ----

NEON_INLINE struct neon_unit neon_load_q4_0(const uint8_t *unit, const uint8_t *super, int quarter)
{
    (void)super;
    struct neon_unit u = {.scale = neon_load_half4(unit + 8 * quarter)};
    neon_nibbles(unit + 32, quarter, u.q);
    return u;
}

NEON_INLINE struct neon_unit neon_load_q4_1(const uint8_t *unit, const uint8_t *super, int quarter)
{
    struct neon_unit u = neon_load_q4_0(unit, super, quarter);
    u.min = vnegq_f32(neon_load_half4(unit + 32 + 8 * quarter)); // the format adds m: the minimum is -m
    neon_nibbles(unit + 64, quarter, u.q);
    return u;
}

NEON_INLINE struct neon_unit neon_load_q5_0(const uint8_t *unit, const uint8_t *super, int quarter)
{
    struct neon_unit u = neon_load_q4_0(unit, super, quarter);
    neon_add_high_bits(unit + 288, quarter, 4, u.q);
    return u;
}

NEON_INLINE struct neon_unit neon_load_q5_1(const uint8_t *unit, const uint8_t *super, int quarter)
{
    struct neon_unit u = neon_load_q4_1(unit, super, quarter);
    neon_add_high_bits(unit + 320, quarter, 4, u.q);
    return u;
}

NEON_INLINE struct neon_unit neon_load_q8_0(const uint8_t *unit, const uint8_t *super, int quarter)
{
    (void)super;
    struct neon_unit u = {.scale = neon_load_half4(unit + 8 * quarter)};
    NEON_UNROLL
    for (int g = 0; g < NEON_GROUPS; g++)
        u.q[g] = vld1q_u8(unit + 32 + 64 * g + 16 * quarter);
    return u;
}

NEON_INLINE struct neon_unit neon_load_q2_k(const uint8_t *unit, const uint8_t *super, int quarter)
{
    struct neon_unit u = {.scale = neon_load_half4(super + 8 * quarter),
                          .min = neon_load_half4(super + 32 + 8 * quarter)};
    NEON_UNROLL
    for (int half = 0; half < 2; half++) {
        const uint32x4_t both = neon_load_u8(unit + 16 * half + 4 * quarter); // scale | min << 4
        u.sub[half] = vreinterpretq_s32_u32(vandq_u32(both, vdupq_n_u32(15)));
        u.sub_min[half] = vreinterpretq_s32_u32(vshrq_n_u32(both, 4));
    }
    neon_two_bits(unit + 32, quarter, u.q);
    return u;
}

// The scales that Q3_K and Q6_K share.
NEON_INLINE struct neon_unit neon_load_sub_scales(const uint8_t *unit, const uint8_t *super, int quarter)
{
    return (struct neon_unit){.scale = neon_load_half4(super + 8 * quarter),
                              .sub = {neon_load_i8(unit + 4 * quarter), neon_load_i8(unit + 16 + 4 * quarter)}};
}

NEON_INLINE struct neon_unit neon_load_q3_k(const uint8_t *unit, const uint8_t *super, int quarter)
{
    struct neon_unit u = neon_load_sub_scales(unit, super, quarter);
    neon_two_bits(unit + 32, quarter, u.q);
    neon_add_high_bits(unit + 160, quarter, 2, u.q);
    return u;
}

NEON_INLINE struct neon_unit neon_load_q4_k(const uint8_t *unit, const uint8_t *super, int quarter)
{
    const float32x4_t scale = vcvtq_f32_u32(neon_load_u8(unit + 4 * quarter));
    const float32x4_t min = vcvtq_f32_u32(neon_load_u8(unit + 16 + 4 * quarter));
    struct neon_unit u = {.scale = vmulq_f32(neon_load_half4(super + 8 * quarter), scale),
                          .min = vmulq_f32(neon_load_half4(super + 32 + 8 * quarter), min)};
    neon_nibbles(unit + 32, quarter, u.q);
    return u;
}

NEON_INLINE struct neon_unit neon_load_q5_k(const uint8_t *unit, const uint8_t *super, int quarter)
{
    struct neon_unit u = neon_load_q4_k(unit, super, quarter);
    neon_add_high_bits(unit + 288, quarter, 4, u.q);
    return u;
}

NEON_INLINE struct neon_unit neon_load_q6_k(const uint8_t *unit, const uint8_t *super, int quarter)
{
    struct neon_unit u = neon_load_sub_scales(unit, super, quarter);
    neon_nibbles(unit + 32, quarter, u.q);
    neon_add_high_pairs(unit + 288, quarter, u.q);
    return u;
}

NEON_INLINE float32x4_t neon_load_exponent4(const uint8_t *exponents) // 2^(e - 128): see mxfp4_scale
{
    // (e + 1) << 21 is right for 0 and 1, (e - 1) << 23 from 2 on; each is the greater there.
    const int32x4_t e = vreinterpretq_s32_u32(neon_load_u8(exponents)), one = vdupq_n_s32(1);
    const int32x4_t subnormal = vshlq_n_s32(vaddq_s32(e, one), 21);
    return vreinterpretq_f32_s32(vmaxq_s32(vshlq_n_s32(vsubq_s32(e, one), 23), subnormal));
}

NEON_INLINE struct neon_unit neon_load_mxfp4(const uint8_t *unit, const uint8_t *super, int quarter)
{
    (void)super;
    static const uint8_t codes[16] = {MXFP4_CODES};
    const uint8x16_t table = vld1q_u8(codes);
    struct neon_unit u = {.scale = neon_load_exponent4(unit + 4 * quarter)};
    neon_nibbles(unit + 16, quarter, u.q);
    NEON_UNROLL
    for (int g = 0; g < NEON_GROUPS; g++)
        u.q[g] = vqtbl1q_u8(table, u.q[g]);
    return u;
}

// Every block format: name, kind, scaling, zero point. Makes the instances of each template.
#define NEON_BLOCK_FORMATS(X)                                                                                          \
    X(q4_0, PACKED_Q4_0, SCALING_32, 8)                                                                                \
    X(q4_1, PACKED_Q4_1, SCALING_MIN32, 0)                                                                             \
    X(q5_0, PACKED_Q5_0, SCALING_32, 16)                                                                               \
    X(q5_1, PACKED_Q5_1, SCALING_MIN32, 0)                                                                             \
    X(q8_0, PACKED_Q8_0, SCALING_32, 128)                                                                              \
    X(q2_k, PACKED_Q2_K, SCALING_MIN16, 0)                                                                             \
    X(q3_k, PACKED_Q3_K, SCALING_16, 4)                                                                                \
    X(q4_k, PACKED_Q4_K, SCALING_MIN32, 0)                                                                             \
    X(q5_k, PACKED_Q5_K, SCALING_MIN32, 0)                                                                             \
    X(q6_k, PACKED_Q6_K, SCALING_16, 32)                                                                               \
    X(mxfp4, PACKED_MXFP4, SCALING_32, MXFP4_ZERO)

// Every plain type: name, kind, bytes of an element.
#define NEON_PLAIN_FORMATS(X) X(f32, PACKED_F32, 4) X(f16, PACKED_F16, 2) X(bf16, PACKED_BF16, 2)

typedef float32x4_t neon_load_plain(const uint8_t *elements);

NEON_INLINE float32x4_t neon_load_f32(const uint8_t *elements)
{
    return vreinterpretq_f32_u8(vld1q_u8(elements));
}

NEON_INLINE float32x4_t neon_load_f16(const uint8_t *elements)
{
    return neon_load_half4(elements);
}

NEON_INLINE float32x4_t neon_load_bf16(const uint8_t *elements)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(elements))), 16));
}

// Where the parts of a panel of a block format lie.
struct neon_panel {
    const uint8_t *units;
    const uint8_t *supers;
};

NEON_INLINE struct neon_panel neon_panel_at(const struct packed *weight, size_t panel)
{
    const uint8_t *units = weight->data + panel * weight->panel_bytes;
    return (struct neon_panel){units, units + weight->k / 32 * weight->format->unit_bytes};
}

NEON_INLINE const uint8_t *neon_super_of(const struct packed *weight, struct neon_panel panel, size_t unit)
{
    return panel.supers + (unit + weight->super_offset) / 8 * weight->format->super_bytes;
}

NEON_INLINE bool neon_scaling_has_sub(enum scaling scaling)
{
    return scaling == SCALING_16 || scaling == SCALING_MIN16;
}

// The exact values of 4 rows at k = 4 · group + j: scale · (q - zero) - min, each product rounded, no FMA.
NEON_INLINE float32x4_t neon_value(const struct neon_unit *unit, int group, int j, enum scaling scaling, int zero)
{
    const uint32x4_t shifted = vshlq_u32(vreinterpretq_u32_u8(unit->q[group]), vdupq_n_s32(-8 * j));
    const int32x4_t q = vsubq_s32(vreinterpretq_s32_u32(vandq_u32(shifted, vdupq_n_u32(255))), vdupq_n_s32(zero));
    const int half = group >= NEON_GROUPS / 2;
    float32x4_t scale = unit->scale;
    if (neon_scaling_has_sub(scaling))
        scale = vmulq_f32(scale, vcvtq_f32_s32(unit->sub[half]));
    const float32x4_t value = vmulq_f32(scale, vcvtq_f32_s32(q));
    if (scaling == SCALING_MIN32)
        return vsubq_f32(value, unit->min);
    if (scaling == SCALING_MIN16)
        return vsubq_f32(value, vmulq_f32(unit->min, vcvtq_f32_s32(unit->sub_min[half])));
    return value;
}

// ---- the sum of a block ----

// The parts of a Q8 row.
struct neon_source {
    const int8_t *q;
    const float *d;
    const int16_t *sums;
};

NEON_INLINE struct neon_source neon_source_of(const uint8_t *row, size_t k)
{
    const float *d = (const float *)(row + k);
    return (struct neon_source){(const int8_t *)row, d, (const int16_t *)(d + k / 32)};
}

NEON_INLINE int8x16_t neon_signed(uint8x16_t q, int zero)
{
    return vreinterpretq_s8_u8(zero == 128 ? veorq_u8(q, vdupq_n_u8(128)) : q);
}

NEON_INLINE int32x4_t neon_dot(const uint8x16_t q[4], int8x16_t x, int zero)
{
    int32x4_t sum = vdotq_laneq_s32(vdupq_n_s32(0), neon_signed(q[0], zero), x, 0);
    sum = vdotq_laneq_s32(sum, neon_signed(q[1], zero), x, 1);
    sum = vdotq_laneq_s32(sum, neon_signed(q[2], zero), x, 2);
    return vdotq_laneq_s32(sum, neon_signed(q[3], zero), x, 3);
}

// One more block of 32 in the chain of a segment.
NEON_INLINE float32x4_t neon_accumulate(float32x4_t acc, const struct neon_unit *unit, struct neon_source source,
                                        size_t block, enum scaling scaling, int zero)
{
    const float32x4_t dx = vdupq_n_f32(source.d[block]);
    const int32_t sums[2] = {source.sums[2 * block], source.sums[2 * block + 1]};
    int32x4_t part[2];
    NEON_UNROLL
    for (int half = 0; half < 2; half++) {
        part[half] = neon_dot(unit->q + 4 * half, vld1q_s8(source.q + 32 * block + 16 * half), zero);
        if (zero != 0 && zero != 128)
            part[half] = vsubq_s32(part[half], vdupq_n_s32(zero * sums[half]));
        if (neon_scaling_has_sub(scaling))
            part[half] = vmulq_s32(part[half], unit->sub[half]);
    }
    const float32x4_t isum = vcvtq_f32_s32(vaddq_s32(part[0], part[1]));
    acc = vfmaq_f32(acc, vmulq_f32(unit->scale, dx), isum);
    if (scaling == SCALING_MIN32)
        acc = vfmsq_f32(acc, unit->min, vmulq_f32(dx, vdupq_n_f32((float)(sums[0] + sums[1]))));
    if (scaling == SCALING_MIN16) {
        const int32x4_t imin =
            vmlaq_s32(vmulq_s32(unit->sub_min[0], vdupq_n_s32(sums[0])), unit->sub_min[1], vdupq_n_s32(sums[1]));
        acc = vfmsq_f32(acc, vmulq_f32(unit->min, dx), vcvtq_f32_s32(imin));
    }
    return acc;
}

// ---- segments ----

// Adds the partial sums of n segments as a tree; stride: registers between the segments of one output.
NEON_INLINE float32x4_t neon_tree(float32x4_t *partial, size_t stride, uint32_t n)
{
    for (uint32_t step = 1; step < n; step *= 2)
        for (uint32_t i = 0; i + step < n; i += 2 * step)
            partial[i * stride] = vaddq_f32(partial[i * stride], partial[(i + step) * stride]);
    return partial[0];
}

// The segments' sums of `count` tokens as they are. Apart from its caller, whose usual way is the tree.
static __attribute__((noinline, unused)) void neon_store_parts(const float32x4_t *partial, size_t stride, uint32_t n,
                                                               size_t count, float *y, size_t y_stride,
                                                               size_t part_stride)
{
    for (size_t i = 0; i < NEON_QUARTERS * count; i++)
        for (uint32_t s = 0; s < n; s++)
            vst1q_f32(y + i / NEON_QUARTERS * y_stride + i % NEON_QUARTERS * 4 + s * part_stride,
                      partial[s * stride + i]);
}

// Writes the 16 outputs of `count` tokens, partial[segment * stride + 4 * token + quarter]: the tree over the n
// segments, or where part_stride is not 0 each segment as it is, that far apart.
NEON_INLINE void neon_store_sums(float32x4_t *partial, size_t stride, uint32_t n, size_t count, float *y,
                                 size_t y_stride, size_t part_stride)
{
    if (part_stride != 0) {
        neon_store_parts(partial, stride, n, count, y, y_stride, part_stride);
        return;
    }
    for (size_t i = 0; i < NEON_QUARTERS * count; i++)
        vst1q_f32(y + i / NEON_QUARTERS * y_stride + i % NEON_QUARTERS * 4, neon_tree(partial + i, stride, n));
}

// ---- the kernels, by file; neon_table.c puts them in the table ----

#define NEON_DECLARE_BLOCK(name, kind, scaling, zero)                                                                  \
    void neon_matvec_q8_##name(const struct packed *weight, size_t panel, const uint8_t *row, float *y,                \
                               size_t part_stride);                                                                    \
    void neon_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,                 \
                                size_t part_stride);                                                                   \
    void neon_unpack_q8_##name(const struct packed *weight, size_t panel, struct unpacked_q8 *out);                    \
    void neon_unpack_f32_##name(const struct packed *weight, size_t panel, float *out);
NEON_BLOCK_FORMATS(NEON_DECLARE_BLOCK)
#define NEON_DECLARE_PLAIN(name, kind, element_bytes)                                                                  \
    void neon_matvec_f32_##name(const struct packed *weight, size_t panel, const float *row, float *y,                 \
                                size_t part_stride);                                                                   \
    void neon_unpack_f32_##name(const struct packed *weight, size_t panel, float *out);
NEON_PLAIN_FORMATS(NEON_DECLARE_PLAIN)
void neon_gemm_q8(const struct packed *weight, const struct unpacked_q8 *panel, const uint8_t *rows, size_t row_stride,
                  size_t n, float *y, size_t y_stride, size_t part_stride);
void neon_gemm_f32(const struct packed *weight, const float *panel, const float *rows, size_t row_stride, size_t n,
                   float *y, size_t y_stride, size_t part_stride);

void neon_quantize_q8(const float *x, size_t k, uint8_t *row);
void neon_round_f16(const float *x, size_t k, const struct segments *segments, float *row);
void neon_round_bf16(const float *x, size_t k, float *row);
void neon_rms_norm(const float *x, const float *weight, size_t n, float epsilon, float *y);
void neon_add(const float *a, const float *b, size_t n, float *y);
void neon_mul(const float *a, const float *b, size_t n, float *y);
void neon_scale(const float *x, float factor, size_t n, float *y);
void neon_add_scaled(const float *x, float factor, size_t n, float *y);
void neon_add_parts(const float *parts, uint32_t n_segments, float *y);
void neon_swiglu(const float *gate, const float *up, size_t n, float *y);
void neon_geglu(const float *gate, const float *up, size_t n, float *y);
void neon_reglu(const float *gate, const float *up, size_t n, float *y);
void neon_swiglu_clamped(const float *gate, const float *up, size_t n, float limit, float alpha, float *y);
void neon_sigmoid(const float *x, size_t n, float *y);
void neon_exp_minus(const float *x, float max, size_t n, float *y);
void neon_rope(float *x, size_t n_rot, const float *cos_sin, bool neox);

#define NEON_DECLARE_KV(name)                                                                                          \
    void neon_attend_##name(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,          \
                            size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride,              \
                            float *scratch);                                                                           \
    void neon_store_k_##name(const float *k, size_t head_dim, uint32_t position, void *page, float *scales);           \
    void neon_store_v_##name(const float *v, size_t v_dim, uint32_t position, void *page, float *scales);
NEON_DECLARE_KV(f32)
NEON_DECLARE_KV(f16)
NEON_DECLARE_KV(q8_0)
void neon_attend_merge(float *m, float *l, float *o, float m2, float l2, const float *o2, size_t v_dim);
void neon_attend_finish(float l, const float *o, size_t v_dim, float *y);

#endif

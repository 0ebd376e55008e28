// NEON: attention over one chunk. Up to HEADS query heads share what is read of the page; a tile is 4 registers of
// lanes: 16 keys for scores, 16 dimensions for values. Keys that the query does not see are computed with the rest of
// their tile and replaced afterwards; their values are never touched.
#include "cpu/kernels/arm/neon_math.h"

enum {
    HEADS = 4,
    TILE = 4, // registers
    LANES = 4 * TILE,
};

// Four values of a page from element i on.
typedef float32x4_t load_page(const void *page, size_t i);

NEON_INLINE float32x4_t load_page_f32(const void *page, size_t i)
{
    return vld1q_f32((const float *)page + i);
}

NEON_INLINE float32x4_t load_page_f16(const void *page, size_t i)
{
    return neon_load_half4((const uint8_t *)page + 2 * i);
}

NEON_INLINE float32x4_t load_page_q8_0(const void *page, size_t i)
{
    return vcvtq_f32_s32(neon_load_i8((const uint8_t *)page + i));
}

// ---- scores ----

// Σ q[d] · k[d][p] of one tile of keys, one chain in ascending d.
NEON_INLINE void score_tile(const void *k, load_page *load, const float *q, size_t q_stride, int heads, size_t head_dim,
                            uint32_t first_key, float scores[HEADS][KV_PAGE_POSITIONS])
{
    float32x4_t acc[HEADS][TILE];
    for (int h = 0; h < heads; h++)
        for (int r = 0; r < TILE; r++)
            acc[h][r] = neon_set(0);
    for (size_t d = 0; d < head_dim; d++) {
        NEON_UNROLL
        for (int r = 0; r < TILE; r++) {
            const float32x4_t key = load(k, d * KV_PAGE_POSITIONS + first_key + 4 * (size_t)r);
            NEON_UNROLL
            for (int h = 0; h < heads; h++)
                acc[h][r] = vfmaq_n_f32(acc[h][r], key, q[(size_t)h * q_stride + d]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int r = 0; r < TILE; r++)
            vst1q_f32(scores[h] + first_key + 4 * r, acc[h][r]);
}

// Σ of four groups of 4 dimensions, 4 keys. k: the first group's keys.
NEON_INLINE int32x4_t dot_keys(int32x4_t sum, const int8_t *k, int8x16_t q)
{
    const size_t group = 4 * (size_t)KV_PAGE_POSITIONS; // bytes
    sum = vdotq_laneq_s32(sum, vld1q_s8(k), q, 0);
    sum = vdotq_laneq_s32(sum, vld1q_s8(k + group), q, 1);
    sum = vdotq_laneq_s32(sum, vld1q_s8(k + 2 * group), q, 2);
    return vdotq_laneq_s32(sum, vld1q_s8(k + 3 * group), q, 3);
}

// Σ (dk · dq) · isum over blocks of 32, for one head.
NEON_INLINE void score_q8_0(const struct attention_chunk *chunk, const float *q, size_t head_dim, float *scores)
{
    for (uint32_t p = 0; p < KV_PAGE_POSITIONS; p += 4)
        vst1q_f32(scores + p, neon_set(0));
    for (size_t block = 0; block < head_dim / 32; block++) {
        const int8_t *k = (const int8_t *)chunk->k + block * 32 * KV_PAGE_POSITIONS;
        int8_t q8[32];
        const float dq = neon_q8_block(q + 32 * block, q8);
        for (uint32_t p = chunk->first / 4 * 4; p < chunk->last; p += 4) {
            int32x4_t sum = dot_keys(vdupq_n_s32(0), k + 4 * p, vld1q_s8(q8));
            sum = dot_keys(sum, k + 16 * KV_PAGE_POSITIONS + 4 * p, vld1q_s8(q8 + 16));
            const float32x4_t d = vmulq_n_f32(vld1q_f32(chunk->k_scale + block * KV_PAGE_POSITIONS + p), dq);
            vst1q_f32(scores + p, vfmaq_f32(vld1q_f32(scores + p), d, vcvtq_f32_s32(sum)));
        }
    }
}

// ---- softmax of a chunk ----

// All ones where the query sees positions p … p + 3.
NEON_INLINE uint32x4_t visible(const struct attention_chunk *chunk, uint32_t p)
{
    static const uint32_t lanes[4] = {0, 1, 2, 3};
    const uint32x4_t position = vaddq_u32(vdupq_n_u32(p), vld1q_u32(lanes));
    return vandq_u32(vcgeq_u32(position, vdupq_n_u32(chunk->first)), vcltq_u32(position, vdupq_n_u32(chunk->last)));
}

// From the dot products to scores, and to exp(score - m) in place; keys out of sight get 0. m is the largest score that
// is not NaN.
NEON_INLINE void softmax_chunk(const struct attention_chunk *chunk, bool has_k_scale, float *scores, float *m, float *l)
{
    const uint32_t begin = chunk->first / 4 * 4;
    const float32x4_t softcap = neon_set(chunk->softcap), nothing = neon_set(-INFINITY);
    float32x4_t max = nothing;
    for (uint32_t p = begin; p < chunk->last; p += 4) {
        float32x4_t score = vld1q_f32(scores + p);
        if (has_k_scale)
            score = vmulq_f32(score, vld1q_f32(chunk->k_scale + p));
        score = vmulq_n_f32(score, chunk->scale);
        if (chunk->softcap != 0.0f)
            score = neon_softcap(score, softcap);
        score = vbslq_f32(visible(chunk, p), score, nothing);
        vst1q_f32(scores + p, score);
        max = neon_max(score, max); // the second where a score is NaN
    }
    *m = vmaxvq_f32(max) + 0.0f; // no lane is NaN; never -0
    const float32x4_t base = neon_set(*m == -INFINITY ? 0.0f : *m);
    float32x4_t sums[4] = {neon_set(0), neon_set(0), neon_set(0), neon_set(0)};
    for (uint32_t p = begin; p < chunk->last; p += 4) {
        const float32x4_t weight = neon_exp(vsubq_f32(vld1q_f32(scores + p), base));
        const float32x4_t seen = vbslq_f32(visible(chunk, p), weight, neon_set(0));
        vst1q_f32(scores + p, seen);
        sums[p / 4 % 4] = vaddq_f32(sums[p / 4 % 4], seen);
    }
    *l = neon_fold_16(sums);
}

// ---- values ----

// Where the factors of values lie: 2^e of each position (F16), the scales of each position's blocks (Q8_0), or NULL.
struct value_scales {
    const float *at;
    size_t stride; // floats a position
};

// o[j] = Σ (weight[p] · scale) · v[p][j] over visible positions, one chain in ascending p, of `registers` · 4
// dimensions from j on.
NEON_INLINE void value_tile(const struct attention_chunk *chunk, load_page *load, struct value_scales scales,
                            float weights[HEADS][KV_PAGE_POSITIONS], int heads, int registers, size_t v_dim, size_t j,
                            float *o, size_t o_stride)
{
    float32x4_t acc[HEADS][TILE];
    for (int h = 0; h < heads; h++)
        for (int r = 0; r < registers; r++)
            acc[h][r] = neon_set(0);
    for (size_t p = chunk->first; p < chunk->last; p++) {
        NEON_UNROLL
        for (int r = 0; r < registers; r++) {
            const float32x4_t value = load(chunk->v, p * v_dim + j + 4 * (size_t)r);
            NEON_UNROLL
            for (int h = 0; h < heads; h++) {
                const float factor = scales.at ? weights[h][p] * scales.at[p * scales.stride] : weights[h][p];
                acc[h][r] = vfmaq_n_f32(acc[h][r], value, factor);
            }
        }
    }
    for (int h = 0; h < heads; h++)
        for (int r = 0; r < registers; r++)
            vst1q_f32(o + (size_t)h * o_stride + j + 4 * (size_t)r, acc[h][r]);
}

// The dimensions beyond the last 4 (F32 and F16 only: Q8_0 has whole blocks).
NEON_INLINE void value_rest(const struct attention_chunk *chunk, enum kv_dtype kind, const float *weights, size_t v_dim,
                            float *o)
{
    for (size_t j = v_dim / 4 * 4; j < v_dim; j++) {
        o[j] = 0.0f;
        for (size_t p = chunk->first; p < chunk->last; p++) {
            const size_t i = p * v_dim + j;
            if (kind == KV_DTYPE_F32)
                o[j] = fmaf(weights[p], ((const float *)chunk->v)[i], o[j]);
            else
                o[j] = fmaf(weights[p] * chunk->v_scale[p], half_value(((const uint16_t *)chunk->v)[i]), o[j]);
        }
    }
}

// ---- the kernels ----

struct output {
    float *m, *l, *o;
    size_t o_stride;
};

// `heads` query heads.
NEON_INLINE void attend_heads(const struct attention_chunk *chunk, enum kv_dtype kind, load_page *load, const float *q,
                              size_t q_stride, int heads, size_t head_dim, size_t v_dim, struct output out)
{
    float scores[HEADS][KV_PAGE_POSITIONS];
    if (kind == KV_DTYPE_Q8_0)
        for (int h = 0; h < heads; h++)
            score_q8_0(chunk, q + (size_t)h * q_stride, head_dim, scores[h]);
    else
        for (uint32_t key = chunk->first / LANES * LANES; key < chunk->last; key += LANES)
            score_tile(chunk->k, load, q, q_stride, heads, head_dim, key, scores);
    for (int h = 0; h < heads; h++)
        softmax_chunk(chunk, kind == KV_DTYPE_F16, scores[h], out.m + h, out.l + h);

    struct value_scales scales = {kind == KV_DTYPE_F32 ? NULL : chunk->v_scale, kind == KV_DTYPE_F16 ? 1 : v_dim / 32};
    size_t j = 0;
    for (; j + LANES <= v_dim; j += LANES) {
        if (kind == KV_DTYPE_Q8_0)
            scales.at = chunk->v_scale + j / 32;
        value_tile(chunk, load, scales, scores, heads, TILE, v_dim, j, out.o, out.o_stride);
    }
    for (; j + 4 <= v_dim; j += 4)
        value_tile(chunk, load, scales, scores, heads, 1, v_dim, j, out.o, out.o_stride);
    if (j < v_dim)
        for (int h = 0; h < heads; h++)
            value_rest(chunk, kind, scores[h], v_dim, out.o + (size_t)h * out.o_stride);
}

NEON_INLINE void attend(const struct attention_chunk *chunk, enum kv_dtype kind, load_page *load, const float *q,
                        size_t q_stride, size_t n_q, size_t head_dim, size_t v_dim, struct output out)
{
    while (n_q > 0) {
        const size_t heads = n_q < HEADS ? n_q : HEADS;
        if (heads == 4)
            attend_heads(chunk, kind, load, q, q_stride, 4, head_dim, v_dim, out);
        else if (heads == 3)
            attend_heads(chunk, kind, load, q, q_stride, 3, head_dim, v_dim, out);
        else if (heads == 2)
            attend_heads(chunk, kind, load, q, q_stride, 2, head_dim, v_dim, out);
        else
            attend_heads(chunk, kind, load, q, q_stride, 1, head_dim, v_dim, out);
        q += heads * q_stride;
        out.m += heads;
        out.l += heads;
        out.o += heads * out.o_stride;
        n_q -= heads;
    }
}

#define ATTEND(name, kind)                                                                                             \
    void neon_attend_##name(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,          \
                            size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride,              \
                            float *scratch)                                                                            \
    {                                                                                                                  \
        (void)scratch;                                                                                                 \
        attend(chunk, kind, load_page_##name, q, q_stride, n_q, head_dim, v_dim, (struct output){m, l, o, o_stride});  \
    }
ATTEND(f32, KV_DTYPE_F32)
ATTEND(f16, KV_DTYPE_F16)
ATTEND(q8_0, KV_DTYPE_Q8_0)

void neon_attend_merge(float *m, float *l, float *o, float m2, float l2, const float *o2, size_t v_dim)
{
    const float max = max_f32(*m, m2);
    const float base = max == -INFINITY ? 0.0f : max;
    const float a = exp_f32(*m - base), b = exp_f32(m2 - base);
    *m = max;
    *l = fmaf(*l, a, l2 * b);
    size_t j = 0;
    for (; j + 4 <= v_dim; j += 4)
        vst1q_f32(o + j, vfmaq_n_f32(vmulq_n_f32(vld1q_f32(o2 + j), b), vld1q_f32(o + j), a));
    for (; j < v_dim; j++)
        o[j] = fmaf(o[j], a, o2[j] * b);
}

void neon_attend_finish(float l, const float *o, size_t v_dim, float *y)
{
    size_t j = 0;
    for (; j + 4 <= v_dim; j += 4)
        vst1q_f32(y + j, vdivq_f32(vld1q_f32(o + j), neon_set(l)));
    for (; j < v_dim; j++)
        y[j] = o[j] / l;
}

// Attention over one chunk (a page of 64 positions), the merging of chunks, and the storing of keys and values.
#include "cpu/kernels/c/math.h"
#include "cpu/kernels/c/table.h"

#include "tensor/dtype.h"

// ---- scores ----

// From the dot products of [first, last) to scores, in place.
static void finish_scores(const struct attention_chunk *chunk, float *scores)
{
    for (uint32_t p = chunk->first; p < chunk->last; p++) {
        scores[p] *= chunk->scale;
        if (chunk->softcap != 0.0f)
            scores[p] = softcap_f32(scores[p], chunk->softcap);
    }
}

// scores[p] = Σ q[d] · k[d][p], one chain in ascending d.
static void score_f32(const struct attention_chunk *chunk, const float *q, size_t head_dim, float *scores)
{
    const float *k = chunk->k;
    for (int p = 0; p < KV_PAGE_POSITIONS; p++)
        scores[p] = 0.0f;
    for (size_t d = 0; d < head_dim; d++)
        for (uint32_t p = chunk->first; p < chunk->last; p++)
            scores[p] = fmaf(q[d], k[d * KV_PAGE_POSITIONS + p], scores[p]);
}

static void score_f16(const struct attention_chunk *chunk, const float *q, size_t head_dim, float *scores)
{
    const uint16_t *k = chunk->k;
    for (int p = 0; p < KV_PAGE_POSITIONS; p++)
        scores[p] = 0.0f;
    for (size_t d = 0; d < head_dim; d++)
        for (uint32_t p = chunk->first; p < chunk->last; p++)
            scores[p] = fmaf(q[d], half_value(k[d * KV_PAGE_POSITIONS + p]), scores[p]);
    for (uint32_t p = chunk->first; p < chunk->last; p++)
        scores[p] *= chunk->k_scale[p]; // a power of two: exact
}

// Σ over blocks of 32 of (dk · dq) · isum, one chain in ascending blocks. q is quantized into scratch.
static void score_q8_0(const struct attention_chunk *chunk, const float *q, size_t head_dim, float *scores)
{
    const int8_t *k = chunk->k;
    for (int p = 0; p < KV_PAGE_POSITIONS; p++)
        scores[p] = 0.0f;
    for (size_t block = 0; block < head_dim / 32; block++) {
        int8_t q8[32];
        const float dq = q8_block(q + 32 * block, q8);
        for (uint32_t p = chunk->first; p < chunk->last; p++) {
            int32_t sum = 0;
            for (size_t i = 0; i < 32; i++)
                sum += q8[i] * k[((block * 8 + i / 4) * KV_PAGE_POSITIONS + p) * 4 + i % 4];
            scores[p] = fmaf(chunk->k_scale[block * KV_PAGE_POSITIONS + p] * dq, (float)sum, scores[p]);
        }
    }
}

// ---- softmax of a chunk ----

// Scores to exp(score - m) in place, for the visible positions; gives m and l. m is the largest score that is not NaN
// (-inf where there is none; never -0). Where m is -inf, 0 is subtracted instead, so that scores of -inf give 0. A NaN
// score gives a NaN weight, hence a NaN l and o.
static void softmax_chunk(const struct attention_chunk *chunk, float *scores, float *m, float *l)
{
    float max = -INFINITY;
    for (uint32_t p = chunk->first; p < chunk->last; p++)
        max = max_f32(scores[p], max); // NaN > max is false
    max += 0.0f;
    const float base = max == -INFINITY ? 0.0f : max;

    float sums[16] = {0};
    for (uint32_t p = chunk->first; p < chunk->last; p++) {
        scores[p] = exp_f32(scores[p] - base);
        sums[p % 16] += scores[p];
    }
    *m = max;
    *l = fold_16(sums);
}

// ---- values ----

// o[j] = Σ (weight[p] · 2^e) · v[p][j] over visible positions, one chain in ascending p.
static void add_values_f32(const struct attention_chunk *chunk, const float *weights, size_t v_dim, float *o)
{
    const float *v = chunk->v;
    for (uint32_t p = chunk->first; p < chunk->last; p++)
        for (size_t j = 0; j < v_dim; j++)
            o[j] = fmaf(weights[p], v[p * v_dim + j], o[j]);
}

static void add_values_f16(const struct attention_chunk *chunk, const float *weights, size_t v_dim, float *o)
{
    const uint16_t *v = chunk->v;
    for (uint32_t p = chunk->first; p < chunk->last; p++) {
        const float weight = weights[p] * chunk->v_scale[p];
        for (size_t j = 0; j < v_dim; j++)
            o[j] = fmaf(weight, half_value(v[p * v_dim + j]), o[j]);
    }
}

static void add_values_q8_0(const struct attention_chunk *chunk, const float *weights, size_t v_dim, float *o)
{
    const int8_t *v = chunk->v;
    for (uint32_t p = chunk->first; p < chunk->last; p++)
        for (size_t j = 0; j < v_dim; j++)
            o[j] = fmaf(weights[p] * chunk->v_scale[p * (v_dim / 32) + j / 32], (float)v[p * v_dim + j], o[j]);
}

// ---- the kernels ----

struct kv_functions {
    void (*score)(const struct attention_chunk *chunk, const float *q, size_t head_dim, float *scores);
    void (*add_values)(const struct attention_chunk *chunk, const float *weights, size_t v_dim, float *o);
};

// Where the states of the query heads go: m[n_q], l[n_q], o[n_q][o_stride].
struct attend_out {
    float *m, *l, *o;
    size_t o_stride;
};

static void attend(struct kv_functions kv, const struct attention_chunk *chunk, const float *q, size_t q_stride,
                   size_t n_q, size_t head_dim, size_t v_dim, struct attend_out out, float *scores)
{
    for (size_t head = 0; head < n_q; head++) {
        float *o = out.o + head * out.o_stride;
        kv.score(chunk, q + head * q_stride, head_dim, scores);
        finish_scores(chunk, scores);
        softmax_chunk(chunk, scores, &out.m[head], &out.l[head]);
        for (size_t j = 0; j < v_dim; j++)
            o[j] = 0.0f;
        kv.add_values(chunk, scores, v_dim, o);
    }
}

void C_NAME(c_attend_f32)(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,
                          size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride, float *scratch)
{
    const struct kv_functions kv = {score_f32, add_values_f32};
    attend(kv, chunk, q, q_stride, n_q, head_dim, v_dim, (struct attend_out){m, l, o, o_stride}, scratch);
}

void C_NAME(c_attend_f16)(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,
                          size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride, float *scratch)
{
    const struct kv_functions kv = {score_f16, add_values_f16};
    attend(kv, chunk, q, q_stride, n_q, head_dim, v_dim, (struct attend_out){m, l, o, o_stride}, scratch);
}

void C_NAME(c_attend_q8_0)(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,
                           size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride, float *scratch)
{
    const struct kv_functions kv = {score_q8_0, add_values_q8_0};
    attend(kv, chunk, q, q_stride, n_q, head_dim, v_dim, (struct attend_out){m, l, o, o_stride}, scratch);
}

void C_NAME(c_attend_merge)(float *m, float *l, float *o, float m2, float l2, const float *o2, size_t v_dim)
{
    const float max = max_f32(*m, m2);
    const float base = max == -INFINITY ? 0.0f : max; // both chunks' scores are all -inf: weights 0, not NaN
    const float a = exp_f32(*m - base), b = exp_f32(m2 - base);
    *m = max;
    *l = fmaf(*l, a, l2 * b);
    for (size_t j = 0; j < v_dim; j++)
        o[j] = fmaf(o[j], a, o2[j] * b);
}

void C_NAME(c_attend_finish)(float l, const float *o, size_t v_dim, float *y)
{
    for (size_t j = 0; j < v_dim; j++)
        y[j] = o[j] / l;
}

// ---- storing ----

void C_NAME(c_store_k_f32)(const float *k, size_t head_dim, uint32_t position, void *page, float *scales)
{
    float *out = page;
    (void)scales;
    for (size_t d = 0; d < head_dim; d++)
        out[d * KV_PAGE_POSITIONS + position] = k[d];
}

void C_NAME(c_store_v_f32)(const float *v, size_t v_dim, uint32_t position, void *page, float *scales)
{
    float *out = page;
    (void)scales;
    for (size_t j = 0; j < v_dim; j++)
        out[position * v_dim + j] = v[j];
}

// Writes n values as halves, `stride` halves apart, scaled so that they fit; gives 2^e.
static float store_halves(const float *x, size_t n, uint16_t *out, size_t stride)
{
    const int32_t e = half_exponent(amax_bits(x, n));
    const float down = power_of_two(-e);
    for (size_t i = 0; i < n; i++)
        out[i * stride] = float_to_half(x[i] * down);
    return power_of_two(e);
}

void C_NAME(c_store_k_f16)(const float *k, size_t head_dim, uint32_t position, void *page, float *scales)
{
    scales[position] = store_halves(k, head_dim, (uint16_t *)page + position, KV_PAGE_POSITIONS);
}

void C_NAME(c_store_v_f16)(const float *v, size_t v_dim, uint32_t position, void *page, float *scales)
{
    scales[position] = store_halves(v, v_dim, (uint16_t *)page + position * v_dim, 1);
}

void C_NAME(c_store_k_q8_0)(const float *k, size_t head_dim, uint32_t position, void *page, float *scales)
{
    int8_t *out = page;
    for (size_t block = 0; block < head_dim / 32; block++) {
        int8_t q[32];
        scales[block * KV_PAGE_POSITIONS + position] = q8_block(k + 32 * block, q);
        for (size_t i = 0; i < 32; i++)
            out[((block * 8 + i / 4) * KV_PAGE_POSITIONS + position) * 4 + i % 4] = q[i];
    }
}

void C_NAME(c_store_v_q8_0)(const float *v, size_t v_dim, uint32_t position, void *page, float *scales)
{
    int8_t *out = (int8_t *)page + position * v_dim;
    for (size_t block = 0; block < v_dim / 32; block++)
        scales[position * (v_dim / 32) + block] = q8_block(v + 32 * block, out + 32 * block);
}

// AVX2: attention over one chunk. Up to HEADS query heads share what is read of the page; a tile is 4 registers of
// lanes: 32 keys for scores, 32 dimensions for values. Keys that the query does not see are computed with the rest of
// their tile and replaced afterwards; their values are never touched.
#include "cpu/kernels/x86/avx2_math.h"

enum {
    HEADS = 3, // 12 accumulators, 3 factors and one register of the page fill the 16
    TILE = 4,  // registers
    LANES = 8 * TILE,
};

// Eight values of a page from element i on.
typedef __m256 load_page(const void *page, size_t i);

AVX2_INLINE __m256 load_page_f32(const void *page, size_t i)
{
    return _mm256_loadu_ps((const float *)page + i);
}

AVX2_INLINE __m256 load_page_f16(const void *page, size_t i)
{
    return avx2_load_half8((const uint16_t *)page + i);
}

AVX2_INLINE __m256 load_page_q8_0(const void *page, size_t i)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)((const int8_t *)page + i))));
}

// ---- scores ----

// Σ q[d] · k[d][p] of one tile of keys, one chain in ascending d.
AVX2_INLINE void score_tile(const void *k, load_page *load, const float *q, size_t q_stride, int heads, size_t head_dim,
                            uint32_t first_key, float scores[HEADS][KV_PAGE_POSITIONS])
{
    __m256 acc[HEADS][TILE];
    for (int h = 0; h < heads; h++)
        for (int r = 0; r < TILE; r++)
            acc[h][r] = _mm256_setzero_ps();
    for (size_t d = 0; d < head_dim; d++) {
        __m256 factor[HEADS];
        AVX2_UNROLL
        for (int h = 0; h < heads; h++)
            factor[h] = _mm256_broadcast_ss(q + (size_t)h * q_stride + d);
        AVX2_UNROLL
        for (int r = 0; r < TILE; r++) {
            const __m256 key = load(k, d * KV_PAGE_POSITIONS + first_key + 8 * (size_t)r);
            AVX2_UNROLL
            for (int h = 0; h < heads; h++)
                acc[h][r] = _mm256_fmadd_ps(factor[h], key, acc[h][r]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int r = 0; r < TILE; r++)
            _mm256_storeu_ps(scores[h] + first_key + 8 * r, acc[h][r]);
}

// isum of a block of 32 dimensions for 8 keys. |k| as u8 times q with k's sign: k may be -128, q is not.
AVX2_INLINE void score_block(const int8_t *k, const uint8_t q8[HEADS][32], int heads, __m256i sum[HEADS])
{
    AVX2_UNROLL
    for (int h = 0; h < heads; h++)
        sum[h] = _mm256_setzero_si256();
    AVX2_UNROLL
    for (int g = 0; g < AVX2_GROUPS; g++) {
        const __m256i key = avx2_load32(k + 4 * KV_PAGE_POSITIONS * g), magnitude = _mm256_abs_epi8(key);
        AVX2_UNROLL
        for (int h = 0; h < heads; h++) {
            const __m256i x = _mm256_sign_epi8(avx2_broadcast4(q8[h] + 4 * g), key);
            const __m256i pairs = _mm256_maddubs_epi16(magnitude, x);
            sum[h] = _mm256_add_epi32(sum[h], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
}

// Σ (dk · dq) · isum over blocks of 32, one chain in ascending blocks.
AVX2_INLINE void score_q8_0(const struct attention_chunk *chunk, const float *q, size_t q_stride, int heads,
                            size_t head_dim, float scores[HEADS][KV_PAGE_POSITIONS])
{
    for (int h = 0; h < heads; h++)
        for (int p = 0; p < KV_PAGE_POSITIONS; p += 8)
            _mm256_storeu_ps(scores[h] + p, _mm256_setzero_ps());
    for (size_t block = 0; block < head_dim / 32; block++) {
        float dq[HEADS];
        uint8_t q8[HEADS][32];
        for (int h = 0; h < heads; h++) {
            const __m256i bytes = avx2_q8_block(q + (size_t)h * q_stride + 32 * block, &dq[h]);
            _mm256_storeu_si256((__m256i *)q8[h], bytes);
        }
        for (uint32_t p = chunk->first / 8 * 8; p < chunk->last; p += 8) {
            __m256i sum[HEADS];
            score_block((const int8_t *)chunk->k + (block * 8 * KV_PAGE_POSITIONS + p) * 4, q8, heads, sum);
            const __m256 dk = _mm256_loadu_ps(chunk->k_scale + block * KV_PAGE_POSITIONS + p);
            AVX2_UNROLL
            for (int h = 0; h < heads; h++) {
                const __m256 d = _mm256_mul_ps(dk, avx2_set(dq[h]));
                const __m256 score = _mm256_loadu_ps(scores[h] + p);
                _mm256_storeu_ps(scores[h] + p, _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(sum[h]), score));
            }
        }
    }
}

// ---- softmax of a chunk ----

// All ones where the query sees positions p … p + 7.
AVX2_INLINE __m256 visible(const struct attention_chunk *chunk, uint32_t p)
{
    const __m256i position = _mm256_add_epi32(_mm256_set1_epi32((int)p), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)chunk->first), position);
    const __m256i within = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)chunk->last), position);
    return _mm256_castsi256_ps(_mm256_andnot_si256(before, within));
}

AVX2_INLINE float max_of_8(__m256 v) // none is NaN
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// From the dot products to scores, and to exp(score - m) in place; keys out of sight get 0. m is the largest score that
// is not NaN.
AVX2_INLINE void softmax_chunk(const struct attention_chunk *chunk, bool has_k_scale, float *scores, float *m, float *l)
{
    const uint32_t begin = chunk->first / 16 * 16; // whole sets of 16 accumulators
    const __m256 scale = avx2_set(chunk->scale), softcap = avx2_set(chunk->softcap);
    __m256 max = avx2_set(-INFINITY);
    for (uint32_t p = begin; p < chunk->last; p += 8) {
        __m256 score = _mm256_loadu_ps(scores + p);
        if (has_k_scale)
            score = _mm256_mul_ps(score, _mm256_loadu_ps(chunk->k_scale + p));
        score = _mm256_mul_ps(score, scale);
        if (chunk->softcap != 0.0f)
            score = avx2_softcap(score, softcap);
        score = _mm256_blendv_ps(avx2_set(-INFINITY), score, visible(chunk, p));
        _mm256_storeu_ps(scores + p, score);
        max = _mm256_max_ps(score, max); // the second where a score is NaN
    }
    *m = max_of_8(max) + 0.0f; // never -0
    const __m256 base = avx2_set(*m == -INFINITY ? 0.0f : *m);
    __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (uint32_t p = begin; p < chunk->last; p += 8) {
        const __m256 weight = avx2_exp(_mm256_sub_ps(_mm256_loadu_ps(scores + p), base));
        const __m256 seen = _mm256_and_ps(weight, visible(chunk, p));
        _mm256_storeu_ps(scores + p, seen);
        sums[p / 8 % 2] = _mm256_add_ps(sums[p / 8 % 2], seen);
    }
    *l = avx2_fold_16(sums[0], sums[1]);
}

// ---- values ----

// Where the factors of values lie: 2^e of each position (F16), the scales of each position's blocks (Q8_0), or NULL.
struct value_scales {
    const float *at;
    size_t stride; // floats a position
};

// o[j] = Σ (weight[p] · scale) · v[p][j] over visible positions, one chain in ascending p, of `registers` · 8
// dimensions from j on.
AVX2_INLINE void value_tile(const struct attention_chunk *chunk, load_page *load, struct value_scales scales,
                            float weights[HEADS][KV_PAGE_POSITIONS], int heads, int registers, size_t v_dim, size_t j,
                            float *o, size_t o_stride)
{
    __m256 acc[HEADS][TILE];
    for (int h = 0; h < heads; h++)
        for (int r = 0; r < registers; r++)
            acc[h][r] = _mm256_setzero_ps();
    for (size_t p = chunk->first; p < chunk->last; p++) {
        __m256 factor[HEADS];
        AVX2_UNROLL
        for (int h = 0; h < heads; h++) {
            factor[h] = _mm256_broadcast_ss(&weights[h][p]);
            if (scales.at)
                factor[h] = _mm256_mul_ps(factor[h], _mm256_broadcast_ss(scales.at + p * scales.stride));
        }
        AVX2_UNROLL
        for (int r = 0; r < registers; r++) {
            const __m256 value = load(chunk->v, p * v_dim + j + 8 * (size_t)r);
            AVX2_UNROLL
            for (int h = 0; h < heads; h++)
                acc[h][r] = _mm256_fmadd_ps(factor[h], value, acc[h][r]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int r = 0; r < registers; r++)
            _mm256_storeu_ps(o + (size_t)h * o_stride + j + 8 * r, acc[h][r]);
}

// The dimensions beyond the last 8 (F32 and F16 only: Q8_0 has whole blocks).
AVX2_INLINE void value_rest(const struct attention_chunk *chunk, enum kv_dtype kind, const float *weights, size_t v_dim,
                            float *o)
{
    for (size_t j = v_dim / 8 * 8; j < v_dim; j++) {
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
AVX2_INLINE void attend_heads(const struct attention_chunk *chunk, enum kv_dtype kind, load_page *load, const float *q,
                              size_t q_stride, int heads, size_t head_dim, size_t v_dim, struct output out)
{
    float scores[HEADS][KV_PAGE_POSITIONS];
    if (kind == KV_DTYPE_Q8_0)
        score_q8_0(chunk, q, q_stride, heads, head_dim, scores);
    else
        for (uint32_t key = chunk->first / LANES * LANES; key < chunk->last; key += LANES)
            score_tile(chunk->k, load, q, q_stride, heads, head_dim, key, scores);
    for (int h = 0; h < heads; h++)
        softmax_chunk(chunk, kind == KV_DTYPE_F16, scores[h], out.m + h, out.l + h);

    struct value_scales scales = {kind == KV_DTYPE_F32 ? NULL : chunk->v_scale, kind == KV_DTYPE_F16 ? 1 : v_dim / 32};
    size_t j = 0;
    for (; j + LANES <= v_dim; j += LANES) {
        value_tile(chunk, load, scales, scores, heads, TILE, v_dim, j, out.o, out.o_stride);
        if (kind == KV_DTYPE_Q8_0)
            scales.at++; // the next block of 32
    }
    for (; j + 8 <= v_dim; j += 8)
        value_tile(chunk, load, scales, scores, heads, 1, v_dim, j, out.o, out.o_stride);
    if (j < v_dim)
        for (int h = 0; h < heads; h++)
            value_rest(chunk, kind, scores[h], v_dim, out.o + (size_t)h * out.o_stride);
}

AVX2_INLINE void attend(const struct attention_chunk *chunk, enum kv_dtype kind, load_page *load, const float *q,
                        size_t q_stride, size_t n_q, size_t head_dim, size_t v_dim, struct output out)
{
    while (n_q > 0) {
        // Four heads as two and two.
        const size_t heads = n_q == 4 ? 2 : n_q < HEADS ? n_q : HEADS;
        if (heads == 3)
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
    void avx2_attend_##name(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,          \
                            size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride,              \
                            float *scratch)                                                                            \
    {                                                                                                                  \
        (void)scratch;                                                                                                 \
        attend(chunk, kind, load_page_##name, q, q_stride, n_q, head_dim, v_dim, (struct output){m, l, o, o_stride});  \
    }
ATTEND(f32, KV_DTYPE_F32)
ATTEND(f16, KV_DTYPE_F16)
ATTEND(q8_0, KV_DTYPE_Q8_0)

void avx2_attend_merge(float *m, float *l, float *o, float m2, float l2, const float *o2, size_t v_dim)
{
    const float max = max_f32(*m, m2);
    const float base = max == -INFINITY ? 0.0f : max;
    const float a = exp_f32(*m - base), b = exp_f32(m2 - base);
    *m = max;
    *l = fmaf(*l, a, l2 * b);
    const __m256 by_a = avx2_set(a), by_b = avx2_set(b);
    size_t j = 0;
    for (; j + 8 <= v_dim; j += 8)
        _mm256_storeu_ps(o + j,
                         _mm256_fmadd_ps(_mm256_loadu_ps(o + j), by_a, _mm256_mul_ps(_mm256_loadu_ps(o2 + j), by_b)));
    for (; j < v_dim; j++)
        o[j] = fmaf(o[j], a, o2[j] * b);
}

void avx2_attend_finish(float l, const float *o, size_t v_dim, float *y)
{
    size_t j = 0;
    for (; j + 8 <= v_dim; j += 8)
        _mm256_storeu_ps(y + j, _mm256_div_ps(_mm256_loadu_ps(o + j), avx2_set(l)));
    for (; j < v_dim; j++)
        y[j] = o[j] / l;
}

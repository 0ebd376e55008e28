// Attention over one chunk. Query heads that share a KV head share what is read of the page; 16 keys, or 16 dimensions
// of a value, are the lanes. Keys that the query does not see are computed with the rest of their tile and replaced
// afterwards; their values are never touched.
#include "avx512_kernels.h"
#include "avx512_math.h"

enum {
    HEADS = 6,      // × 4 registers of sums, 4 of the page and the factors: all 32
    HEADS_Q8_0 = 3, // the same, with integer sums besides
    TILE = 4,       // registers: 64 keys, or 64 dimensions
    BLOCK_TILE = 2, // registers that share a scale of Q8_0
};

// Sixteen values of a page from element i on, where mask is set.
typedef __m512 load_page(const void *page, size_t i, __mmask16 mask);

static ALWAYS_INLINE __m512 load_page_f32(const void *page, size_t i, __mmask16 mask)
{
    return _mm512_maskz_loadu_ps(mask, (const float *)page + i);
}

static ALWAYS_INLINE __m512 load_page_f16(const void *page, size_t i, __mmask16 mask)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)page + i));
}

static ALWAYS_INLINE __m512 load_page_q8_0(const void *page, size_t i, __mmask16 mask)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, (const int8_t *)page + i)));
}

// ---- scores ----

// Σ q[d] · k[d][p] for `registers` · 16 keys from first_key on, one chain in ascending d.
static ALWAYS_INLINE void score_tile(const void *k, load_page *load, const float *q, size_t q_stride, size_t heads,
                                     size_t head_dim, size_t first_key, size_t registers,
                                     float scores[HEADS][KV_PAGE_POSITIONS])
{
    __m512 acc[HEADS][TILE];
    UNROLL
    for (size_t h = 0; h < heads; h++)
        UNROLL
    for (size_t r = 0; r < registers; r++)
        acc[h][r] = _mm512_setzero_ps();
    for (size_t d = 0; d < head_dim; d++) {
        __m512 key[TILE];
        UNROLL
        for (size_t r = 0; r < registers; r++)
            key[r] = load(k, d * KV_PAGE_POSITIONS + first_key + 16 * r, 0xffff);
        UNROLL
        for (size_t h = 0; h < heads; h++) {
            __m512 factor = _mm512_set1_ps(q[h * q_stride + d]);
            UNROLL
            for (size_t r = 0; r < registers; r++)
                acc[h][r] = _mm512_fmadd_ps(factor, key[r], acc[h][r]);
        }
    }
    UNROLL
    for (size_t h = 0; h < heads; h++)
        UNROLL
    for (size_t r = 0; r < registers; r++)
        _mm512_store_ps(scores[h] + first_key + 16 * r, acc[h][r]);
}

// The query heads in Q8: head_dim bytes, then a scale for each 32; `stride` floats apart.
static void quantize_heads(const float *q, size_t q_stride, size_t heads, size_t head_dim, float *out, size_t stride)
{
    for (size_t h = 0; h < heads; h++, q += q_stride, out += stride)
        for (size_t block = 0; block < head_dim / 32; block++) {
            __m512 low = _mm512_loadu_ps(q + block * 32), high = _mm512_loadu_ps(q + block * 32 + 16);
            __m512i amax = _mm512_max_epi32(avx512_magnitude(low), avx512_magnitude(high));
            __m512 inverse;
            __m512 d = avx512_q8_scales(_mm512_set1_epi32(_mm512_reduce_max_epi32(amax)), &inverse);
            __mmask16 mask = _mm512_cmp_ps_mask(inverse, _mm512_setzero_ps(), _CMP_NEQ_UQ);
            __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
            __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
            __m128i *bytes = (__m128i *)(void *)(out + block * 8);
            _mm_storeu_si128(bytes, _mm512_maskz_cvtepi32_epi8(mask, first));
            _mm_storeu_si128(bytes + 1, _mm512_maskz_cvtepi32_epi8(mask, second));
            out[head_dim / 4 + block] = _mm512_cvtss_f32(d);
        }
}

// Σ (dk · dq) · isum over blocks of 32, one chain in ascending blocks, of `registers` · 16 keys. Keys become unsigned
// by adding 128, which each sum begins by taking away.
static ALWAYS_INLINE void score_tile_q8_0(const struct attention_chunk *chunk, const float *q8, size_t q8_stride,
                                          size_t heads, size_t head_dim, size_t first_key, size_t registers,
                                          float scores[HEADS][KV_PAGE_POSITIONS])
{
    const __m512i flip = _mm512_set1_epi8(-128);
    const uint8_t *k = (const uint8_t *)chunk->k + first_key * 4;
    __m512 acc[HEADS_Q8_0][TILE];
    UNROLL
    for (size_t h = 0; h < heads; h++)
        UNROLL
    for (size_t r = 0; r < registers; r++)
        acc[h][r] = _mm512_setzero_ps();
    for (size_t block = 0; block < head_dim / 32; block++) {
        __m512i sum[HEADS_Q8_0][TILE];
        UNROLL
        for (size_t h = 0; h < heads; h++) {
            __m512i offset = _mm512_setzero_si512();
            UNROLL
            for (size_t g = 0; g < 8; g++)
                offset = _mm512_dpbusd_epi32(offset, flip, avx512_broadcast_32(q8 + h * q8_stride + block * 8 + g));
            UNROLL
            for (size_t r = 0; r < registers; r++)
                sum[h][r] = _mm512_sub_epi32(_mm512_setzero_si512(), offset);
        }
        UNROLL
        for (size_t g = 0; g < 8; g++) {
            __m512i key[TILE];
            UNROLL
            for (size_t r = 0; r < registers; r++)
                key[r] =
                    _mm512_xor_si512(_mm512_loadu_si512(k + ((block * 8 + g) * KV_PAGE_POSITIONS + 16 * r) * 4), flip);
            UNROLL
            for (size_t h = 0; h < heads; h++) {
                __m512i x = avx512_broadcast_32(q8 + h * q8_stride + block * 8 + g);
                UNROLL
                for (size_t r = 0; r < registers; r++)
                    sum[h][r] = _mm512_dpbusd_epi32(sum[h][r], key[r], x);
            }
        }
        UNROLL
        for (size_t r = 0; r < registers; r++) {
            __m512 dk = _mm512_loadu_ps(chunk->k_scale + block * KV_PAGE_POSITIONS + first_key + 16 * r);
            UNROLL
            for (size_t h = 0; h < heads; h++) {
                __m512 d = _mm512_mul_ps(dk, _mm512_set1_ps(q8[h * q8_stride + head_dim / 4 + block]));
                acc[h][r] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sum[h][r]), acc[h][r]);
            }
        }
    }
    UNROLL
    for (size_t h = 0; h < heads; h++)
        UNROLL
    for (size_t r = 0; r < registers; r++)
        _mm512_store_ps(scores[h] + first_key + 16 * r, acc[h][r]);
}

// ---- softmax of a chunk ----

// From the dot products to scores, and to exp(score - m) in place; keys out of sight get 0. m is the largest score that
// is not NaN. Where values have one scale a position (F16), it is multiplied into the stored weights after the sum.
static ALWAYS_INLINE void softmax_chunk(const struct attention_chunk *chunk, enum kv_dtype kind, float *scores,
                                        float *m, float *l)
{
    const __m512 scale = _mm512_set1_ps(chunk->scale), softcap = _mm512_set1_ps(chunk->softcap);
    const uint64_t visible = ~UINT64_C(0) >> (KV_PAGE_POSITIONS - chunk->last) & ~UINT64_C(0) << chunk->first;
    __m512 max = _mm512_set1_ps(-INFINITY);
    for (int r = 0; r < TILE; r++) {
        __mmask16 mask = (__mmask16)(visible >> (16 * r));
        if (!mask)
            continue;
        __m512 score = _mm512_load_ps(scores + 16 * r);
        if (kind == KV_DTYPE_F16)
            score = _mm512_mul_ps(score, _mm512_maskz_loadu_ps(mask, chunk->k_scale + 16 * r));
        score = _mm512_mul_ps(score, scale);
        if (chunk->softcap != 0.0f)
            score = avx512_softcap(score, softcap);
        max = _mm512_mask_max_ps(max, mask, score, max); // max where a score is NaN
        _mm512_store_ps(scores + 16 * r, score);
    }
    *m = _mm512_reduce_max_ps(max) + 0.0f; // none is NaN; never -0
    const __m512 base = _mm512_set1_ps(*m == -INFINITY ? 0.0f : *m);
    __m512 sum = _mm512_setzero_ps();
    for (int r = 0; r < TILE; r++) {
        __mmask16 mask = (__mmask16)(visible >> (16 * r));
        if (!mask)
            continue;
        __m512 weight = avx512_exp(_mm512_sub_ps(_mm512_load_ps(scores + 16 * r), base));
        sum = _mm512_mask_add_ps(sum, mask, sum, weight);
        if (kind == KV_DTYPE_F16)
            weight = _mm512_mul_ps(weight, _mm512_maskz_loadu_ps(mask, chunk->v_scale + 16 * r));
        _mm512_store_ps(scores + 16 * r, weight);
    }
    *l = avx512_fold_16(sum);
}

// ---- values ----

// o[j] = Σ weight[p] · v[p][j] over visible positions, one chain in ascending p, of `registers` · 16 dimensions from j
// on, fewer where mask says so. scales: of the blocks of Q8_0 that hold j, v_dim / 32 apart, else NULL.
static ALWAYS_INLINE void value_tile(const struct attention_chunk *chunk, load_page *load, const float *scales,
                                     float weights[HEADS][KV_PAGE_POSITIONS], size_t heads, size_t registers,
                                     __mmask16 mask, size_t v_dim, size_t j, float *o, size_t o_stride)
{
    __m512 acc[HEADS][TILE];
    UNROLL
    for (size_t h = 0; h < heads; h++)
        UNROLL
    for (size_t r = 0; r < registers; r++)
        acc[h][r] = _mm512_setzero_ps();
    for (size_t p = chunk->first; p < chunk->last; p++) {
        __m512 value[TILE];
        UNROLL
        for (size_t r = 0; r < registers; r++)
            value[r] = load(chunk->v, p * v_dim + j + 16 * r, mask);
        UNROLL
        for (size_t h = 0; h < heads; h++) {
            float weight = weights[h][p];
            __m512 factor = _mm512_set1_ps(scales ? weight * scales[p * (v_dim / 32)] : weight);
            UNROLL
            for (size_t r = 0; r < registers; r++)
                acc[h][r] = _mm512_fmadd_ps(factor, value[r], acc[h][r]);
        }
    }
    UNROLL
    for (size_t h = 0; h < heads; h++)
        UNROLL
    for (size_t r = 0; r < registers; r++)
        _mm512_mask_storeu_ps(o + h * o_stride + j + 16 * r, mask, acc[h][r]);
}

static ALWAYS_INLINE void add_values(const struct attention_chunk *chunk, enum kv_dtype kind, load_page *load,
                                     float weights[HEADS][KV_PAGE_POSITIONS], size_t heads, size_t v_dim, float *o,
                                     size_t o_stride)
{
    size_t j = 0;
    if (kind == KV_DTYPE_Q8_0) {
        for (; j < v_dim; j += 16 * BLOCK_TILE)
            value_tile(chunk, load, chunk->v_scale + j / 32, weights, heads, BLOCK_TILE, 0xffff, v_dim, j, o, o_stride);
        return;
    }
    for (; j + 16 * TILE <= v_dim; j += 16 * TILE)
        value_tile(chunk, load, NULL, weights, heads, TILE, 0xffff, v_dim, j, o, o_stride);
    for (; j < v_dim; j += 16)
        value_tile(chunk, load, NULL, weights, heads, 1, avx512_mask_16(v_dim - j), v_dim, j, o, o_stride);
}

// ---- the kernels ----

struct attend_out {
    float *m, *l, *o;
    size_t o_stride;
};

// `heads` query heads, a constant.
static ALWAYS_INLINE void attend_heads(const struct attention_chunk *chunk, enum kv_dtype kind, load_page *load,
                                       const float *q, size_t q_stride, size_t heads, size_t head_dim, size_t v_dim,
                                       struct attend_out out, float *scratch)
{
    _Alignas(64) float scores[HEADS][KV_PAGE_POSITIONS];
    const size_t q8_stride = head_dim / 4 + head_dim / 32; // floats
    if (kind == KV_DTYPE_Q8_0)
        quantize_heads(q, q_stride, heads, head_dim, scratch, q8_stride);
    // All 64 keys at once, or the half that is seen: a chunk at the end of a sequence is often short.
    const bool low = chunk->first<KV_PAGE_POSITIONS / 2, high = chunk->last> KV_PAGE_POSITIONS / 2;
    const size_t first_key = low ? 0 : KV_PAGE_POSITIONS / 2;
    if (kind == KV_DTYPE_Q8_0 && low && high)
        score_tile_q8_0(chunk, scratch, q8_stride, heads, head_dim, 0, TILE, scores);
    else if (kind == KV_DTYPE_Q8_0)
        score_tile_q8_0(chunk, scratch, q8_stride, heads, head_dim, first_key, TILE / 2, scores);
    else if (low && high)
        score_tile(chunk->k, load, q, q_stride, heads, head_dim, 0, TILE, scores);
    else
        score_tile(chunk->k, load, q, q_stride, heads, head_dim, first_key, TILE / 2, scores);
    for (size_t h = 0; h < heads; h++)
        softmax_chunk(chunk, kind, scores[h], out.m + h, out.l + h);
    add_values(chunk, kind, load, scores, heads, v_dim, out.o, out.o_stride);
}

static ALWAYS_INLINE void attend(const struct attention_chunk *chunk, enum kv_dtype kind, load_page *load,
                                 const float *q, size_t q_stride, size_t n_q, size_t head_dim, size_t v_dim,
                                 struct attend_out out, float *scratch)
{
    const size_t most = kind == KV_DTYPE_Q8_0 ? HEADS_Q8_0 : HEADS;
    while (n_q > 0) {
        size_t heads = avx512_tile_size(n_q, most);
#define CASE(n)                                                                                                        \
    case n:                                                                                                            \
        attend_heads(chunk, kind, load, q, q_stride, n, head_dim, v_dim, out, scratch);                                \
        break;
        if (kind == KV_DTYPE_Q8_0)
            switch (heads) {
                CASE(1)
                CASE(2)
                CASE(3)
            }
        else
            switch (heads) {
                CASE(1)
                CASE(2)
                CASE(3)
                CASE(4)
                CASE(5)
                CASE(6)
            }
#undef CASE
        q += heads * q_stride;
        out.m += heads;
        out.l += heads;
        out.o += heads * out.o_stride;
        n_q -= heads;
    }
}

#define ATTEND(name, kind)                                                                                             \
    void avx512_attend_##name(const struct attention_chunk *chunk, const float *q, size_t q_stride, size_t n_q,        \
                              size_t head_dim, size_t v_dim, float *m, float *l, float *o, size_t o_stride,            \
                              float *scratch)                                                                          \
    {                                                                                                                  \
        attend(chunk, kind, load_page_##name, q, q_stride, n_q, head_dim, v_dim,                                       \
               (struct attend_out){m, l, o, o_stride}, scratch);                                                       \
    }
ATTEND(f32, KV_DTYPE_F32)
ATTEND(f16, KV_DTYPE_F16)
ATTEND(q8_0, KV_DTYPE_Q8_0)

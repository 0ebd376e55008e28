// Values that are not stored: in multi-head latent attention (MLA) a value is the first v_dim elements of its key, so
// the cache holds keys alone, as [head_dim][64 positions]. The kernels want values as [64 positions][v_dim]: here they
// are transposed out of a page into scratch. Only copies: no bit changes.
//
// Q8_0 keys lie in groups of 4 consecutive elements, which stay together: words of 32 bits, as F32 values are.
#include "cpu/plan.h"

#include "base/checked.h"

#include <string.h>

typedef uint32_t words __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));

enum { WORDS = 4, HALVES = 8, ALIGNED = 8 }; // lanes of a vector; positions are rounded to tiles

// Transposing a square is log2(lanes) rounds in which row i is interleaved with row i + lanes / 2.
static void transpose_words_tile(const uint32_t *in, uint32_t *out, size_t out_stride)
{
    words a[WORDS], b[WORDS];
    for (int i = 0; i < WORDS; i++)
        memcpy(&a[i], in + i * KV_PAGE_POSITIONS, sizeof(a[i]));
    for (int i = 0; i < WORDS / 2; i++) {
        b[2 * i] = __builtin_shufflevector(a[i], a[i + 2], 0, 4, 1, 5);
        b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 2], 2, 6, 3, 7);
    }
    for (int i = 0; i < WORDS / 2; i++) {
        a[2 * i] = __builtin_shufflevector(b[i], b[i + 2], 0, 4, 1, 5);
        a[2 * i + 1] = __builtin_shufflevector(b[i], b[i + 2], 2, 6, 3, 7);
    }
    for (int i = 0; i < WORDS; i++)
        memcpy(out + (size_t)i * out_stride, &a[i], sizeof(a[i]));
}

static void interleave_halves(const halves a[HALVES], halves b[HALVES])
{
    for (int i = 0; i < HALVES / 2; i++) {
        b[2 * i] = __builtin_shufflevector(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
}

static void transpose_halves_tile(const uint16_t *in, uint16_t *out, size_t out_stride)
{
    halves a[HALVES], b[HALVES];
    for (int i = 0; i < HALVES; i++)
        memcpy(&a[i], in + i * KV_PAGE_POSITIONS, sizeof(a[i]));
    interleave_halves(a, b);
    interleave_halves(b, a);
    interleave_halves(a, b);
    for (int i = 0; i < HALVES; i++)
        memcpy(out + (size_t)i * out_stride, &b[i], sizeof(b[i]));
}

// in [n][64] → out [64][n], for positions [first, last): multiples of ALIGNED.
static void transpose_words(const uint32_t *in, size_t n, uint32_t first, uint32_t last, uint32_t *out)
{
    for (uint32_t p = first; p < last; p += WORDS) {
        size_t i = 0;
        for (; i + WORDS <= n; i += WORDS)
            transpose_words_tile(in + i * KV_PAGE_POSITIONS + p, out + p * n + i, n);
        for (; i < n; i++)
            for (uint32_t j = 0; j < WORDS; j++)
                out[(p + j) * n + i] = in[i * KV_PAGE_POSITIONS + p + j];
    }
}

static void transpose_halves(const uint16_t *in, size_t n, uint32_t first, uint32_t last, uint16_t *out)
{
    for (uint32_t p = first; p < last; p += HALVES) {
        size_t i = 0;
        for (; i + HALVES <= n; i += HALVES)
            transpose_halves_tile(in + i * KV_PAGE_POSITIONS + p, out + p * n + i, n);
        for (; i < n; i++)
            for (uint32_t j = 0; j < HALVES; j++)
                out[(p + j) * n + i] = in[i * KV_PAGE_POSITIONS + p + j];
    }
}

static size_t value_bytes(enum kv_dtype kv, size_t v_dim)
{
    return kv_element_bytes(kv) * KV_PAGE_POSITIONS * v_dim; // a multiple of 64
}

size_t cpu_latent_bytes(enum kv_dtype kv, size_t v_dim)
{
    size_t scales = kv == KV_DTYPE_Q8_0 ? KV_PAGE_POSITIONS * (v_dim / 32) * sizeof(float) : 0;
    return value_bytes(kv, v_dim) + scales;
}

void cpu_latent_values(enum kv_dtype kv, struct attention_chunk *chunk, size_t v_dim, void *memory)
{
    uint32_t first = chunk->first / ALIGNED * ALIGNED, last = (uint32_t)round_up(chunk->last, ALIGNED);
    chunk->v = memory;
    if (kv == KV_DTYPE_F16) {
        transpose_halves(chunk->k, v_dim, first, last, memory);
        chunk->v_scale = chunk->k_scale; // one scale a position
    } else if (kv == KV_DTYPE_F32) {
        transpose_words(chunk->k, v_dim, first, last, memory);
    } else {
        void *scales = (uint8_t *)memory + value_bytes(kv, v_dim);
        transpose_words(chunk->k, v_dim / 4, first, last, memory);
        transpose_words((const uint32_t *)(const void *)chunk->k_scale, v_dim / 32, first, last, scales);
        chunk->v_scale = scales;
    }
}

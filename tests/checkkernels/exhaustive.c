// The functions of one number over all 2^32 floats, or one in `stride` blocks of 4096: minutes, so only when asked for.
// The reference is the C table with FMA instructions where there is one, since the other would take hours.
#include "check.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 4096 };

struct blocks {
    float x[BLOCK];
    float ones[BLOCK];
    _Alignas(64) float row[BLOCK + 16]; // as long as f32_row_bytes(BLOCK)
};

static size_t run_exp(const struct kernels *kernels, struct blocks *b)
{
    kernels->exp_minus(b->x, 0.0f, BLOCK, b->row);
    return BLOCK;
}

static size_t run_silu(const struct kernels *kernels, struct blocks *b)
{
    kernels->swiglu(b->x, b->ones, BLOCK, b->row);
    return BLOCK;
}

static size_t run_gelu(const struct kernels *kernels, struct blocks *b)
{
    kernels->geglu(b->x, b->ones, BLOCK, b->row);
    return BLOCK;
}

static size_t run_clamped(const struct kernels *kernels, struct blocks *b)
{
    kernels->swiglu_clamped(b->x, b->x, BLOCK, 7.0f, 1.702f, b->row);
    return BLOCK;
}

static size_t run_bfloat(const struct kernels *kernels, struct blocks *b)
{
    kernels->round_bf16(b->x, BLOCK, b->row);
    return BLOCK + MAX_SEGMENTS;
}

static size_t run_half(const struct kernels *kernels, struct blocks *b)
{
    struct segments segments;
    segments_make(&segments, BLOCK, 16);
    kernels->round_f16(b->x, BLOCK, &segments, b->row);
    return BLOCK + MAX_SEGMENTS;
}

static void check_all(struct check *check, size_t (*run)(const struct kernels *kernels, struct blocks *b))
{
    static struct blocks expected, got; // 100 KB
    for (int i = 0; i < BLOCK; i++)
        expected.ones[i] = got.ones[i] = 1.0f;
    const size_t failures = check->n_failures;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32 && check->n_failures == failures;
         bits += (uint64_t)BLOCK * check->stride) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            const uint32_t pattern = (uint32_t)bits + i;
            memcpy(&expected.x[i], &pattern, sizeof(pattern));
        }
        memcpy(got.x, expected.x, sizeof(got.x));
        check_case(check, "x from bits %08x", (unsigned)bits);
        const size_t n = run(check->reference, &expected);
        run(check->tested, &got);
        if (memcmp(expected.row, got.row, n * sizeof(float)) != 0)
            check_floats(check, "y", expected.row, got.row, n);
    }
    check->n_checks++;
}

void check_exhaustive(struct check *check)
{
    check->reference = kernels_c();
    if (check->tested == check->reference)
        return;
    if (check_begin(check, check->tested->exp_minus, "exhaustive exp"))
        check_all(check, run_exp);
    if (check_begin(check, check->tested->swiglu, "exhaustive silu"))
        check_all(check, run_silu);
    if (check_begin(check, check->tested->geglu, "exhaustive gelu"))
        check_all(check, run_gelu);
    if (check_begin(check, check->tested->round_f16, "exhaustive round_f16"))
        check_all(check, run_half);
    if (check_begin(check, check->tested->round_bf16, "exhaustive round_bf16"))
        check_all(check, run_bfloat);
    if (check_begin(check, check->tested->swiglu_clamped, "exhaustive swiglu_clamped"))
        check_all(check, run_clamped);
}

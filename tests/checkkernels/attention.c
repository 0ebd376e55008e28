// Attention: chunks of every KV type, masks, head sizes, and the storing and merging around them.
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kv_names[KV_DTYPE_COUNT] = {"f32", "f16", "q8_0"};
static const size_t element_bytes[KV_DTYPE_COUNT] = {4, 2, 1};
static const size_t head_dims[] = {32, 64, 80, 96, 128, 256};
enum { N_HEAD_DIMS = sizeof(head_dims) / sizeof(head_dims[0]) };

static bool head_dim_fits(enum kv_dtype kv, size_t head_dim)
{
    return kv != KV_DTYPE_Q8_0 || head_dim % 32 == 0;
}

// A page filled by the reference's store kernels.
struct page {
    struct guarded k, v, k_scale, v_scale;
};

static struct page make_page(enum kv_dtype kv, size_t head_dim, size_t v_dim)
{
    struct page page;
    page.k = guarded_make(KV_PAGE_POSITIONS * head_dim * element_bytes[kv], 0);
    page.v = guarded_make(KV_PAGE_POSITIONS * v_dim * element_bytes[kv], 0);
    // F16: one a position; Q8_0: one a position and 32 elements.
    guarded_floats(&page.k_scale, KV_PAGE_POSITIONS * (kv == KV_DTYPE_Q8_0 ? head_dim / 32 : 1), 0);
    guarded_floats(&page.v_scale, KV_PAGE_POSITIONS * (kv == KV_DTYPE_Q8_0 ? v_dim / 32 : 1), 0);
    return page;
}

static void free_page(struct page *page)
{
    guarded_free(&page->k);
    guarded_free(&page->v);
    guarded_free(&page->k_scale);
    guarded_free(&page->v_scale);
}

static float *floats_of(const struct guarded *guarded)
{
    return (float *)(void *)guarded->data;
}

// Stores 64 keys and values of one input kind with both tables; compares the pages. The reference's page stays.
static struct page check_store(struct check *check, enum kv_dtype kv, size_t head_dim, size_t v_dim, enum input input)
{
    struct page expected = make_page(kv, head_dim, v_dim), got = make_page(kv, head_dim, v_dim);
    struct guarded k, v;
    float *k_row = guarded_floats(&k, head_dim, 1), *v_row = guarded_floats(&v, v_dim, 1);
    for (uint32_t p = 0; p < KV_PAGE_POSITIONS; p++) {
        check_fill(check, input, k_row, head_dim);
        check_fill(check, input, v_row, v_dim);
        check->reference->store_k[kv](k_row, head_dim, p, expected.k.data, floats_of(&expected.k_scale));
        check->reference->store_v[kv](v_row, v_dim, p, expected.v.data, floats_of(&expected.v_scale));
        if (check->tested->store_k[kv])
            check->tested->store_k[kv](k_row, head_dim, p, got.k.data, floats_of(&got.k_scale));
        if (check->tested->store_v[kv])
            check->tested->store_v[kv](v_row, v_dim, p, got.v.data, floats_of(&got.v_scale));
    }
    if (check->tested->store_k[kv] && check->tested->store_v[kv]) {
        const size_t n_k = expected.k_scale.size / 4, n_v = expected.v_scale.size / 4;
        check_floats(check, "stored k scales", floats_of(&expected.k_scale), floats_of(&got.k_scale), n_k);
        check_floats(check, "stored v scales", floats_of(&expected.v_scale), floats_of(&got.v_scale), n_v);
        if (kv == KV_DTYPE_F32) {
            check_floats(check, "stored k", floats_of(&expected.k), floats_of(&got.k), KV_PAGE_POSITIONS * head_dim);
            check_floats(check, "stored v", floats_of(&expected.v), floats_of(&got.v), KV_PAGE_POSITIONS * v_dim);
        } else if (input != INPUT_SPECIAL || kv == KV_DTYPE_Q8_0) { // NaN in halves: payloads differ
            check_bytes(check, "stored k", expected.k.data, got.k.data, expected.k.size);
            check_bytes(check, "stored v", expected.v.data, got.v.data, expected.v.size);
        }
        check_guards(check, &got.k);
        check_guards(check, &got.v);
        check_guards(check, &got.k_scale);
        check_guards(check, &got.v_scale);
    }
    guarded_free(&k);
    guarded_free(&v);
    free_page(&got);
    return expected;
}

struct attend_case {
    const struct kernels *kernels;
    enum kv_dtype kv;
    struct attention_chunk chunk;
    const float *q;
    size_t q_stride, n_q, head_dim, v_dim;
    float *m, *l, *o;
    size_t o_stride;
    float *scratch;
};

static void run_attend(void *user)
{
    struct attend_case *c = user;
    c->kernels->attend[c->kv](&c->chunk, c->q, c->q_stride, c->n_q, c->head_dim, c->v_dim, c->m, c->l, c->o,
                              c->o_stride, c->scratch);
}

// Runs both tables on one case and compares.
static void check_attend_case(struct check *check, struct attend_case *c)
{
    struct guarded m[2], l[2], o[2], scratch;
    c->scratch = guarded_floats(&scratch, attend_scratch_floats(c->n_q, c->head_dim), 0);
    for (int i = 0; i < 2; i++) {
        c->kernels = i == 0 ? check->reference : check->tested;
        c->m = guarded_floats(&m[i], c->n_q, 0);
        c->l = guarded_floats(&l[i], c->n_q, 0);
        c->o = guarded_floats(&o[i], c->n_q * c->o_stride, 0);
        run_attend(c);
        check_guards(check, &scratch);
    }
    check_floats(check, "m", floats_of(&m[0]), floats_of(&m[1]), c->n_q);
    check_floats(check, "l", floats_of(&l[0]), floats_of(&l[1]), c->n_q);
    check_floats(check, "o", floats_of(&o[0]), floats_of(&o[1]), c->n_q * c->o_stride);
    check_guards(check, &m[1]);
    check_guards(check, &l[1]);
    check_guards(check, &o[1]);
    for (int i = 0; i < 2; i++) {
        guarded_free(&m[i]);
        guarded_free(&l[i]);
        guarded_free(&o[i]);
    }
    guarded_free(&scratch);
}

static void fill_query(struct check *check, int variant, float *q, size_t n)
{
    check_fill(check, variant % 3 == 2 ? (enum input)(variant % INPUT_COUNT) : INPUT_NORMAL, q, n);
    if (variant % 5 == 4) // a NaN in one query head only
        q[check_random_below(check, n)] = NAN;
}

static void check_attend(struct check *check, enum kv_dtype kv, size_t head_dim, size_t v_dim, enum input input)
{
    static const uint32_t ranges[][2] = {{0, 64}, {0, 1}, {63, 64}, {5, 6}, {3, 61}, {16, 48}, {0, 17}, {31, 64}};
    enum { N_RANGES = sizeof(ranges) / sizeof(ranges[0]), MAX_Q = 9 };
    check_case(check, "head_dim=%zu v_dim=%zu input=%s", head_dim, v_dim, input_names[input]);
    struct page page = check_store(check, kv, head_dim, v_dim, input);
    struct guarded q;
    float *q_data = guarded_floats(&q, MAX_Q * (head_dim + 3), 1);
    for (int variant = 0; variant < 2 * N_RANGES; variant++) {
        struct attend_case c = {
            .kv = kv,
            .chunk =
                {
                    .k = page.k.data,
                    .v = page.v.data,
                    .k_scale = kv == KV_DTYPE_F32 ? NULL : floats_of(&page.k_scale),
                    .v_scale = kv == KV_DTYPE_F32 ? NULL : floats_of(&page.v_scale),
                    .scale = variant % 4 == 3 ? 1.0f : 0.125f,
                    .softcap = variant % 3 == 1 ? 30.0f : 0.0f,
                    .first = ranges[variant % N_RANGES][0],
                    .last = ranges[variant % N_RANGES][1],
                },
            .q = q_data,
            .q_stride = head_dim + 3 * (size_t)(variant % 2),
            .n_q = 1 + (size_t)variant % MAX_Q,
            .head_dim = head_dim,
            .v_dim = v_dim,
            .o_stride = v_dim + (size_t)(variant % 3),
        };
        fill_query(check, variant, q_data, c.n_q * c.q_stride);
        check_case(check, "head_dim=%zu v_dim=%zu n_q=%zu visible=[%u,%u) softcap=%g kv=%s variant=%d", head_dim, v_dim,
                   c.n_q, c.chunk.first, c.chunk.last, (double)c.chunk.softcap, input_names[input], variant);
        check_attend_case(check, &c);
    }
    guarded_free(&q);
    free_page(&page);
}

static void bench_attend(struct check *check, enum kv_dtype kv, size_t head_dim, size_t n_q)
{
    struct page page = check_store(check, kv, head_dim, head_dim, INPUT_NORMAL);
    struct guarded q, m, l, o, scratch;
    struct attend_case c = {
        .kernels = check->tested,
        .kv = kv,
        .chunk = {page.k.data, page.v.data, floats_of(&page.k_scale), floats_of(&page.v_scale), 0.125f, 0, 0, 64},
        .q = guarded_floats(&q, n_q * head_dim, 0),
        .q_stride = head_dim,
        .n_q = n_q,
        .head_dim = head_dim,
        .v_dim = head_dim,
        .m = guarded_floats(&m, n_q, 0),
        .l = guarded_floats(&l, n_q, 0),
        .o = guarded_floats(&o, n_q * head_dim, 0),
        .o_stride = head_dim,
        .scratch = guarded_floats(&scratch, attend_scratch_floats(n_q, head_dim), 0),
    };
    check_fill(check, INPUT_NORMAL, floats_of(&q), n_q * head_dim);
    check_case(check, "head_dim=%zu n_q=%zu", head_dim, n_q);
    check_bench(check, run_attend, &c, (double)(page.k.size + page.v.size),
                4.0 * KV_PAGE_POSITIONS * (double)(head_dim * n_q));
    free_page(&page);
    guarded_free(&q);
    guarded_free(&m);
    guarded_free(&l);
    guarded_free(&o);
    guarded_free(&scratch);
}

// Merging and finishing, also from states with -inf, inf and NaN.
static void check_merge(struct check *check)
{
    static const float maxima[] = {0, 1.5f, -3, 88, -200, 3e38f, -INFINITY, INFINITY};
    enum { N_MAXIMA = sizeof(maxima) / sizeof(maxima[0]) };
    for (size_t d = 0; d < N_HEAD_DIMS; d++)
        for (int pair = 0; pair < N_MAXIMA * N_MAXIMA; pair++) {
            const size_t v_dim = head_dims[d];
            struct guarded expected, got, other, expected_y, got_y;
            float *o = guarded_floats(&expected, v_dim, 1), *o_got = guarded_floats(&got, v_dim, 1);
            float *o2 = guarded_floats(&other, v_dim, 2);
            float *y = guarded_floats(&expected_y, v_dim, 3), *y_got = guarded_floats(&got_y, v_dim, 3);
            float m = maxima[pair / N_MAXIMA], m2 = maxima[pair % N_MAXIMA], l = 3.25f, l2 = 0.75f, m_got = m,
                  l_got = l;
            check_fill(check, pair % 3 ? INPUT_NORMAL : INPUT_SPECIAL, o, v_dim);
            check_fill(check, INPUT_NORMAL, o2, v_dim);
            memcpy(o_got, o, v_dim * sizeof(*o));
            check_case(check, "v_dim=%zu m=%g m2=%g", v_dim, (double)m, (double)m2);
            check->reference->attend_merge(&m, &l, o, m2, l2, o2, v_dim);
            check->tested->attend_merge(&m_got, &l_got, o_got, m2, l2, o2, v_dim);
            check_floats(check, "m", &m, &m_got, 1);
            check_floats(check, "l", &l, &l_got, 1);
            check_floats(check, "o", o, o_got, v_dim);
            check_guards(check, &got);
            check->reference->attend_finish(l, o, v_dim, y);
            check->tested->attend_finish(l, o, v_dim, y_got);
            check_floats(check, "y", y, y_got, v_dim);
            check_guards(check, &got_y);
            guarded_free(&expected);
            guarded_free(&got);
            guarded_free(&other);
            guarded_free(&expected_y);
            guarded_free(&got_y);
        }
}

void check_attention(struct check *check)
{
    const struct kernels *k = check->tested;
    for (int kv = 0; kv < KV_DTYPE_COUNT; kv++) {
        if (check_begin(check, k->store_k[kv] && k->store_v[kv], "store.%s", kv_names[kv]) && !check->bench)
            for (size_t i = 0; i < N_HEAD_DIMS; i++)
                for (int input = 0; input < INPUT_COUNT && head_dim_fits(kv, head_dims[i]); input++) {
                    check_case(check, "head_dim=%zu input=%s", head_dims[i], input_names[input]);
                    struct page page =
                        check_store(check, kv, head_dims[i], head_dims[N_HEAD_DIMS - 1 - i] / 32 * 32, input);
                    free_page(&page);
                }
        if (!check_begin(check, k->attend[kv], "attend.%s", kv_names[kv]))
            continue;
        if (check->bench) {
            bench_attend(check, kv, 64, 3);
            bench_attend(check, kv, 256, 4);
            continue;
        }
        for (size_t i = 0; i < N_HEAD_DIMS; i++)
            for (int input = 0; input < INPUT_COUNT && head_dim_fits(kv, head_dims[i]); input++)
                check_attend(check, kv, head_dims[i], i == 2 ? 32 : head_dims[i], input);
    }
    if (check_begin(check, k->attend_merge && k->attend_finish, "attend_merge attend_finish") && !check->bench)
        check_merge(check);
}

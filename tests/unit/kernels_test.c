// The C kernels of rows and attention against independent computations in F64, and what they make of values that are
// not finite. (Products: packed_test. Other tables against these: checkkernels.)
#include "cpu/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 11;

static float random_float(void) // [-1, 1)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)((double)(int64_t)(z ^ z >> 31) * 0x1p-63);
}

static void fill(float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = random_float() * scale;
}

static void assert_near(double expected, double got, double bound)
{
    if (!(fabs(expected - got) <= bound))
        fail_msg("expected %.9g, got %.9g: more than %.3g apart", expected, got, bound);
}

// ---- rows ----

static void test_rms_norm(void **state)
{
    (void)state;
    enum { N = 577 };
    float x[N], weight[N], y[N];
    fill(x, N, 3.0f);
    fill(weight, N, 2.0f);
    double squares = 0;
    for (int i = 0; i < N; i++)
        squares += (double)x[i] * (double)x[i];
    const double factor = 1 / sqrt(squares / N + 1e-5);
    kernels_c()->rms_norm(x, weight, N, 1e-5f, y);
    for (int i = 0; i < N; i++)
        assert_near((double)x[i] * factor * (double)weight[i], (double)y[i], 1e-6 * fabs((double)y[i]));
    kernels_c()->rms_norm(x, NULL, N, 1e-5f, x);
    for (int i = 0; i < N; i++)
        assert_near((double)x[i] * (double)weight[i], (double)y[i], 1e-6 * fabs((double)y[i]));
}

// A row whose squares leave F32 has no norm: it must not become zeros.
static void test_rms_norm_beyond_range(void **state)
{
    (void)state;
    float x[40], y[40];
    fill(x, 40, 1.0f);
    x[17] = 2e19f;
    kernels_c()->rms_norm(x, NULL, 40, 1e-5f, y);
    for (int i = 0; i < 40; i++)
        assert_true(isnan(y[i]));
    x[17] = 1e19f;
    kernels_c()->rms_norm(x, NULL, 40, 1e-5f, y);
    assert_near(sqrt(40.0), (double)y[17], 1e-5);
}

// Both layouts of pairs are the same rotation of other elements; rotating by an angle and back changes little.
static void test_rope(void **state)
{
    (void)state;
    enum { N = 64 };
    float x[N], pairs[N], neox[N], cos_sin[N], back[N];
    fill(x, N, 2.0f);
    for (int i = 0; i < N / 2; i++) {
        cos_sin[i] = (float)cos(0.3 * i);
        cos_sin[N / 2 + i] = (float)sin(0.3 * i);
        back[i] = cos_sin[i];
        back[N / 2 + i] = -cos_sin[N / 2 + i];
        neox[i] = x[2 * i];
        neox[N / 2 + i] = x[2 * i + 1];
    }
    memcpy(pairs, x, sizeof(x));
    kernels_c()->rope(pairs, N, cos_sin, false);
    kernels_c()->rope(neox, N, cos_sin, true);
    for (int i = 0; i < N / 2; i++) {
        assert_true(pairs[2 * i] == neox[i] && pairs[2 * i + 1] == neox[N / 2 + i]);
        const double expected = (double)x[2 * i] * cos(0.3 * i) - (double)x[2 * i + 1] * sin(0.3 * i);
        assert_near(expected, (double)pairs[2 * i], 1e-6);
    }
    kernels_c()->rope(pairs, N, back, false);
    for (int i = 0; i < N; i++)
        assert_near((double)x[i], (double)pairs[i], 1e-6);
}

// ---- attention ----

enum { DIM = 64, PAGES = 3, POSITIONS = PAGES * KV_PAGE_POSITIONS };

// The pages of one KV head, large enough for every kind.
struct cache {
    _Alignas(64) uint8_t k[PAGES][KV_PAGE_POSITIONS * DIM * 4];
    _Alignas(64) uint8_t v[PAGES][KV_PAGE_POSITIONS * DIM * 4];
    float k_scale[PAGES][KV_PAGE_POSITIONS * DIM / 32];
    float v_scale[PAGES][KV_PAGE_POSITIONS * DIM / 32];
};

static void store(struct cache *cache, enum kv_dtype kv, uint32_t position, const float *k, const float *v)
{
    const uint32_t page = position / KV_PAGE_POSITIONS, p = position % KV_PAGE_POSITIONS;
    kernels_c()->store_k[kv](k, DIM, p, cache->k[page], cache->k_scale[page]);
    kernels_c()->store_v[kv](v, DIM, p, cache->v[page], cache->v_scale[page]);
}

// One query over the positions [first, last): chunk after chunk.
static void attend(const struct cache *cache, enum kv_dtype kv, const float *q, uint32_t first, uint32_t last,
                   float softcap, float *y)
{
    const struct kernels *kernels = kernels_c();
    float m = 0, l = 0, m2, l2, o[DIM], o2[DIM], *scratch = calloc(attend_scratch_floats(1, DIM), sizeof(*scratch));
    assert_non_null(scratch);
    for (uint32_t page = first / KV_PAGE_POSITIONS; page * KV_PAGE_POSITIONS < last; page++) {
        const uint32_t start = page * KV_PAGE_POSITIONS, end = last - start;
        const struct attention_chunk chunk = {
            .k = cache->k[page],
            .v = cache->v[page],
            .k_scale = cache->k_scale[page],
            .v_scale = cache->v_scale[page],
            .scale = 0.125f,
            .softcap = softcap,
            .first = first > start ? first - start : 0,
            .last = end < KV_PAGE_POSITIONS ? end : KV_PAGE_POSITIONS,
        };
        if (page == first / KV_PAGE_POSITIONS) {
            kernels->attend[kv](&chunk, q, DIM, 1, DIM, DIM, &m, &l, o, DIM, scratch);
        } else {
            kernels->attend[kv](&chunk, q, DIM, 1, DIM, DIM, &m2, &l2, o2, DIM, scratch);
            kernels->attend_merge(&m, &l, o, m2, l2, o2, DIM);
        }
    }
    kernels->attend_finish(l, o, DIM, y);
    free(scratch);
}

// The same in F64, from the keys and values as they were before storing.
static void attend_exact(float (*k)[DIM], float (*v)[DIM], const float *q, uint32_t first, uint32_t last,
                         double softcap, double *y)
{
    double scores[POSITIONS], max = -INFINITY, sum = 0;
    for (uint32_t p = first; p < last; p++) {
        scores[p] = 0;
        for (int d = 0; d < DIM; d++)
            scores[p] += (double)q[d] * (double)k[p][d];
        scores[p] *= 0.125;
        if (softcap > 0)
            scores[p] = softcap * tanh(scores[p] / softcap);
        max = scores[p] > max ? scores[p] : max;
    }
    for (int j = 0; j < DIM; j++)
        y[j] = 0;
    for (uint32_t p = first; p < last; p++) {
        const double weight = exp(scores[p] - max);
        sum += weight;
        for (int j = 0; j < DIM; j++)
            y[j] += weight * (double)v[p][j];
    }
    for (int j = 0; j < DIM; j++)
        y[j] /= sum;
}

static const struct {
    uint32_t first, last;
} visible[] = {{0, 1}, {0, 64}, {0, 65}, {0, 192}, {63, 130}, {100, 101}, {70, 190}};

// Values of size v_size; the bounds are relative to it: F32's, F16's and Q8's rounding of keys and values.
static void check_attention(enum kv_dtype kv, float k_size, float v_size, double bound)
{
    static struct cache cache; // 100 KB
    static float k[POSITIONS][DIM], v[POSITIONS][DIM];
    float q[DIM], y[DIM];
    double exact[DIM];
    fill(&k[0][0], sizeof(k) / sizeof(float), k_size);
    fill(&v[0][0], sizeof(v) / sizeof(float), v_size);
    fill(q, DIM, 4.0f / k_size);
    for (uint32_t p = 0; p < POSITIONS; p++)
        store(&cache, kv, p, k[p], v[p]);
    for (size_t i = 0; i < sizeof(visible) / sizeof(visible[0]); i++)
        for (int softcap = 0; softcap < 60; softcap += 30) {
            attend(&cache, kv, q, visible[i].first, visible[i].last, (float)softcap, y);
            attend_exact(k, v, q, visible[i].first, visible[i].last, softcap, exact);
            for (int j = 0; j < DIM; j++)
                assert_near(exact[j], (double)y[j], bound * (double)v_size);
        }
}

static void test_attention_f32(void **state)
{
    (void)state;
    check_attention(KV_DTYPE_F32, 1.0f, 1.0f, 2e-6);
}

static void test_attention_f16(void **state)
{
    (void)state;
    check_attention(KV_DTYPE_F16, 1.0f, 1.0f, 2e-3);
    check_attention(KV_DTYPE_F16, 1e9f, 1e12f, 2e-3); // beyond F16's range: row scales
}

static void test_attention_q8_0(void **state)
{
    (void)state;
    check_attention(KV_DTYPE_Q8_0, 1.0f, 1.0f, 3e-2);
    check_attention(KV_DTYPE_Q8_0, 1e9f, 1e12f, 3e-2);
}

// What a query may not see may hold anything; what it sees and is NaN shows in every output.
static void test_attention_masks(void **state)
{
    (void)state;
    static struct cache clean, dirty;
    for (int kv = 0; kv < KV_DTYPE_COUNT; kv++) {
        float q[DIM], k[DIM], v[DIM], expected[DIM], y[DIM];
        fill(q, DIM, 1.0f);
        for (uint32_t p = 0; p < POSITIONS; p++) {
            fill(k, DIM, 1.0f);
            fill(v, DIM, 1.0f);
            store(&clean, kv, p, k, v);
            if (p < 20 || p >= 150) {
                k[3] = NAN;
                v[5] = INFINITY;
                v[6] = NAN;
            }
            store(&dirty, kv, p, k, v);
        }
        attend(&clean, kv, q, 20, 150, 0, expected);
        attend(&dirty, kv, q, 20, 150, 0, y);
        assert_memory_equal(expected, y, sizeof(y));
        attend(&dirty, kv, q, 20, 151, 0, y); // one NaN score
        for (int j = 0; j < DIM; j++)
            assert_true(isnan(y[j]));
    }
}

// Scores of -inf have no weight, unless there are no others; +inf and NaN make all NaN.
static void test_attention_infinite_scores(void **state)
{
    (void)state;
    static struct cache cache;
    float q[DIM], k[DIM], v[DIM], expected[DIM], y[DIM];
    fill(q, DIM, 1.0f);
    q[0] = 1.0f;
    for (uint32_t p = 0; p < POSITIONS; p++) {
        fill(k, DIM, 1.0f);
        fill(v, DIM, 1.0f);
        k[0] = p < 64 ? -INFINITY : 0.5f; // the first page has scores of -inf only
        store(&cache, KV_DTYPE_F32, p, k, v);
    }
    attend(&cache, KV_DTYPE_F32, q, 64, 192, 0, expected);
    attend(&cache, KV_DTYPE_F32, q, 0, 192, 0, y);
    for (int j = 0; j < DIM; j++)
        assert_near((double)expected[j], (double)y[j], 0);
    attend(&cache, KV_DTYPE_F32, q, 0, 64, 0, y);
    for (int j = 0; j < DIM; j++)
        assert_true(isnan(y[j]));
    k[0] = INFINITY;
    store(&cache, KV_DTYPE_F32, 70, k, v);
    attend(&cache, KV_DTYPE_F32, q, 0, 192, 0, y);
    for (int j = 0; j < DIM; j++)
        assert_true(isnan(y[j]));
}

static void test_choice(void **state)
{
    (void)state;
    assert_non_null(kernels_choose(NULL));
    assert_ptr_equal(kernels_choose("c"), kernels_c());
    assert_null(kernels_choose("sse9"));
    assert_null(kernels_choose(""));
    const struct kernels *const others[] = {kernels_avx2(), kernels_avx512(), kernels_neon()};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (others[i])
            assert_ptr_equal(kernels_choose(others[i]->name), others[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_rms_norm_beyond_range),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_attention_f32),
        cmocka_unit_test(test_attention_f16),
        cmocka_unit_test(test_attention_q8_0),
        cmocka_unit_test(test_attention_masks),
        cmocka_unit_test(test_attention_infinite_scores),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

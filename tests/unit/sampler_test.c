// Randomness against published vectors, and sampling against a plain model of it: sort, cut, add up, draw. The model
// uses the C library's functions in float64, so it is asked only where a cut is not decided by the last bits.
#include "engine/random.h"
#include "gguf/gguf.h"
#include "mote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Known answers: kat_vectors of Random123 (Salmon et al., 2011).
static void test_philox(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        random_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof(out));
    }
}

static void test_uniform(void **state)
{
    (void)state;
    enum { N = 4096 };
    static double forwards[N];
    double sum = 0, least = 1, most = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = forwards[i] = random_uniform(42, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        least = u < least ? u : least;
        most = u > most ? u : most;
    }
    for (uint64_t i = N; i-- > 0;) // in any order, with others between
        assert_true(random_uniform(7, i) != forwards[i] && random_uniform(42, i) == forwards[i]);
    assert_true(fabs(sum / N - 0.5) < 0.02 && least < 0.002 && most > 0.998);
    // All 64 bits of seed and position count.
    double u = random_uniform(1, 1);
    assert_true(random_uniform(1 | 1ull << 63, 1) != u && random_uniform(1, 1 | 1ull << 63) != u);
    // 53 bits of the first two words: 0x6627e8d5 e169c58d >> 11.
    assert_true(random_uniform(0, 0) == (double)(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
}

// ---- the model ----

struct entry {
    double logit, mass;
    int32_t id;
};

static int by_logit(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

enum { UNDECIDED = -2, NOTHING = -1, MAX_VOCAB = 512 };

// What must be drawn where u is the uniform number; UNDECIDED where rounding decides.
static int32_t model_sample(const mote_sampling *s, const float *logits, size_t n_vocab, int32_t banned, double u)
{
    struct entry entries[MAX_VOCAB];
    size_t n = 0;
    const double close = 1e-9;
    for (size_t i = 0; i < n_vocab; i++)
        if ((int32_t)i != banned && !isnan(logits[i]) && logits[i] != -INFINITY)
            entries[n++] = (struct entry){.logit = (double)logits[i], .id = (int32_t)i};
    if (n == 0)
        return NOTHING;
    qsort(entries, n, sizeof(*entries), by_logit);
    if (s->temperature == 0)
        return entries[0].id;
    if (s->top_k > 0 && (size_t)s->top_k < n)
        n = (size_t)s->top_k;
    double best = entries[0].logit, total = 0, mass = 0;
    for (size_t i = 0; i < n; i++)
        total += exp(entries[i].logit - best);
    for (size_t i = 0; i < n && s->top_p < 1; i++) {
        mass += exp(entries[i].logit - best) / total;
        if (fabs(mass - (double)s->top_p) < close && i + 1 < n)
            return UNDECIDED;
        if (mass >= (double)s->top_p)
            n = i + 1;
    }
    size_t kept = n;
    for (size_t i = n; i-- > 1 && s->min_p > 0;) {
        double relative = exp(entries[i].logit - best) / (double)s->min_p;
        if (fabs(relative - 1) < close && entries[i].logit != best)
            return UNDECIDED;
        if (relative < 1 && !(entries[i].logit == best))
            kept = i;
    }
    n = kept;
    total = 0;
    for (size_t i = 0; i < n; i++)
        total += entries[i].mass = exp((entries[i].logit - best) / (double)s->temperature);
    mass = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        mass += entries[i].mass / total;
        if (fabs(mass - u) < close)
            return UNDECIDED;
        if (u < mass)
            return entries[i].id;
    }
    return entries[n - 1].id;
}

static mote_sampler *make(const mote_sampling *sampling, size_t n_vocab)
{
    mote_sampler *sampler = NULL;
    mote_error error = {0};
    if (mote_sampler_create(sampling, n_vocab, &sampler, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    return sampler;
}

// Compares draws at a few positions; returns how many were decided.
static size_t compare(const mote_sampling *sampling, const float *logits, size_t n_vocab, int32_t banned,
                      size_t n_draws)
{
    mote_sampler *sampler = make(sampling, n_vocab);
    mote_error error = {0};
    if (banned >= 0)
        assert_int_equal(mote_sampler_ban(sampler, banned, &error), MOTE_OK);
    size_t decided = 0;
    for (uint64_t position = 0; position < n_draws; position++) {
        int32_t id = NOTHING;
        mote_status status = mote_sampler_sample(sampler, logits, position, &id, &error);
        int32_t expected = model_sample(sampling, logits, n_vocab, banned, random_uniform(sampling->seed, position));
        assert_int_equal(status, expected == NOTHING ? MOTE_INVALID : MOTE_OK);
        if (expected == UNDECIDED)
            continue;
        if (id != expected)
            fail_msg("temperature %g, top-k %d, top-p %g, min-p %g, vocabulary of %zu: %d, but the model says %d",
                     (double)sampling->temperature, sampling->top_k, (double)sampling->top_p, (double)sampling->min_p,
                     n_vocab, id, expected);
        decided++;
    }
    mote_sampler_destroy(sampler);
    return decided;
}

static uint64_t n_numbers;

static double number(void) // [0, 1)
{
    return random_uniform(99, n_numbers++);
}

static size_t choose(size_t n)
{
    return (size_t)(number() * (double)n);
}

// Logits of several kinds: spread, peaked, with ties, with -inf and NaN.
static void random_logits(float *logits, size_t n)
{
    size_t kind = choose(5);
    for (size_t i = 0; i < n; i++) {
        double z = number() + number() + number() - 1.5;
        logits[i] = (float)(kind == 0 ? 0.1 * z : kind == 1 ? 20 * z : kind == 2 ? rint(4 * z) : 4 * z);
        if (kind == 3 && number() < 0.3)
            logits[i] = -INFINITY;
        if (kind == 4 && number() < 0.3)
            logits[i] = NAN;
    }
}

static void test_model(void **state)
{
    (void)state;
    static const float temperatures[] = {0, 1e-30f, 1e-3f, 0.5f, 0.8f, 1, 5, 1e30f};
    static const int32_t top_ks[] = {0, 1, 2, 5, 40, 1000};
    static const float top_ps[] = {0, 0.1f, 0.5f, 0.95f, 0.999f, 1}, min_ps[] = {0, 0.01f, 0.05f, 0.5f, 1};
    static const size_t vocabularies[] = {1, 2, 7, 64, 300, MAX_VOCAB};
    float logits[MAX_VOCAB];
    size_t decided = 0, n = 0;
    for (int i = 0; i < 3000; i++) {
        size_t n_vocab = vocabularies[choose(6)];
        mote_sampling sampling = {.size = sizeof(sampling),
                                  .temperature = temperatures[choose(8)],
                                  .top_k = top_ks[choose(6)],
                                  .top_p = top_ps[choose(6)],
                                  .min_p = min_ps[choose(5)],
                                  .seed = (uint64_t)i};
        random_logits(logits, n_vocab);
        decided += compare(&sampling, logits, n_vocab, number() < 0.5 ? (int32_t)choose(n_vocab) : -1, 8);
        n += 8;
    }
    assert_true(decided > n / 10 * 9);
}

static const mote_sampling everything = {
    .size = sizeof(mote_sampling), .temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 5};

static void test_edges(void **state)
{
    (void)state;
    enum { N = 6 };
    mote_sampling s = everything;
    mote_error error = {0};
    int32_t id = -1;
    // Ties: the lower id, for greedy, for top-k and for top-p.
    float ties[N] = {1, 3, 3, 2, 3, 0};
    s.temperature = 0;
    assert_int_equal(compare(&s, ties, N, -1, 1), 1);
    assert_int_equal(compare(&s, ties, N, 1, 1), 1);
    s = everything;
    s.top_k = 2; // 1 and 2, never 4
    assert_true(compare(&s, ties, N, -1, 200) > 190);
    s = everything;
    s.top_p = 0;
    assert_int_equal(compare(&s, ties, N, -1, 50), 50);
    s = everything;
    s.min_p = 1; // the three that are equally likely
    assert_true(compare(&s, ties, N, -1, 200) > 190);
    // One that is not -inf; one in all; far apart.
    float one[N] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -1e38f, -INFINITY};
    assert_int_equal(compare(&everything, one, N, -1, 20), 20);
    assert_int_equal(compare(&everything, ties, 1, -1, 20), 20);
    float far[N] = {-3e38f, 3e38f, 0, 1, 2, 3};
    assert_int_equal(compare(&everything, far, N, -1, 20), 20);
    s = everything;
    s.temperature = 0x1p-149f;
    assert_int_equal(compare(&s, far, N, -1, 20), 20);
    // An infinite logit is certain.
    float infinite[N] = {1, 2, INFINITY, 3, INFINITY, -INFINITY};
    mote_sampler *sampler = make(&everything, N);
    for (uint64_t position = 0; position < 20; position++) {
        assert_int_equal(mote_sampler_sample(sampler, infinite, position, &id, &error), MOTE_OK);
        assert_int_equal(id, 2);
    }
    // Nothing left: an error that says so.
    float nothing[N] = {-INFINITY, NAN, -INFINITY, NAN, 7, NAN};
    assert_int_equal(mote_sampler_ban(sampler, 4, &error), MOTE_OK);
    assert_int_equal(mote_sampler_sample(sampler, nothing, 0, &id, &error), MOTE_INVALID);
    assert_non_null(strstr(error.message, "NaN"));
    assert_int_equal(mote_sampler_ban(sampler, N, &error), MOTE_INVALID);
    assert_int_equal(mote_sampler_ban(sampler, -1, &error), MOTE_INVALID);
    mote_sampler_destroy(sampler);
}

static void test_bad_parameters(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        const char *named;
    } bad[] = {
        {-1, 1, 0, "temperature"}, {NAN, 1, 0, "temperature"}, {INFINITY, 1, 0, "temperature"},
        {1, 1.5f, 0, "top-p"},     {1, -0.1f, 0, "top-p"},     {1, NAN, 0, "top-p"},
        {1, 1, 2, "min-p"},        {1, 1, NAN, "min-p"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        mote_sampling s = everything;
        s.temperature = bad[i].temperature;
        s.top_p = bad[i].top_p;
        s.min_p = bad[i].min_p;
        mote_sampler *sampler = NULL;
        mote_error error = {0};
        assert_int_equal(mote_sampler_create(&s, 10, &sampler, &error), MOTE_INVALID);
        assert_null(sampler);
        assert_non_null(strstr(error.message, bad[i].named));
    }
    mote_sampler *sampler = NULL;
    mote_error error = {0};
    assert_int_equal(mote_sampler_create(&everything, 0, &sampler, &error), MOTE_INVALID);
}

// Frequencies over positions are the probabilities: chi-square with 15 degrees of freedom, of which 44.3 has a
// probability of 1e-4. The seed is fixed, so this either always passes or never.
static void test_frequencies(void **state)
{
    (void)state;
    enum { N = 16, DRAWS = 40000 };
    float logits[N];
    double weights[N], total = 0, chi = 0;
    size_t counts[N] = {0};
    mote_sampling s = everything;
    s.temperature = 0.7f;
    for (int i = 0; i < N; i++) {
        logits[i] = (float)(i * 5 % N) * 0.2f;
        total += weights[i] = exp((double)logits[i] / (double)s.temperature);
    }
    mote_sampler *sampler = make(&s, N);
    for (uint64_t position = 0; position < DRAWS; position++) {
        int32_t id = -1;
        assert_int_equal(mote_sampler_sample(sampler, logits, position, &id, NULL), MOTE_OK);
        assert_in_range(id, 0, N - 1);
        counts[id]++;
    }
    mote_sampler_destroy(sampler);
    for (int i = 0; i < N; i++) {
        double expected = DRAWS * weights[i] / total;
        chi += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    }
    assert_true(chi > 1 && chi < 44.3);
}

// ---- defaults ----

struct recommended {
    float temperature, top_p, min_p;
    int32_t top_k;
};

// The defaults of a file that has these keys.
static mote_sampling defaults_of(const struct recommended *keys)
{
    char path[] = "/tmp/mote_sampler_XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    struct gguf_writer *writer = NULL;
    assert_int_equal(gguf_writer_create(path, &writer, NULL), STATUS_OK);
    assert_int_equal(gguf_writer_add_string(writer, "general.architecture", "llama", NULL), STATUS_OK);
    assert_int_equal(gguf_writer_add_f32(writer, "general.sampling.temp", keys->temperature, NULL), STATUS_OK);
    assert_int_equal(gguf_writer_add_f32(writer, "general.sampling.top_p", keys->top_p, NULL), STATUS_OK);
    assert_int_equal(gguf_writer_add_f32(writer, "general.sampling.min_p", keys->min_p, NULL), STATUS_OK);
    struct gguf_value top_k = {.key = {"general.sampling.top_k", 22}, .type = GGUF_I32, .i = keys->top_k};
    assert_int_equal(gguf_writer_add_value(writer, &top_k, NULL), STATUS_OK);
    assert_int_equal(gguf_writer_finish(writer, NULL), STATUS_OK);
    mote_model *model = NULL;
    mote_error error = {0};
    if (mote_model_open(path, NULL, &model, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    mote_sampling sampling;
    mote_sampling_default(model, &sampling);
    mote_model_close(model);
    unlink(path);
    return sampling;
}

static void assert_sampling(mote_sampling s, float temperature, int32_t top_k, float top_p, float min_p)
{
    assert_int_equal(s.size, sizeof(s));
    assert_true(s.temperature == temperature && s.top_p == top_p && s.min_p == min_p);
    assert_int_equal(s.top_k, top_k);
    assert_int_equal(s.seed, 0);
}

static void test_defaults(void **state)
{
    (void)state;
    mote_sampling s;
    mote_sampling_default(NULL, &s);
    assert_sampling(s, 0.8f, 40, 0.95f, 0.05f);
    assert_sampling(defaults_of(&(struct recommended){0.25f, 0.5f, 0.125f, 64}), 0.25f, 64, 0.5f, 0.125f);
    assert_sampling(defaults_of(&(struct recommended){0, 1, 0, 0}), 0, 0, 1, 0);
    // What makes no sense is as if it were not there.
    assert_sampling(defaults_of(&(struct recommended){-1, 1.5f, NAN, -3}), 0.8f, 40, 0.95f, 0.05f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),         cmocka_unit_test(test_uniform),     cmocka_unit_test(test_model),
        cmocka_unit_test(test_edges),          cmocka_unit_test(test_frequencies), cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_bad_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

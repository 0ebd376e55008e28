// Sampling: top-k, top-p, min-p, temperature, in that order, then one draw.
//
// The three cuts are made on the distribution before the temperature. min-p keeps what is at least min_p times as
// likely as the best, which top-p cannot change (it always keeps the best), so the min-p cut is made first and only
// what it leaves is sorted; top-p still counts the mass of all that top-k left. Ties go to the lower id. Sums are F64.
#include "engine/engine.h"
#include "engine/random.h"

#include "base/fpenv.h"
#include "tensor/elementary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float logit;
    int32_t id;
};

struct mote_sampler {
    mote_sampling sampling;
    size_t n_vocab;
    struct candidate *candidates; // [n_vocab]
    double *weights;              // [n_vocab]
    bool *banned;                 // [n_vocab]
};

// What the file recommends; what makes no sense is passed over.
static void read_sampling(const struct gguf *gguf, mote_sampling *sampling)
{
    mote_sampling file = *sampling;
    uint32_t top_k = 0;
    bool has_top_k = gguf_find(gguf, "general.sampling.top_k") != NULL;
    if (gguf_get_f32(gguf, "general.sampling.temp", false, &file.temperature, NULL) == STATUS_OK &&
        file.temperature >= 0)
        sampling->temperature = file.temperature;
    if (gguf_get_f32(gguf, "general.sampling.top_p", false, &file.top_p, NULL) == STATUS_OK && file.top_p >= 0 &&
        file.top_p <= 1)
        sampling->top_p = file.top_p;
    if (gguf_get_f32(gguf, "general.sampling.min_p", false, &file.min_p, NULL) == STATUS_OK && file.min_p >= 0 &&
        file.min_p <= 1)
        sampling->min_p = file.min_p;
    if (has_top_k && gguf_get_u32(gguf, "general.sampling.top_k", false, &top_k, NULL) == STATUS_OK &&
        top_k <= INT32_MAX)
        sampling->top_k = (int32_t)top_k;
}

void mote_sampling_default(const mote_model *model, mote_sampling *sampling)
{
    *sampling = (mote_sampling){
        .size = sizeof(*sampling), .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 0};
    if (model == NULL)
        return;
    struct fpenv saved = fpenv_enter(); // a F64 in the file is rounded
    read_sampling(model->gguf, sampling);
    fpenv_leave(saved);
}

mote_status mote_sampler_create(const mote_sampling *sampling, size_t n_vocab, mote_sampler **result, mote_error *error)
{
    struct error *inner = inner_error(error);
    if (!(sampling->temperature >= 0) || isinf(sampling->temperature))
        return (mote_status)error_set(inner, STATUS_INVALID, "the temperature is %g: it must be 0 (greedy) or more",
                                      (double)sampling->temperature);
    if (!(sampling->top_p >= 0 && sampling->top_p <= 1) || !(sampling->min_p >= 0 && sampling->min_p <= 1))
        return (mote_status)error_set(inner, STATUS_INVALID, "top-p is %g and min-p %g: both must be between 0 and 1",
                                      (double)sampling->top_p, (double)sampling->min_p);
    if (n_vocab == 0)
        return (mote_status)error_set(inner, STATUS_INVALID, "there is no vocabulary to sample from");
    struct mote_sampler *sampler = calloc(1, sizeof(*sampler));
    if (sampler == NULL)
        return (mote_status)error_memory(inner, "the sampler");
    sampler->sampling = *sampling;
    sampler->n_vocab = n_vocab;
    sampler->candidates = calloc(n_vocab, sizeof(*sampler->candidates));
    sampler->weights = calloc(n_vocab, sizeof(*sampler->weights));
    sampler->banned = calloc(n_vocab, sizeof(*sampler->banned));
    if (sampler->candidates == NULL || sampler->weights == NULL || sampler->banned == NULL) {
        mote_sampler_destroy(sampler);
        return (mote_status)error_memory(inner, "the sampler");
    }
    *result = sampler;
    return MOTE_OK;
}

void mote_sampler_destroy(mote_sampler *sampler)
{
    if (sampler == NULL)
        return;
    free(sampler->candidates);
    free(sampler->weights);
    free(sampler->banned);
    free(sampler);
}

mote_status mote_sampler_ban(mote_sampler *sampler, int32_t id, mote_error *error)
{
    if (id < 0 || (size_t)id >= sampler->n_vocab)
        return (mote_status)error_set(inner_error(error), STATUS_INVALID, "token %d is not in the vocabulary of %zu",
                                      id, sampler->n_vocab);
    sampler->banned[id] = true;
    return MOTE_OK;
}

// Likelier first; of equals the lower id.
static bool before(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(struct candidate *heap, size_t n, size_t i)
{
    for (;;) {
        size_t worst = i, left = 2 * i + 1, right = left + 1;
        if (left < n && before(heap[worst], heap[left]))
            worst = left;
        if (right < n && before(heap[worst], heap[right]))
            worst = right;
        if (worst == i)
            return;
        struct candidate swapped = heap[i];
        heap[i] = heap[worst];
        heap[worst] = swapped;
        i = worst;
    }
}

// Moves the k likeliest of n candidates to the front, in no order: a heap whose root is the worst of them.
static size_t keep_top_k(struct candidate *candidates, size_t n, size_t k)
{
    if (k == 0 || k >= n)
        return n;
    for (size_t i = k / 2; i-- > 0;)
        sift_down(candidates, k, i);
    for (size_t i = k; i < n; i++) {
        if (before(candidates[i], candidates[0])) {
            candidates[0] = candidates[i];
            sift_down(candidates, k, 0);
        }
    }
    return k;
}

// Likeliest first. Not qsort, which may allocate.
static void sort(struct candidate *candidates, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(candidates, n, i);
    for (; n > 1; n--) {
        struct candidate worst = candidates[0];
        candidates[0] = candidates[n - 1];
        candidates[n - 1] = worst;
        sift_down(candidates, n - 1, 0);
    }
}

static size_t gather(const struct mote_sampler *sampler, const float *logits)
{
    size_t n = 0;
    for (size_t i = 0; i < sampler->n_vocab; i++) {
        if (!sampler->banned[i] && logits[i] > -INFINITY) // also drops NaN
            sampler->candidates[n++] = (struct candidate){.logit = logits[i], .id = (int32_t)i};
    }
    return n;
}

// Sorts, and cuts where the mass so far reaches top_p of `total`.
static size_t keep_top_p(const struct mote_sampler *sampler, size_t n, double total)
{
    const struct candidate *candidates = sampler->candidates;
    double wanted = (double)sampler->sampling.top_p * total, mass = 0;
    for (size_t i = 0; i < n; i++) {
        mass += elementary_exp((double)candidates[i].logit - (double)candidates[0].logit);
        if (mass >= wanted)
            return i + 1;
    }
    return n;
}

static int32_t draw(const struct mote_sampler *sampler, size_t n, uint64_t position)
{
    const struct candidate *candidates = sampler->candidates;
    double temperature = (double)sampler->sampling.temperature, total = 0;
    for (size_t i = 0; i < n; i++) {
        double weight = elementary_exp(((double)candidates[i].logit - (double)candidates[0].logit) / temperature);
        sampler->weights[i] = weight;
        total += weight;
    }
    double target = random_uniform(sampler->sampling.seed, position) * total, mass = 0;
    for (size_t i = 0; i < n; i++) {
        mass += sampler->weights[i];
        if (target < mass)
            return candidates[i].id;
    }
    return candidates[n - 1].id;
}

static int32_t sample(const struct mote_sampler *sampler, size_t n, uint64_t position)
{
    struct candidate *candidates = sampler->candidates;
    struct candidate best = candidates[0];
    for (size_t i = 1; i < n; i++)
        best = before(candidates[i], best) ? candidates[i] : best;
    if (sampler->sampling.temperature == 0 || isinf(best.logit)) // an infinite logit is certain
        return best.id;

    n = keep_top_k(candidates, n, (size_t)(sampler->sampling.top_k > 0 ? sampler->sampling.top_k : 0));
    bool cuts = sampler->sampling.top_p < 1;
    double total = 0;
    for (size_t i = 0; i < n && cuts; i++)
        total += elementary_exp((double)candidates[i].logit - (double)best.logit);
    if (sampler->sampling.min_p > 0) {
        double least = (double)best.logit + elementary_log((double)sampler->sampling.min_p);
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            if ((double)candidates[i].logit >= least || candidates[i].id == best.id)
                candidates[kept++] = candidates[i];
        }
        n = kept;
    }
    sort(candidates, n);
    if (cuts)
        n = keep_top_p(sampler, n, total);
    return draw(sampler, n, position);
}

mote_status mote_sampler_sample(mote_sampler *sampler, const float *logits, uint64_t position, int32_t *id,
                                mote_error *error)
{
    struct fpenv saved = fpenv_enter();
    size_t n = gather(sampler, logits);
    if (n > 0)
        *id = sample(sampler, n, position);
    fpenv_leave(saved);
    if (n == 0)
        return (mote_status)error_set(inner_error(error), STATUS_INVALID,
                                      "no token can be sampled: all logits are -inf, NaN or banned");
    return MOTE_OK;
}

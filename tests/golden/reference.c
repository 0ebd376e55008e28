// See reference.h.
#include "reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TOP = 32 };

void cached_model_path(const char *name, char *path, size_t size)
{
    const char *cache = getenv("MOTE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL)
        snprintf(path, size, "%s/%s.gguf", cache, name);
    else if (xdg != NULL && *xdg != 0)
        snprintf(path, size, "%s/mote/%s.gguf", xdg, name);
    else
        snprintf(path, size, "%s/.cache/mote/%s.gguf", home != NULL ? home : "", name);
    if (access(path, R_OK) != 0)
        fail_msg("%s is not there: tools/fetch_model.py %s fetches it", path, name);
}

void reference_load(struct reference *reference, const char *path)
{
    size_t n;
    mote_model *file = golden_open(path);
    reference->tokens = golden_i32(file, "tokens", &reference->n);
    reference->top_ids = golden_i32(file, "top_ids", &n);
    reference->full_positions = golden_i32(file, "full_positions", &n);
    reference->top_logits = golden_f32(file, "top_logits", &n);
    reference->logsumexp = golden_f32(file, "logsumexp", &n);
    reference->nll = golden_f32(file, "nll", &n);
    reference->full_logits = golden_f32(file, "full_logits", &n);
    mote_model_close(file);
}

void reference_free(struct reference *reference)
{
    free(reference->tokens);
    free(reference->top_ids);
    free(reference->full_positions);
    free(reference->top_logits);
    free(reference->logsumexp);
    free(reference->nll);
    free(reference->full_logits);
}

int32_t best_of(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

static double logsumexp(const float *logits, size_t n)
{
    double largest = (double)logits[best_of(logits, n)], sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

// NaN is the largest and stays. (fmax drops it, and its vectorization crashes gcc 12 for AArch64.)
static void note_difference(struct score *score, double difference)
{
    if (difference > score->largest || isnan(difference))
        score->largest = difference;
}

static void score_full(struct score *score, size_t index, const float *logits)
{
    for (size_t p = 0; p < 4; p++) {
        if ((size_t)score->reference->full_positions[p] != index)
            continue;
        const float *full = score->reference->full_logits + p * score->n_vocab;
        for (size_t i = 0; i < score->n_vocab; i++)
            note_difference(score, fabs((double)logits[i] - (double)full[i]));
    }
}

// KL over the 32 likeliest tokens and the rest as one: at most the whole KL, and here nearly that.
static int score_row(void *user, size_t input, size_t index, const float *logits)
{
    struct score *score = user;
    const struct reference *reference = score->reference;
    const int32_t *ids = reference->top_ids + index * TOP;
    const float *top = reference->top_logits + index * TOP;
    double lse = logsumexp(logits, score->n_vocab), rest_p = 1, rest_q = 1;
    (void)input;
    for (size_t k = 0; k < TOP; k++) {
        double log_p = (double)top[k] - (double)reference->logsumexp[index];
        double log_q = (double)logits[ids[k]] - lse;
        score->kl += exp(log_p) * (log_p - log_q);
        rest_p -= exp(log_p);
        rest_q -= exp(log_q);
        note_difference(score, fabs((double)logits[ids[k]] - (double)top[k]));
    }
    if (rest_p > 1e-9 && rest_q > 1e-9)
        score->kl += rest_p * log(rest_p / rest_q);
    if (index + 1 < reference->n)
        score->nll += lse - (double)logits[reference->tokens[index + 1]];
    if ((double)top[0] - (double)top[1] >= score->gap) {
        score->n_clear++;
        score->n_clear_wrong += best_of(logits, score->n_vocab) != ids[0];
    }
    score_full(score, index, logits);
    if (index < SCORE_HASHED)
        score->hash = score->hash * 31 + golden_hash(logits, score->n_vocab);
    return 0;
}

void score_run(struct score *score, struct runner *runner, const struct reference *reference, double gap)
{
    mote_error error = {0};
    mote_session *session = NULL;
    *score = (struct score){.reference = reference, .n_vocab = runner->n_vocab, .gap = gap};
    if (mote_session_create(runner->engine, &session, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    mote_input input = {
        .session = session, .tokens = reference->tokens, .n_tokens = reference->n, .want = MOTE_WANT_ALL};
    if (mote_engine_run(runner->engine, &input, 1, score_row, score, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    mote_session_destroy(session);
}

double score_perplexity(const struct score *score)
{
    return exp(score->nll / (double)(score->reference->n - 1));
}

double score_oracle(const struct score *score)
{
    double sum = 0;
    for (size_t i = 0; i + 1 < score->reference->n; i++)
        sum += (double)score->reference->nll[i];
    return exp(sum / (double)(score->reference->n - 1));
}

double score_mean_kl(const struct score *score)
{
    return score->kl / (double)score->reference->n;
}

void score_print(const struct score *score, const char *what)
{
    print_message("%s: perplexity %.4f (oracle %.4f), mean KL %.5f, largest difference %.1e, best token differs at %zu "
                  "of %zu clear positions\n",
                  what, score_perplexity(score), score_oracle(score), score_mean_kl(score), score->largest,
                  score->n_clear_wrong, score->n_clear);
}

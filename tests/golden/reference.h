// References of real models: what an oracle in F64 says of a text, and how near a run comes to it.
#ifndef MOTE_TESTS_REFERENCE_H
#define MOTE_TESTS_REFERENCE_H

#include "golden.h"

// The path of a model in the cache; ends the test where it is not there: this suite is for machines that fetched it.
void cached_model_path(const char *name, char *path, size_t size);

// Of n tokens: the 32 likeliest with their logits, largest first, and all logits at 4 positions.
struct reference {
    size_t n;
    int32_t *tokens, *top_ids, *full_positions;
    float *top_logits, *logsumexp, *nll, *full_logits;
};

void reference_load(struct reference *reference, const char *path);
void reference_free(struct reference *reference);

// How near a run comes to a reference.
struct score {
    const struct reference *reference;
    size_t n_vocab;
    double nll, kl, largest;       // sums, and the largest difference of a stored logit
    size_t n_clear, n_clear_wrong; // positions whose gap is at least `gap`, and where the best token is another
    double gap;
    uint64_t hash; // of the logits of the first SCORE_HASHED tokens
};

enum { SCORE_HASHED = 40 };

// Runs the reference's text in a new session and scores it, positions whose gap is at least `gap` being clear.
void score_run(struct score *score, struct runner *runner, const struct reference *reference, double gap);
double score_perplexity(const struct score *score);
double score_oracle(const struct score *score); // the reference's perplexity
double score_mean_kl(const struct score *score);
void score_print(const struct score *score, const char *what);

int32_t best_of(const float *logits, size_t n);

#endif

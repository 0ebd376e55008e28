// Numbers about rows of logits: what a text costs, and how far two rows are from each other. In double: nothing here
// goes back into a model.
#ifndef MOTE_CLI_SCORE_H
#define MOTE_CLI_SCORE_H

#include <stddef.h>

// log(Σ exp(logits[i])), to about 1e-7 relative.
double score_log_sum_exp(const float *logits, size_t n);
// -log of the probability of token `next`.
double score_nll(const float *logits, size_t n, size_t next);
// KL(p || q) of the distributions that two rows of logits stand for.
double score_kl(const float *p, const float *q, size_t n);
// The first index of the largest logit.
size_t score_best(const float *logits, size_t n);

struct mean { // of numbers that come one after another
    size_t count;
    double sum, squares;
};
void mean_add(struct mean *mean, double value);
double mean_value(const struct mean *mean);
// The standard error of the mean: sqrt((mean of squares - square of mean) / (count - 1)); 0 where it cannot be said.
double mean_error(const struct mean *mean);

#endif

#include "score.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8 };

size_t score_best(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static float largest(const float *logits, size_t n)
{
    float lanes[LANES], most = -INFINITY;
    for (size_t j = 0; j < LANES; j++) {
        lanes[j] = -INFINITY;
    }
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
        }
    }
    for (size_t j = 0; j < LANES; j++) {
        most = lanes[j] > most ? lanes[j] : most;
    }
    for (; i < n; i++) {
        most = logits[i] > most ? logits[i] : most;
    }
    return most;
}

// exp(x) for x ≤ 0, within 2e-7 relative; 0 below -87. Written so that compilers turn a loop of it into SIMD: over a
// vocabulary of 262144, libm's exp costs as much as a third of the model.
static inline float exp_negative(float x)
{
    float clamped = x < -87.0f ? -87.0f : x;
    float scaled = clamped * 1.44269504f; // log2(e)
    float whole = (float)(int32_t)(scaled - 0.5f);
    float rest = (clamped - whole * 0.693359375f) + whole * 2.12194440e-4f; // x - whole · ln 2, in two parts
    // The Taylor series of exp on |rest| ≤ ln(2)/2: the first term left out is 3e-8.
    float y = 1.0f / 720;
    y = y * rest + 1.0f / 120;
    y = y * rest + 1.0f / 24;
    y = y * rest + 1.0f / 6;
    y = y * rest + 0.5f;
    y = y * rest + 1.0f;
    y = y * rest + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)whole + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : y * power;
}

double score_log_sum_exp(const float *logits, size_t n)
{
    float most = largest(logits, n);
    double lanes[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lanes[j] += (double)exp_negative(logits[i + j] - most);
        }
    }
    for (; i < n; i++) {
        sum += (double)exp_negative(logits[i] - most);
    }
    for (size_t j = 0; j < LANES; j++) {
        sum += lanes[j];
    }
    return (double)most + log(sum);
}

double score_nll(const float *logits, size_t n, size_t next)
{
    return score_log_sum_exp(logits, n) - (double)logits[next];
}

double score_kl(const float *p, const float *q, size_t n)
{
    double log_p = score_log_sum_exp(p, n), log_q = score_log_sum_exp(q, n), sum = 0;
    for (size_t i = 0; i < n; i++) {
        double log_pi = (double)p[i] - log_p;
        // What is too unlikely to count is not worth an exp.
        if (log_pi > -40) {
            sum += exp(log_pi) * (log_pi - ((double)q[i] - log_q));
        }
    }
    return sum;
}

void mean_add(struct mean *mean, double value)
{
    mean->count++;
    mean->sum += value;
    mean->squares += value * value;
}

double mean_value(const struct mean *mean)
{
    return mean->count ? mean->sum / (double)mean->count : 0;
}

double mean_error(const struct mean *mean)
{
    double value = mean_value(mean);
    double variance = mean->count > 1 ? mean->squares / (double)mean->count - value * value : 0;
    return variance > 0 ? sqrt(variance / (double)(mean->count - 1)) : 0;
}

// Routing: a router's logits to the chosen experts and their weights. The order of experts never depends on anything
// but their keys, and equal keys go to the lower index; a NaN is the least of keys, so that a broken router still gives
// valid experts (with weights that show it).
#include "cpu/kernels/c/math.h"
#include "cpu/kernels/c/table.h"

// The best so far, best first. Numbers are kept as floats: that is how a route stores them.
struct top {
    float *ids, *keys;
    uint32_t n, capacity;
};

// Candidates are offered in ascending order of id: then of equal ones the lower stays ahead.
static void top_offer(struct top *top, uint32_t id, float key)
{
    key = key == key ? key : -INFINITY;
    if (top->n == top->capacity) {
        if (top->n == 0 || !(key > top->keys[top->n - 1]))
            return;
        top->n--;
    }
    uint32_t at = top->n++;
    for (; at > 0 && key > top->keys[at - 1]; at--) {
        top->ids[at] = top->ids[at - 1];
        top->keys[at] = top->keys[at - 1];
    }
    top->ids[at] = (float)id;
    top->keys[at] = key;
}

static void sort_ids(float *ids, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        const float id = ids[i];
        uint32_t at = i;
        for (; at > 0 && ids[at - 1] > id; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

// y may be x. The sum is a true reduction; where all are -inf, or one is NaN or +inf, every result is NaN.
static void softmax(const float *x, uint32_t n, float *y)
{
    float max = -INFINITY, sums[16] = {0};
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    const float base = max > -INFINITY ? max : 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        y[i] = exp_f32(x[i] - base);
        sums[i % 16] += y[i];
    }
    const float sum = fold_16(sums);
    for (uint32_t i = 0; i < n; i++)
        y[i] /= sum;
}

static void scores_of(const struct routing *routing, const float *logits, float *scores)
{
    const uint32_t n = routing->n_expert;
    switch (routing->gating) {
    case GATING_SOFTMAX:
        softmax(logits, n, scores);
        break;
    case GATING_SIGMOID:
        for (uint32_t i = 0; i < n; i++)
            scores[i] = sigmoid_f32(logits[i]);
        break;
    case GATING_SQRT_SOFTPLUS:
        for (uint32_t i = 0; i < n; i++)
            scores[i] = sqrtf(softplus_f32(logits[i]));
        break;
    case GATING_SOFTMAX_SELECTED:
        memcpy(scores, logits, n * sizeof(*scores));
        break;
    }
}

// What experts are chosen by: score + bias. Without a bias that is the order of the logits, which tell apart what
// rounds to one score; but a group's sum of two needs the scores themselves.
static void keys_of(const struct routing *routing, const float *logits, const float *scores, const float *bias,
                    float *keys)
{
    const bool by_logit = bias == NULL && (routing->n_group <= 1 || routing->group_best != 2);
    for (uint32_t i = 0; i < routing->n_expert; i++) {
        keys[i] = by_logit ? logits[i] : scores[i];
        if (bias != NULL)
            keys[i] += bias[i];
    }
}

// The sum of a group's best one or two keys.
static float group_key(const float *keys, uint32_t n, uint32_t best)
{
    float ids[2], values[2];
    struct top top = {ids, values, 0, best == 2 ? 2 : 1};
    for (uint32_t i = 0; i < n; i++)
        top_offer(&top, i, keys[i]);
    return top.n == 2 ? values[0] + values[1] : values[0];
}

// The chosen experts, ascending. memory: 2 · n_group floats.
static void choose(const struct routing *routing, const float *keys, float *memory, struct top *experts)
{
    const uint32_t n_group = routing->n_group > 1 ? routing->n_group : 1, size = routing->n_expert / n_group;
    struct top groups = {memory, memory + n_group, 0, n_group > 1 ? routing->n_group_used : 1};
    if (n_group == 1)
        top_offer(&groups, 0, 0.0f);
    for (uint32_t g = 0; g < n_group && n_group > 1; g++)
        top_offer(&groups, g, group_key(keys + g * size, size, routing->group_best));
    sort_ids(groups.ids, groups.n);
    for (uint32_t g = 0; g < groups.n; g++) {
        const uint32_t first = (uint32_t)groups.ids[g] * size;
        for (uint32_t i = first; i < first + size; i++)
            top_offer(experts, i, keys[i]);
    }
    sort_ids(experts->ids, experts->n);
}

void C_NAME(c_route)(const struct routing *routing, const float *logits, const float *bias, float *scratch, float *out)
{
    float *scores = scratch, *keys = scores + routing->n_expert, *memory = keys + routing->n_expert;
    float *weights = out + routing->n_used;
    struct top experts = {out, weights, 0, routing->n_used};
    scores_of(routing, logits, scores);
    keys_of(routing, logits, scores, bias, keys);
    choose(routing, keys, memory, &experts);

    float sum = 0.0f;
    for (uint32_t i = 0; i < experts.n; i++)
        weights[i] = scores[(size_t)experts.ids[i]];
    if (routing->gating == GATING_SOFTMAX_SELECTED)
        softmax(weights, experts.n, weights);
    for (uint32_t i = 0; i < experts.n; i++)
        sum += weights[i];
    for (uint32_t i = 0; i < experts.n; i++) {
        if (routing->normalize)
            weights[i] /= sum + 1e-20f;
        weights[i] *= routing->weight_scale;
    }
}

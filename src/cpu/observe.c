// What a plan that observes sees: magnitudes of the sources of products and of stored keys and values, and how often
// each expert is chosen. Every thread counts for itself; the counts are added up when they are asked for, between runs.
#include "cpu/plan.h"

#include "cpu/kernels/c/math.h"

#include <stdlib.h>
#include <string.h>

enum { INFINITE = 0x7f800000 }; // the magnitude bits of infinity; NaN is beyond

// Of one group of rows.
struct seen {
    uint64_t n_rows, n_over, n_not_finite;
    uint32_t largest; // magnitude bits of the largest finite element
};

// The choices of one route: counts [n_expert] from `first` on.
struct observed_route {
    const struct node *node;
    size_t first;
};

struct observer {
    size_t n_seen;     // forms, then keys and values of every KV layer
    struct seen *seen; // [n_threads][n_seen]
    struct observed_route *routes;
    size_t n_routes, n_picks;
    uint64_t *picks; // [n_threads + 1][n_picks]: the last are sums
};

void cpu_observer_free(struct observer *observer)
{
    if (observer == NULL)
        return;
    free(observer->seen);
    free(observer->routes);
    free(observer->picks);
    free(observer);
}

enum status cpu_observer_create(struct plan *plan, struct error *error)
{
    const struct graph *graph = plan->graph;
    size_t n_threads = plan->device->n_threads;
    struct observer *observer = calloc(1, sizeof(*observer));
    plan->observer = observer; // freed with the plan
    if (observer == NULL)
        return error_memory(error, "the observations");
    observer->routes = calloc(graph->n_nodes, sizeof(*observer->routes));
    for (size_t i = 0; i < graph->n_nodes && observer->routes != NULL; i++) {
        const struct node *node = graph->nodes[i];
        if (node->op != OP_ROUTE)
            continue;
        observer->routes[observer->n_routes++] = (struct observed_route){.node = node, .first = observer->n_picks};
        observer->n_picks += node->attributes.routing.n_expert;
    }
    observer->n_seen = plan->n_forms + 2 * graph->n_kv_layers;
    observer->seen = calloc(n_threads, (observer->n_seen + 1) * sizeof(*observer->seen));
    observer->picks = calloc(n_threads + 1, (observer->n_picks + 1) * sizeof(*observer->picks));
    bool good = observer->routes != NULL && observer->seen != NULL && observer->picks != NULL;
    return good ? STATUS_OK : error_memory(error, "the observations");
}

// ---- while the plan runs ----

static void observe(const struct worker *worker, size_t group, const float *x, size_t n)
{
    const struct observer *observer = worker->plan->observer;
    struct seen *seen = &observer->seen[worker->index * observer->n_seen + group];
    uint32_t largest = 0, bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffffu;
        bad |= bits >= INFINITE;
        largest = bits > largest && bits < INFINITE ? bits : largest;
    }
    seen->n_rows++;
    seen->n_not_finite += bad;
    seen->n_over += bad == 0 && half_exponent(largest) > 0;
    seen->largest = largest > seen->largest ? largest : seen->largest;
}

// A single row is computed by every thread for itself, but seen once.
static bool is_repeated(const struct worker *worker, enum rows rows, uint32_t per_row)
{
    return worker->index != 0 && worker_n_rows(worker, rows, per_row) == 1;
}

void cpu_observe_source(const struct worker *worker, const struct form *form, const float *x, size_t k)
{
    if (!is_repeated(worker, form->slot.rows, form->slot.per_row))
        observe(worker, (size_t)(form - worker->plan->forms), x, k);
}

void cpu_observe_kv(const struct worker *worker, uint32_t layer, bool value, const float *x, size_t n)
{
    observe(worker, worker->plan->n_forms + 2 * layer + value, x, n);
}

void cpu_observe_route(const struct worker *worker, const struct node *node, const float *ids)
{
    const struct observer *observer = worker->plan->observer;
    uint64_t *picks = observer->picks + worker->index * observer->n_picks;
    if (is_repeated(worker, node->result->rows, 0))
        return;
    for (size_t r = 0; r < observer->n_routes; r++) {
        if (observer->routes[r].node != node)
            continue;
        for (uint32_t i = 0; i < node->attributes.routing.n_used; i++)
            picks[observer->routes[r].first + (size_t)ids[i]]++;
    }
}

// ---- what was seen ----

static void add_group(const struct plan *plan, size_t group, struct observation *sum)
{
    uint32_t largest = 0;
    for (size_t thread = 0; thread < plan->device->n_threads; thread++) {
        const struct seen *seen = &plan->observer->seen[thread * plan->observer->n_seen + group];
        sum->n_rows += seen->n_rows;
        sum->n_over += seen->n_over;
        sum->n_not_finite += seen->n_not_finite;
        largest = seen->largest > largest ? seen->largest : largest;
    }
    memcpy(&sum->largest, &largest, sizeof(largest));
    sum->exponent = (uint32_t)half_exponent(largest);
}

static void give_source(const struct plan *plan, const struct tensor *weight, uint32_t form, observation_fn give,
                        void *user)
{
    struct observation observation = {.what = OBSERVED_SOURCE, .weight = weight};
    add_group(plan, form, &observation);
    give(user, &observation);
}

static void give_kv(const struct plan *plan, uint32_t layer, bool value, observation_fn give, void *user)
{
    struct observation observation = {.what = value ? OBSERVED_VALUES : OBSERVED_KEYS, .layer = layer};
    add_group(plan, plan->n_forms + 2 * layer + value, &observation);
    give(user, &observation);
}

static void give_route(const struct plan *plan, const struct observed_route *route, observation_fn give, void *user)
{
    const struct observer *observer = plan->observer;
    size_t n_threads = plan->device->n_threads;
    uint64_t *sums = observer->picks + n_threads * observer->n_picks + route->first;
    struct observation observation = {.what = OBSERVED_ROUTE,
                                      .layer = route->node->attributes.layer_number,
                                      .n_expert = route->node->attributes.routing.n_expert,
                                      .picks = sums};
    for (uint32_t e = 0; e < observation.n_expert; e++) {
        sums[e] = 0;
        for (size_t thread = 0; thread < n_threads; thread++)
            sums[e] += observer->picks[thread * observer->n_picks + route->first + e];
    }
    give(user, &observation);
}

// Of a tensor whose rows are gate and up, the two parts are products of one step with one source: it is told once.
static bool is_second_part(const struct plan *plan, const struct step *step, uint32_t p)
{
    const char *name = plan->graph->weights[step->products[p].weight]->name;
    for (uint32_t before = 0; before < p; before++)
        if (strcmp(plan->graph->weights[step->products[before].weight]->name, name) == 0)
            return true;
    return false;
}

bool cpu_plan_observed(const struct plan *plan, observation_fn give, void *user)
{
    if (plan->observer == NULL)
        return false;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const struct step *step = &plan->steps[i];
        for (uint32_t p = 0; p < step->n_products; p++)
            if (!is_second_part(plan, step, p))
                give_source(plan, plan->graph->weights[step->products[p].weight], step->source, give, user);
        if (step->shared_source != NO_INDEX)
            give_source(plan, step->products[0].node->sources[4], step->shared_source, give, user);
    }
    for (uint32_t layer = 0; layer < plan->graph->n_kv_layers; layer++) {
        give_kv(plan, layer, false, give, user);
        if (!plan->graph->kv_layers[layer].v_in_k)
            give_kv(plan, layer, true, give, user);
    }
    for (size_t r = 0; r < plan->observer->n_routes; r++)
        give_route(plan, &plan->observer->routes[r], give, user);
    return true;
}

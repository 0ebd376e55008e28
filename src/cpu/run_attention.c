// Attention steps. A row's keys are taken in chunks of one page, each from its own maximum, and merged in ascending
// order. Usually an item is a row's KV head and merges as it goes; a single row's work is cut by chunks too, and by
// query heads where those are still too few for the threads: all states are stored, and then merged in the same order:
// the same bits.
#include "cpu/plan.h"

#include "base/checked.h"

#include <string.h>

// One chunk's or one row's state for the heads that share a KV head.
struct state {
    float *m, *l, *o; // [group], [group], [group][o_stride]
};

struct item {
    const struct node *node;
    size_t row;
    uint32_t kv_head;
    uint32_t first_head; // of the query heads that share it,
    uint32_t group;      // and how many they are here
    uint32_t head, n_q;  // of them, those of this item
    uint32_t first_key;  // the first position that the row sees
    uint32_t first, end; // its chunks
    size_t o_stride;
};

static struct state state_at(float *memory, const struct item *item)
{
    return (struct state){memory, memory + item->group, memory + 2 * (size_t)item->group};
}

static size_t state_floats(const struct item *item)
{
    return item->group * (item->o_stride + 2);
}

static struct item make_item(const struct worker *worker, const struct step *step, size_t row, uint32_t kv_head)
{
    const struct attributes *a = &step->attention->attributes;
    uint32_t position = worker->run->rows[row].position, first, end;
    attention_heads(a, kv_head, &first, &end);
    uint32_t first_key = a->window != 0 && position + 1 > a->window ? position + 1 - a->window : 0;
    return (struct item){.node = step->attention,
                         .row = row,
                         .kv_head = kv_head,
                         .first_head = first,
                         .group = end - first,
                         .n_q = end - first,
                         .first_key = first_key,
                         .first = first_key / KV_PAGE_POSITIONS,
                         .end = position / KV_PAGE_POSITIONS + 1,
                         .o_stride = round_up(a->v_dim, 16)};
}

// What a row sees of a page.
static struct attention_chunk chunk_of(const struct worker *worker, const struct item *item, uint32_t page)
{
    const struct attributes *a = &item->node->attributes;
    const struct kv_place *place = &worker->plan->kv_places[a->layer];
    const struct row *token = &worker->run->rows[item->row];
    const uint8_t *memory = cpu_kv_head(worker, a->layer, token->session, page, item->kv_head);
    uint32_t start = page * KV_PAGE_POSITIONS, last = token->position + 1 - start;
    return (struct attention_chunk){.k = memory,
                                    .v = memory + place->v,
                                    .k_scale = (const float *)(const void *)(memory + place->k_scale),
                                    .v_scale = (const float *)(const void *)(memory + place->v_scale),
                                    .scale = a->score_scale,
                                    .softcap = a->softcap,
                                    .first = item->first_key > start ? item->first_key - start : 0,
                                    .last = last < KV_PAGE_POSITIONS ? last : KV_PAGE_POSITIONS};
}

// The states of an item's query heads over one chunk.
static void attend(const struct worker *worker, const struct item *item, const struct attention_chunk *chunk,
                   const struct state *state, float *scratch)
{
    const struct plan *plan = worker->plan;
    const struct attributes *a = &item->node->attributes;
    const float *q =
        worker_value(worker, item->node->sources[0], item->row) + ((size_t)item->first_head + item->head) * a->head_dim;
    plan->device->kernels->attend[plan->params.kv](chunk, q, a->head_dim, item->n_q, a->head_dim, a->v_dim,
                                                   state->m + item->head, state->l + item->head,
                                                   state->o + item->head * item->o_stride, item->o_stride, scratch);
}

// Where values that are taken out of keys go: behind what a kernel needs of the scratch.
static float *latent_memory(const struct item *item, float *scratch)
{
    return scratch + attend_scratch_floats(item->group, item->node->attributes.head_dim);
}

// Query head h of the group: the next chunk's state into that of the chunks before it.
static void merge(const struct worker *worker, const struct item *item, const struct state *into,
                  const struct state *next, uint32_t h)
{
    worker->plan->device->kernels->attend_merge(&into->m[h], &into->l[h], into->o + h * item->o_stride, next->m[h],
                                                next->l[h], next->o + h * item->o_stride, item->node->attributes.v_dim);
}

// The result of query head h. A sink is merged as a last chunk of one score whose value is zero. zeros: v_dim floats to
// write to.
static void finish(const struct worker *worker, const struct item *item, const struct state *state, uint32_t h,
                   float *zeros)
{
    const struct kernels *kernels = worker->plan->device->kernels;
    const struct tensor *sinks = item->node->sources[3];
    size_t v_dim = item->node->attributes.v_dim, head = (size_t)item->first_head + h;
    float *o = state->o + h * item->o_stride;
    if (sinks != NULL) {
        memset(zeros, 0, v_dim * sizeof(float));
        kernels->attend_merge(&state->m[h], &state->l[h], o, worker->plan->weights->items[sinks->index].vector[head],
                              1.0f, zeros, v_dim);
    }
    kernels->attend_finish(state->l[h], o, v_dim, worker_value(worker, item->node->result, item->row) + head * v_dim);
}

// One page for n rows, in ascending position, of one session: each row's state over it, and that into `states`. Values
// that are the beginning of the keys are taken out of the page once for all of them.
static void run_page(const struct worker *worker, const struct item *items, uint32_t n, uint32_t page,
                     const struct state *states, const struct state *next, float *scratch)
{
    const struct attributes *a = &items[0].node->attributes;
    struct attention_chunk chunks[ATTEND_ROWS], all = {0};
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (page < items[i].first || page >= items[i].end)
            continue;
        chunks[i] = chunk_of(worker, &items[i], page);
        uint32_t first = any && all.first < chunks[i].first ? all.first : chunks[i].first;
        uint32_t last = any && all.last > chunks[i].last ? all.last : chunks[i].last;
        all = chunks[i];
        all.first = first;
        all.last = last;
        any = true;
    }
    if (a->v_in_k && any)
        cpu_latent_values(worker->plan->params.kv, &all, a->v_dim, latent_memory(&items[0], scratch));
    for (uint32_t i = 0; i < n; i++) {
        if (page < items[i].first || page >= items[i].end)
            continue;
        if (a->v_in_k) {
            chunks[i].v = all.v;
            chunks[i].v_scale = all.v_scale;
        }
        attend(worker, &items[i], &chunks[i], page == items[i].first ? &states[i] : next, scratch);
        for (uint32_t h = 0; page != items[i].first && h < items[i].group; h++)
            merge(worker, &items[i], &states[i], next, h);
    }
}

// All pages of n rows of one session.
static void run_whole(const struct worker *worker, const struct item *items, uint32_t n)
{
    float *memory = (float *)(void *)worker->scratch;
    size_t floats = state_floats(&items[0]);
    struct state states[ATTEND_ROWS], next = state_at(memory + n * floats, &items[0]);
    float *scratch = memory + round_up((n + 1) * floats, 16);
    for (uint32_t i = 0; i < n; i++)
        states[i] = state_at(memory + i * floats, &items[i]);
    for (uint32_t page = items[0].first; page < items[n - 1].end; page++)
        run_page(worker, items, n, page, states, &next, scratch);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < items[i].group; h++)
            finish(worker, &items[i], &states[i], h, scratch);
}

// Into how many parts a group of query heads is cut so that n items become enough for the threads: a divisor of it.
static uint32_t group_parts(uint32_t group, size_t n, size_t n_threads)
{
    uint32_t parts = 1;
    while (parts < group && (n * parts < n_threads || group % parts != 0))
        parts++;
    return parts;
}

// The chunks of a row whose states are held at once: `n` from `wave` on, behind the state merged so far (`held`).
struct wave {
    uint32_t first, n, held;
};

// Where the states of a KV head lie: chunk after chunk. Those of all query heads take n_head · MAX_SPLIT_CHUNKS states.
static float *split_states(const struct worker *worker, const struct item *item)
{
    return worker->plan->partials + (size_t)item->first_head * (item->o_stride + 2) * MAX_SPLIT_CHUNKS;
}

// This worker's share of a wave's states.
static void attend_wave(const struct worker *worker, const struct step *step, size_t row, const struct wave *wave)
{
    const struct attributes *a = &step->attention->attributes;
    uint32_t largest = attention_group(a) < a->n_head ? attention_group(a) : a->n_head;
    uint32_t parts = group_parts(largest, (size_t)wave->n * a->n_kv_head, worker->n_threads);
    float *scratch = (float *)(void *)worker->scratch;
    size_t begin, end;
    pool_share((size_t)wave->n * a->n_kv_head * parts, worker->index, worker->n_threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        uint32_t chunk = (uint32_t)(i / parts % wave->n), part = (uint32_t)(i % parts);
        struct item item = make_item(worker, step, row, (uint32_t)(i / parts / wave->n));
        item.head = item.group * part / parts;
        item.n_q = item.group * (part + 1) / parts - item.head;
        if (item.n_q == 0) // a group that is not whole may have fewer heads than parts
            continue;
        float *memory = split_states(worker, &item) + (chunk + wave->held) * state_floats(&item);
        struct state state = state_at(memory, &item);
        struct attention_chunk seen = chunk_of(worker, &item, wave->first + chunk);
        if (a->v_in_k)
            cpu_latent_values(worker->plan->params.kv, &seen, a->v_dim, latent_memory(&item, scratch));
        attend(worker, &item, &seen, &state, scratch);
    }
}

// This worker's share of the query heads: a wave's states into the first one, which stays there.
static void merge_wave(const struct worker *worker, const struct step *step, size_t row, const struct wave *wave)
{
    const struct attributes *a = &step->attention->attributes;
    size_t begin, end;
    pool_share(a->n_head, worker->index, worker->n_threads, &begin, &end);
    for (size_t head = begin; head < end; head++) {
        uint32_t kv_head = (a->first_in_group + (uint32_t)head) / attention_group(a);
        struct item item = make_item(worker, step, row, kv_head);
        uint32_t h = (uint32_t)head - item.first_head;
        float *memory = split_states(worker, &item);
        struct state into = state_at(memory, &item);
        for (size_t chunk = 1; chunk < wave->n + wave->held; chunk++) {
            struct state next = state_at(memory + chunk * state_floats(&item), &item);
            merge(worker, &item, &into, &next, h);
        }
        if (wave->first + wave->n == item.end)
            finish(worker, &item, &into, h, (float *)(void *)worker->scratch);
    }
}

// One row, its chunks spread over the threads, MAX_SPLIT_CHUNKS at a time.
static void run_split(const struct worker *worker, const struct step *step, size_t row)
{
    struct pool *pool = worker->plan->device->pool;
    struct item item = make_item(worker, step, row, 0);
    struct wave wave = {.first = item.first};
    while (wave.first < item.end) {
        uint32_t left = item.end - wave.first, most = MAX_SPLIT_CHUNKS - wave.held;
        wave.n = left < most ? left : most;
        attend_wave(worker, step, row, &wave);
        pool_barrier(pool);
        merge_wave(worker, step, row, &wave);
        wave.first += wave.n;
        wave.held = 1;
        if (wave.first < item.end)
            pool_barrier(pool);
    }
}

// Whether a row goes over the pages together with the one before it.
static bool follows(const struct worker *worker, const struct item *before, const struct item *item)
{
    const struct row *a = &worker->run->rows[before->row], *b = &worker->run->rows[item->row];
    return a->session == b->session && a->position < b->position;
}

void cpu_run_attention(const struct worker *worker, const struct step *step)
{
    size_t n_rows = worker_n_rows(worker, step->rows, step->per_row);
    uint32_t n_kv = step->attention->attributes.n_kv_head;
    if (n_rows == 1 && worker->n_threads > 1) {
        run_split(worker, step, 0);
        return;
    }
    // Later rows see more keys: every n_threads-th item, not a range of them.
    struct item items[ATTEND_ROWS];
    uint32_t n = 0, most = step->attention->attributes.v_in_k && n_kv == 1 ? ATTEND_ROWS : 1;
    for (size_t i = worker->index; i < n_rows * n_kv; i += worker->n_threads) {
        struct item item = make_item(worker, step, i / n_kv, (uint32_t)(i % n_kv));
        if (n > 0 && (n == most || !follows(worker, &items[n - 1], &item))) {
            run_whole(worker, items, n);
            n = 0;
        }
        items[n++] = item;
    }
    if (n > 0)
        run_whole(worker, items, n);
}

// Attention steps. A row's keys are taken in chunks of one page, each from its own maximum, and merged in ascending
// order. Usually an item is a row's KV head and merges as it goes; where there are too few of those for the threads,
// the chunks themselves are the items, their states are all stored, and then merged in the same order: the same bits.
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
    uint32_t group;      // query heads a KV head
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
    uint32_t position = worker->run->rows[row].position;
    uint32_t first_key = a->window != 0 && position + 1 > a->window ? position + 1 - a->window : 0;
    return (struct item){.node = step->attention,
                         .row = row,
                         .kv_head = kv_head,
                         .group = a->n_head / a->n_kv_head,
                         .first_key = first_key,
                         .first = first_key / KV_PAGE_POSITIONS,
                         .end = position / KV_PAGE_POSITIONS + 1,
                         .o_stride = round_up(a->v_dim, 16)};
}

static void attend(const struct worker *worker, const struct item *item, uint32_t page, const struct state *state,
                   float *scratch)
{
    const struct plan *plan = worker->plan;
    const struct attributes *a = &item->node->attributes;
    const struct kv_place *place = &plan->kv_places[a->layer];
    const struct row *token = &worker->run->rows[item->row];
    const uint8_t *memory = cpu_kv_head(worker, a->layer, token->session, page, item->kv_head);
    uint32_t start = page * KV_PAGE_POSITIONS, last = token->position + 1 - start;
    struct attention_chunk chunk = {.k = memory,
                                    .v = memory + place->v,
                                    .k_scale = (const float *)(const void *)(memory + place->k_scale),
                                    .v_scale = (const float *)(const void *)(memory + place->v_scale),
                                    .scale = a->score_scale,
                                    .softcap = a->softcap,
                                    .first = item->first_key > start ? item->first_key - start : 0,
                                    .last = last < KV_PAGE_POSITIONS ? last : KV_PAGE_POSITIONS};
    const float *q =
        worker_value(worker, item->node->sources[0], item->row) + (size_t)item->kv_head * item->group * a->head_dim;
    plan->device->kernels->attend[plan->params.kv](&chunk, q, a->head_dim, item->group, a->head_dim, a->v_dim, state->m,
                                                   state->l, state->o, item->o_stride, scratch);
}

static void merge(const struct worker *worker, const struct item *item, const struct state *into,
                  const struct state *next)
{
    size_t v_dim = item->node->attributes.v_dim;
    for (uint32_t h = 0; h < item->group; h++)
        worker->plan->device->kernels->attend_merge(&into->m[h], &into->l[h], into->o + h * item->o_stride, next->m[h],
                                                    next->l[h], next->o + h * item->o_stride, v_dim);
}

static void finish(const struct worker *worker, const struct item *item, const struct state *state)
{
    size_t v_dim = item->node->attributes.v_dim;
    float *y = worker_value(worker, item->node->result, item->row) + (size_t)item->kv_head * item->group * v_dim;
    for (uint32_t h = 0; h < item->group; h++)
        worker->plan->device->kernels->attend_finish(state->l[h], state->o + h * item->o_stride, v_dim, y + h * v_dim);
}

static void run_whole(const struct worker *worker, const struct item *item)
{
    float *memory = (float *)(void *)worker->scratch;
    struct state state = state_at(memory, item), next = state_at(memory + state_floats(item), item);
    float *scratch = memory + round_up(2 * state_floats(item), 16);
    attend(worker, item, item->first, &state, scratch);
    for (uint32_t page = item->first + 1; page < item->end; page++) {
        attend(worker, item, page, &next, scratch);
        merge(worker, item, &state, &next);
    }
    finish(worker, item, &state);
}

// One row, its chunks spread over the threads, MAX_SPLIT_CHUNKS at a time. The states of each KV head lie together:
// chunk after chunk; the merged state is that of the first chunk and stays there.
static void run_split(const struct worker *worker, const struct step *step, size_t row)
{
    const struct plan *plan = worker->plan;
    uint32_t n_kv = step->attention->attributes.n_kv_head;
    struct item item = make_item(worker, step, row, 0);
    size_t floats = state_floats(&item), head_floats = floats * MAX_SPLIT_CHUNKS;
    float *scratch = (float *)(void *)worker->scratch;
    for (uint32_t wave = item.first; wave < item.end;) {
        uint32_t held = wave == item.first ? 0 : 1; // the state merged so far
        uint32_t n = item.end - wave;
        n = n < MAX_SPLIT_CHUNKS - held ? n : MAX_SPLIT_CHUNKS - held;
        size_t begin, end;
        pool_share((size_t)n * n_kv, worker->index, worker->n_threads, &begin, &end);
        for (size_t i = begin; i < end; i++) {
            item.kv_head = (uint32_t)(i / n);
            size_t chunk = i % n;
            struct state state = state_at(plan->partials + item.kv_head * head_floats + (chunk + held) * floats, &item);
            attend(worker, &item, wave + (uint32_t)chunk, &state, scratch);
        }
        pool_barrier(plan->device->pool);
        pool_share(n_kv, worker->index, worker->n_threads, &begin, &end);
        for (size_t head = begin; head < end; head++) {
            float *memory = plan->partials + head * head_floats;
            struct state into = state_at(memory, &item);
            item.kv_head = (uint32_t)head;
            for (size_t chunk = 1; chunk < n + held; chunk++) {
                struct state next = state_at(memory + chunk * floats, &item);
                merge(worker, &item, &into, &next);
            }
            if (wave + n == item.end)
                finish(worker, &item, &into);
        }
        wave += n;
        if (wave < item.end)
            pool_barrier(plan->device->pool);
    }
}

void cpu_run_attention(const struct worker *worker, const struct step *step)
{
    size_t n_rows = worker_n_rows(worker, step->rows);
    uint32_t n_kv = step->attention->attributes.n_kv_head;
    if (n_rows == 1 && worker->n_threads > 1) {
        run_split(worker, step, 0);
        return;
    }
    // Later rows see more keys: every n_threads-th item, not a range of them.
    for (size_t i = worker->index; i < n_rows * n_kv; i += worker->n_threads) {
        struct item item = make_item(worker, step, i / n_kv, (uint32_t)(i % n_kv));
        run_whole(worker, &item);
    }
}

// Where a plan's values, private rows, scratch and KV pages lie. Values whose lives do not meet share memory.
#include "cpu/plan.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

size_t cpu_token_block(enum precision precision, size_t k)
{
    size_t rows = TOKEN_BLOCK_BYTES / form_row_bytes(precision, k);
    return rows < 48 ? 48 : rows > 384 ? 384 : rows / 6 * 6;
}

// ---- lifetimes ----

struct block {
    struct slot *slot;
    size_t size;
    size_t *offset;
    uint32_t last; // the step up to which nothing else may lie here
};

// Row steps may run without a barrier behind them, so a slow thread may still read what the next step would overwrite:
// what a row step uses lives until the next step that ends in a barrier (a step of adapters may be left out).
static uint32_t extended_last(const struct plan *plan, const struct slot *slot)
{
    uint32_t last = slot->last;
    while ((plan->steps[last].kind == STEP_ROWS || cpu_is_of_adapters(plan, &plan->steps[last])) &&
           last + 1 < plan->n_steps)
        last++;
    return last;
}

static int compare_first(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    if (x->slot->first != y->slot->first)
        return x->slot->first < y->slot->first ? -1 : 1;
    return x->size > y->size ? -1 : x->size < y->size;
}

static int compare_offset(const void *a, const void *b)
{
    const struct block *x = *(const struct block *const *)a, *y = *(const struct block *const *)b;
    return *x->offset < *y->offset ? -1 : *x->offset > *y->offset;
}

// Lays the blocks out, first fit in the order of their first step; returns the size of it all.
static size_t lay_out(struct block *blocks, size_t n, struct block **live)
{
    size_t total = 0, n_live = 0;
    qsort(blocks, n, sizeof(*blocks), compare_first);
    for (size_t i = 0; i < n; i++) {
        size_t kept = 0;
        for (size_t j = 0; j < n_live; j++) {
            if (live[j]->last >= blocks[i].slot->first)
                live[kept++] = live[j];
        }
        n_live = kept;
        qsort(live, n_live, sizeof(*live), compare_offset);
        size_t offset = 0;
        for (size_t j = 0; j < n_live && offset + blocks[i].size > *live[j]->offset; j++) {
            size_t end = *live[j]->offset + live[j]->size;
            offset = end > offset ? end : offset;
        }
        *blocks[i].offset = offset;
        live[n_live++] = &blocks[i];
        if (offset + blocks[i].size > total)
            total = offset + blocks[i].size;
    }
    return total;
}

static size_t slot_capacity(const struct plan *plan, const struct slot *slot)
{
    size_t rows = slot->rows == ROWS_LOGITS ? plan->params.n_logits : plan->params.n_rows;
    return slot->rows == ROWS_PAIRS ? rows * slot->per_row : rows;
}

static struct slot *slot_at(struct plan *plan, size_t i)
{
    size_t n_values = plan->graph->n_values, n_forms = plan->n_forms;
    if (i >= n_values + n_forms)
        return &plan->hiddens[i - n_values - n_forms].slot;
    return i < n_values ? &plan->slots[i] : &plan->forms[i - n_values].slot;
}

static enum status place_slots(struct plan *plan, struct error *error)
{
    size_t n_slots = plan->graph->n_values + plan->n_forms + plan->n_hiddens;
    struct block *blocks = calloc(n_slots, sizeof(*blocks));
    struct block **live = calloc(n_slots, sizeof(struct block *));
    if (blocks == NULL || live == NULL) {
        free(blocks);
        free(live);
        return error_memory(error, "the plan");
    }
    const struct slot *logits = &plan->slots[plan->graph->output->index];
    plan->logits_bytes = logits->used ? logits->row_bytes * plan->params.n_logits : 0;
    size_t n = 0;
    for (size_t i = 0; i < n_slots; i++) {
        struct slot *slot = slot_at(plan, i);
        if (slot->used)
            blocks[n++] = (struct block){.slot = slot,
                                         .size = slot->row_bytes * slot_capacity(plan, slot),
                                         .offset = &slot->offset,
                                         .last = extended_last(plan, slot)};
    }
    plan->memory_bytes = lay_out(blocks, n, live);
    n = 0;
    for (size_t i = 0; i < n_slots; i++) {
        struct slot *slot = slot_at(plan, i);
        if (slot->used && slot->by_rows)
            blocks[n++] = (struct block){.slot = slot,
                                         .size = slot->row_bytes,
                                         .offset = &slot->private_offset,
                                         .last = extended_last(plan, slot)};
    }
    plan->private_bytes = lay_out(blocks, n, live);
    free(blocks);
    free(live);
    return STATUS_OK;
}

// ---- scratch ----

static size_t matmul_scratch(const struct plan *plan, const struct step *step)
{
    const struct form *form = &plan->forms[step->source];
    size_t k = form_k(form), bytes = cpu_panel_scratch(form->precision, k);
    size_t block = cpu_token_block(form->precision, k);
    if (step->kind == STEP_MATMUL && step->glu == NULL) { // a last panel of a head, or sums by segment, put aside
        size_t floats = block * PANEL_ROWS;
        for (uint32_t p = 0; p < step->n_products; p++)
            if (is_made_of_parts(step->products[p].node))
                floats = max_size(floats, (size_t)PART_ROWS * MAX_SEGMENTS * PANEL_ROWS);
        return bytes + floats * sizeof(float);
    }
    size_t width = step_tile_width(plan, step);
    if (step->kind == STEP_EXPERTS)
        bytes += block * form->slot.row_bytes;
    return bytes + step->n_products * block * width * sizeof(float) + f32_row_bytes(width);
}

static size_t experts_sum_scratch(const struct plan *plan, const struct step *step)
{
    size_t floats = (size_t)MAX_SEGMENTS * PANEL_ROWS;
    return cpu_experts_sum_panel(plan, step) + (PART_ROWS + plan->params.n_rows) * floats * sizeof(float);
}

// The routes' scores, or a sum of biases or of adapters' terms.
static size_t rows_scratch(const struct step *step)
{
    size_t floats = 0;
    for (size_t i = 0; i < step->n_ops; i++) {
        const struct node *node = step->ops[i].node;
        size_t needed = node == NULL                ? 0
                        : node->op == OP_ROUTE      ? route_scratch_floats(&node->attributes.routing)
                        : node->op == OP_ADD_ID_SUM ? round_up(node->result->ne[0], 16)
                        : node->op == OP_LORA       ? cpu_lora_lookup_floats(node)
                        : node->op == OP_ALL_REDUCE ? cpu_exchange_scratch_floats(node)
                                                    : 0;
        floats = needed > floats ? needed : floats;
    }
    return floats * sizeof(float);
}

// The state of each row that goes over the pages together and one of a page, and behind them what attend takes, or the
// zeros (v_dim of them) that are merged with a sink.
static size_t attention_scratch(const struct plan *plan, const struct attributes *a)
{
    size_t group = attention_group(a);
    size_t n_states = a->v_in_k ? ATTEND_ROWS + 1 : 2;
    size_t states = round_up(n_states * group * (round_up(a->v_dim, 16) + 2), 16);
    size_t floats = states + max_size(attend_scratch_floats(group, a->head_dim), a->v_dim);
    return floats * sizeof(float) + (a->v_in_k ? cpu_latent_bytes(plan->params.kv, a->v_dim) : 0);
}

static void measure_scratch(struct plan *plan)
{
    for (size_t i = 0; i < plan->n_steps; i++) {
        const struct step *step = &plan->steps[i];
        if (step->kind == STEP_MATMUL || step->kind == STEP_EXPERTS)
            plan->scratch_bytes = max_size(plan->scratch_bytes, matmul_scratch(plan, step));
        if (step->kind == STEP_LORA_ADD)
            plan->scratch_bytes = max_size(plan->scratch_bytes, plan->params.n_rows * PANEL_ROWS * sizeof(float));
        if (step->kind == STEP_EXCHANGE) {
            const struct plan_exchange *exchange = &plan->exchanges[step->exchange];
            plan->scratch_bytes =
                max_size(plan->scratch_bytes, cpu_exchange_scratch_floats(exchange->node) * sizeof(float));
            plan->receive_bytes = max_size(plan->receive_bytes, cpu_exchange_receive_bytes(plan, exchange));
        }
        if (step->kind == STEP_EXPERTS_SUM)
            plan->scratch_bytes = max_size(plan->scratch_bytes, experts_sum_scratch(plan, step));
        if (step->kind == STEP_ROWS)
            plan->scratch_bytes = max_size(plan->scratch_bytes, rows_scratch(step));
        if (step->kind == STEP_ATTENTION) {
            const struct attributes *a = &step->attention->attributes;
            size_t partials = (size_t)MAX_SPLIT_CHUNKS * a->n_head * (round_up(a->v_dim, 16) + 2) * sizeof(float);
            plan->scratch_bytes = max_size(plan->scratch_bytes, attention_scratch(plan, a));
            plan->partials_bytes = max_size(plan->partials_bytes, partials);
        }
    }
    plan->pairs_bytes = cpu_pairs_bytes(plan->max_pairs, plan->max_experts);
    cpu_lora_measure(plan);
    plan->thread_bytes = round_up(plan->private_bytes, 4096) + round_up(plan->pairs_bytes, 4096) +
                         round_up(plan->scratch_bytes, 4096) + round_up(plan->lora_bytes, 4096);
}

enum status cpu_plan_place(struct plan *plan, struct error *error)
{
    enum status status = place_slots(plan, error);
    if (status != STATUS_OK)
        return status;
    measure_scratch(plan);
    if (plan->weights == NULL)
        return STATUS_OK; // only to be described
    plan->memory = cpu_allocate(plan->memory_bytes);
    plan->thread_memory = cpu_allocate(plan->thread_bytes * plan->device->n_threads);
    plan->partials = cpu_allocate(plan->partials_bytes);
    if (plan->receive_bytes != 0)
        plan->receive = cpu_allocate(plan->receive_bytes);
    if (plan->memory == NULL || plan->thread_memory == NULL || plan->partials == NULL ||
        (plan->receive_bytes != 0 && plan->receive == NULL))
        return error_set(error, STATUS_MEMORY,
                         "out of memory: the plan's work area takes %zu MiB for batches of %zu; use a smaller -b",
                         (plan->memory_bytes + plan->thread_bytes * plan->device->n_threads) >> 20,
                         plan->params.n_rows);
    return STATUS_OK;
}

void cpu_plan_memory(const struct plan *plan, struct plan_memory *memory)
{
    memory->weights = plan->described.bytes + plan->described_adapters.bytes;
    memory->logits = plan->logits_bytes;
    memory->work = plan->memory_bytes - plan->logits_bytes + plan->thread_bytes * plan->device->n_threads +
                   plan->partials_bytes + plan->receive_bytes;
}

// ---- KV pages ----

static uint32_t kind_of_window(struct plan *plan, uint32_t window)
{
    uint32_t kind = 0;
    while (kind < plan->n_kinds && plan->kinds[kind].window != window)
        kind++;
    if (kind == MAX_KV_KINDS)
        return NO_INDEX;
    if (kind == plan->n_kinds)
        plan->kinds[plan->n_kinds++] = (struct kv_kind_layout){.window = window};
    return kind;
}

// A head's keys, their scales, its values, their scales: see struct attention_chunk for the layouts.
static size_t place_head(const struct plan *plan, const struct kv_layer *layer, struct kv_place *place)
{
    bool q8 = plan->params.kv == KV_DTYPE_Q8_0;
    size_t bytes = kv_element_bytes(plan->params.kv) * KV_PAGE_POSITIONS, scales = KV_PAGE_POSITIONS * sizeof(float);
    size_t at = bytes * layer->k_dim;
    place->k_scale = at;
    at += scales * (q8 ? layer->k_dim / 32 : 1);
    if (layer->v_in_k)
        return round_up(at, 64);
    place->v = at;
    at += bytes * layer->v_dim;
    place->v_scale = at;
    at += scales * (q8 ? layer->v_dim / 32 : 1);
    return round_up(at, 64);
}

enum status cpu_plan_place_kv(struct plan *plan, struct error *error)
{
    const struct graph *graph = plan->graph;
    plan->kv_places = calloc(graph->n_kv_layers + 1, sizeof(*plan->kv_places));
    if (plan->kv_places == NULL)
        return error_memory(error, "the plan");
    for (size_t i = 0; i < graph->n_kv_layers; i++) {
        const struct kv_layer *layer = &graph->kv_layers[i];
        struct kv_place *place = &plan->kv_places[i];
        if (plan->params.kv == KV_DTYPE_Q8_0 && (layer->k_dim % 32 != 0 || layer->v_dim % 32 != 0))
            return error_set(
                error, STATUS_UNSUPPORTED,
                "a Q8_0 KV cache needs heads of a multiple of 32 elements; layer %zu has %u and %u: use f16", i,
                layer->k_dim, layer->v_dim);
        place->kind = kind_of_window(plan, layer->window);
        if (place->kind == NO_INDEX)
            return error_set(error, STATUS_UNSUPPORTED, "the model has more than %d different attention windows",
                             MAX_KV_KINDS);
        struct kv_kind_layout *kind = &plan->kinds[place->kind];
        place->offset = kind->page_bytes;
        place->head_bytes = place_head(plan, layer, place);
        kind->page_bytes += place->head_bytes * layer->n_head;
        kind->n_layers++;
    }
    return STATUS_OK;
}

uint32_t cpu_plan_kv_kinds(const struct plan *plan, struct kv_kind_layout kinds[MAX_KV_KINDS])
{
    memcpy(kinds, plan->kinds, sizeof(plan->kinds));
    return plan->n_kinds;
}

enum status cpu_plan_kv_allocate(struct plan *plan, const size_t *n_pages, struct error *error)
{
    for (uint32_t kind = 0; kind < plan->n_kinds; kind++) {
        size_t bytes = 0;
        if (checked_mul_size(n_pages[kind], plan->kinds[kind].page_bytes, &bytes))
            plan->pages[kind] = cpu_allocate(bytes);
        if (plan->pages[kind] == NULL)
            return error_set(error, STATUS_MEMORY, "out of memory: the KV cache takes %zu MiB; use a smaller -c",
                             bytes >> 20);
    }
    return STATUS_OK;
}

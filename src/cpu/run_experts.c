// Expert steps. First the hidden units of every (token, expert) pair, expert by expert; then the down projections, cut
// by panels of outputs with all experts inside, so that no routing leaves a thread idle and no sum is scattered.
#include "cpu/plan.h"

#include "base/checked.h"

#include <string.h>

// ---- pairs ----

size_t cpu_pairs_bytes(size_t n_pairs, size_t n_expert)
{
    return n_expert == 0 ? 0 : (2 * n_pairs + 2 * n_expert + 1) * sizeof(uint32_t);
}

void cpu_pairs_place(struct pairs *pairs, uint8_t *memory, size_t n_pairs, size_t n_expert)
{
    uint32_t *words = (uint32_t *)(void *)memory;
    pairs->start = words;
    pairs->active = words + n_expert + 1;
    pairs->row = pairs->active + n_expert;
    pairs->weight = (float *)(void *)(pairs->row + n_pairs);
}

// A counting sort: rows come in ascending order, so they stay so within an expert.
const struct pairs *worker_pairs(const struct worker *worker, const struct tensor *route)
{
    struct pairs *pairs = worker->pairs;
    if (pairs->route == route)
        return pairs;
    const struct routing *routing = &route->producer->attributes.routing;
    uint32_t n_used = routing->n_used, n_expert = routing->n_expert;
    size_t n_rows = worker_n_rows(worker, route->rows, 0);
    uint32_t *next = pairs->start + 1; // of each expert: how many, then where its next pair goes, at last where it ends
    memset(pairs->start, 0, (n_expert + 1) * sizeof(*pairs->start));
    for (size_t row = 0; row < n_rows; row++) {
        const float *ids = worker_value(worker, route, row);
        for (uint32_t i = 0; i < n_used; i++)
            next[(uint32_t)ids[i]]++;
    }
    uint32_t sum = 0;
    pairs->n_active = 0;
    for (uint32_t e = 0; e < n_expert; e++) {
        uint32_t count = next[e];
        if (count > 0)
            pairs->active[pairs->n_active++] = e;
        next[e] = sum;
        sum += count;
    }
    for (size_t row = 0; row < n_rows; row++) {
        const float *ids = worker_value(worker, route, row);
        for (uint32_t i = 0; i < n_used; i++) {
            uint32_t pair = next[(uint32_t)ids[i]]++;
            pairs->row[pair] = (uint32_t)row;
            pairs->weight[pair] = ids[n_used + i];
        }
    }
    pairs->route = route;
    return pairs;
}

// The matrix of an expert; false: it is not in memory.
static bool expert_matrix(const struct worker *worker, const struct step *step, const struct product *product,
                          uint32_t expert, struct packed *matrix)
{
    const struct cpu_weight *weight = &worker->plan->weights->items[product->weight];
    const int32_t *slots = product->node->attributes.slots;
    size_t slot = slots == NULL ? expert : (size_t)slots[expert]; // -1 is beyond the last
    if (slot >= weight->n) {
        worker_fault(worker, step->route->producer->attributes.layer_number, FAULT_ABSENT + expert);
        return false;
    }
    *matrix = cpu_weight_matrix(weight, slot);
    return true;
}

// ---- hidden units ----

// Item costs: unpacking a panel is worth some rows.
enum { UNPACK_COST = 4 };

void cpu_share_tiles(const struct worker *worker, const struct pairs *pairs, size_t n_tiles,
                     void (*function)(const struct worker *, const struct step *, const struct expert_share *),
                     const struct step *step)
{
    uint64_t total = 0, before = 0;
    for (uint32_t i = 0; i < pairs->n_active; i++) {
        uint32_t e = pairs->active[i];
        total += (uint64_t)n_tiles * (UNPACK_COST + pairs->start[e + 1] - pairs->start[e]);
    }
    uint64_t first = total * worker->index / worker->n_threads, last = total * (worker->index + 1) / worker->n_threads;
    for (uint32_t i = 0; i < pairs->n_active && before < last; i++) {
        uint32_t e = pairs->active[i];
        uint64_t cost = UNPACK_COST + pairs->start[e + 1] - pairs->start[e];
        // A tile is its who holds the place where it begins.
        uint64_t begin = first <= before ? 0 : (first - before + cost - 1) / cost;
        uint64_t end = (last - before + cost - 1) / cost;
        struct expert_share share = {.expert = e,
                                     .begin = begin < n_tiles ? (size_t)begin : n_tiles,
                                     .end = end < n_tiles ? (size_t)end : n_tiles};
        if (share.begin < share.end)
            function(worker, step, &share);
        before += n_tiles * cost;
    }
}

// The source rows of pairs [first, first + n) of one expert: gathered where there are several, since they lie apart.
static struct source_rows gather(const struct worker *worker, const struct form *form, const struct pairs *pairs,
                                 size_t first, size_t n, uint8_t *scratch)
{
    struct source_rows source = {.stride = form->slot.row_bytes, .n = n, .precision = form->precision};
    if (form->value->rows == ROWS_PAIRS) {
        source.rows = worker_row(worker, &form->slot, first);
    } else if (n == 1) {
        source.rows = worker_row(worker, &form->slot, pairs->row[first]);
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(scratch + i * form->slot.row_bytes, worker_row(worker, &form->slot, pairs->row[first + i]),
                   form->slot.row_bytes);
        source.rows = scratch;
    }
    return source;
}

// The products of one tile into outputs [product][row][width]: by the expert's scale, by the pair's weight where that
// comes before the experts, and with the expert's bias.
static void tile_products(const struct worker *worker, const struct step *step, uint32_t expert, size_t first_pair,
                          const struct source_rows *source, size_t begin, size_t end, float *outputs, size_t width)
{
    const struct plan *plan = worker->plan;
    const struct kernels *kernels = plan->device->kernels;
    for (uint32_t p = 0; p < step->n_products; p++) {
        const struct product *product = &step->products[p];
        const struct tensor *scale = product->node->sources[3];
        float *y = outputs + p * source->n * width;
        struct packed matrix;
        if (!expert_matrix(worker, step, product, expert, &matrix)) { // the run goes on to where it is stopped
            memset(outputs, 0, step->n_products * source->n * width * sizeof(float));
            return;
        }
        for (size_t row = begin; row < end; row += PANEL_ROWS) {
            struct panel panel = cpu_panel(worker, &matrix, row / PANEL_ROWS, source->precision, source->n);
            cpu_panel_product(&panel, source, y + row - begin, width, 0);
        }
        const float *bias = product->bias == NULL
                                ? NULL
                                : cpu_weight_vector(&plan->weights->items[product->bias->sources[1]->index], expert);
        for (size_t t = 0; t < source->n; t++) {
            float *row = y + t * width;
            if (scale != NULL)
                kernels->scale(row, worker_operand(worker, scale, 0)[expert], end - begin, row);
            if (product->node->attributes.weighted)
                kernels->scale(row, worker->pairs->weight[first_pair + t], end - begin, row);
        }
        for (size_t row = begin; product->hidden != NO_INDEX && row < end; row += PANEL_ROWS) {
            struct lora_panel panel = {.hidden = product->hidden, .matrix = expert, .panel = row / PANEL_ROWS};
            cpu_lora_add(worker, &panel, first_pair, source->n, y + row - begin, width);
        }
        for (size_t t = 0; bias != NULL && t < source->n; t++)
            kernels->add(y + t * width, bias + begin, end - begin, y + t * width);
    }
}

static void expert_tiles(const struct worker *worker, const struct step *step, const struct expert_share *share)
{
    const struct plan *plan = worker->plan;
    const struct form *form = &plan->forms[step->source];
    const struct pairs *pairs = worker->pairs;
    size_t k = form->value->ne[0], width = step_tile_width(plan, step), block = cpu_token_block(form->precision, k);
    uint8_t *gathered = worker->scratch + cpu_panel_scratch(form->precision, k);
    float *outputs = (float *)(void *)(gathered + block * form->slot.row_bytes);
    size_t last = pairs->start[share->expert + 1];
    for (size_t first = pairs->start[share->expert]; first < last; first += block) {
        size_t n = last - first < block ? last - first : block;
        struct source_rows source = gather(worker, form, pairs, first, n, gathered);
        for (size_t item = share->begin; item < share->end; item++) {
            size_t begin, end;
            step_tile(plan, step, item, &begin, &end);
            tile_products(worker, step, share->expert, first, &source, begin, end, outputs, width);
            for (size_t t = 0; t < n; t++) {
                float *gate = outputs + t * width;
                struct tile_row tile = {.begin = begin,
                                        .n = end - begin,
                                        .gate = gate,
                                        .up = gate + (step->n_products - 1) * n * width,
                                        .rounded = outputs + step->n_products * n * width};
                cpu_finish_tile(worker, step, &tile, first + t);
            }
        }
    }
}

void cpu_run_experts(const struct worker *worker, const struct step *step)
{
    const struct pairs *pairs = worker_pairs(worker, step->route);
    cpu_share_tiles(worker, pairs, step_n_tiles(worker->plan, step), expert_tiles, step);
}

// ---- the sum ----

size_t cpu_experts_sum_panel(const struct plan *plan, const struct step *step)
{
    const struct form *source = &plan->forms[step->source];
    size_t bytes = cpu_panel_scratch(source->precision, source->value->ne[0]);
    if (step->shared_source != NO_INDEX) {
        const struct form *shared = &plan->forms[step->shared_source];
        bytes = max_size(bytes, cpu_panel_scratch(shared->precision, shared->value->ne[0]));
    }
    return bytes;
}

// The sum of one panel of outputs while it is made: parts[segment][16] of every row of the batch.
struct panel_sum {
    const struct worker *worker;
    const struct step *step;
    size_t panel;
    float *parts; // of PART_ROWS products
    float *sums;  // [n_rows][n_segments][16]
    size_t n_segments;
    struct product_sums of;
};

// Adds the products of one expert: factor · weight of each pair, into the rows that the pairs belong to.
static void add_expert(const struct panel_sum *sum, uint32_t expert)
{
    const struct worker *worker = sum->worker;
    const struct plan *plan = worker->plan;
    const struct product *product = &sum->step->products[0];
    const struct form *form = &plan->forms[sum->step->source];
    const struct pairs *pairs = worker->pairs;
    const struct tensor *scale = product->node->sources[3];
    float factor = scale == NULL ? 1.0f : worker_operand(worker, scale, 0)[expert];
    struct packed matrix;
    if (!expert_matrix(worker, sum->step, product, expert, &matrix))
        return;
    size_t floats = sum->n_segments * PANEL_ROWS, last = pairs->start[expert + 1];
    struct panel panel = cpu_panel(worker, &matrix, sum->panel, form->precision, last - pairs->start[expert]);
    for (size_t first = pairs->start[expert]; first < last; first += PART_ROWS) {
        struct source_rows source = {.rows = worker_row(worker, &form->slot, first),
                                     .stride = form->slot.row_bytes,
                                     .n = last - first < PART_ROWS ? last - first : PART_ROWS};
        cpu_panel_product(&panel, &source, sum->parts, floats, PANEL_ROWS);
        for (size_t t = 0; t < source.n; t++) {
            float weight = product->node->attributes.unweighted ? 1.0f : pairs->weight[first + t];
            plan->device->kernels->add_scaled(sum->parts + t * floats, weight * factor, floats,
                                              sum->sums + pairs->row[first + t] * floats);
        }
    }
}

// Adds the shared expert: into the segments' sums where it has as many, else its own tree after theirs, into y.
static void add_shared(const struct panel_sum *sum, bool after)
{
    const struct worker *worker = sum->worker;
    const struct plan *plan = worker->plan;
    const struct node *node = sum->step->products[0].node;
    const struct tensor *gate = node->sources[6];
    const struct form *form = &plan->forms[sum->step->shared_source];
    const struct packed *weight = &plan->weights->items[node->sources[4]->index].packed;
    if (after != (weight->segments.n != sum->n_segments))
        return;
    size_t n_rows = worker_n_rows(worker, node->result->rows, 0);
    size_t floats = after ? PANEL_ROWS : sum->n_segments * PANEL_ROWS;
    struct panel panel = cpu_panel(worker, weight, sum->panel, form->precision, n_rows);
    for (size_t first = 0; first < n_rows; first += PART_ROWS) {
        struct source_rows source = {.rows = worker_row(worker, &form->slot, first),
                                     .stride = form->slot.row_bytes,
                                     .n = n_rows - first < PART_ROWS ? n_rows - first : PART_ROWS};
        cpu_panel_product(&panel, &source, sum->parts, floats, after ? 0 : PANEL_ROWS);
        for (size_t t = 0; t < source.n; t++) {
            size_t row = first + t;
            float *into = after ? worker_value(worker, sum->step->products[0].result, row) + sum->panel * PANEL_ROWS
                                : sum->sums + row * floats;
            plan->device->kernels->add_scaled(sum->parts + t * floats,
                                              gate == NULL ? 1.0f : worker_value(worker, gate, row)[0], floats, into);
        }
    }
}

static void sum_panel(const struct panel_sum *sum)
{
    const struct worker *worker = sum->worker;
    const struct product *product = &sum->step->products[0];
    const struct node *node = product->node;
    const struct pairs *pairs = worker->pairs;
    size_t n_rows = worker_n_rows(worker, node->result->rows, 0), floats = sum->n_segments * PANEL_ROWS;
    memset(sum->sums, 0, n_rows * floats * sizeof(float));
    for (uint32_t i = 0; i < pairs->n_active; i++)
        add_expert(sum, pairs->active[i]);
    bool shared = sum->step->shared_source != NO_INDEX;
    if (shared)
        add_shared(sum, false);
    for (size_t row = 0; row < n_rows; row++)
        cpu_add_sums(worker->plan->device->kernels, &sum->of, sum->sums + row * floats,
                     worker_value(worker, product->result, row) + sum->panel * PANEL_ROWS);
    if (shared)
        add_shared(sum, true);
    if (product->hidden != NO_INDEX) // the sums are read: their memory is free
        cpu_lora_add_sum(worker, product->hidden, sum->panel, product->result, sum->sums);
    if (product->shared_hidden != NO_INDEX) {
        struct lora_panel panel = {.hidden = product->shared_hidden, .panel = sum->panel};
        const struct slot *slot = &worker->plan->slots[product->result->index];
        cpu_lora_add(worker, &panel, 0, n_rows, worker_value(worker, product->result, 0) + sum->panel * PANEL_ROWS,
                     slot->row_bytes / sizeof(float));
    }
}

void cpu_run_experts_sum(const struct worker *worker, const struct step *step)
{
    const struct plan *plan = worker->plan;
    const struct packed *weight = &plan->weights->items[step->products[0].weight].packed;
    worker_pairs(worker, step->route);
    size_t begin, end;
    pool_share(weight->n_panels, worker->index, worker->n_threads, &begin, &end);
    struct panel_sum sum = {.worker = worker,
                            .step = step,
                            .n_segments = weight->segments.n,
                            .of = cpu_product_sums(step->products[0].node, weight)};
    sum.parts = (float *)(void *)(worker->scratch + cpu_experts_sum_panel(plan, step));
    sum.sums = sum.parts + (size_t)PART_ROWS * MAX_SEGMENTS * PANEL_ROWS;
    for (sum.panel = begin; sum.panel < end; sum.panel++)
        sum_panel(&sum);
}

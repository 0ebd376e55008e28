// Adapters: A x in a step of its own, B (A x) where the product is made. Sources and sums are F32. Rows of a batch have
// adapters of their own; neighbours that have the same ones go through a panel together, and the bits are those of each
// row alone.
#include "cpu/plan.h"

#include "base/checked.h"

#include <string.h>

// ---- rows ----

// How much of each adapter a row has.
static const float *row_scales(const struct worker *worker, enum rows rows, size_t index)
{
    size_t row = rows == ROWS_PAIRS ? worker->pairs->row[index] : rows == ROWS_LOGITS ? worker->selected[index] : index;
    return worker->run->adapter_scales + worker->run->rows[row].adapters * worker->run->n_adapters;
}

// Where the rows from `first` on that have the same adapters end: at most PART_ROWS of them, and before `last`.
static size_t same_end(const struct worker *worker, enum rows rows, size_t first, size_t last)
{
    const float *scales = row_scales(worker, rows, first);
    size_t end = first + 1;
    while (end < last && end - first < PART_ROWS && row_scales(worker, rows, end) == scales)
        end++;
    return end;
}

static bool has_terms(const struct lora *lora, const float *scales)
{
    for (uint32_t i = 0; i < lora->n_terms; i++) {
        if (scales[lora->terms[i].adapter] != 0)
            return true;
    }
    return false;
}

bool cpu_run_is_adapted(const struct run *run)
{
    for (size_t row = 0; row < run->n_rows; row++) {
        for (size_t i = 0; i < run->n_adapters; i++) {
            if (run->adapter_scales[run->rows[row].adapters * run->n_adapters + i] != 0)
                return true;
        }
    }
    return false;
}

static struct packed matrix_of(const struct worker *worker, const struct tensor *tensor, size_t index)
{
    return cpu_weight_matrix(&worker->plan->params.adapter_weights->items[tensor->index], index);
}

// Panels are unpacked into this worker's other scratch: what uses adapters has its own rows in the first one.
static struct worker with_lora_scratch(const struct worker *worker)
{
    struct worker aside = *worker;
    aside.scratch = worker->lora_scratch;
    return aside;
}

static float *lora_rows(const struct worker *worker)
{
    return (float *)(void *)(worker->lora_scratch + worker->plan->lora_panel_bytes);
}

// Where a hidden row lies, and where in it that of a term begins.
static const struct slot *hidden_slot(const struct worker *worker, const struct hidden *hidden)
{
    return hidden->value != NULL ? &worker->plan->slots[hidden->value->index] : &hidden->slot;
}

static size_t rank_of(const struct lora_term *term)
{
    return term->first->ne[1];
}

static size_t hidden_bytes(const struct hidden *hidden, const struct lora_term *term)
{
    return hidden->value != NULL ? round_up(rank_of(term), PANEL_ROWS) * sizeof(float) : f32_row_bytes(rank_of(term));
}

// ---- first products ----

// A panel of one term's first matrices, and where its rows begin within a hidden row.
struct unit {
    const struct hidden *hidden;
    const struct lora_term *term;
    size_t matrix, panel, offset;
};

// The unit of this number; where there are not so many, *index is how many are missing.
static bool find_unit(const struct plan *plan, const struct step *step, size_t *index, struct unit *unit)
{
    for (uint32_t h = 0; h < step->n_hiddens; h++) {
        *unit = (struct unit){.hidden = &plan->hiddens[step->first_hidden + h]};
        const struct lora *lora = unit->hidden->node->attributes.lora;
        for (uint32_t t = 0; t < lora->n_terms; t++) {
            unit->term = &lora->terms[t];
            size_t rank = rank_of(unit->term), n_panels = (rank + PANEL_ROWS - 1) / PANEL_ROWS;
            size_t n_matrices = step->route != NULL ? 1 : unit->term->first->ne[2];
            if (*index < n_matrices * n_panels) {
                unit->matrix = *index / n_panels;
                unit->panel = *index % n_panels;
                unit->offset += unit->matrix * hidden_bytes(unit->hidden, unit->term);
                return true;
            }
            *index -= n_matrices * n_panels;
            unit->offset += n_matrices * hidden_bytes(unit->hidden, unit->term);
        }
    }
    return false;
}

static size_t count_units(const struct plan *plan, const struct step *step)
{
    size_t left = SIZE_MAX;
    struct unit unit;
    find_unit(plan, step, &left, &unit);
    return SIZE_MAX - left;
}

// Rows [first, first + n), or pairs, that have the same adapters; `matrix` is the expert or the head.
static void first_product(const struct worker *worker, const struct unit *unit, size_t matrix, size_t first, size_t n)
{
    const struct worker aside = with_lora_scratch(worker);
    const struct slot *slot = hidden_slot(worker, unit->hidden);
    const struct node *node = unit->hidden->node;
    const struct tensor *x = node->sources[node->op == OP_LORA ? 1 : 0];
    struct packed packed = matrix_of(worker, unit->term->first, matrix);
    size_t k = packed.k, stride = f32_row_bytes(k), rank = rank_of(unit->term);
    bool by_pair = slot->rows == ROWS_PAIRS && x->rows != ROWS_PAIRS, by_head = slot->rows != ROWS_PAIRS;
    struct source_rows source = {
        .rows = (uint8_t *)lora_rows(worker), .stride = stride, .n = n, .precision = PRECISION_F32};
    for (size_t t = 0; t < n; t++) {
        float *row = lora_rows(worker) + t * (stride / sizeof(float));
        size_t from = by_pair ? worker->pairs->row[first + t] : first + t;
        memcpy(row, worker_value(worker, x, from) + (by_head ? matrix * k : 0), k * sizeof(float));
        f32_row_unscaled(row, k);
    }
    struct panel panel = cpu_panel(&aside, &packed, unit->panel, PRECISION_F32, n);
    float *y = (float *)(void *)(worker_row(worker, slot, first) + unit->offset);
    size_t y_stride = slot->row_bytes / sizeof(float);
    if (node->result->n_parts != 0 && node->op == OP_LORA_HIDDEN) {
        const struct product_sums sums = cpu_product_sums(node, &packed);
        size_t floats = (size_t)packed.segments.n * PANEL_ROWS;
        float *parts = lora_rows(worker) + PART_ROWS * (stride / sizeof(float));
        cpu_panel_product(&panel, &source, parts, floats, PANEL_ROWS);
        for (size_t t = 0; t < n; t++)
            cpu_add_sums(worker->plan->device->kernels, &sums, parts + t * floats,
                         y + unit->panel * PANEL_ROWS + t * y_stride);
        return;
    }
    cpu_panel_product(&panel, &source, y + unit->panel * PANEL_ROWS, y_stride, 0);
    for (size_t t = 0; unit->hidden->value == NULL && unit->panel == 0 && t < n; t++)
        f32_row_unscaled(y + t * y_stride, rank);
}

static void first_products(const struct worker *worker, const struct unit *unit, size_t matrix, size_t first,
                           size_t last)
{
    enum rows rows = unit->hidden->slot.rows;
    for (size_t end; first < last; first = end) {
        end = same_end(worker, rows, first, last);
        if (row_scales(worker, rows, first)[unit->term->adapter] != 0)
            first_product(worker, unit, matrix, first, end - first);
    }
}

static void expert_units(const struct worker *worker, const struct step *step, const struct expert_share *share)
{
    const struct pairs *pairs = worker->pairs;
    for (size_t item = share->begin; item < share->end; item++) {
        struct unit unit = {0};
        size_t index = item;
        find_unit(worker->plan, step, &index, &unit);
        first_products(worker, &unit, share->expert, pairs->start[share->expert], pairs->start[share->expert + 1]);
    }
}

void cpu_run_lora(const struct worker *worker, const struct step *step)
{
    size_t n_units = count_units(worker->plan, step), begin, end;
    if (step->route != NULL) {
        cpu_share_tiles(worker, worker_pairs(worker, step->route), n_units, expert_units, step);
        return;
    }
    size_t n_rows = worker_n_rows(worker, step->rows, step->per_row);
    pool_share((n_rows + PART_ROWS - 1) / PART_ROWS * n_units, worker->index, worker->n_threads, &begin, &end);
    for (size_t item = begin; item < end; item++) {
        struct unit unit = {0};
        size_t index = item % n_units, first = item / n_units * PART_ROWS;
        find_unit(worker->plan, step, &index, &unit);
        first_products(worker, &unit, unit.matrix, first, n_rows - first < PART_ROWS ? n_rows : first + PART_ROWS);
    }
}

// ---- second products ----

// The hidden rows of a term as sources of a product; those of a value are copied, with scales of 1 behind them.
static struct source_rows hidden_rows(const struct worker *worker, const struct hidden *hidden,
                                      const struct lora_term *term, size_t offset, size_t first, size_t n)
{
    const struct slot *slot = hidden_slot(worker, hidden);
    struct source_rows source = {.rows = worker_row(worker, slot, first) + offset,
                                 .stride = slot->row_bytes,
                                 .n = n,
                                 .precision = PRECISION_F32};
    if (hidden->value == NULL)
        return source;
    size_t rank = rank_of(term), stride = f32_row_bytes(rank);
    uint8_t *copy = (uint8_t *)(lora_rows(worker) + 2 * PART_ROWS * PANEL_ROWS);
    for (size_t t = 0; t < n; t++) {
        float *row = (float *)(void *)(copy + t * stride);
        memcpy(row, worker_row(worker, slot, first + t) + offset, rank * sizeof(float));
        f32_row_unscaled(row, rank);
    }
    source.rows = copy;
    source.stride = stride;
    return source;
}

// terms [n][16] of rows that have the same adapters; NULL: none of this product's.
static float *make_terms(const struct worker *worker, const struct lora_panel *panel, size_t first, size_t n)
{
    const struct plan *plan = worker->plan;
    const struct hidden *hidden = &plan->hiddens[panel->hidden];
    const struct lora *lora = hidden->node->attributes.lora;
    const float *scales = row_scales(worker, hidden->slot.rows, first);
    if (!has_terms(lora, scales))
        return NULL;
    const struct worker aside = with_lora_scratch(worker);
    float *products = lora_rows(worker), *terms = products + PART_ROWS * PANEL_ROWS;
    bool by_head = hidden->slot.rows != ROWS_PAIRS;
    size_t offset = 0;
    memset(terms, 0, n * PANEL_ROWS * sizeof(float));
    for (uint32_t i = 0; i < lora->n_terms; i++) {
        const struct lora_term *term = &lora->terms[i];
        size_t bytes = hidden_bytes(hidden, term);
        if (scales[term->adapter] != 0) {
            float factor = scales[term->adapter] * term->factor;
            struct packed packed = matrix_of(worker, term->second, panel->matrix);
            struct source_rows source =
                hidden_rows(worker, hidden, term, offset + (by_head ? panel->matrix * bytes : 0), first, n);
            struct panel second = cpu_panel(&aside, &packed, panel->panel, PRECISION_F32, n);
            cpu_panel_product(&second, &source, products, PANEL_ROWS, 0);
            plan->device->kernels->add_scaled(products, factor, n * PANEL_ROWS, terms);
        }
        offset += bytes * (by_head ? term->first->ne[2] : 1);
    }
    return terms;
}

void cpu_lora_add(const struct worker *worker, const struct lora_panel *panel, size_t first_row, size_t n, float *y,
                  size_t y_stride)
{
    if (!worker->adapted)
        return;
    const struct kernels *kernels = worker->plan->device->kernels;
    const struct hidden *hidden = &worker->plan->hiddens[panel->hidden];
    const struct tensor *gate = hidden->node->sources[3];
    for (size_t first = first_row, end; first < first_row + n; first = end) {
        end = same_end(worker, hidden->slot.rows, first, first_row + n);
        float *terms = make_terms(worker, panel, first, end - first);
        for (size_t row = first; terms != NULL && row < end; row++, terms += PANEL_ROWS) {
            float *out = y + (row - first_row) * y_stride;
            if (hidden->node->attributes.weighted)
                kernels->scale(terms, worker->pairs->weight[row], PANEL_ROWS, terms);
            if (gate != NULL)
                kernels->scale(terms, worker_value(worker, gate, row)[0], PANEL_ROWS, terms);
            kernels->add(out, terms, PANEL_ROWS, out);
        }
    }
}

void cpu_lora_add_sum(const struct worker *worker, uint32_t hidden, size_t panel, const struct tensor *y, float *sums)
{
    if (!worker->adapted)
        return;
    const struct kernels *kernels = worker->plan->device->kernels;
    const struct node *node = worker->plan->hiddens[hidden].node;
    const struct pairs *pairs = worker->pairs;
    size_t n_rows = worker_n_rows(worker, y->rows, 0);
    memset(sums, 0, n_rows * PANEL_ROWS * sizeof(float));
    for (uint32_t i = 0; i < pairs->n_active; i++) {
        uint32_t expert = pairs->active[i];
        struct lora_panel matrix = {.hidden = hidden, .matrix = expert, .panel = panel};
        for (size_t first = pairs->start[expert], end; first < pairs->start[expert + 1]; first = end) {
            end = same_end(worker, ROWS_PAIRS, first, pairs->start[expert + 1]);
            float *terms = make_terms(worker, &matrix, first, end - first);
            for (size_t pair = first; terms != NULL && pair < end; pair++, terms += PANEL_ROWS)
                kernels->add_scaled(terms, node->attributes.weighted ? pairs->weight[pair] : 1.0f, PANEL_ROWS,
                                    sums + pairs->row[pair] * PANEL_ROWS);
        }
    }
    for (size_t row = 0; row < n_rows; row++) {
        float *out = worker_value(worker, y, row) + panel * PANEL_ROWS;
        if (has_terms(node->attributes.lora, row_scales(worker, y->rows, row)))
            kernels->add(out, sums + row * PANEL_ROWS, PANEL_ROWS, out);
    }
}

// Each worker takes panels of outputs, all rows of them.
void cpu_run_lora_add(const struct worker *worker, const struct step *step)
{
    const struct node *node = worker->plan->hiddens[step->first_hidden].node;
    const struct tensor *y = node->sources[0], *result = node->result;
    size_t n = result->ne[0], n_rows = worker_n_rows(worker, step->rows, step->per_row), begin, end;
    size_t stride = worker->plan->slots[result->index].row_bytes / sizeof(float);
    if (step->route != NULL)
        worker_pairs(worker, step->route);
    pool_share((n + PANEL_ROWS - 1) / PANEL_ROWS, worker->index, worker->n_threads, &begin, &end);
    for (size_t panel = begin; panel < end; panel++) {
        size_t first = panel * PANEL_ROWS, width = n - first < PANEL_ROWS ? n - first : PANEL_ROWS;
        for (size_t row = 0; row < n_rows; row++)
            memcpy(worker_value(worker, result, row) + first, worker_value(worker, y, row) + first,
                   width * sizeof(float));
        struct lora_panel terms = {.hidden = step->first_hidden, .panel = panel};
        if (step->route != NULL && result->rows != ROWS_PAIRS) {
            float *sums = (float *)(void *)worker->scratch;
            cpu_lora_add_sum(worker, step->first_hidden, panel, result, sums);
        } else {
            cpu_lora_add(worker, &terms, 0, n_rows, worker_value(worker, result, 0) + first, stride);
        }
    }
}

// ---- embeddings ----

size_t cpu_lora_lookup_floats(const struct node *node)
{
    const struct lora *lora = node->attributes.lora;
    size_t row = 0;
    for (uint32_t i = 0; i < lora->n_terms; i++) {
        size_t bytes = f32_row_bytes(lora->terms[i].second->ne[0]);
        row = bytes > row ? bytes : row;
    }
    return round_up(node->result->ne[0], PANEL_ROWS) + PANEL_ROWS + row / sizeof(float);
}

void cpu_lora_lookup(const struct worker *worker, const struct node *node, size_t row)
{
    const struct kernels *kernels = worker->plan->device->kernels;
    const struct lora *lora = node->attributes.lora;
    const float *x = worker_value(worker, node->sources[0], row);
    float *out = worker_value(worker, node->result, row);
    size_t n = node->result->ne[0];
    if (!worker->adapted || !has_terms(lora, row_scales(worker, node->result->rows, row))) {
        memcpy(out, x, n * sizeof(float));
        return;
    }
    const float *scales = row_scales(worker, node->result->rows, row);
    float *sum = (float *)(void *)worker->scratch, *product = sum + round_up(n, PANEL_ROWS);
    float *hidden = product + PANEL_ROWS;
    memset(sum, 0, round_up(n, PANEL_ROWS) * sizeof(float));
    for (uint32_t i = 0; i < lora->n_terms; i++) {
        const struct lora_term *term = &lora->terms[i];
        if (scales[term->adapter] == 0)
            continue;
        struct packed table = matrix_of(worker, term->first, 0), second = matrix_of(worker, term->second, 0);
        packed_read_row(&table, (size_t)worker->run->rows[row].token, hidden);
        f32_row_unscaled(hidden, table.k);
        for (size_t panel = 0; panel < second.n_panels; panel++) {
            kernels->matvec_f32[second.format->kind](&second, panel, hidden, product, 0);
            kernels->add_scaled(product, scales[term->adapter] * term->factor, PANEL_ROWS, sum + panel * PANEL_ROWS);
        }
    }
    kernels->add(x, sum, n, out);
}

// Matmul steps: one driver for all formats and instruction sets. Work is cut by panels of outputs; with few rows each
// panel is read once by a matrix-vector kernel, with many it is unpacked once and multiplied with a block of rows.
#include "cpu/plan.h"

#include "base/checked.h"

#include <string.h>

// ---- one panel ----

size_t cpu_panel_scratch(enum precision precision, size_t k)
{
    size_t bytes = precision == PRECISION_Q8 ? unpacked_q8_bytes(k) : k * PANEL_ROWS * sizeof(float);
    return round_up(bytes, 64);
}

struct panel cpu_panel(const struct worker *worker, const struct packed *weight, size_t index, enum precision precision,
                       size_t n_rows)
{
    const struct kernels *kernels = worker->plan->device->kernels;
    struct panel panel = {.worker = worker,
                          .weight = weight,
                          .index = index,
                          .precision = precision,
                          .unpacked = n_rows >= GEMM_MIN_ROWS};
    if (panel.unpacked && precision == PRECISION_Q8) {
        struct unpacked_q8 unpacked;
        unpacked_q8_place(&unpacked, worker->scratch, weight->k);
        kernels->unpack_q8[weight->format->kind](weight, index, &unpacked);
    } else if (panel.unpacked) {
        kernels->unpack_f32[weight->format->kind](weight, index, (float *)(void *)worker->scratch);
    }
    return panel;
}

void cpu_panel_product(const struct panel *panel, const struct source_rows *source, float *y, size_t y_stride,
                       size_t part_stride)
{
    const struct kernels *kernels = panel->worker->plan->device->kernels;
    const struct packed *weight = panel->weight;
    enum packed_kind kind = weight->format->kind;
    bool q8 = panel->precision == PRECISION_Q8;
    if (!panel->unpacked) {
        for (size_t t = 0; t < source->n; t++) {
            const uint8_t *row = source->rows + t * source->stride;
            if (q8)
                kernels->matvec_q8[kind](weight, panel->index, row, y + t * y_stride, part_stride);
            else
                kernels->matvec_f32[kind](weight, panel->index, (const float *)(const void *)row, y + t * y_stride,
                                          part_stride);
        }
    } else if (q8) {
        struct unpacked_q8 unpacked;
        unpacked_q8_place(&unpacked, panel->worker->scratch, weight->k);
        kernels->gemm_q8[weight->format->scaling](weight, &unpacked, source->rows, source->stride, source->n, y,
                                                  y_stride, part_stride);
    } else {
        kernels->gemm_f32(weight, (const float *)(const void *)panel->worker->scratch,
                          (const float *)(const void *)source->rows, source->stride, source->n, y, y_stride,
                          part_stride);
    }
}

// ---- partial sums ----

struct product_sums cpu_product_sums(const struct node *node, const struct packed *weight)
{
    struct leaves leaves = node->attributes.leaves;
    struct product_sums sums = {.stride = round_up(node->result->ne[0], PANEL_ROWS)};
    if (leaves.n == 0)
        leaves = leaves_all(weight->segments.n);
    sums.n = leaves_subtrees(leaves, sums.of);
    for (uint32_t i = 0; i < sums.n; i++) {
        sums.of[i].first = (uint8_t)(sums.of[i].first - leaves.first);
        sums.of[i].end = (uint8_t)(sums.of[i].end - leaves.first);
    }
    return sums;
}

void cpu_add_sums(const struct kernels *kernels, const struct product_sums *sums, const float *parts, float *y)
{
    for (uint32_t i = 0; i < sums->n; i++)
        kernels->add_parts(parts + (size_t)sums->of[i].first * PANEL_ROWS,
                           (uint32_t)sums->of[i].end - sums->of[i].first, y + i * sums->stride);
}

// A panel of a partial sum of several subtrees: each segment's sums go to parts, PART_ROWS rows at a time.
static void partial_panel(const struct panel *panel, const struct node *node, const struct source_rows *source,
                          float *parts, float *y, size_t y_stride)
{
    const struct product_sums sums = cpu_product_sums(node, panel->weight);
    size_t floats = (size_t)panel->weight->segments.n * PANEL_ROWS;
    for (size_t first = 0; first < source->n; first += PART_ROWS) {
        struct source_rows some = *source;
        some.rows += first * source->stride;
        some.n = source->n - first < PART_ROWS ? source->n - first : PART_ROWS;
        cpu_panel_product(panel, &some, parts, floats, PANEL_ROWS);
        for (size_t t = 0; t < some.n; t++)
            cpu_add_sums(panel->worker->plan->device->kernels, &sums, parts + t * floats, y + (first + t) * y_stride);
    }
}

// ---- tiles of outputs ----

static const struct segments *tile_segments(const struct plan *plan, const struct step *step)
{
    bool by_segment = step->out_form != NO_INDEX && plan->forms[step->out_form].precision == PRECISION_F16;
    return by_segment ? &plan->forms[step->out_form].segments : NULL;
}

static size_t n_outputs(const struct step *step)
{
    return step->products[0].node->result->ne[0];
}

size_t step_n_tiles(const struct plan *plan, const struct step *step)
{
    const struct segments *segments = tile_segments(plan, step);
    return segments != NULL ? segments->n : (n_outputs(step) + TILE - 1) / TILE;
}

void step_tile(const struct plan *plan, const struct step *step, size_t tile, size_t *begin, size_t *end)
{
    const struct segments *segments = tile_segments(plan, step);
    if (segments != NULL) {
        segments_range(segments, (uint32_t)tile, n_outputs(step), begin, end);
        return;
    }
    *begin = tile * TILE;
    *end = *begin + TILE < n_outputs(step) ? *begin + TILE : n_outputs(step);
}

size_t step_tile_width(const struct plan *plan, const struct step *step)
{
    const struct segments *segments = tile_segments(plan, step);
    size_t width = TILE;
    for (uint32_t s = 0; segments != NULL && s < segments->n; s++) {
        size_t begin, end;
        segments_range(segments, s, n_outputs(step), &begin, &end);
        width = end - begin > width ? round_up(end - begin, PANEL_ROWS) : width;
    }
    return width;
}

// Outputs of one row into a form: the row's blocks (Q8), its segment with that segment's scale (F16), or its values.
static void store_tile(const struct worker *worker, const struct form *form, const struct tile_row *tile, uint8_t *row)
{
    const struct kernels *kernels = worker->plan->device->kernels;
    size_t k = form->value->ne[0];
    const float *h = tile->gate;
    if (form->precision == PRECISION_Q8) {
        _Alignas(64) uint8_t block[64]; // a row of one block: q[32], d, sums[2]
        kernels->quantize_q8(h, TILE, block);
        memcpy(row + tile->begin, block, TILE);
        memcpy(row + k + tile->begin / 32 * sizeof(float), block + TILE, sizeof(float));
        memcpy(row + k + k / 32 * sizeof(float) + tile->begin / 16 * sizeof(int16_t), block + TILE + sizeof(float),
               2 * sizeof(int16_t));
        return;
    }
    float *values = (float *)(void *)row, *scales = values + f32_row_scales(k);
    if (tile->begin == 0) // the segments' own scales come with their tiles, from whichever thread
        for (uint32_t s = form->segments.n; s < MAX_SEGMENTS; s++)
            scales[s] = 1.0f;
    if (form->precision == PRECISION_F16) { // the tile is a segment
        struct segments segment = {.n = 1, .grain = PANEL_ROWS, .border = {0, (uint32_t)((tile->n + 15) / 16)}};
        uint32_t s = 0;
        while ((size_t)form->segments.border[s + 1] * form->segments.grain <= tile->begin)
            s++;
        kernels->round_f16(h, tile->n, worker->plan->params.range_off ? NULL : &segment, tile->rounded);
        scales[s] = tile->rounded[f32_row_scales(tile->n)];
        h = tile->rounded;
    } else if (form->precision == PRECISION_BF16) {
        kernels->round_bf16(h, tile->n, tile->rounded);
        h = tile->rounded;
    }
    memcpy(values + tile->begin, h, tile->n * sizeof(float));
}

// A tile of a value, where the value is kept.
static void keep_tile(const struct worker *worker, const struct tensor *value, const struct tile_row *tile,
                      const float *outputs, size_t row)
{
    if (worker->plan->slots[value->index].used)
        memcpy(worker_value(worker, value, row) + tile->begin, outputs, tile->n * sizeof(float));
}

void cpu_finish_tile(const struct worker *worker, const struct step *step, const struct tile_row *tile, size_t row)
{
    const struct plan *plan = worker->plan;
    if (step->glu == NULL) { // the products themselves
        for (uint32_t p = 0; p < step->n_products; p++)
            keep_tile(worker, step->products[p].result, tile, p == 0 ? tile->gate : tile->up, row);
        return;
    }
    cpu_glu(plan->device->kernels, &step->glu->attributes, tile->gate, tile->up, tile->n, tile->gate);
    keep_tile(worker, step->glu->result, tile, tile->gate, row);
    if (step->out_form != NO_INDEX) {
        const struct form *form = &plan->forms[step->out_form];
        store_tile(worker, form, tile, worker_row(worker, &form->slot, row));
    }
}

// ---- dense steps ----

// A tile of a gated unit for a block of rows: gate and up into scratch, then activation, product and, where the next
// matmul's source is made here, its rounding.
static void glu_item(const struct worker *worker, const struct step *step, size_t item,
                     const struct source_rows *source, size_t first_row)
{
    const struct plan *plan = worker->plan;
    size_t begin, end, width = step_tile_width(plan, step);
    step_tile(plan, step, item, &begin, &end);
    float *outputs = (float *)(void *)(worker->scratch +
                                       cpu_panel_scratch(source->precision, plan->forms[step->source].value->ne[0]));
    for (uint32_t p = 0; p < step->n_products; p++) {
        const struct packed *weight = &plan->weights->items[step->products[p].weight].packed;
        for (size_t row = begin; row < end; row += PANEL_ROWS) {
            struct panel panel = cpu_panel(worker, weight, row / PANEL_ROWS, source->precision, source->n);
            float *y = outputs + p * source->n * width + row - begin;
            cpu_panel_product(&panel, source, y, width, 0);
            if (step->products[p].hidden != NO_INDEX) {
                struct lora_panel lora = {.hidden = step->products[p].hidden, .panel = row / PANEL_ROWS};
                cpu_lora_add(worker, &lora, first_row, source->n, y, width);
            }
        }
    }
    for (size_t t = 0; t < source->n; t++) {
        float *gate = outputs + t * width, *up = gate + (step->n_products - 1) * source->n * width;
        struct tile_row tile = {.begin = begin,
                                .n = end - begin,
                                .gate = gate,
                                .up = up,
                                .rounded = outputs + step->n_products * source->n * width};
        cpu_finish_tile(worker, step, &tile, first_row + t);
    }
}

// Panels of a product's matrices: of one, or of one a head.
static size_t product_panels(const struct worker *worker, const struct product *product)
{
    const struct cpu_weight *weight = &worker->plan->weights->items[product->weight];
    return weight->n * weight->packed.n_panels;
}

// A panel of a product. Each matrix of several takes its own part of the source and gives its own part of the result;
// where a last panel would reach beyond that part, it is made aside and only what belongs there is copied.
static void product_item(const struct worker *worker, const struct step *step, size_t item,
                         const struct source_rows *source, size_t first_row)
{
    const struct plan *plan = worker->plan;
    const struct product *product = step->products;
    while (item >= product_panels(worker, product))
        item -= product_panels(worker, product++);
    const struct cpu_weight *weight = &plan->weights->items[product->weight];
    size_t matrix = item / weight->packed.n_panels, index = item % weight->packed.n_panels;
    const struct packed packed = cpu_weight_matrix(weight, matrix);
    struct source_rows part = *source;
    part.rows += matrix * form_row_bytes(source->precision, packed.k);
    const struct tensor *result = product->result;
    size_t stride = plan->slots[result->index].row_bytes / sizeof(float);
    float *y = worker_value(worker, result, first_row) + matrix * packed.n_rows + index * PANEL_ROWS;
    size_t n_outputs = packed.n_rows - index * PANEL_ROWS;
    struct panel panel = cpu_panel(worker, &packed, index, source->precision, source->n);
    bool in_place = weight->n == 1 || n_outputs >= PANEL_ROWS;
    float *aside = (float *)(void *)(worker->scratch + cpu_panel_scratch(source->precision, packed.k));
    if (is_made_of_parts(product->node)) {
        partial_panel(&panel, product->node, &part, aside, y, stride);
        return;
    }
    float *out = in_place ? y : aside;
    size_t out_stride = in_place ? stride : PANEL_ROWS;
    cpu_panel_product(&panel, &part, out, out_stride, 0);
    if (product->hidden != NO_INDEX) {
        struct lora_panel lora = {.hidden = product->hidden, .matrix = matrix, .panel = index};
        cpu_lora_add(worker, &lora, first_row, source->n, out, out_stride);
    }
    if (in_place)
        return;
    for (size_t t = 0; t < source->n; t++)
        memcpy(y + t * stride, aside + t * PANEL_ROWS, n_outputs * sizeof(float));
}

static size_t n_items(const struct worker *worker, const struct step *step)
{
    if (step->glu != NULL)
        return step_n_tiles(worker->plan, step);
    size_t n = 0;
    for (uint32_t i = 0; i < step->n_products; i++)
        n += product_panels(worker, &step->products[i]);
    return n;
}

void cpu_run_matmul(const struct worker *worker, const struct step *step)
{
    const struct form *form = &worker->plan->forms[step->source];
    size_t n_rows = worker_n_rows(worker, step->rows, step->per_row), begin, end;
    size_t block = cpu_token_block(form->precision, form_k(form));
    pool_share(n_items(worker, step), worker->index, worker->n_threads, &begin, &end);
    for (size_t row = 0; row < n_rows; row += block) {
        struct source_rows source = {.rows = worker_row(worker, &form->slot, row),
                                     .stride = form->slot.row_bytes,
                                     .n = n_rows - row < block ? n_rows - row : block,
                                     .precision = form->precision};
        for (size_t item = begin; item < end; item++)
            (step->glu == NULL ? product_item : glu_item)(worker, step, item, &source, row);
    }
}

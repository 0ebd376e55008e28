// Matmul steps: one driver for all formats and instruction sets. Work is cut by panels of outputs; with few rows each
// panel is read once by a matrix-vector kernel, with many it is unpacked once and multiplied with a block of rows.
#include "cpu/plan.h"

#include "base/checked.h"

#include <string.h>

// The source rows of a step: [begin, begin + n) of them, contiguous unless there is one.
struct source_rows {
    const uint8_t *rows;
    size_t stride;
    size_t n;
    enum precision precision;
};

// One panel times n rows; y[t * y_stride + 0 … 15].
static void panel_product(const struct worker *worker, const struct packed *weight, size_t panel,
                          const struct source_rows *source, float *y, size_t y_stride)
{
    const struct kernels *kernels = worker->plan->device->kernels;
    enum packed_kind kind = weight->format->kind;
    bool q8 = source->precision == PRECISION_Q8;
    if (source->n < GEMM_MIN_ROWS) {
        for (size_t t = 0; t < source->n; t++) {
            const uint8_t *row = source->rows + t * source->stride;
            if (q8)
                kernels->matvec_q8[kind](weight, panel, row, y + t * y_stride, 0);
            else
                kernels->matvec_f32[kind](weight, panel, (const float *)(const void *)row, y + t * y_stride, 0);
        }
    } else if (q8) {
        struct unpacked_q8 unpacked;
        unpacked_q8_place(&unpacked, worker->scratch, weight->k);
        kernels->unpack_q8[kind](weight, panel, &unpacked);
        kernels->gemm_q8[weight->format->scaling](weight, &unpacked, source->rows, source->stride, source->n, y,
                                                  y_stride, 0);
    } else {
        float *unpacked = (float *)(void *)worker->scratch;
        kernels->unpack_f32[kind](weight, panel, unpacked);
        kernels->gemm_f32(weight, unpacked, (const float *)(const void *)source->rows, source->stride, source->n, y,
                          y_stride, 0);
    }
}

static size_t panel_scratch(const struct packed *weight, enum precision precision)
{
    size_t bytes = precision == PRECISION_Q8 ? unpacked_q8_bytes(weight->k) : weight->k * PANEL_ROWS * sizeof(float);
    return round_up(bytes, 64);
}

// 32 outputs of a gated unit for a block of rows: gate and up into scratch, then activation, product and, where the
// next matmul takes Q8, its rounding: a Q8 block is these 32 outputs.
static void glu_item(const struct worker *worker, const struct step *step, size_t item,
                     const struct source_rows *source, size_t first_row)
{
    const struct plan *plan = worker->plan;
    const struct kernels *kernels = plan->device->kernels;
    const struct packed *gate = &plan->weights->items[step->products[0].weight].packed;
    const struct packed *up = &plan->weights->items[step->products[1].weight].packed;
    enum { WIDTH = 2 * PANEL_ROWS };
    size_t scratch = panel_scratch(gate, source->precision);
    float *g = (float *)(void *)(worker->scratch + scratch);
    float *u = g + source->n * WIDTH;
    size_t n_outputs = gate->n_rows - item * WIDTH < WIDTH ? gate->n_rows - item * WIDTH : WIDTH;
    for (size_t half = 0; half * PANEL_ROWS < n_outputs; half++) {
        panel_product(worker, gate, 2 * item + half, source, g + half * PANEL_ROWS, WIDTH);
        panel_product(worker, up, 2 * item + half, source, u + half * PANEL_ROWS, WIDTH);
    }
    void (*unit)(const float *, const float *, size_t, float *) =
        step->glu->attributes.activation == ACTIVATION_SILU ? kernels->swiglu : kernels->geglu;
    const struct slot *value = &plan->slots[step->glu->result->index];
    for (size_t t = 0; t < source->n; t++) {
        float *h = g + t * WIDTH;
        unit(h, u + t * WIDTH, n_outputs, h);
        if (value->used)
            memcpy(worker_value(worker, step->glu->result, first_row + t) + item * WIDTH, h, n_outputs * sizeof(float));
        if (step->out_form != NO_INDEX) {
            uint8_t *row = worker_row(worker, &plan->forms[step->out_form].slot, first_row + t);
            _Alignas(64) uint8_t block[64]; // a row of one block: q[32], d, sums[2]
            size_t k = gate->n_rows;
            kernels->quantize_q8(h, WIDTH, block);
            memcpy(row + item * WIDTH, block, WIDTH);
            memcpy(row + k + item * sizeof(float), block + WIDTH, sizeof(float));
            memcpy(row + k + k / 32 * sizeof(float) + item * 2 * sizeof(int16_t), block + WIDTH + sizeof(float),
                   2 * sizeof(int16_t));
        }
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
    size_t matrix = item / weight->packed.n_panels, panel = item % weight->packed.n_panels;
    const struct packed packed = cpu_weight_matrix(weight, matrix);
    struct source_rows part = *source;
    part.rows += matrix * form_row_bytes(source->precision, packed.k);
    const struct tensor *result = product->node->result;
    size_t stride = plan->slots[result->index].row_bytes / sizeof(float);
    float *y = worker_value(worker, result, first_row) + matrix * packed.n_rows + panel * PANEL_ROWS;
    size_t n_outputs = packed.n_rows - panel * PANEL_ROWS;
    if (weight->n == 1 || n_outputs >= PANEL_ROWS) {
        panel_product(worker, &packed, panel, &part, y, stride);
        return;
    }
    float *aside = (float *)(void *)(worker->scratch + panel_scratch(&packed, source->precision));
    panel_product(worker, &packed, panel, &part, aside, PANEL_ROWS);
    for (size_t t = 0; t < source->n; t++)
        memcpy(y + t * stride, aside + t * PANEL_ROWS, n_outputs * sizeof(float));
}

static size_t n_items(const struct worker *worker, const struct step *step)
{
    size_t n = 0;
    for (uint32_t i = 0; i < step->n_products; i++)
        n += product_panels(worker, &step->products[i]);
    return step->glu == NULL ? n : (n / 2 + 1) / 2;
}

void cpu_run_matmul(const struct worker *worker, const struct step *step)
{
    const struct form *form = &worker->plan->forms[step->source];
    size_t n_rows = worker_n_rows(worker, step->rows), begin, end;
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

// Row steps: whole rows through embedding, norms, sums, gates and the rounding of the next matmul's source.
#include "cpu/plan.h"

#include <math.h>
#include <string.h>

// One source of k elements: a row, or a head of it.
static void round_part(const struct worker *worker, const struct form *form, const float *x, size_t k, uint8_t *out)
{
    const struct kernels *kernels = worker->plan->device->kernels;
    float *values = (float *)(void *)out;
    if (worker->plan->observer != NULL)
        cpu_observe_source(worker, form, x, k);
    switch (form->precision) {
    case PRECISION_Q8:
        kernels->quantize_q8(x, k, out);
        break;
    case PRECISION_F16:
        kernels->round_f16(x, k, worker->plan->params.range_off ? NULL : &form->segments, values);
        break;
    case PRECISION_BF16:
        kernels->round_bf16(x, k, values);
        break;
    default:
        memcpy(values, x, k * sizeof(float));
        f32_row_unscaled(values, k);
    }
}

static void round_source(const struct worker *worker, const struct form *form, size_t row)
{
    const float *x = worker_value(worker, form->value, row);
    uint8_t *out = worker_row(worker, &form->slot, row);
    size_t k = form_k(form), bytes = form_row_bytes(form->precision, k);
    for (uint32_t part = 0; part < form->n_parts; part++)
        round_part(worker, form, x + part * k, k, out + part * bytes);
}

static void select_row(const struct worker *worker, const struct node *node, size_t row)
{
    const struct tensor *source = node->sources[0];
    const float *x = worker_value(worker, source, worker->selected[row]);
    memcpy(worker_value(worker, node->result, row), x, source->ne[0] * sizeof(float));
}

// The elements [begin, begin + width) of each head.
static void apply_slice(const struct worker *worker, const struct node *node, size_t row)
{
    const struct attributes *a = &node->attributes;
    const float *x = worker_operand(worker, node->sources[0], row);
    float *y = worker_value(worker, node->result, row);
    for (size_t head = 0; head < node->result->ne[0] / a->width; head++)
        memcpy(y + head * a->width, x + head * a->head_dim + a->begin, a->width * sizeof(float));
}

static void apply_route(const struct worker *worker, const struct node *node, size_t row)
{
    const struct tensor *bias = node->sources[1];
    const struct routing *routing = &node->attributes.routing;
    const float *logits = worker_value(worker, node->sources[0], row);
    float *out = worker_value(worker, node->result, row);
    worker->plan->device->kernels->route(routing, logits, bias == NULL ? NULL : worker_operand(worker, bias, row),
                                         (float *)(void *)worker->scratch, out);
    bool good = true;
    for (uint32_t i = 0; i < routing->n_expert; i++)
        good = good && !isnan(logits[i]);
    for (uint32_t i = 0; i < routing->n_used; i++)
        good = good && !isnan(out[routing->n_used + i]);
    if (!good)
        worker_fault(worker, node->attributes.layer_number, FAULT_ROUTER);
    if (worker->plan->observer != NULL)
        cpu_observe_route(worker, node, out);
}

// A pair's row plus its expert's bias.
static void apply_add_id(const struct worker *worker, const struct node *node, size_t pair)
{
    const struct pairs *pairs = worker_pairs(worker, node->sources[2]);
    uint32_t low = 0, high = pairs->n_active; // the last active expert that begins at or before the pair
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        *(pairs->start[pairs->active[middle]] <= pair ? &low : &high) = middle;
    }
    const float *bias = cpu_weight_vector(&worker->plan->weights->items[node->sources[1]->index], pairs->active[low]);
    worker->plan->device->kernels->add(worker_value(worker, node->sources[0], pair), bias, node->result->ne[0],
                                       worker_value(worker, node->result, pair));
}

// y + Σ weight · bias over the row's experts: its own sum, in ascending order of expert, added once.
static void apply_add_id_sum(const struct worker *worker, const struct node *node, size_t row)
{
    const struct kernels *kernels = worker->plan->device->kernels;
    const struct cpu_weight *biases = &worker->plan->weights->items[node->sources[1]->index];
    const float *route = worker_value(worker, node->sources[2], row);
    uint32_t n_used = node->sources[2]->producer->attributes.routing.n_used;
    size_t n = node->result->ne[0];
    float *sum = (float *)(void *)worker->scratch;
    memset(sum, 0, n * sizeof(*sum));
    for (uint32_t i = 0; i < n_used; i++)
        kernels->add_scaled(cpu_weight_vector(biases, (size_t)route[i]),
                            node->attributes.unweighted ? 1.0f : route[n_used + i], n, sum);
    kernels->add(worker_value(worker, node->sources[0], row), sum, n, worker_value(worker, node->result, row));
}

static void apply_rms_norm(const struct worker *worker, const struct node *node, size_t row)
{
    worker->plan->device->kernels->rms_norm(worker_operand(worker, node->sources[0], row),
                                            worker_operand(worker, node->sources[1], row), node->result->ne[0],
                                            node->attributes.epsilon, worker_value(worker, node->result, row));
}

// The table may be a part of the model's: a token beyond it is another device's, and here a row of zeros.
static void apply_embed(const struct worker *worker, const struct node *node, size_t row)
{
    const struct packed *table = &worker->plan->weights->items[node->sources[0]->index].packed;
    float *y = worker_value(worker, node->result, row);
    size_t token = (size_t)worker->run->rows[row].token - node->attributes.first_token; // below the first: very large
    if (token < table->n_rows)
        packed_read_row(table, token, y);
    else
        memset(y, 0, node->result->ne[0] * sizeof(float));
}

// y + scale · x
static void apply_add_scaled(const struct worker *worker, const struct node *node, size_t row)
{
    const struct tensor *scale = node->sources[2];
    size_t n = node->result->ne[0];
    float *sum = worker_value(worker, node->result, row);
    memcpy(sum, worker_operand(worker, node->sources[0], row), n * sizeof(float));
    worker->plan->device->kernels->add_scaled(worker_operand(worker, node->sources[1], row),
                                              scale == NULL ? 1.0f : worker_operand(worker, scale, row)[0], n, sum);
}

static void apply_elementwise(const struct worker *worker, const struct node *node, size_t row)
{
    const struct kernels *kernels = worker->plan->device->kernels;
    const struct attributes *a = &node->attributes;
    const float *x = worker_operand(worker, node->sources[0], row);
    const float *other = node->n_sources > 1 ? worker_operand(worker, node->sources[1], row) : NULL;
    float *y = worker_value(worker, node->result, row);
    size_t n = node->result->ne[0];
    switch (node->op) {
    case OP_ADD:
        kernels->add(x, other, n, y);
        break;
    case OP_MUL:
        kernels->mul(x, other, n, y);
        break;
    case OP_DIV:
        kernels->div(x, other, n, y);
        break;
    case OP_SCALE:
        kernels->scale(x, a->factor, n, y);
        break;
    case OP_GLU:
        cpu_glu(kernels, a, x, other, n, y);
        break;
    case OP_POSITION_SCALE:
        kernels->scale(x, cpu_temperature(a, worker->run->rows[row].position), n, y);
        break;
    case OP_SIGMOID:
        kernels->sigmoid(x, n, y);
        break;
    case OP_ABS:
        kernels->abs(x, n, y);
        break;
    case OP_EXP:
        kernels->exp(x, n, y);
        break;
    case OP_LOG:
        kernels->log(x, n, y);
        break;
    case OP_CEIL:
        kernels->ceil(x, n, y);
        break;
    case OP_CLAMP:
        kernels->clamp(x, a->low, a->high, n, y);
        break;
    case OP_POOL_1D:
        kernels->pool_1d(x, node->sources[0]->ne[0], a->pool_max, a->pool_kernel, a->pool_stride, a->pool_padding, y);
        break;
    default: // the other ops have functions of their own
        break;
    }
}

void cpu_glu(const struct kernels *kernels, const struct attributes *a, const float *gate, const float *up, size_t n,
             float *y)
{
    switch (a->activation) {
    case ACTIVATION_GELU:
        kernels->geglu(gate, up, n, y);
        break;
    case ACTIVATION_RELU:
        kernels->reglu(gate, up, n, y);
        break;
    case ACTIVATION_SILU_CLAMPED:
        kernels->swiglu_clamped(gate, up, n, a->limit, a->alpha, y);
        break;
    default:
        kernels->swiglu(gate, up, n, y);
    }
}

// One row of one op. NULL: elementwise, or not an op of row steps.
typedef void (*row_function)(const struct worker *worker, const struct node *node, size_t row);
static const row_function row_functions[OP_COUNT] = {
    [OP_EMBED] = apply_embed,
    [OP_RMS_NORM] = apply_rms_norm,
    [OP_SELECT_ROWS] = select_row,
    [OP_ROUTE] = apply_route,
    [OP_ADD_ID] = apply_add_id,
    [OP_ADD_ID_SUM] = apply_add_id_sum,
    [OP_SLICE] = apply_slice,
    [OP_LORA] = cpu_lora_lookup,
    [OP_ADD_SCALED] = apply_add_scaled,
    [OP_ALL_REDUCE] = cpu_apply_collective,
    [OP_ALL_GATHER] = cpu_apply_collective,
};

void cpu_run_rows(const struct worker *worker, const struct step *step)
{
    size_t n_rows = worker_n_rows(worker, step->rows, step->per_row), begin = 0, end = n_rows;
    if (n_rows != 1) // a single row is everybody's: each thread computes it for itself
        pool_share(n_rows, worker->index, worker->n_threads, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        for (size_t i = 0; i < step->n_ops; i++) {
            const struct micro_op *op = &step->ops[i];
            if (op->node == NULL)
                round_source(worker, &worker->plan->forms[op->form], row);
            else if (row_functions[op->node->op] != NULL)
                row_functions[op->node->op](worker, op->node, row);
            else
                apply_elementwise(worker, op->node, row);
        }
    }
}

// Row steps: whole rows through embedding, norms, sums, gates and the rounding of the next matmul's source.
#include "cpu/plan.h"

#include <string.h>

// One source of k elements: a row, or a head of it.
static void round_part(const struct kernels *kernels, const struct form *form, const float *x, size_t k, uint8_t *out)
{
    if (form->precision == PRECISION_Q8) {
        kernels->quantize_q8(x, k, out);
    } else if (form->precision == PRECISION_F16) {
        kernels->round_f16(x, k, &form->segments, (float *)(void *)out);
    } else {
        float *values = (float *)(void *)out;
        memcpy(values, x, k * sizeof(float));
        for (size_t s = 0; s < MAX_SEGMENTS; s++)
            values[f32_row_scales(k) + s] = 1.0f;
    }
}

static void round_source(const struct worker *worker, const struct form *form, size_t row)
{
    const float *x = worker_value(worker, form->value, row);
    uint8_t *out = worker_row(worker, &form->slot, row);
    size_t k = form_k(form), bytes = form_row_bytes(form->precision, k);
    for (uint32_t part = 0; part < form->n_parts; part++)
        round_part(worker->plan->device->kernels, form, x + part * k, k, out + part * bytes);
}

// A source of an elementwise op: a value's row, or a weight's vector.
static const float *operand(const struct worker *worker, const struct tensor *tensor, size_t row)
{
    if (tensor->rows == ROWS_NONE)
        return worker->plan->weights->items[tensor->index].vector;
    return worker_value(worker, tensor, row);
}

static void select_row(const struct worker *worker, const struct node *node, size_t row)
{
    const struct tensor *source = node->sources[0];
    const float *x = worker_value(worker, source, worker->selected[row]);
    memcpy(worker_value(worker, node->result, row), x, source->ne[0] * sizeof(float));
}

// The elements [begin, begin + width) of each head.
static void slice(const struct attributes *a, const float *x, size_t n_heads, float *y)
{
    for (size_t head = 0; head < n_heads; head++)
        memcpy(y + head * a->width, x + head * a->head_dim + a->begin, a->width * sizeof(float));
}

static void apply(const struct worker *worker, const struct node *node, size_t row)
{
    const struct plan *plan = worker->plan;
    const struct kernels *kernels = plan->device->kernels;
    const struct attributes *a = &node->attributes;
    float *y = worker_value(worker, node->result, row);
    size_t n = node->result->ne[0];
    switch (node->op) {
    case OP_EMBED:
        packed_read_row(&plan->weights->items[node->sources[0]->index].packed, (size_t)worker->run->rows[row].token, y);
        break;
    case OP_RMS_NORM:
        kernels->rms_norm(operand(worker, node->sources[0], row), operand(worker, node->sources[1], row), n, a->epsilon,
                          y);
        break;
    case OP_ADD:
        kernels->add(operand(worker, node->sources[0], row), operand(worker, node->sources[1], row), n, y);
        break;
    case OP_MUL:
        kernels->mul(operand(worker, node->sources[0], row), operand(worker, node->sources[1], row), n, y);
        break;
    case OP_SCALE:
        kernels->scale(operand(worker, node->sources[0], row), a->factor, n, y);
        break;
    case OP_GLU: {
        const float *gate = operand(worker, node->sources[0], row), *up = operand(worker, node->sources[1], row);
        (a->activation == ACTIVATION_SILU ? kernels->swiglu : kernels->geglu)(gate, up, n, y);
        break;
    }
    case OP_SLICE:
        slice(a, operand(worker, node->sources[0], row), n / a->width, y);
        break;
    case OP_POSITION_SCALE:
        kernels->scale(operand(worker, node->sources[0], row), cpu_temperature(a, worker->run->rows[row].position), n,
                       y);
        break;
    default: // the other ops are never in a row step
        break;
    }
}

void cpu_run_rows(const struct worker *worker, const struct step *step)
{
    size_t n_rows = worker_n_rows(worker, step->rows), begin = 0, end = n_rows;
    if (n_rows != 1) // a single row is everybody's: each thread computes it for itself
        pool_share(n_rows, worker->index, worker->n_threads, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        for (size_t i = 0; i < step->n_ops; i++) {
            const struct micro_op *op = &step->ops[i];
            if (op->node == NULL)
                round_source(worker, &worker->plan->forms[op->form], row);
            else if (op->node->op == OP_SELECT_ROWS)
                select_row(worker, op->node, row);
            else
                apply(worker, op->node, row);
        }
    }
}

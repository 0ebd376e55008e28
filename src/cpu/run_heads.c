// Head steps: norms, rotations and joining of query and key heads, and storing keys and values in their pages. An item
// is a unit of one row: the same share of the heads of every value, so that ops on KV heads and on the query heads that
// share them never wait for each other.
#include "cpu/plan.h"

#include "tensor/elementary.h"

#include <string.h>

float cpu_temperature(const struct attributes *attributes, uint32_t position)
{
    uint32_t periods = position / attributes->temperature_length;
    if (periods == 0)
        return 1.0f;
    return (float)(1 + (double)attributes->temperature_scale * elementary_log(1.0 + periods));
}

// A factor lasts for a row: it is asked for once a head.
struct temperature {
    const struct node *node;
    size_t row;
    float factor;
};

static float find_temperature(const struct worker *worker, struct temperature *last, const struct node *node,
                              size_t row)
{
    if (last->node != node || last->row != row)
        *last = (struct temperature){
            .node = node, .row = row, .factor = cpu_temperature(&node->attributes, worker->run->rows[row].position)};
    return last->factor;
}

static void concat(const struct worker *worker, const struct node *node, size_t row, size_t head)
{
    size_t head_dim = node->attributes.head_dim, width = node->attributes.width;
    float *y = worker_value(worker, node->result, row) + head * (head_dim + width);
    size_t from = node->sources[1]->ne[0] == width ? 0 : head; // one head for all, or one each
    memcpy(y, worker_value(worker, node->sources[0], row) + head * head_dim, head_dim * sizeof(float));
    memcpy(y + head_dim, worker_value(worker, node->sources[1], row) + from * width, width * sizeof(float));
}

static void apply_to_head(const struct worker *worker, const struct node *node, size_t row, size_t head,
                          struct temperature *temperature)
{
    const struct plan *plan = worker->plan;
    const struct kernels *kernels = plan->device->kernels;
    const struct attributes *a = &node->attributes;
    if (node->op == OP_CONCAT) {
        concat(worker, node, row, head);
        return;
    }
    const float *x = worker_value(worker, node->sources[0], row) + head * a->head_dim;
    float *y = worker_value(worker, node->result, row) + head * a->head_dim;
    if (node->op == OP_RMS_NORM) {
        kernels->rms_norm(x, plan->weights->items[node->sources[1]->index].vector, a->head_dim, a->epsilon, y);
    } else if (node->op == OP_POSITION_SCALE) {
        kernels->scale(x, find_temperature(worker, temperature, node, row), a->head_dim, y);
    } else {
        memcpy(y, x, a->head_dim * sizeof(float));
        kernels->rope(y, a->n_rot, worker->run->ropes[a->rope] + row * a->n_rot, a->neox);
    }
}

// The page of a KV head at a position of the row's session.
uint8_t *cpu_kv_head(const struct worker *worker, uint32_t layer, uint32_t session, uint32_t page, uint32_t head)
{
    const struct plan *plan = worker->plan;
    const struct kv_place *place = &plan->kv_places[layer];
    uint32_t id = worker->run->pages[(size_t)session * MAX_KV_KINDS + place->kind][page];
    return plan->pages[place->kind] + id * plan->kinds[place->kind].page_bytes + place->offset +
           head * place->head_bytes;
}

static void store(const struct worker *worker, const struct node *attention, size_t row, uint32_t head)
{
    const struct plan *plan = worker->plan;
    const struct attributes *a = &attention->attributes;
    const struct kv_place *place = &plan->kv_places[a->layer];
    const struct row *token = &worker->run->rows[row];
    enum kv_dtype kind = plan->params.kv;
    uint32_t page = token->position / KV_PAGE_POSITIONS, position = token->position % KV_PAGE_POSITIONS;
    uint8_t *memory = cpu_kv_head(worker, a->layer, token->session, page, head);
    const float *k = worker_value(worker, attention->sources[1], row) + head * a->head_dim;
    if (plan->observer != NULL)
        cpu_observe_kv(worker, a->layer, false, k, a->head_dim);
    plan->device->kernels->store_k[kind](k, a->head_dim, position, memory, (float *)(void *)(memory + place->k_scale));
    if (a->v_in_k)
        return;
    const float *v = worker_value(worker, attention->sources[2], row) + head * a->v_dim;
    if (plan->observer != NULL)
        cpu_observe_kv(worker, a->layer, true, v, a->v_dim);
    plan->device->kernels->store_v[kind](v, a->v_dim, position, memory + place->v,
                                         (float *)(void *)(memory + place->v_scale));
}

void cpu_run_heads(const struct worker *worker, const struct step *step)
{
    size_t n_units = step->n_units, begin, end;
    size_t n_kv = step->attention == NULL ? 0 : step->attention->attributes.n_kv_head;
    struct temperature temperature = {0};
    pool_share(worker_n_rows(worker, step->rows, 0) * n_units, worker->index, worker->n_threads, &begin, &end);
    for (size_t item = begin; item < end; item++) {
        size_t row = item / n_units, unit = item % n_units;
        for (size_t i = 0; i < step->n_ops; i++) {
            const struct node *node = step->ops[i].node;
            size_t n_heads = head_op_n_heads(node);
            for (size_t head = unit * n_heads / n_units; head < (unit + 1) * n_heads / n_units; head++)
                apply_to_head(worker, node, row, head, &temperature);
        }
        for (size_t head = unit * n_kv / n_units; head < (unit + 1) * n_kv / n_units; head++)
            store(worker, step->attention, row, (uint32_t)head);
    }
}

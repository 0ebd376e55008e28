// Head steps: norms and rotations of query and key heads, and storing keys and values in their pages. An item is one
// row's KV head with the query heads that share it.
#include "cpu/plan.h"

#include <string.h>

static void apply_to_head(const struct worker *worker, const struct node *node, size_t row, size_t head)
{
    const struct plan *plan = worker->plan;
    const struct kernels *kernels = plan->device->kernels;
    const struct attributes *a = &node->attributes;
    const float *x = worker_value(worker, node->sources[0], row) + head * a->head_dim;
    float *y = worker_value(worker, node->result, row) + head * a->head_dim;
    if (node->op == OP_RMS_NORM) {
        kernels->rms_norm(x, plan->weights->items[node->sources[1]->index].vector, a->head_dim, a->epsilon, y);
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
    plan->device->kernels->store_k[kind](worker_value(worker, attention->sources[1], row) + head * a->head_dim,
                                         a->head_dim, position, memory, (float *)(void *)(memory + place->k_scale));
    plan->device->kernels->store_v[kind](worker_value(worker, attention->sources[2], row) + head * a->v_dim, a->v_dim,
                                         position, memory + place->v, (float *)(void *)(memory + place->v_scale));
}

void cpu_run_heads(const struct worker *worker, const struct step *step)
{
    uint32_t n_kv = step->attention == NULL ? 1 : step->attention->attributes.n_kv_head;
    size_t begin, end;
    pool_share(worker_n_rows(worker, step->rows) * n_kv, worker->index, worker->n_threads, &begin, &end);
    for (size_t item = begin; item < end; item++) {
        size_t row = item / n_kv, kv_head = item % n_kv;
        for (size_t i = 0; i < step->n_ops; i++) {
            const struct node *node = step->ops[i].node;
            size_t n_heads = node->result->ne[0] / node->attributes.head_dim;
            for (size_t head = kv_head * n_heads / n_kv; head < (kv_head + 1) * n_heads / n_kv; head++)
                apply_to_head(worker, node, row, head);
        }
        if (step->attention != NULL)
            store(worker, step->attention, row, (uint32_t)kv_head);
    }
}

// Small graphs with the bytes of their weights, and what runs them: a CPU device with the packed weights and the plan
// of one graph. The weights of a part of the graph (a device of a mesh) are read by name. Include it once, after
// cmocka.h.
#ifndef MOTE_TESTS_SMALL_GRAPH_H
#define MOTE_TESTS_SMALL_GRAPH_H

#include "cpu/device.h"
#include "random_weights.h"
#include "tensor/graph.h"

#include <stdio.h>
#include <string.h>

enum { SMALL_WEIGHTS = 64, SMALL_TOKENS = 80, SMALL_PAGES = 4 };

struct small_graph {
    struct graph graph;
    uint8_t *bytes[SMALL_WEIGHTS]; // by weight, in the file's layout
    uint8_t *adapter_bytes[SMALL_WEIGHTS];
    // What runs are made of.
    size_t n_tokens;
    uint32_t positions[SMALL_TOKENS];
    uint32_t row_adapters[SMALL_TOKENS]; // which row of adapter_scales
    const float *adapter_scales;         // [..][n_adapters]
    size_t n_adapters;
    const float *ropes; // [n_tokens][n_rot]
    size_t n_rot;
    enum kv_dtype kv;
};

static inline void small_graph_open(struct small_graph *small, size_t n_tokens)
{
    memset(small, 0, sizeof(*small));
    graph_init(&small->graph);
    small->n_tokens = n_tokens;
    for (uint32_t i = 0; i < n_tokens; i++)
        small->positions[i] = i;
}

static inline void small_graph_close(struct small_graph *small)
{
    for (size_t i = 0; i < SMALL_WEIGHTS; i++) {
        free(small->bytes[i]);
        free(small->adapter_bytes[i]);
    }
    graph_free(&small->graph);
}

// A weight [k, n, count] of random bytes; n or count 0: it has one or two dimensions.
static inline struct tensor *small_graph_weight(struct small_graph *small, const char *name, enum dtype dtype, size_t k,
                                                size_t n, size_t count)
{
    const size_t ne[] = {k, n, count};
    struct tensor *tensor = graph_weight(&small->graph, name, dtype, n == 0 ? 1 : count == 0 ? 2 : 3, ne);
    if (tensor == NULL)
        fail_msg("%s: %s", name, small->graph.error.message);
    assert_in_range(tensor->index, 0, SMALL_WEIGHTS - 1);
    small->bytes[tensor->index] = random_rows(dtype, tensor->ne[1] * tensor->ne[2], k);
    return tensor;
}

// Random bytes for the weights of adapters, which the graph made of pairs.
static inline void small_graph_fill_adapters(struct small_graph *small)
{
    for (size_t i = 0; i < small->graph.n_adapter_weights; i++) {
        const struct tensor *tensor = small->graph.adapter_weights[i];
        assert_int_equal(tensor->turned_rows, 0);
        small->adapter_bytes[i] = random_rows(tensor->dtype, tensor->rows_in_file * tensor->ne[2], tensor->ne[0]);
    }
}

static inline enum status small_graph_read(void *user, const struct tensor *tensor, uint64_t offset, void *bytes,
                                           size_t size, struct error *error)
{
    const struct small_graph *small = user;
    for (size_t i = 0; i < small->graph.n_weights; i++) {
        if (strcmp(small->graph.weights[i]->name, tensor->name) == 0) {
            memcpy(bytes, small->bytes[i] + offset, size);
            return STATUS_OK;
        }
    }
    for (size_t i = 0; i < small->graph.n_adapter_weights; i++) {
        if (strcmp(small->graph.adapter_weights[i]->name, tensor->name) == 0) {
            memcpy(bytes, small->adapter_bytes[i] + offset, size);
            return STATUS_OK;
        }
    }
    return error_set(error, STATUS_INVALID, "no weight is named %s", tensor->name);
}

// ---- what runs one graph ----

struct machine {
    struct device *device; // not its own
    struct weights *weights, *adapters;
    struct plan *plan;
    struct transport *transport; // NULL: it is alone
    uint32_t rank;
    size_t batch; // rows a run, at most what the plan was made for
};

static inline void machine_close(struct machine *machine)
{
    if (machine->device == NULL)
        return;
    machine->device->ops->free_plan(machine->plan);
    machine->device->ops->free_weights(machine->weights);
    machine->device->ops->free_weights(machine->adapters);
    *machine = (struct machine){0};
}

// graph: that of small, or a part of it; batch: rows a run.
static inline enum status machine_open(struct machine *machine, struct device *device, struct small_graph *small,
                                       const struct graph *graph, struct plan_params *params, struct error *error)
{
    const struct device_ops *ops = device->ops;
    const struct weight_reader reader = {.read = small_graph_read, .user = small};
    static const size_t n_pages[MAX_KV_KINDS] = {SMALL_PAGES, SMALL_PAGES, SMALL_PAGES, SMALL_PAGES};
    *machine = (struct machine){
        .device = device, .transport = params->transport, .rank = params->rank, .batch = params->n_rows};
    params->kv = small->kv;
    enum status status = ops->pack(device, graph, &reader, &machine->weights, error);
    if (status == STATUS_OK && small->n_adapters != 0)
        status = ops->pack_adapters(device, graph, &reader, &machine->adapters, error);
    params->adapter_weights = machine->adapters;
    if (status == STATUS_OK)
        status = ops->plan(device, graph, machine->weights, params, &machine->plan, error);
    if (status == STATUS_OK)
        status = ops->kv_allocate(machine->plan, n_pages, error);
    return status;
}

struct kept_rows {
    float *rows;
    size_t width, first;
};

static inline int keep_row(void *user, size_t selected, const float *logits)
{
    const struct kept_rows *kept = user;
    memcpy(kept->rows + (kept->first + selected) * kept->width, logits, kept->width * sizeof(float));
    return 0;
}

// All tokens, machine->batch at a time, each one's output into kept (NULL: another device gets them).
static inline enum status machine_run(const struct machine *machine, const struct small_graph *small,
                                      struct kept_rows *kept, struct error *error)
{
    static const uint32_t ids[SMALL_PAGES] = {2, 0, 3, 1};
    static const uint32_t *const pages[MAX_KV_KINDS] = {ids, ids, ids, ids};
    enum status status = STATUS_OK;
    for (size_t first = 0; first < small->n_tokens && status == STATUS_OK; first += machine->batch) {
        struct row rows[SMALL_TOKENS];
        uint32_t selected[SMALL_TOKENS];
        size_t left = small->n_tokens - first, n = left < machine->batch ? left : machine->batch;
        for (size_t i = 0; i < n; i++) {
            rows[i] = (struct row){.token = (int32_t)(first + i),
                                   .position = small->positions[first + i],
                                   .adapters = small->row_adapters[first + i]};
            selected[i] = (uint32_t)i;
        }
        struct run run = {.rows = rows,
                          .n_rows = n,
                          .selected = selected,
                          .n_selected = n,
                          .pages = pages,
                          .adapter_scales = small->adapter_scales,
                          .n_adapters = small->n_adapters};
        if (small->ropes != NULL)
            run.ropes[0] = small->ropes + first * small->n_rot;
        if (kept != NULL) {
            kept->first = first;
            run.on_logits = keep_row;
            run.user = kept;
        }
        status = machine->device->ops->run(machine->plan, &run, error);
        bool stop = false; // as the mesh: no device begins a run before all have ended the one before
        if (status == STATUS_OK && machine->transport != NULL)
            status = machine->transport->ops->barrier(machine->transport, machine->rank, &stop, error);
    }
    return status;
}

#endif

// The mesh as a device: each call goes to the devices of this process, all at once, each on a driver thread that is
// thread 0 of its device. What is one to the engine (weights, a plan, pages) is one a device here.
#include "mesh/mesh.h"

#include "base/threads.h"
#include "mesh/describe.h"
#include "mesh/shard.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct mesh {
    struct device base;
    struct mesh_split split;
    struct transport *transport;
    struct device *local[MAX_DEVICES];
    uint32_t n_local, first_rank;
    struct pool *drivers; // one thread a local device
};

// They may outlive the mesh that packed them.
struct mesh_weights {
    uint32_t n_local;
    const struct device_ops *ops[MAX_DEVICES];
    struct weights *local[MAX_DEVICES];
};

struct mesh_plan {
    struct mesh *mesh;
    const struct graph *whole;
    size_t n_rows;
    // By device and KV layer: its first head, and how many. Of all devices, as pages are put together of all.
    struct kv_layer *heads[MAX_DEVICES];
    uint8_t *page, *received; // where the devices are not all of this process: a page, what comes of others
    size_t page_bytes, received_bytes;
    struct graph graphs[MAX_DEVICES]; // of the local devices
    struct plan *local[MAX_DEVICES];
};

// ---- on all devices ----

// A call on every local device; each has its own error.
struct calls {
    struct mesh *mesh;
    enum status (*call)(void *user, uint32_t index, struct error *error); // index: among the local devices
    void *user;
    struct error errors[MAX_DEVICES];
};

static void drive(void *user, size_t index, size_t n_threads)
{
    struct calls *calls = user;
    (void)n_threads;
    calls->errors[index].status = calls->call(calls->user, (uint32_t)index, &calls->errors[index]);
}

// The first error that says most: a device that was only told to stop did not cause it.
static enum status on_all(struct mesh *mesh, enum status (*call)(void *user, uint32_t index, struct error *error),
                          void *user, struct error *error)
{
    struct calls calls = {.mesh = mesh, .call = call, .user = user};
    pool_run(mesh->drivers, drive, &calls);
    const struct error *worst = NULL;
    for (uint32_t i = 0; i < mesh->n_local; i++) {
        const struct error *one = &calls.errors[i];
        if (one->status != STATUS_OK && (worst == NULL || worst->status == STATUS_CANCELLED))
            worst = one;
    }
    if (worst == NULL)
        return STATUS_OK;
    if (error != NULL)
        *error = *worst;
    return worst->status;
}

static enum status name_device(const struct mesh *mesh, uint32_t index, enum status status, struct error *error)
{
    if (status != STATUS_OK && status != STATUS_CANCELLED)
        error_prefix(error, "device %u", mesh->first_rank + index);
    return status;
}

// ---- weights ----

struct packing {
    struct mesh *mesh;
    const struct graph *graph;
    const struct sharding *sharding;
    const struct weight_reader *reader;
    struct mesh_weights *weights;
    bool adapters;
    atomic_bool stop;
};

// Progress of one device's share; the first's is told to the user, whose wish to stop holds for all.
struct progress {
    struct packing *packing;
    uint32_t index;
};

static enum status read_through(void *user, const struct tensor *weight, uint64_t offset, void *bytes, size_t size,
                                struct error *error)
{
    const struct weight_reader *reader = ((struct progress *)user)->packing->reader;
    return reader->read(reader->user, weight, offset, bytes, size, error);
}

static int tell_progress(void *user, uint64_t done, uint64_t total)
{
    struct progress *progress = user;
    struct packing *packing = progress->packing;
    const struct weight_reader *reader = packing->reader;
    if (progress->index == 0 && reader->progress != NULL && reader->progress(reader->user, done, total) != 0)
        atomic_store(&packing->stop, true);
    return atomic_load(&packing->stop) ? 1 : 0;
}

static enum status pack_one(void *user, uint32_t index, struct error *error)
{
    struct packing *packing = user;
    struct mesh *mesh = packing->mesh;
    const struct device_ops *ops = mesh->local[index]->ops;
    struct progress progress = {.packing = packing, .index = index};
    struct weight_reader reader = {.read = read_through, .progress = tell_progress, .user = &progress};
    struct graph local;
    graph_init(&local);
    enum status status = shard_graph(packing->sharding, mesh->first_rank + index, &local, error);
    if (status == STATUS_OK)
        status = (packing->adapters ? ops->pack_adapters : ops->pack)(mesh->local[index], &local, &reader,
                                                                      &packing->weights->local[index], error);
    graph_free(&local);
    if (status != STATUS_OK)
        atomic_store(&packing->stop, true);
    return name_device(mesh, index, status, error);
}

static void mesh_free_weights(struct weights *weights)
{
    struct mesh_weights *all = (struct mesh_weights *)weights;
    for (uint32_t i = 0; all != NULL && i < all->n_local; i++)
        all->ops[i]->free_weights(all->local[i]);
    free(all);
}

static enum status pack_all(struct device *device, const struct graph *graph, const struct weight_reader *reader,
                            bool adapters, struct weights **result, struct error *error)
{
    struct mesh *mesh = (struct mesh *)device;
    struct mesh_weights *weights = calloc(1, sizeof(*weights));
    if (weights == NULL)
        return error_memory(error, "the weights");
    weights->n_local = mesh->n_local;
    for (uint32_t i = 0; i < mesh->n_local; i++)
        weights->ops[i] = mesh->local[i]->ops;
    struct sharding sharding;
    enum status status = sharding_create(graph, &mesh->split, &sharding, error);
    if (status == STATUS_OK) {
        struct packing packing = {.mesh = mesh,
                                  .graph = graph,
                                  .sharding = &sharding,
                                  .reader = reader,
                                  .weights = weights,
                                  .adapters = adapters};
        status = on_all(mesh, pack_one, &packing, error);
        sharding_free(&sharding);
    }
    if (status != STATUS_OK) {
        mesh_free_weights((struct weights *)weights);
        return status;
    }
    *result = (struct weights *)weights;
    return STATUS_OK;
}

static enum status mesh_pack(struct device *device, const struct graph *graph, const struct weight_reader *reader,
                             struct weights **weights, struct error *error)
{
    return pack_all(device, graph, reader, false, weights, error);
}

static enum status mesh_pack_adapters(struct device *device, const struct graph *graph,
                                      const struct weight_reader *reader, struct weights **weights, struct error *error)
{
    return pack_all(device, graph, reader, true, weights, error);
}

// ---- plans ----

static void mesh_free_plan(struct plan *plan)
{
    struct mesh_plan *all = (struct mesh_plan *)plan;
    for (uint32_t i = 0; all != NULL && i < all->mesh->n_local; i++) {
        all->mesh->local[i]->ops->free_plan(all->local[i]);
        graph_free(&all->graphs[i]);
    }
    for (uint32_t d = 0; all != NULL && d < MAX_DEVICES; d++)
        free(all->heads[d]);
    if (all != NULL) {
        free(all->page);
        free(all->received);
    }
    free(all);
}

struct planning {
    struct mesh_plan *plan;
    const struct sharding *sharding;
    const struct mesh_weights *weights;
    const struct plan_params *params;
};

static enum status plan_one(void *user, uint32_t index, struct error *error)
{
    struct planning *planning = user;
    struct mesh *mesh = planning->plan->mesh;
    struct device *device = mesh->local[index];
    const struct mesh_weights *adapters = (const struct mesh_weights *)planning->params->adapter_weights;
    struct plan_params params = *planning->params;
    params.transport = mesh->transport;
    params.rank = mesh->first_rank + index;
    params.adapter_weights = adapters == NULL ? NULL : adapters->local[index];
    struct graph *graph = &planning->plan->graphs[index];
    enum status status = shard_graph(planning->sharding, params.rank, graph, error);
    if (status == STATUS_OK)
        status = device->ops->plan(device, graph, planning->weights == NULL ? NULL : planning->weights->local[index],
                                   &params, &planning->plan->local[index], error);
    return name_device(mesh, index, status, error);
}

// Which KV heads each device has of each layer.
static enum status note_heads(struct mesh_plan *plan, const struct sharding *sharding, struct error *error)
{
    size_t n = plan->whole->n_kv_layers;
    for (uint32_t d = 0; d < sharding->split.n_devices; d++) {
        struct graph local;
        graph_init(&local);
        enum status status = shard_graph(sharding, d, &local, error);
        plan->heads[d] = calloc(n + 1, sizeof(*plan->heads[d]));
        if (status == STATUS_OK && plan->heads[d] == NULL)
            status = error_memory(error, "the mesh's plan");
        if (status == STATUS_OK && n != 0)
            memcpy(plan->heads[d], local.kv_layers, n * sizeof(*plan->heads[d]));
        graph_free(&local);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status mesh_plan(struct device *device, const struct graph *graph, const struct weights *weights,
                             const struct plan_params *params, struct plan **result, struct error *error)
{
    struct mesh *mesh = (struct mesh *)device;
    if (params->observe)
        return error_set(error, STATUS_UNSUPPORTED,
                         "a mesh does not observe: no device sees a whole row; use one device");
    struct mesh_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL)
        return error_memory(error, "the mesh's plan");
    plan->mesh = mesh;
    plan->whole = graph;
    plan->n_rows = params->n_rows;
    for (uint32_t i = 0; i < mesh->n_local; i++)
        graph_init(&plan->graphs[i]);
    struct sharding sharding;
    enum status status = sharding_create(graph, &mesh->split, &sharding, error);
    if (status == STATUS_OK) {
        struct planning planning = {
            .plan = plan, .sharding = &sharding, .weights = (const struct mesh_weights *)weights, .params = params};
        status = on_all(mesh, plan_one, &planning, error);
        if (status == STATUS_OK)
            status = note_heads(plan, &sharding, error);
        sharding_free(&sharding);
    }
    if (status != STATUS_OK) {
        mesh_free_plan((struct plan *)plan);
        return status;
    }
    *result = (struct plan *)plan;
    return STATUS_OK;
}

static void mesh_plan_memory(const struct plan *plan, struct plan_memory *memory)
{
    const struct mesh_plan *all = (const struct mesh_plan *)plan;
    *memory = (struct plan_memory){0};
    for (uint32_t i = 0; i < all->mesh->n_local; i++) {
        struct plan_memory one = {0};
        all->mesh->local[i]->ops->plan_memory(all->local[i], &one);
        memory->weights += one.weights;
        memory->work += one.work;
        memory->logits += one.logits;
    }
}

// The devices have the same kinds, of the same layers; a page is what it takes on all of them.
static uint32_t mesh_kv_kinds(const struct plan *plan, struct kv_kind_layout kinds[MAX_KV_KINDS])
{
    const struct mesh_plan *all = (const struct mesh_plan *)plan;
    uint32_t n = all->mesh->local[0]->ops->kv_kinds(all->local[0], kinds);
    for (uint32_t i = 1; i < all->mesh->n_local; i++) {
        struct kv_kind_layout one[MAX_KV_KINDS];
        all->mesh->local[i]->ops->kv_kinds(all->local[i], one);
        for (uint32_t kind = 0; kind < n; kind++)
            kinds[kind].page_bytes += one[kind].page_bytes;
    }
    return n;
}

struct allocation {
    struct mesh_plan *plan;
    const size_t *n_pages;
};

static enum status allocate_one(void *user, uint32_t index, struct error *error)
{
    const struct allocation *allocation = user;
    struct mesh *mesh = allocation->plan->mesh;
    enum status status =
        mesh->local[index]->ops->kv_allocate(allocation->plan->local[index], allocation->n_pages, error);
    return name_device(mesh, index, status, error);
}

static enum status mesh_kv_allocate(struct plan *plan, const size_t *n_pages, struct error *error)
{
    struct allocation allocation = {.plan = (struct mesh_plan *)plan, .n_pages = n_pages};
    return on_all(allocation.plan->mesh, allocate_one, &allocation, error);
}

// ---- pages ----

// Heads of a layer are alike, on whichever device.
static size_t mesh_kv_head_bytes(const struct plan *plan, uint32_t layer)
{
    const struct mesh_plan *all = (const struct mesh_plan *)plan;
    return all->mesh->local[0]->ops->kv_head_bytes(all->local[0], layer);
}

static size_t mesh_kv_layer_bytes(const struct plan *plan, uint32_t layer)
{
    const struct mesh_plan *all = (const struct mesh_plan *)plan;
    return mesh_kv_head_bytes(plan, layer) * all->whole->kv_layers[layer].n_head;
}

// A page over ranks: each gives its heads to rank 0, or takes them of what rank 0 has.
static enum status copy_over_ranks(struct mesh_plan *all, const struct kv_page *page, void *bytes, bool write,
                                   struct error *error)
{
    struct mesh *mesh = all->mesh;
    uint32_t rank = mesh->first_rank, n = mesh->split.n_devices;
    size_t whole = mesh_kv_layer_bytes((struct plan *)all, page->layer), received = 0;
    size_t head = mesh_kv_head_bytes((struct plan *)all, page->layer);
    struct exchange exchange = {.root = 0};
    for (uint32_t d = 0; d < n; d++) {
        exchange.row_bytes[d] = head * all->heads[d][page->layer].n_head;
        exchange.rows[d] = (struct row_range){0, 1};
        received += exchange_align(exchange.row_bytes[d]);
    }
    if (!array_grow((void **)&all->page, &all->page_bytes, whole, 1) ||
        !array_grow((void **)&all->received, &all->received_bytes, received + 64, 1))
        return error_memory(error, "a page of the KV cache");
    const struct device_ops *ops = mesh->local[0]->ops;
    if (write) {
        if (rank == 0)
            memcpy(all->page, bytes, whole);
        enum status status = mesh->transport->ops->broadcast(mesh->transport, rank, 0, all->page, whole, error);
        uint8_t *own = all->page + all->heads[rank][page->layer].first_head * head;
        return status == STATUS_OK ? ops->kv_copy(all->local[0], page, own, true, error) : status;
    }
    enum status status = ops->kv_copy(all->local[0], page, all->page, false, error);
    exchange.mine = all->page;
    exchange.receive = (uint8_t *)exchange_align((size_t)(uintptr_t)all->received);
    if (status == STATUS_OK)
        status = mesh->transport->ops->all_gather(mesh->transport, rank, &exchange, error);
    for (uint32_t d = 0; d < n && status == STATUS_OK && rank == 0; d++) {
        if (exchange.row_bytes[d] != 0)
            memcpy((uint8_t *)bytes + all->heads[d][page->layer].first_head * head, exchange.theirs[d],
                   exchange.row_bytes[d]);
    }
    return status;
}

static enum status mesh_kv_copy(struct plan *plan, const struct kv_page *page, void *bytes, bool write,
                                struct error *error)
{
    struct mesh_plan *all = (struct mesh_plan *)plan;
    struct mesh *mesh = all->mesh;
    if (mesh->n_local < mesh->split.n_devices)
        return copy_over_ranks(all, page, bytes, write, error);
    enum status status = STATUS_OK;
    size_t head = mesh_kv_head_bytes(plan, page->layer);
    for (uint32_t d = 0; d < mesh->n_local && status == STATUS_OK; d++) {
        const struct kv_layer *heads = &all->heads[d][page->layer];
        if (heads->n_head != 0)
            status = mesh->local[d]->ops->kv_copy(all->local[d], page, (uint8_t *)bytes + heads->first_head * head,
                                                  write, error);
    }
    return status;
}

// ---- runs ----

struct running {
    struct mesh_plan *plan;
    const struct run *run;
};

// The first device talks to the user; the others do what they are told. None waits for one that failed.
static enum status run_one(void *user, uint32_t index, struct error *error)
{
    const struct running *running = user;
    struct mesh *mesh = running->plan->mesh;
    struct run run = *running->run;
    if (mesh->first_rank + index != 0) {
        run.on_logits = NULL;
        run.cancel = NULL;
    }
    enum status status = mesh->local[index]->ops->run(running->plan->local[index], &run, error);
    if (status != STATUS_OK && mesh->transport->ops->leave != NULL)
        mesh->transport->ops->leave(mesh->transport, mesh->first_rank + index);
    return status;
}

static enum status mesh_run(struct plan *plan, const struct run *run, struct error *error)
{
    struct running running = {.plan = (struct mesh_plan *)plan, .run = run};
    struct transport *transport = running.plan->mesh->transport;
    enum status status = on_all(running.plan->mesh, run_one, &running, error);
    if (status != STATUS_OK && transport->ops->rejoin != NULL)
        transport->ops->rejoin(transport);
    return status;
}

static bool mesh_observed(const struct plan *plan, observation_fn give, void *user)
{
    (void)plan;
    (void)give;
    (void)user;
    return false;
}

static void mesh_stats(const struct plan *plan, struct plan_stats *stats)
{
    const struct mesh_plan *all = (const struct mesh_plan *)plan;
    all->mesh->local[0]->ops->stats(all->local[0], stats);
}

static bool mesh_describe(const struct plan *plan, struct buffer *json)
{
    const struct mesh_plan *all = (const struct mesh_plan *)plan;
    return all->mesh->local[0]->ops->describe(all->local[0], json);
}

static bool mesh_describe_mesh(const struct plan *plan, struct buffer *json)
{
    const struct mesh_plan *all = (const struct mesh_plan *)plan;
    struct mesh_part_plan local[MAX_DEVICES];
    for (uint32_t i = 0; i < all->mesh->n_local; i++)
        local[i] = (struct mesh_part_plan){.ops = all->mesh->local[i]->ops, .plan = all->local[i]};
    const struct mesh_description description = {.graph = all->whole,
                                                 .split = &all->mesh->split,
                                                 .n_rows = all->n_rows,
                                                 .local = local,
                                                 .n_local = all->mesh->n_local,
                                                 .first_rank = all->mesh->first_rank};
    return mesh_describe_placements(&description, json);
}

static void mesh_destroy(struct device *device)
{
    struct mesh *mesh = (struct mesh *)device;
    if (mesh == NULL)
        return;
    for (uint32_t i = 0; i < mesh->n_local; i++)
        mesh->local[i]->ops->destroy(mesh->local[i]);
    if (mesh->transport != NULL)
        mesh->transport->ops->destroy(mesh->transport);
    pool_destroy(mesh->drivers);
    free(mesh);
}

static const struct device_ops ops = {
    .name = "mesh",
    .destroy = mesh_destroy,
    .pack = mesh_pack,
    .pack_adapters = mesh_pack_adapters,
    .free_weights = mesh_free_weights,
    .plan = mesh_plan,
    .free_plan = mesh_free_plan,
    .plan_memory = mesh_plan_memory,
    .kv_kinds = mesh_kv_kinds,
    .kv_allocate = mesh_kv_allocate,
    .kv_head_bytes = mesh_kv_head_bytes,
    .kv_layer_bytes = mesh_kv_layer_bytes,
    .kv_copy = mesh_kv_copy,
    .run = mesh_run,
    .observed = mesh_observed,
    .stats = mesh_stats,
    .describe = mesh_describe,
    .describe_mesh = mesh_describe_mesh,
};

enum status mesh_create(const struct mesh_params *params, struct device **result, struct error *error)
{
    struct mesh *mesh = calloc(1, sizeof(*mesh));
    if (mesh == NULL) {
        for (uint32_t i = 0; i < params->n_local; i++)
            params->local[i]->ops->destroy(params->local[i]);
        params->transport->ops->destroy(params->transport);
        return error_memory(error, "the mesh");
    }
    mesh->base.ops = &ops;
    mesh->base.isa = params->local[0]->isa;
    mesh->split = params->split;
    mesh->transport = params->transport;
    mesh->n_local = params->n_local;
    mesh->first_rank = params->first_rank;
    memcpy(mesh->local, params->local, params->n_local * sizeof(mesh->local[0]));
    struct pool_params drivers = {.n_threads = params->n_local, .overcommitted = params->overcommitted};
    if (params->cpus != NULL) {
        drivers.caller_cpus = params->cpus[0];
        drivers.worker_cpus = params->cpus + 1;
    }
    enum status status = pool_create(&drivers, &mesh->drivers, error);
    if (status != STATUS_OK) {
        mesh_destroy(&mesh->base);
        return status;
    }
    *result = &mesh->base;
    return STATUS_OK;
}

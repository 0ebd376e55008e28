// A transport between threads of one process: each device looks at the memory of the others.
#include "mesh/mesh.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct threads_transport {
    struct transport base;
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t phase;
    struct slot {
        _Alignas(64) const void *mine;
        bool stop;
    } slots[2][MAX_DEVICES];
    uint32_t turn[MAX_DEVICES][16];
};

static bool meet(struct threads_transport *t, uint32_t rank, const void *mine, bool stop, struct slot **slots)
{
    struct slot *mine_slots = t->slots[t->turn[rank][0]++ & 1];
    mine_slots[rank].mine = mine;
    mine_slots[rank].stop = stop;
    uint32_t phase = atomic_load(&t->phase);
    if (atomic_fetch_add(&t->arrived, 1) + 1 == t->base.n_devices) {
        atomic_store(&t->arrived, 0);
        atomic_fetch_add(&t->phase, 1);
    } else {
        for (int i = 0; atomic_load(&t->phase) == phase; i++)
            if (i > 2000)
                sched_yield();
    }
    bool any = false;
    for (uint32_t d = 0; d < t->base.n_devices; d++)
        any = any || mine_slots[d].stop;
    *slots = mine_slots;
    return any;
}

static enum status all_gather(struct transport *transport, uint32_t rank, struct exchange *e, struct error *error)
{
    (void)error;
    struct slot *slots;
    e->stop = meet((struct threads_transport *)transport, rank, e->mine, e->stop, &slots);
    for (uint32_t d = 0; d < transport->n_devices; d++)
        e->theirs[d] = e->row_bytes[d] == 0 ? NULL : slots[d].mine;
    return STATUS_OK;
}

static enum status all_to_all(struct transport *transport, uint32_t rank, struct exchange *e, struct error *error)
{
    enum status status = all_gather(transport, rank, e, error);
    for (uint32_t d = 0; d < transport->n_devices; d++)
        if (e->theirs[d] != NULL)
            e->theirs[d] += e->rows[rank].begin * e->row_bytes[d];
    return status;
}

static enum status broadcast(struct transport *transport, uint32_t rank, uint32_t root, void *bytes, size_t size,
                             struct error *error)
{
    (void)error;
    struct slot *slots;
    meet((struct threads_transport *)transport, rank, bytes, false, &slots);
    if (rank != root)
        memcpy(bytes, slots[root].mine, size);
    meet((struct threads_transport *)transport, rank, bytes, false, &slots);
    return STATUS_OK;
}

static enum status barrier(struct transport *transport, uint32_t rank, bool *stop, struct error *error)
{
    (void)error;
    struct slot *slots;
    *stop = meet((struct threads_transport *)transport, rank, NULL, *stop, &slots);
    return STATUS_OK;
}

static void destroy(struct transport *transport)
{
    free(transport);
}

static const struct transport_ops ops = {"threads", all_gather, all_to_all, broadcast, barrier, destroy};

enum status transport_threads_create(uint32_t n_devices, bool overcommitted, struct transport **transport,
                                     struct error *error)
{
    (void)overcommitted;
    (void)error;
    struct threads_transport *t = aligned_alloc(64, (sizeof(*t) + 63) / 64 * 64);
    memset(t, 0, sizeof(*t));
    t->base.ops = &ops;
    t->base.n_devices = n_devices;
    *transport = &t->base;
    return STATUS_OK;
}

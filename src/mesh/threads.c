// A transport between threads of one process: a device looks at what the others give where it lies.
//
// Every call is one meeting of all devices. Each has a cache line that it alone writes: the number of meetings it came
// to, and what it gives. To meet, a device writes that and waits for the numbers of the others; so what passes between
// two devices is one line each way, and the devices do not wait in turn for a line that all write. What a device gives
// has two places, used in turn: it writes one again when all have come to the meeting between, behind their reading.
#include "mesh/mesh.h"

#include "base/event.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

struct seat {
    alignas(2 * CACHE_LINE) struct event meetings; // it came to; not beside another's: CPUs fetch lines in pairs
    const void *gives[2];
    bool stop[2];
    _Atomic uint64_t left; // its last meeting + 1, where it left a run early; else 0
};

struct threads_transport {
    struct transport base;
    bool overcommitted;
    struct seat seats[MAX_DEVICES];
};

// Waits until device d is there; false: it left before.
static bool await(struct threads_transport *t, uint32_t d, uint32_t meeting)
{
    struct seat *seat = &t->seats[d];
    uint64_t left = atomic_load_explicit(&seat->left, memory_order_acquire);
    if (left == 0) { // its number is then the last meeting's, this one's or the next one's
        event_wait(&seat->meetings, meeting - 1, t->overcommitted);
        left = atomic_load_explicit(&seat->left, memory_order_acquire);
    }
    return left == 0 || (int32_t)((uint32_t)(left - 1) - meeting) >= 0;
}

// *turn: which of its two places each device uses. *stop: whether any device wants the run to end.
static enum status meet(struct threads_transport *t, uint32_t rank, const void *gives, bool *stop, uint32_t *turn,
                        struct error *error)
{
    struct seat *own = &t->seats[rank];
    uint32_t meeting = atomic_load_explicit(&own->meetings.value, memory_order_relaxed) + 1;
    *turn = meeting & 1;
    own->gives[*turn] = gives;
    own->stop[*turn] = *stop;
    event_change(&own->meetings);
    for (uint32_t i = 1; i < t->base.n_devices; i++) {
        uint32_t d = (rank + i) % t->base.n_devices; // not all look at the same line first
        if (!await(t, d, meeting))
            return error_set(error, STATUS_CANCELLED, "device %u left the run", d);
        *stop = *stop || t->seats[d].stop[*turn];
    }
    return STATUS_OK;
}

static enum status threads_all_gather(struct transport *transport, uint32_t rank, struct exchange *exchange,
                                      struct error *error)
{
    struct threads_transport *t = (struct threads_transport *)transport;
    uint32_t turn;
    enum status status = meet(t, rank, exchange->mine, &exchange->stop, &turn, error);
    for (uint32_t d = 0; status == STATUS_OK && d < transport->n_devices; d++)
        exchange->theirs[d] = exchange->row_bytes[d] == 0 ? NULL : t->seats[d].gives[turn];
    return status;
}

static enum status threads_all_to_all(struct transport *transport, uint32_t rank, struct exchange *exchange,
                                      struct error *error)
{
    enum status status = threads_all_gather(transport, rank, exchange, error);
    for (uint32_t d = 0; status == STATUS_OK && d < transport->n_devices; d++)
        if (exchange->theirs[d] != NULL)
            exchange->theirs[d] += exchange->rows[rank].begin * exchange->row_bytes[d];
    return status;
}

static enum status threads_barrier(struct transport *transport, uint32_t rank, bool *stop, struct error *error)
{
    uint32_t turn;
    return meet((struct threads_transport *)transport, rank, NULL, stop, &turn, error);
}

// A second meeting, since the root may use its bytes again at once.
static enum status threads_broadcast(struct transport *transport, uint32_t rank, uint32_t root, void *bytes,
                                     size_t size, struct error *error)
{
    struct threads_transport *t = (struct threads_transport *)transport;
    uint32_t turn;
    bool stop = false;
    enum status status = meet(t, rank, bytes, &stop, &turn, error);
    if (status != STATUS_OK)
        return status;
    if (rank != root && size != 0)
        memcpy(bytes, t->seats[root].gives[turn], size);
    return threads_barrier(transport, rank, &stop, error);
}

static void threads_leave(struct transport *transport, uint32_t rank)
{
    struct seat *seat = &((struct threads_transport *)transport)->seats[rank];
    uint32_t meetings = atomic_load_explicit(&seat->meetings.value, memory_order_relaxed);
    atomic_store_explicit(&seat->left, (uint64_t)meetings + 1, memory_order_release);
    event_change(&seat->meetings); // whoever waits sees it
}

static void threads_rejoin(struct transport *transport)
{
    struct threads_transport *t = (struct threads_transport *)transport;
    for (uint32_t d = 0; d < transport->n_devices; d++) {
        atomic_store_explicit(&t->seats[d].left, 0, memory_order_relaxed);
        atomic_store_explicit(&t->seats[d].meetings.value, 0, memory_order_relaxed);
    }
}

static void threads_destroy(struct transport *transport)
{
    struct threads_transport *t = (struct threads_transport *)transport;
    for (uint32_t d = 0; d < transport->n_devices; d++)
        event_destroy(&t->seats[d].meetings);
    free(t);
}

static const struct transport_ops ops = {
    .name = "threads",
    .all_gather = threads_all_gather,
    .all_to_all = threads_all_to_all,
    .broadcast = threads_broadcast,
    .barrier = threads_barrier,
    .leave = threads_leave,
    .rejoin = threads_rejoin,
    .destroy = threads_destroy,
};

enum status transport_threads_create(uint32_t n_devices, bool overcommitted, struct transport **transport,
                                     struct error *error)
{
    if (n_devices == 0 || n_devices > MAX_DEVICES)
        return error_set(error, STATUS_INVALID, "%u devices: a mesh has 1 to %d", n_devices, MAX_DEVICES);
    struct threads_transport *t = aligned_alloc(alignof(struct threads_transport), sizeof(*t));
    if (t == NULL)
        return error_memory(error, "the mesh");
    *t = (struct threads_transport){.base = {.ops = &ops}, .overcommitted = overcommitted};
    bool good = true;
    for (; good && t->base.n_devices < n_devices; t->base.n_devices += good)
        good = event_init(&t->seats[t->base.n_devices].meetings);
    if (!good) {
        threads_destroy(&t->base);
        return error_memory(error, "the mesh");
    }
    *transport = &t->base;
    return STATUS_OK;
}

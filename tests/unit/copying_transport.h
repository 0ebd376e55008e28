// A transport that copies what devices give, as one between processes does, into the memory that plans have for it; it
// copies over the transport of threads. Include it once, after mesh/mesh.h and cmocka.h.
#ifndef MOTE_TESTS_COPYING_TRANSPORT_H
#define MOTE_TESTS_COPYING_TRANSPORT_H

#include "mesh/mesh.h"

#include <stdlib.h>
#include <string.h>

struct copying_transport {
    struct transport base;
    struct transport *inner;
};

// What came to this device goes where it has memory for it. first: rows before them in what theirs points to.
static enum status copying_receive(struct copying_transport *t, uint32_t rank, struct exchange *exchange,
                                   const struct row_range *rows, struct error *error)
{
    uint8_t *to = exchange->receive;
    bool receives = exchange->root < 0 || (uint32_t)exchange->root == rank;
    for (uint32_t d = 0; d < t->base.n_devices; d++) {
        size_t bytes = exchange->row_bytes[d] * (rows[d].end - rows[d].begin);
        if (!receives || exchange->theirs[d] == NULL || bytes == 0) {
            exchange->theirs[d] = NULL;
            continue;
        }
        if (d == rank)
            continue;
        if (to == NULL || (uintptr_t)to % 64 != 0)
            return error_set(error, STATUS_INVALID, "device %u has no memory for what device %u gives", rank, d);
        memcpy(to, exchange->theirs[d], bytes);
        exchange->theirs[d] = to;
        to += exchange_align(bytes);
    }
    bool stop = false; // all have copied before anyone goes on
    return t->inner->ops->barrier(t->inner, rank, &stop, error);
}

static enum status copying_all_gather(struct transport *transport, uint32_t rank, struct exchange *exchange,
                                      struct error *error)
{
    struct copying_transport *t = (struct copying_transport *)transport;
    enum status status = t->inner->ops->all_gather(t->inner, rank, exchange, error);
    return status == STATUS_OK ? copying_receive(t, rank, exchange, exchange->rows, error) : status;
}

static enum status copying_all_to_all(struct transport *transport, uint32_t rank, struct exchange *exchange,
                                      struct error *error)
{
    struct copying_transport *t = (struct copying_transport *)transport;
    struct row_range rows[MAX_DEVICES];
    enum status status = t->inner->ops->all_to_all(t->inner, rank, exchange, error);
    for (uint32_t d = 0; d < MAX_DEVICES; d++)
        rows[d] = exchange->rows[rank];
    return status == STATUS_OK ? copying_receive(t, rank, exchange, rows, error) : status;
}

static enum status copying_broadcast(struct transport *transport, uint32_t rank, uint32_t root, void *bytes,
                                     size_t size, struct error *error)
{
    struct transport *inner = ((struct copying_transport *)transport)->inner;
    return inner->ops->broadcast(inner, rank, root, bytes, size, error);
}

static enum status copying_barrier(struct transport *transport, uint32_t rank, bool *stop, struct error *error)
{
    struct transport *inner = ((struct copying_transport *)transport)->inner;
    return inner->ops->barrier(inner, rank, stop, error);
}

static void copying_leave(struct transport *transport, uint32_t rank)
{
    struct transport *inner = ((struct copying_transport *)transport)->inner;
    inner->ops->leave(inner, rank);
}

static void copying_rejoin(struct transport *transport)
{
    struct transport *inner = ((struct copying_transport *)transport)->inner;
    inner->ops->rejoin(inner);
}

static void copying_destroy(struct transport *transport)
{
    struct copying_transport *t = (struct copying_transport *)transport;
    t->inner->ops->destroy(t->inner);
    free(t);
}

static enum status transport_copying_create(uint32_t n_devices, struct transport **transport, struct error *error)
{
    static const struct transport_ops ops = {
        .name = "copying",
        .all_gather = copying_all_gather,
        .all_to_all = copying_all_to_all,
        .broadcast = copying_broadcast,
        .barrier = copying_barrier,
        .leave = copying_leave,
        .rejoin = copying_rejoin,
        .destroy = copying_destroy,
    };
    struct copying_transport *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return error_memory(error, "the mesh");
    t->base = (struct transport){.ops = &ops, .n_devices = n_devices, .copies = true};
    enum status status = transport_threads_create(n_devices, true, &t->inner, error);
    if (status != STATUS_OK) {
        free(t);
        return status;
    }
    *transport = &t->base;
    return STATUS_OK;
}

#endif

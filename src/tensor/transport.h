// What devices of a mesh say to each other: one interface of four calls, made by threads of one process or by processes
// (src/mesh). A device's plan calls it between its steps and adds what came in the tree's order itself, so that no
// transport can change a bit.
//
// Every device makes the same calls in the same order, with the same sizes. One thread of a device calls. A call
// returns when what the others give is there. What they gave may be read until this device's next call; what a device
// gives must stay as it is until its next call has returned.
#ifndef MOTE_TENSOR_TRANSPORT_H
#define MOTE_TENSOR_TRANSPORT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_DEVICES = 8 }; // sums over K are cut into eighths

struct transport;

struct row_range {
    size_t begin, end;
};

// Rows that devices exchange.
struct exchange {
    const void *mine;                   // what this device gives; NULL where its rows have no bytes
    size_t row_bytes[MAX_DEVICES];      // of a row of each device's; 0: it gives nothing
    struct row_range rows[MAX_DEVICES]; // see the calls
    int root;                           // all_gather: the only device that receives; -1: all do
    uint8_t *receive; // exchange_receive_bytes of memory, aligned to 64; NULL where the transport does not copy
    const uint8_t *theirs[MAX_DEVICES]; // out; its own too; NULL where a device gives nothing
    bool stop; // in: this device wants the run to end; out, the same on all devices: whether any does
};

struct transport_ops {
    const char *name;
    // Device d gives its rows rows[d] (mine points to the first of them), and all receive: theirs[d].
    enum status (*all_gather)(struct transport *transport, uint32_t rank, struct exchange *exchange,
                              struct error *error);
    // Device s gives each device d rows[d] of its rows (mine points to its row 0). theirs[s] gets rows[rank] of device
    // s. With a sum of them, and an all_gather of the sums, this is the other way to make an all-reduce.
    enum status (*all_to_all)(struct transport *transport, uint32_t rank, struct exchange *exchange,
                              struct error *error);
    // root's bytes to everyone.
    enum status (*broadcast)(struct transport *transport, uint32_t rank, uint32_t root, void *bytes, size_t size,
                             struct error *error);
    // *stop as in struct exchange.
    enum status (*barrier)(struct transport *transport, uint32_t rank, bool *stop, struct error *error);
    // A device that leaves a run before the others says so: those that wait for it, or will, get STATUS_CANCELLED from
    // their calls. `rejoin` makes all of them devices again; none may be in a call. Both NULL: a device that fails is
    // found out by the transport.
    void (*leave)(struct transport *transport, uint32_t rank);
    void (*rejoin)(struct transport *transport);
    void (*destroy)(struct transport *transport);
};

struct transport {
    const struct transport_ops *ops;
    uint32_t n_devices;
    bool copies;          // needs exchange.receive
    size_t scatter_bytes; // of an all-gather, from which all_to_all and all_gather of sums are faster
};

static inline size_t exchange_align(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

// Where a transport that copies puts what it receives, in the order of the devices, its own left out.
static inline size_t exchange_receive_bytes(uint32_t n_devices, uint32_t rank, const size_t *row_bytes, size_t n_rows)
{
    size_t bytes = 0;
    for (uint32_t d = 0; d < n_devices; d++)
        bytes += d == rank ? 0 : exchange_align(row_bytes[d] * n_rows);
    return bytes;
}

#endif

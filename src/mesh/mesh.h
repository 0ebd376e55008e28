// A mesh: a device made of devices that looks like one. Each of them runs the same graph over its part of the heads,
// hidden units and vocabulary rows (shard.h says how), and they meet where a value is needed whole.
#ifndef MOTE_MESH_MESH_H
#define MOTE_MESH_MESH_H

#include "tensor/device.h"

#include <string.h>

struct hwloc_bitmap_s;

// Which eighths of every sum over K a device has: device d those in [eighth[d], eighth[d + 1]).
struct mesh_split {
    uint32_t n_devices;
    uint8_t eighth[MAX_DEVICES + 1];
};

static inline bool mesh_split_equal(const struct mesh_split *a, const struct mesh_split *b)
{
    return a->n_devices == b->n_devices && memcmp(a->eighth, b->eighth, a->n_devices + 1) == 0;
}

// As even as eighths can be. n_devices: 1 … MAX_DEVICES.
struct mesh_split mesh_split_even(uint32_t n_devices);
// By shares of any scale (50,25,25), rounded to eighths: *rounded says whether they were not eighths already. Shares
// must be finite, not negative, and not all zero; a device may be left with nothing.
enum status mesh_split_by_shares(const double *shares, size_t n, struct mesh_split *split, bool *rounded,
                                 struct error *error);

struct mesh_params {
    struct mesh_split split;
    struct transport *transport; // the mesh's from here on, whatever happens
    struct device *const *local; // the devices of this process, ranks first_rank …; the mesh's from here on too
    uint32_t n_local, first_rank;
    // [n_local]: the CPUs of each device's thread 0; NULL: any. See struct pool_params.
    const struct hwloc_bitmap_s *const *cpus;
    bool overcommitted; // more threads than CPUs
};
enum status mesh_create(const struct mesh_params *params, struct device **mesh, struct error *error);

// threads.c: a transport between n_devices threads of this process. overcommitted: there are more threads than CPUs, so
// waiting threads sleep at once.
enum status transport_threads_create(uint32_t n_devices, bool overcommitted, struct transport **transport,
                                     struct error *error);

#endif

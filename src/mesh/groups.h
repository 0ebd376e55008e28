// Which CPUs each device of a mesh within this machine gets.
//
// Whole cores, in the order in which hwloc numbers them, are cut into one run a device, as long as its share of the
// work: so a device's cores are as near to each other as can be, and two devices never have a core's two hyperthreads.
// Of cores of several kinds the fastest are taken first, and each kind is cut by itself, so that all devices get the
// same mix. A thread is confined to its core where its device has one for each, else to its device's cores. Where there
// are more threads than CPUs, or fewer cores than devices, nothing is confined.
//
// Memory is bound to the NUMA nodes of a device by who touches it first: its own threads pack its weights and are the
// first to write its values and KV pages.
#ifndef MOTE_MESH_GROUPS_H
#define MOTE_MESH_GROUPS_H

#include "mesh/mesh.h"

struct hwloc_topology;
struct hwloc_bitmap_s;

struct groups_params {
    struct mesh_split split; // how many devices, and of which shares
    bool numa;               // whole NUMA nodes instead of shares of the cores
    size_t n_threads;        // of all devices together; each has one at least
    size_t quota;            // CPUs' worth of time that there is, whatever the topology says
};

struct group {
    size_t n_threads;
    struct hwloc_bitmap_s *cpus;  // all that its threads may run on; NULL: any
    struct hwloc_bitmap_s *nodes; // the NUMA nodes that these belong to
    // [n_threads]; NULL: any
    const struct hwloc_bitmap_s **thread_cpus;
};

struct groups {
    uint32_t n;
    struct group groups[MAX_DEVICES];
    bool overcommitted; // more threads than CPUs
};

// topology: loaded; NULL: unknown. allowed: the CPUs that may be used.
enum status groups_choose(struct hwloc_topology *topology, const struct hwloc_bitmap_s *allowed,
                          const struct groups_params *params, struct groups *groups, struct error *error);
// NUMA nodes that have CPUs of their own among the allowed ones; at least 1.
size_t groups_numa_nodes(struct hwloc_topology *topology, const struct hwloc_bitmap_s *allowed);
void groups_free(struct groups *groups);
// Where a group's threads run, in words: "CPUs 0-3 of NUMA node 0".
void group_describe(const struct group *group, char *text, size_t size);

// The same of this machine and the CPUs that this thread may use; params->quota is filled in.
enum status groups_choose_here(const struct groups_params *params, struct groups *groups, struct error *error);
size_t groups_numa_nodes_here(void);

#endif

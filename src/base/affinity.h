// Which CPUs a thread may run on.
#ifndef MOTE_BASE_AFFINITY_H
#define MOTE_BASE_AFFINITY_H

#include <stdbool.h>
#include <stddef.h>

struct hwloc_bitmap_s;
struct affinity; // a set of CPUs as the system's calls take it

// A copy of cpus; NULL: the calling thread's own. NULL where there is no memory, or no such call on this system. Free
// with free().
struct affinity *affinity_create(const struct hwloc_bitmap_s *cpus);

// Of the calling thread. False where the system refuses.
bool affinity_get(struct affinity *cpus);
bool affinity_set(const struct affinity *cpus);

size_t affinity_count(const struct affinity *cpus);
// Adds the CPUs to the bitmap; false: out of memory.
bool affinity_read(const struct affinity *cpus, struct hwloc_bitmap_s *bitmap);

#endif

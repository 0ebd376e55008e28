// By the system's own calls: hwloc's need a topology, which takes milliseconds to find out.
#include "base/affinity.h"

#include <stdlib.h>

#ifdef __linux__

#include <hwloc.h>
#include <sched.h>

enum { FEWEST_CPUS = 1024, MOST_CPUS = 1 << 20 }; // that a mask has room for

struct affinity {
    size_t size;
    cpu_set_t set[]; // of size bytes
};

static struct affinity *allocate(int capacity)
{
    size_t size = CPU_ALLOC_SIZE((size_t)capacity);
    struct affinity *affinity = calloc(1, sizeof(*affinity) + size);
    if (affinity)
        affinity->size = size;
    return affinity;
}

static struct affinity *copy(const struct hwloc_bitmap_s *cpus)
{
    int last = hwloc_bitmap_last(cpus), cpu;
    if (last < 0 || last >= MOST_CPUS)
        return NULL;
    struct affinity *affinity = allocate(last < FEWEST_CPUS ? FEWEST_CPUS : last + 1);
    if (!affinity)
        return NULL;
    hwloc_bitmap_foreach_begin(cpu, cpus) CPU_SET_S((size_t)cpu, affinity->size, affinity->set);
    hwloc_bitmap_foreach_end();
    return affinity;
}

struct affinity *affinity_create(const struct hwloc_bitmap_s *cpus)
{
    if (cpus)
        return copy(cpus);
    for (int capacity = FEWEST_CPUS; capacity <= MOST_CPUS;
         capacity *= 4) { // the kernel refuses one smaller than its own
        struct affinity *affinity = allocate(capacity);
        if (affinity && affinity_get(affinity))
            return affinity;
        free(affinity);
    }
    return NULL;
}

bool affinity_get(struct affinity *cpus)
{
    return sched_getaffinity(0, cpus->size, cpus->set) == 0;
}

bool affinity_set(const struct affinity *cpus)
{
    return sched_setaffinity(0, cpus->size, cpus->set) == 0;
}

size_t affinity_count(const struct affinity *cpus)
{
    return (size_t)CPU_COUNT_S(cpus->size, cpus->set);
}

bool affinity_read(const struct affinity *cpus, struct hwloc_bitmap_s *bitmap)
{
    for (size_t cpu = 0; cpu < cpus->size * 8; cpu++)
        if (CPU_ISSET_S(cpu, cpus->size, cpus->set) && hwloc_bitmap_set(bitmap, (unsigned)cpu) != 0)
            return false;
    return true;
}

#else

struct affinity *affinity_create(const struct hwloc_bitmap_s *cpus)
{
    (void)cpus;
    return NULL;
}

bool affinity_get(struct affinity *cpus)
{
    (void)cpus;
    return false;
}

bool affinity_set(const struct affinity *cpus)
{
    (void)cpus;
    return false;
}

size_t affinity_count(const struct affinity *cpus)
{
    (void)cpus;
    return 0;
}

bool affinity_read(const struct affinity *cpus, struct hwloc_bitmap_s *bitmap)
{
    (void)cpus;
    (void)bitmap;
    return false;
}

#endif

// A pool of threads that run one function together: thread 0 is the caller. Each takes a fixed share of the
// work by its index, so which thread computes what is known in advance. Idle threads sleep (after a short spin).
#ifndef MOTE_BASE_THREADS_H
#define MOTE_BASE_THREADS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct hwloc_bitmap_s;
struct pool;

struct pool_params {
    size_t n_threads;   // ≥ 1, the caller included
    bool overcommitted; // other threads need the CPUs too, so that waiting ones sleep at once; a pool sees for itself
                        // where it alone has more threads than CPUs
    // The CPUs that threads may run on; NULL: any. They are copied; what the system refuses is left as it is.
    const struct hwloc_bitmap_s *const *worker_cpus; // [n_threads - 1]
    const struct hwloc_bitmap_s *caller_cpus;        // for the time of a run; then it has its own again
};

// Workers block all signals and set the floating-point environment of base/fpenv.h.
enum status pool_create(const struct pool_params *params, struct pool **pool, struct error *error);
void pool_destroy(struct pool *pool);
size_t pool_n_threads(const struct pool *pool);

// Runs function(user, index, n_threads) on all threads and returns when all are done.
void pool_run(struct pool *pool, void (*function)(void *user, size_t index, size_t n_threads), void *user);

// Inside function: returns when all threads of the pool have called it. Spins briefly, then sleeps.
void pool_barrier(struct pool *pool);

// The share [*begin, *end) of n items that thread `index` of `n_threads` takes: sizes differ by at most one.
static inline void pool_share(size_t n, size_t index, size_t n_threads, size_t *begin, size_t *end)
{
    *begin = n * index / n_threads;
    *end = n * (index + 1) / n_threads;
}

// Threads that this process may use at once: CPUs in its affinity mask, cut by the cgroup's quota; physical cores where
// known.
size_t threads_available(void);
// CPUs in this thread's affinity mask.
size_t cpus_allowed(void);
// CPUs' worth of time that the cgroup allows, at least 1; SIZE_MAX: no limit.
size_t cpus_quota(void);

#endif

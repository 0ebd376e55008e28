// The thread pool. Two events carry all synchronisation: `run` counts the runs (idle workers wait for it to
// change) and `phase` counts the barriers (threads wait for it to change). A run ends with a barrier.
#include "base/threads.h"

#include "base/affinity.h"
#include "base/event.h"
#include "base/fpenv.h"

#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

enum { MOST_THREADS = 1024 };

struct worker {
    struct pool *pool;
    size_t index;
    pthread_t thread;
    struct affinity *cpus; // NULL: any
};

struct pool {
    alignas(CACHE_LINE) struct event run;
    alignas(CACHE_LINE) struct event phase;
    alignas(CACHE_LINE) _Atomic uint32_t arrived; // threads at the barrier of the current phase
    alignas(CACHE_LINE) void (*function)(void *user, size_t index, size_t n_threads); // NULL: workers leave
    void *user;
    size_t n_threads;
    bool overcommitted;
    struct worker *workers;                       // [n_threads - 1]
    struct affinity *caller_cpus, *caller_before; // of thread 0, in a run and outside it; NULL: as it is
};

void pool_barrier(struct pool *pool)
{
    if (pool->n_threads == 1)
        return;
    uint32_t phase = atomic_load_explicit(&pool->phase.value, memory_order_acquire);
    if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) + 1 < pool->n_threads) {
        event_wait(&pool->phase, phase, pool->overcommitted);
        return;
    }
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed); // nobody arrives before the phase changes
    event_change(&pool->phase);
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct pool *pool = worker->pool;
    fpenv_enter();
    if (worker->cpus)
        (void)affinity_set(worker->cpus);
    for (uint32_t run = 0;; run++) {
        event_wait(&pool->run, run, pool->overcommitted);
        if (!pool->function)
            return NULL;
        pool->function(pool->user, worker->index, pool->n_threads);
        pool_barrier(pool);
    }
}

static void run_all(struct pool *pool, void (*function)(void *user, size_t index, size_t n_threads), void *user)
{
    if (pool->n_threads == 1) {
        function(user, 0, 1);
        return;
    }
    pool->function = function;
    pool->user = user;
    event_change(&pool->run);
    function(user, 0, pool->n_threads);
    pool_barrier(pool);
}

void pool_run(struct pool *pool, void (*function)(void *user, size_t index, size_t n_threads), void *user)
{
    bool moved = pool->caller_cpus && affinity_get(pool->caller_before) && affinity_set(pool->caller_cpus);
    run_all(pool, function, user);
    if (moved)
        (void)affinity_set(pool->caller_before);
}

size_t pool_n_threads(const struct pool *pool)
{
    return pool->n_threads;
}

// Ends the first n workers.
static void end_workers(struct pool *pool, size_t n)
{
    if (n == 0)
        return;
    pool->function = NULL;
    event_change(&pool->run);
    for (size_t i = 0; i < n; i++)
        pthread_join(pool->workers[i].thread, NULL);
}

static void free_pool(struct pool *pool)
{
    for (size_t i = 0; pool->workers && i < pool->n_threads - 1; i++)
        free(pool->workers[i].cpus);
    free(pool->caller_cpus);
    free(pool->caller_before);
    event_destroy(&pool->run);
    event_destroy(&pool->phase);
    free(pool->workers);
    free(pool);
}

// Workers get no signal: a program's handlers run on its own threads.
static enum status start_workers(struct pool *pool, struct error *error)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    size_t started = 0;
    int number = 0;
    for (; started < pool->n_threads - 1; started++) {
        struct worker *worker = &pool->workers[started];
        worker->pool = pool;
        worker->index = started + 1;
        number = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (number != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (number == 0)
        return STATUS_OK;
    end_workers(pool, started);
    return error_system(error, number, "cannot start thread %zu of %zu", started + 2, pool->n_threads);
}

static enum status copy_cpus(struct pool *pool, const struct pool_params *params, struct error *error)
{
    bool good = true;
    for (size_t i = 0; i < pool->n_threads - 1 && params->worker_cpus && good; i++) {
        if (params->worker_cpus[i])
            good = (pool->workers[i].cpus = affinity_create(params->worker_cpus[i])) != NULL;
    }
    if (params->caller_cpus) {
        pool->caller_cpus = affinity_create(params->caller_cpus);
        pool->caller_before = affinity_create(NULL);
        good = good && pool->caller_cpus && pool->caller_before;
    }
    return good ? STATUS_OK : error_memory(error, "a thread pool");
}

static struct pool *allocate_pool(void)
{
    struct pool *pool = aligned_alloc(alignof(struct pool), sizeof *pool);
    if (!pool)
        return NULL;
    *pool = (struct pool){0};
    atomic_init(&pool->arrived, 0);
    if (event_init(&pool->run)) {
        if (event_init(&pool->phase))
            return pool;
        event_destroy(&pool->run);
    }
    free(pool);
    return NULL;
}

enum status pool_create(const struct pool_params *params, struct pool **result, struct error *error)
{
    size_t n = params->n_threads;
    *result = NULL;
    if (n == 0 || n > MOST_THREADS)
        return error_set(error, STATUS_INVALID, "%zu threads: give a number from 1 to %d", n, MOST_THREADS);
    struct pool *pool = allocate_pool();
    if (!pool)
        return error_memory(error, "a thread pool");
    pool->n_threads = n;
    pool->overcommitted = params->overcommitted || n > cpus_allowed();
    enum status status = STATUS_OK;
    if (n > 1) {
        pool->workers = calloc(n - 1, sizeof *pool->workers);
        status = pool->workers ? STATUS_OK : error_memory(error, "a thread pool");
    }
    if (status == STATUS_OK)
        status = copy_cpus(pool, params, error);
    if (status == STATUS_OK && n > 1)
        status = start_workers(pool, error);
    if (status != STATUS_OK) {
        free_pool(pool);
        return status;
    }
    *result = pool;
    return STATUS_OK;
}

void pool_destroy(struct pool *pool)
{
    if (!pool)
        return;
    end_workers(pool, pool->n_threads - 1);
    free_pool(pool);
}

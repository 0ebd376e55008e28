// The thread pool. Two words carry all synchronisation: `run` counts the runs (idle workers wait for it to
// change) and `phase` counts the barriers (threads wait for it to change). A run ends with a barrier.
// A waiter spins briefly, since in decoding all threads arrive within microseconds; then it sleeps in the
// kernel. Whoever changes a word wakes sleepers only where there are any, so the common case makes no call.
#include "base/threads.h"

#include "base/fpenv.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

enum {
    CACHE_LINE = 64,
    MOST_THREADS = 1024,
    SPIN_NANOSECONDS = 40000,     // about what a sleep and a wake-up cost
    SPIN_PIECE = 64,              // looks between two readings of the clock
    SPIN_LOOKS_OVERCOMMITTED = 64 // more threads than CPUs: whoever is waited for may need this CPU
};

// A counter that threads wait on. On its own cache line, as all threads look at it.
struct event {
    alignas(CACHE_LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
#ifndef __linux__
    pthread_mutex_t mutex;
    pthread_cond_t changed;
#endif
};

struct worker {
    struct pool *pool;
    size_t index;
    pthread_t thread;
};

struct pool {
    struct event run;
    struct event phase;
    alignas(CACHE_LINE) _Atomic uint32_t arrived; // threads at the barrier of the current phase
    alignas(CACHE_LINE) void (*function)(void *user, size_t index, size_t n_threads); // NULL: workers leave
    void *user;
    size_t n_threads;
    bool overcommitted;
    struct worker *workers; // [n_threads - 1]
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); // "yield" takes no time on most cores
#endif
}

static uint64_t nanoseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#ifdef __linux__

static bool event_init(struct event *event)
{
    atomic_init(&event->value, 0);
    atomic_init(&event->sleepers, 0);
    return true;
}

static void event_destroy(struct event *event)
{
    (void)event;
}

static void event_sleep(struct event *event, uint32_t old)
{
    // Between this increment and the look at value in the kernel, and between event_change's two accesses, order
    // is total (seq_cst): either the waker sees the sleeper, or the kernel sees the new value.
    atomic_fetch_add(&event->sleepers, 1);
    while (atomic_load(&event->value) == old)
        syscall(SYS_futex, &event->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&event->sleepers, 1);
}

static void event_change(struct event *event)
{
    atomic_fetch_add(&event->value, 1);
    if (atomic_load(&event->sleepers))
        syscall(SYS_futex, &event->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

#else

static bool event_init(struct event *event)
{
    atomic_init(&event->value, 0);
    atomic_init(&event->sleepers, 0);
    if (pthread_mutex_init(&event->mutex, NULL) != 0)
        return false;
    if (pthread_cond_init(&event->changed, NULL) == 0)
        return true;
    pthread_mutex_destroy(&event->mutex);
    return false;
}

static void event_destroy(struct event *event)
{
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->mutex);
}

static void event_sleep(struct event *event, uint32_t old)
{
    pthread_mutex_lock(&event->mutex);
    atomic_fetch_add(&event->sleepers, 1);
    while (atomic_load(&event->value) == old)
        pthread_cond_wait(&event->changed, &event->mutex);
    atomic_fetch_sub(&event->sleepers, 1);
    pthread_mutex_unlock(&event->mutex);
}

static void event_change(struct event *event)
{
    atomic_fetch_add(&event->value, 1);
    if (atomic_load(&event->sleepers)) {
        pthread_mutex_lock(&event->mutex);
        pthread_cond_broadcast(&event->changed);
        pthread_mutex_unlock(&event->mutex);
    }
}

#endif

static bool event_changed(struct event *event, uint32_t old)
{
    return atomic_load_explicit(&event->value, memory_order_acquire) != old;
}

// Returns once the value of event is not `old`.
static void event_wait(struct event *event, uint32_t old, bool overcommitted)
{
    if (overcommitted) {
        for (int look = 0; look < SPIN_LOOKS_OVERCOMMITTED; look++) {
            if (event_changed(event, old))
                return;
            pause_briefly();
        }
        event_sleep(event, old);
        return;
    }
    uint64_t start = 0;
    for (;;) {
        for (int look = 0; look < SPIN_PIECE; look++) {
            if (event_changed(event, old))
                return;
            pause_briefly();
        }
        uint64_t now = nanoseconds_now();
        if (start == 0)
            start = now;
        if (now - start > SPIN_NANOSECONDS)
            break;
    }
    event_sleep(event, old);
}

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
    for (uint32_t run = 0;; run++) {
        event_wait(&pool->run, run, pool->overcommitted);
        if (!pool->function)
            return NULL;
        pool->function(pool->user, worker->index, pool->n_threads);
        pool_barrier(pool);
    }
}

void pool_run(struct pool *pool, void (*function)(void *user, size_t index, size_t n_threads), void *user)
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
        *worker = (struct worker){.pool = pool, .index = started + 1};
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

static size_t count_cpus(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (size_t)CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (size_t)n : 1;
}

enum status pool_create(size_t n_threads, struct pool **result, struct error *error)
{
    *result = NULL;
    if (n_threads == 0 || n_threads > MOST_THREADS)
        return error_set(error, STATUS_INVALID, "%zu threads: give a number from 1 to %d", n_threads, MOST_THREADS);
    struct pool *pool = aligned_alloc(alignof(struct pool), sizeof *pool);
    if (!pool)
        return error_memory(error, "a thread pool");
    *pool = (struct pool){.n_threads = n_threads, .overcommitted = n_threads > count_cpus()};
    atomic_init(&pool->arrived, 0);
    if (!event_init(&pool->run)) {
        free(pool);
        return error_memory(error, "a thread pool");
    }
    if (!event_init(&pool->phase)) {
        event_destroy(&pool->run);
        free(pool);
        return error_memory(error, "a thread pool");
    }
    enum status status = STATUS_OK;
    if (n_threads > 1) {
        pool->workers = calloc(n_threads - 1, sizeof *pool->workers);
        status = pool->workers ? start_workers(pool, error) : error_memory(error, "a thread pool");
    }
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

#include "base/event.h"

#include <limits.h>
#include <stddef.h>
#include <time.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum {
    SPIN_NANOSECONDS = 40000,     // about what a sleep and a wake-up cost
    SPIN_PIECE = 64,              // looks between two readings of the clock
    SPIN_LOOKS_OVERCOMMITTED = 64 // before sleeping
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

bool event_init(struct event *event)
{
    atomic_init(&event->value, 0);
    atomic_init(&event->sleepers, 0);
    return true;
}

void event_destroy(struct event *event)
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

void event_change(struct event *event)
{
    atomic_fetch_add(&event->value, 1);
    if (atomic_load(&event->sleepers))
        syscall(SYS_futex, &event->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

#else

bool event_init(struct event *event)
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

void event_destroy(struct event *event)
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

void event_change(struct event *event)
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

void event_wait(struct event *event, uint32_t old, bool overcommitted)
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

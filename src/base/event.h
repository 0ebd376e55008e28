// A counter that threads wait on: what pools and the mesh's transport meet by. A waiter spins briefly, since mostly
// all threads arrive within microseconds; then it sleeps in the kernel. Whoever changes the counter wakes sleepers
// only where there are any, so the common case makes no call.
#ifndef MOTE_BASE_EVENT_H
#define MOTE_BASE_EVENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef __linux__
#include <pthread.h>
#endif

enum { CACHE_LINE = 64 };

// All waiters look at it: its user gives it a cache line, and puts beside it only what is read after a change.
struct event {
    _Atomic uint32_t value; // begins at 0
    _Atomic uint32_t sleepers;
#ifndef __linux__
    pthread_mutex_t mutex;
    pthread_cond_t changed;
#endif
};

// False: out of memory.
bool event_init(struct event *event);
void event_destroy(struct event *event);

// Adds 1 to the value. What the caller wrote before is seen by those who see the change.
void event_change(struct event *event);
// Returns once the value is not `old`. overcommitted: there are more threads than CPUs, so whoever is waited for may
// need this one: it sleeps almost at once.
void event_wait(struct event *event, uint32_t old, bool overcommitted);

#endif

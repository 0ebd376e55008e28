#include "signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

// A handler has no other way to learn of things: the only mutable globals of the program.
static volatile sig_atomic_t caught;
static mote_engine *_Atomic engines[2];

static void handle(int number)
{
    caught = number;
    for (size_t i = 0; i < sizeof engines / sizeof engines[0]; i++) {
        mote_engine *engine = atomic_load(&engines[i]);
        if (engine) {
            mote_engine_cancel(engine);
        }
    }
}

void signals_install(void)
{
    struct sigaction ignored_now;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        // A shell starts background jobs with SIGINT ignored: that is left so. No SA_RESTART: a read that waits for
        // the user returns.
        struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESETHAND};
        if (sigaction(numbers[i], NULL, &ignored_now) == 0 && ignored_now.sa_handler != SIG_IGN) {
            sigaction(numbers[i], &action, NULL);
        }
    }
    // A file that becomes too large (ulimit -f) is a failed write, which is said and leaves no half of a file.
    signal(SIGXFSZ, SIG_IGN);
}

bool signals_caught(void)
{
    return caught != 0;
}

int signals_exit_code(void)
{
    return 128 + caught;
}

void signals_cancel_engine(size_t slot, mote_engine *engine)
{
    atomic_store(&engines[slot], engine);
}

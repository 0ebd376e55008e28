// Ctrl-C, SIGTERM and SIGHUP: the first one asks what is going on to stop, so that files are left whole; the second one
// ends the program at once.
#ifndef MOTE_CLI_SIGNALS_H
#define MOTE_CLI_SIGNALS_H

#include "mote.h"

#include <stdbool.h>

void signals_install(void);
bool signals_caught(void);
// 128 + the signal that was caught.
int signals_exit_code(void);
// The engines whose runs a signal cancels; at most two, NULL: none.
void signals_cancel_engine(size_t slot, mote_engine *engine);

#endif

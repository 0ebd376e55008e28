// What all commands that compute have in common: their options, opening a model and making an engine, with progress and
// Ctrl-C.
#ifndef MOTE_CLI_COMPUTE_H
#define MOTE_CLI_COMPUTE_H

#include "mote.h"
#include "options.h"

#include <stdbool.h>
#include <stdint.h>

struct compute_options {
    int64_t threads; // 0: as many as this process may use
    int64_t context; // -1: not given; 0: what the model was trained for
    int64_t batch;   // 0: the library's default
    const char *precision, *kv, *kv_keys, *kv_values, *pre;
    int64_t devices;      // 0: one; -1: one a NUMA node
    struct numbers split; // the devices' shares
    struct adapters lora;
    bool force, verbose;
};

// In tables whose values are a struct that holds a struct compute_options: COMPUTE_OPTIONS(struct run_options,
// compute).
#define COMPUTE_OPTIONS(type, member)                                                                                  \
    {                                                                                                                  \
        .kind = OPTION_TABLE, .table = compute_options_table, .offset = offsetof(type, member)                         \
    }
extern const struct option compute_options_table[];
// The same without -t, which a command takes in its own way.
extern const struct option compute_options_but_threads[];
// The same without the options of precisions and of the cache's dtype.
extern const struct option compute_options_but_precision[];
extern const struct compute_options compute_options_default;

struct progress { // a line on a terminal that is written over; nothing elsewhere
    const char *label;
    bool live, shown;
    double started, drawn; // seconds
};
void progress_begin(struct progress *progress, const char *label);
// mote_progress_fn; user is a struct progress. Non-zero where a signal was caught.
int progress_update(void *user, uint64_t done, uint64_t total);
// The same with words of the command behind the bar.
void progress_show(struct progress *progress, double share, const char *words);
void progress_end(struct progress *progress);

struct compute {              // a model with an engine
    struct progress progress; // the engine's parameters point here
    mote_model *model;
    mote_engine_params params;
    mote_engine *engine;
    double load_seconds;
};

// The other processes that a launcher started with this one, which engines then run on; NULL: none. Fails where they
// cannot be met. Only rank 0 goes on with its command; *serve: this is another one, and serves it.
mote_status compute_join_ranks(bool *serve, mote_error *error);
mote_status compute_serve_ranks(mote_error *error);
void compute_leave_ranks(bool good);

// Whether someone reads what goes beside the answer: -v, or standard error is a terminal.
bool compute_talks(const struct compute_options *options);
mote_status compute_open_model(const char *path, const struct compute_options *options, mote_model **model,
                               mote_error *error);
// Fills *params from options and MOTE_ISA. n_context is 0 where -c is not given.
mote_status compute_params(const mote_model *model, const struct compute_options *options, mote_engine_params *params,
                           mote_error *error);
// Opens the model and fills params: compute->params may then be changed before compute_load.
mote_status compute_open(struct compute *compute, const char *path, const struct compute_options *options,
                         mote_error *error);
// Makes the engine.
mote_status compute_load(struct compute *compute, mote_error *error);
// Frees all; a struct of zeros is allowed.
void compute_close(struct compute *compute);

double seconds_now(void); // of a clock that only goes forward

#endif

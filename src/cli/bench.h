// One measurement of mote bench, and the forms in which it is printed.
#ifndef MOTE_CLI_BENCH_H
#define MOTE_CLI_BENCH_H

#include "mote.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON };

enum bench_bound { BOUND_COMPUTE, BOUND_MEMORY }; // what limits a measurement on this machine

struct bench_result {
    const char *model; // path
    const char *isa, *precision, *kv;
    double model_bytes, parameters;
    size_t n_threads, n_batch;
    size_t n_prompt, n_generated, n_depth; // one of the first two is 0
    size_t repetitions;
    const double *seconds;  // [repetitions]
    double mean, deviation; // tokens a second
    size_t n_devices;
    double collectives, collectives_share; // a token, and of the time
    double limit;                          // tokens a second that this machine could reach
    enum bench_bound bound;
};

const char *bench_bound_name(enum bench_bound bound);
void bench_print_begin(enum bench_format format);
// first: no result was printed before it.
void bench_print(enum bench_format format, const struct bench_result *result, bool first);
void bench_print_end(enum bench_format format);
// n_threads 0: all there are.
void bench_print_machine(enum bench_format format, const mote_machine *machine, size_t n_threads);

#endif

// checkkernels: every table of kernels against the C reference, bit for bit, on random and worst-case inputs, with
// guard bytes around every output; and their times. Needs base, tensor and cpu only, so that it runs under qemu.
#ifndef MOTE_TESTS_CHECKKERNELS_CHECK_H
#define MOTE_TESTS_CHECKKERNELS_CHECK_H

#include "cpu/kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One table under test, and how it fares.
struct check {
    const struct kernels *reference;
    const struct kernels *tested;
    const char *table;  // its name in messages
    const char *filter; // NULL: all kernels
    bool bench;         // time instead of compare
    size_t bench_bytes; // packed weights that a product's bench walks through
    uint64_t stride;    // of the exhaustive comparison: 1 is all
    uint64_t digest;    // of all that the reference gave, NaN canonical
    uint64_t random;    // state of the generator
    char kernel[64];    // what is being checked
    char context[160];  // the case
    size_t n_checks;
    size_t n_failures;
};

// ---- random numbers and inputs ----
uint64_t check_random(struct check *check);
size_t check_random_below(struct check *check, size_t n);
float check_random_normal(struct check *check); // roughly N(0, 1)

enum input {
    INPUT_NORMAL,    // N(0, 1) with some outliers
    INPUT_SMALL,     // subnormal and barely normal
    INPUT_HUGE,      // up to 3e38
    INPUT_ZERO,      // 0 and -0
    INPUT_SPREAD,    // every exponent
    INPUT_HALF_EDGE, // around what fits in F16
    INPUT_SPECIAL,   // N(0, 1) with inf and NaN
    INPUT_COUNT,
};
extern const char *const input_names[INPUT_COUNT];
void check_fill(struct check *check, enum input input, float *x, size_t n);

// ---- memory with guards ----
struct guarded {
    uint8_t *memory;
    uint8_t *data; // 64-byte aligned, plus `offset` bytes
    size_t size;
};
// Filled with a pattern, guards on both sides. Exits where memory ran out.
struct guarded guarded_make(size_t size, size_t offset);
float *guarded_floats(struct guarded *guarded, size_t n, size_t offset);
void guarded_free(struct guarded *guarded);
// The next byte pattern in all of the data, so that two runs begin alike.
void guarded_reset(struct guarded *guarded);

// ---- comparisons: each counts one check, and prints the first difference ----
void check_floats(struct check *check, const char *what, const float *expected, const float *got, size_t n);
void check_bytes(struct check *check, const char *what, const void *expected, const void *got, size_t size);
void check_guards(struct check *check, const struct guarded *guarded);
void check_fail(struct check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Begins a kernel: false where the filter excludes it or the table lacks it (which is a failure).
bool check_begin(struct check *check, bool present, const char *format, ...) __attribute__((format(printf, 3, 4)));
void check_case(struct check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- times ----
// Calls function(user) again and again; prints the best time a call, and with bytes or operations of a call the rates.
void check_bench(struct check *check, void (*function)(void *user), void *user, double bytes, double operations);

// ---- the groups ----
void check_sources(struct check *check);
void check_products(struct check *check);
void check_rows(struct check *check);
void check_routes(struct check *check); // and pooling
void check_attention(struct check *check);
void check_exhaustive(struct check *check); // instead of the others

#endif

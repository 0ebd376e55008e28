// Arithmetic that says when it overflows: for every size that comes from a file or a request.
#ifndef MOTE_BASE_CHECKED_H
#define MOTE_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static inline bool checked_mul_size(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

// The least multiple of `unit` (a power of two) at or above value; the caller knows that it fits.
static inline size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

#endif

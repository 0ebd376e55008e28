// Loops that do nothing but keep one unit of the CPU busy: their rates are the limits that figures are compared with.
#ifndef MOTE_CPU_LIMITS_H
#define MOTE_CPU_LIMITS_H

#include <stddef.h>
#include <stdint.h>

struct limits {
    const char *isa;
    // n rounds of integer dot products, or F32 multiply-adds, in registers, from accumulators that all differ.
    // Returns how many operations that was (two a product and sum); *sink keeps the compiler from dropping them.
    double (*spin_int8)(size_t n, uint64_t *sink);
    double (*spin_f32)(size_t n, uint64_t *sink);
    // Reads size bytes (a multiple of 512, 64-byte aligned).
    void (*read)(const uint8_t *bytes, size_t size, uint64_t *sink);
};

extern const struct limits limits_neon; // where the build has the NEON kernels

// The loops of an instruction set by the name of its kernels.
const struct limits *limits_of(const char *isa);

#endif

// The floating-point environment of docs/numerics.md: round to nearest even, subnormals kept.
#ifndef MOTE_BASE_FPENV_H
#define MOTE_BASE_FPENV_H

#include <stdint.h>

#if defined(__FAST_MATH__)
#error "mote's arithmetic is exact by contract: build without -ffast-math"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "mote needs FLT_EVAL_METHOD 0 (on x86: SSE2 arithmetic)"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "mote runs on little-endian machines only"
#endif

struct fpenv {
    uint64_t control; // MXCSR or FPCR
};

// Sets the contract's environment for this thread and returns what was there.
struct fpenv fpenv_enter(void);
void fpenv_leave(struct fpenv saved);

#endif

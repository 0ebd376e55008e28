// The control register of floating-point arithmetic, per architecture. Exceptions stay masked; flags start clear.
#include "base/fpenv.h"

#if defined(__x86_64__) || defined(__SSE2__)

#include <xmmintrin.h>

enum { MXCSR_CONTRACT = 0x1f80 }; // all exceptions masked, to nearest even, FTZ and DAZ off

struct fpenv fpenv_enter(void)
{
    struct fpenv saved = {_mm_getcsr()};
    _mm_setcsr(MXCSR_CONTRACT);
    return saved;
}

void fpenv_leave(struct fpenv saved)
{
    _mm_setcsr((unsigned)saved.control);
}

#elif defined(__aarch64__)

struct fpenv fpenv_enter(void)
{
    struct fpenv saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved.control)::"memory");
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0) : "memory"); // to nearest even, FZ and AH off
    return saved;
}

void fpenv_leave(struct fpenv saved)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(saved.control) : "memory");
}

#else

#include <fenv.h>

struct fpenv fpenv_enter(void)
{
    struct fpenv saved = {(uint64_t)fegetround()};
    fesetround(FE_TONEAREST);
    return saved;
}

void fpenv_leave(struct fpenv saved)
{
    fesetround((int)saved.control);
}

#endif

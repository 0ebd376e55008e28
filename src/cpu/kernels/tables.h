// The tables as their own libraries define them, for kernels/select.c, which knows what the CPU has. Constants, so that
// no code built for an instruction set runs before the CPU was asked.
#ifndef MOTE_CPU_KERNELS_TABLES_H
#define MOTE_CPU_KERNELS_TABLES_H

#include "cpu/kernels/kernels.h"

extern const struct kernels kernels_table_c_base;
extern const struct kernels kernels_table_c_fma; // x86: the same source, built with -mfma
extern const struct kernels kernels_table_avx2;
extern const struct kernels kernels_table_avx512;
extern const struct kernels kernels_table_neon;

#endif

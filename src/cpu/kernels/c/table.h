// The C kernels' own declarations. The sources are built once or twice, with C_VARIANT naming the build; C_NAME makes
// their symbols distinct.
#ifndef MOTE_CPU_KERNELS_C_TABLE_H
#define MOTE_CPU_KERNELS_C_TABLE_H

#include "cpu/kernels/kernels.h"

#define C_PASTE2(name, variant) name##_##variant
#define C_PASTE(name, variant) C_PASTE2(name, variant)
#define C_NAME(name) C_PASTE(name, C_VARIANT)

#endif

// The table of the C kernels: the reference.
#include "cpu/kernels/c/table.h"
#include "cpu/kernels/tables.h"

const struct kernels C_NAME(kernels_table_c) = {
    .name = "c",
};

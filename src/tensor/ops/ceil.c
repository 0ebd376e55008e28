// ceil: rounding upwards.
#include "tensor/op.h"

const struct op_desc op_ceil = {
    .op = OP_CEIL,
    .name = "ceil",
    .doc = "x [n, rows] -> [n, rows]: the least integer not below x",
    .n_sources = 1,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_elementwise,
};

// abs: the magnitude.
#include "tensor/op.h"

const struct op_desc op_abs = {
    .op = OP_ABS,
    .name = "abs",
    .doc = "x [n, rows] -> [n, rows]: |x|",
    .n_sources = 1,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_elementwise,
};

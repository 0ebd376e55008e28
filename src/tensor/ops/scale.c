// scale: x times a constant.
#include "tensor/op.h"

const struct op_desc op_scale = {
    .op = OP_SCALE,
    .name = "scale",
    .doc = "x [n, rows] -> [n, rows]: x * factor",
    .n_sources = 1,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_elementwise,
};

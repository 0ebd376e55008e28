// clamp: x within two bounds; NaN stays.
#include "tensor/op.h"

const struct op_desc op_clamp = {
    .op = OP_CLAMP,
    .name = "clamp",
    .doc = "x [n, rows] -> [n, rows]: min(max(x, low), high)",
    .n_sources = 1,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_elementwise,
};

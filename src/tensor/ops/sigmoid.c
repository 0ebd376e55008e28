// sigmoid: 1 / (1 + exp(-x)).
#include "tensor/op.h"

const struct op_desc op_sigmoid = {
    .op = OP_SIGMOID,
    .name = "sigmoid",
    .doc = "x [n, rows] -> [n, rows]: 1 / (1 + exp(-x))",
    .n_sources = 1,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_transcendental,
};

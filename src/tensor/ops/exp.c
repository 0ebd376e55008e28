// exp: e to the x, by our own polynomial.
#include "tensor/op.h"

const struct op_desc op_exp = {
    .op = OP_EXP,
    .name = "exp",
    .doc = "x [n, rows] -> [n, rows]: exp(x)",
    .n_sources = 1,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_transcendental,
};

// log: the natural logarithm, by our own polynomial.
#include "tensor/op.h"

const struct op_desc op_log = {
    .op = OP_LOG,
    .name = "log",
    .doc = "x [n, rows] -> [n, rows]: ln(x)",
    .n_sources = 1,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_transcendental,
};

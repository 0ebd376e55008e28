// div: elementwise quotient.
#include "tensor/op.h"

const struct op_desc op_div = {
    .op = OP_DIV,
    .name = "div",
    .doc = "a [n, rows], b [n, rows] -> [n, rows]: a / b",
    .n_sources = 2,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_elementwise,
};

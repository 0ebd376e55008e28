// add: a + b, element by element; b may be a weight of one row.
#include "tensor/op.h"

const struct op_desc op_add = {
    .op = OP_ADD,
    .name = "add",
    .doc = "a [n, rows], b [n, rows] or [n] -> [n, rows]: a + b",
    .n_sources = 2,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_elementwise,
};

// glu: a gated linear unit, activation(gate) · up. Source: Shazeer, GLU Variants Improve Transformer, 2020.
#include "tensor/op.h"

const struct op_desc op_glu = {
    .op = OP_GLU,
    .name = "glu",
    .doc = "gate [n, rows], up [n, rows] -> [n, rows]: activation(gate) * up",
    .n_sources = 2,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = op_cost_transcendental,
};

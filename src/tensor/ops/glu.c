// glu: a gated linear unit, activation(gate) · up. Source: Shazeer, GLU Variants Improve Transformer, 2020.
#include "tensor/op.h"

static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    cost->f32_ops = 16.0 * (double)node->result->ne[0] * (double)n_rows; // the exponential's polynomial
}

const struct op_desc op_glu = {
    .op = OP_GLU,
    .name = "glu",
    .doc = "gate [n, rows], up [n, rows] -> [n, rows]: activation(gate) * up",
    .n_sources = 2,
    .infer = op_infer_same,
    .place = op_place_elementwise,
    .cost = cost,
};

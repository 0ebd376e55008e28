// position_scale: a factor that grows with the position: attention's temperature beyond the trained length.
// Source: the definition of Mistral 3 and Llama 4 in Hugging Face transformers (llama_4_scaling_beta, attn_scale).
#include "tensor/op.h"

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    if (node->attributes.temperature_length == 0)
        return error_set(error, STATUS_INVALID, "position_scale: the length is 0");
    return op_infer_same(node, result, error);
}

const struct op_desc op_position_scale = {
    .op = OP_POSITION_SCALE,
    .name = "position_scale",
    .doc = "x [n, rows] -> [n, rows]: x * (1 + scale * ln(1 + floor(position / length)))",
    .n_sources = 1,
    .infer = infer,
    .place = op_place_elementwise,
    .cost = op_cost_elementwise,
};

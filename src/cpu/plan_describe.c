// A plan as JSON: what each step does, of what, with which kernel.
#include "cpu/plan.h"

#include "tensor/op.h"

static bool describe_ops(const struct plan *plan, const struct step *step, struct buffer *json)
{
    const char *comma = "";
    for (size_t i = 0; i < step->n_ops; i++, comma = ", ") {
        const struct micro_op *op = &step->ops[i];
        if (op->node != NULL)
            buffer_append_format(json, "%s\"%s\"", comma, op_get(op->node->op)->name);
        else
            buffer_append_format(json, "%s\"round to %s\"", comma, precision_name(plan->forms[op->form].precision));
    }
    for (uint32_t i = 0; i < step->n_products; i++, comma = ", ")
        buffer_append_format(json, "%s\"%s\"", comma, op_get(step->products[i].node->op)->name);
    if (step->glu != NULL)
        buffer_append_format(json, ", \"%s\"",
                             step->glu->attributes.activation == ACTIVATION_SILU ? "swiglu" : "geglu");
    if (step->out_form != NO_INDEX)
        buffer_append_text(json, ", \"round to q8\"");
    if (step->attention != NULL)
        buffer_append_format(json, "%s\"%s\"", comma, step->kind == STEP_HEADS ? "store" : "attention");
    return !json->failed;
}

static void describe_weights(const struct plan *plan, const struct step *step, struct buffer *json)
{
    double bytes = 0;
    buffer_append_text(json, ", \"weights\": [");
    for (uint32_t i = 0; i < step->n_products; i++) {
        const struct tensor *weight = plan->graph->weights[step->products[i].weight];
        const struct packed *packed = &plan->described.items[weight->index].packed;
        buffer_append_format(json, "%s{\"name\": \"%s\", \"dtype\": \"%s\", \"shape\": [%zu, %zu], \"segments\": %u}",
                             i == 0 ? "" : ", ", weight->name, dtype_get(weight->dtype)->name, weight->ne[0],
                             weight->ne[1], packed->segments.n);
        bytes += (double)(packed->n_panels * packed->panel_bytes);
    }
    const struct form *source = &plan->forms[step->source];
    buffer_append_format(json, "], \"source\": \"%s\", \"bytes\": %.0f", precision_name(source->precision), bytes);
}

bool cpu_plan_describe(const struct plan *plan, struct buffer *json)
{
    static const char *const kinds[] = {
        [STEP_ROWS] = "rows", [STEP_MATMUL] = "matmul", [STEP_HEADS] = "heads", [STEP_ATTENTION] = "attention"};
    buffer_append_text(json, "[");
    for (size_t i = 0; i < plan->n_steps; i++) {
        const struct step *step = &plan->steps[i];
        buffer_append_format(json,
                             "%s{\"step\": %zu, \"kind\": \"%s\", \"rows\": \"%s\", \"kernels\": \"%s\", \"ops\": [",
                             i == 0 ? "" : ", ", i, kinds[step->kind], step->rows == ROWS_LOGITS ? "logits" : "batch",
                             plan->device->kernels->name);
        describe_ops(plan, step, json);
        buffer_append_text(json, "]");
        if (step->kind == STEP_MATMUL)
            describe_weights(plan, step, json);
        buffer_append_text(json, "}");
    }
    return buffer_append_text(json, "]");
}

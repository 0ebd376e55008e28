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
    for (uint32_t i = 0; i < step->n_hiddens; i++, comma = ", ")
        buffer_append_format(json, "%s\"%s\"", comma, step->route != NULL ? "mul_mat_id" : "matmul");
    for (uint32_t i = 0; i < step->n_products; i++, comma = ", ") {
        buffer_append_format(json, "%s\"%s\"", comma, op_get(step->products[i].node->op)->name);
        if (step->products[i].hidden != NO_INDEX || step->products[i].shared_hidden != NO_INDEX)
            buffer_append_text(json, ", \"lora\"");
        if (step->products[i].bias != NULL)
            buffer_append_text(json, ", \"add_id\"");
    }
    if (step->glu != NULL)
        buffer_append_format(json, ", \"%s\"", activation_name(step->glu->attributes.activation));
    if (step->out_form != NO_INDEX)
        buffer_append_format(json, ", \"round to %s\"", precision_name(plan->forms[step->out_form].precision));
    if (step->attention != NULL)
        buffer_append_format(json, "%s\"%s\"", comma, step->kind == STEP_HEADS ? "store" : "attention");
    return !json->failed;
}

// One weight with its segments; gives its packed bytes.
static double describe_weight(const struct weights *described, const struct tensor *weight, const char *comma,
                              struct buffer *json)
{
    const struct cpu_weight *item = &described->items[weight->index];
    buffer_append_format(json, "%s{\"name\": \"%s\", \"dtype\": \"%s\", \"shape\": [", comma, weight->name,
                         dtype_get(weight->dtype)->name);
    for (uint32_t i = 0; i < weight->n_dims; i++)
        buffer_append_format(json, "%s%zu", i == 0 ? "" : ", ", weight->ne[i]);
    buffer_append_format(json, "], \"segments\": %u}", item->packed.segments.n);
    return (double)(item->n * item->bytes);
}

static void describe_weights(const struct plan *plan, const struct step *step, struct buffer *json)
{
    double bytes = 0;
    buffer_append_text(json, ", \"weights\": [");
    for (uint32_t i = 0; i < step->n_products; i++)
        bytes +=
            describe_weight(&plan->described, plan->graph->weights[step->products[i].weight], i == 0 ? "" : ", ", json);
    if (step->shared_source != NO_INDEX)
        bytes += describe_weight(&plan->described, step->products[0].node->sources[4], ", ", json);
    buffer_append_format(json, "], \"source\": \"%s\"", precision_name(plan->forms[step->source].precision));
    if (step->shared_source != NO_INDEX)
        buffer_append_format(json, ", \"shared_source\": \"%s\"",
                             precision_name(plan->forms[step->shared_source].precision));
    buffer_append_format(json, ", \"bytes\": %.0f", bytes);
}

// The matrices of the adapters, the first or (where the terms are added) the second: their sources are F32 always.
static void describe_hiddens(const struct plan *plan, const struct step *step, struct buffer *json)
{
    double bytes = 0;
    const char *comma = "";
    buffer_append_text(json, ", \"weights\": [");
    for (uint32_t i = 0; i < step->n_hiddens; i++) {
        const struct lora *lora = plan->hiddens[step->first_hidden + i].node->attributes.lora;
        for (uint32_t t = 0; t < lora->n_terms; t++, comma = ", ")
            bytes +=
                describe_weight(&plan->described_adapters,
                                step->kind == STEP_LORA ? lora->terms[t].first : lora->terms[t].second, comma, json);
    }
    buffer_append_format(json, "], \"source\": \"%s\", \"bytes\": %.0f", precision_name(PRECISION_F32), bytes);
}

bool cpu_plan_describe(const struct plan *plan, struct buffer *json)
{
    static const char *const kinds[] = {
        [STEP_ROWS] = "rows",           [STEP_MATMUL] = "matmul",     [STEP_HEADS] = "heads",
        [STEP_ATTENTION] = "attention", [STEP_EXPERTS] = "experts",   [STEP_EXPERTS_SUM] = "experts_sum",
        [STEP_LORA] = "lora",           [STEP_LORA_ADD] = "lora_add", [STEP_EXCHANGE] = "exchange"};
    buffer_append_text(json, "[");
    for (size_t i = 0; i < plan->n_steps; i++) {
        const struct step *step = &plan->steps[i];
        buffer_append_format(json,
                             "%s{\"step\": %zu, \"kind\": \"%s\", \"rows\": \"%s\", \"kernels\": \"%s\", \"ops\": [",
                             i == 0 ? "" : ", ", i, kinds[step->kind],
                             step->rows == ROWS_LOGITS  ? "logits"
                             : step->rows == ROWS_PAIRS ? "pairs"
                                                        : "batch",
                             plan->device->kernels->name);
        describe_ops(plan, step, json);
        buffer_append_text(json, "]");
        if (step->n_products != 0)
            describe_weights(plan, step, json);
        if (step->n_hiddens != 0)
            describe_hiddens(plan, step, json);
        buffer_append_text(json, "}");
    }
    return buffer_append_text(json, "]");
}

// Adapters in a plan. What the second matrices take, A x, is made in a step of its own before the first product of x:
// for all products of x at once, by all threads. The second products and their sum are made where the product is, panel
// by panel, so they need no step, and a gated unit or a rounding behind the product stays where it is.
#include "cpu/plan.h"

#include "base/checked.h"

static size_t n_matrices(const struct node *node, const struct lora_term *term)
{
    return node->sources[2] != NULL ? 1 : term->first->ne[2]; // a pair has one expert
}

size_t cpu_lora_hidden_bytes(const struct node *node)
{
    const struct lora *lora = node->attributes.lora;
    size_t bytes = 0;
    for (uint32_t i = 0; i < lora->n_terms; i++)
        bytes += n_matrices(node, &lora->terms[i]) * f32_row_bytes(lora->terms[i].second->ne[0]);
    return bytes;
}

static enum status add_hidden(struct plan *plan, const struct node *node, struct error *error)
{
    const struct tensor *route = node->sources[2];
    if (!array_grow((void **)&plan->hiddens, &plan->hiddens_capacity, plan->n_hiddens + 1, sizeof(*plan->hiddens)))
        return error_memory(error, "the plan");
    uint32_t now = (uint32_t)plan->n_steps - 1;
    plan->hiddens[plan->n_hiddens++] =
        (struct hidden){.node = node,
                        .slot = {.rows = route != NULL ? ROWS_PAIRS : node->sources[1]->rows,
                                 .per_row = route != NULL ? route->producer->attributes.routing.n_used : 0,
                                 .row_bytes = cpu_lora_hidden_bytes(node),
                                 .first = now,
                                 .last = now,
                                 .used = true}};
    return STATUS_OK;
}

enum status cpu_plan_lora_hidden(struct plan *plan, const struct node *node, struct error *error)
{
    struct step *step = cpu_plan_add_step(plan, STEP_LORA, node->result->rows);
    if (step == NULL ||
        !array_grow((void **)&plan->hiddens, &plan->hiddens_capacity, plan->n_hiddens + 1, sizeof(*plan->hiddens)))
        return error_memory(error, "the plan");
    step->per_row = node->result->per_row;
    if (node->sources[1] != NULL) {
        enum status status = cpu_plan_measure_pairs(plan, &node->sources[1]->producer->attributes.routing, error);
        if (status != STATUS_OK)
            return status;
    }
    step->route = node->sources[1];
    step->first_hidden = (uint32_t)plan->n_hiddens;
    step->n_hiddens = 1;
    plan->hiddens[plan->n_hiddens++] = (struct hidden){
        .node = node, .value = node->result, .slot = {.rows = node->result->rows, .per_row = node->result->per_row}};
    cpu_plan_use_value(plan, node->sources[0]);
    cpu_plan_use_value(plan, node->sources[1]);
    cpu_plan_make_value(plan, node->result, false);
    return STATUS_OK;
}

enum status cpu_plan_lora_add(struct plan *plan, const struct node *node, struct error *error)
{
    const struct tensor *value = node->sources[4];
    struct step *step = cpu_plan_add_step(plan, STEP_LORA_ADD, node->result->rows);
    if (step == NULL ||
        !array_grow((void **)&plan->hiddens, &plan->hiddens_capacity, plan->n_hiddens + 1, sizeof(*plan->hiddens)))
        return error_memory(error, "the plan");
    step->per_row = node->result->per_row;
    if (node->sources[2] != NULL) {
        enum status status = cpu_plan_measure_pairs(plan, &node->sources[2]->producer->attributes.routing, error);
        if (status != STATUS_OK)
            return status;
    }
    step->route = node->sources[2];
    step->first_hidden = (uint32_t)plan->n_hiddens;
    step->n_hiddens = 1;
    plan->hiddens[plan->n_hiddens++] =
        (struct hidden){.node = node, .value = value, .slot = {.rows = value->rows, .per_row = value->per_row}};
    for (uint32_t i = 0; i < node->n_sources; i++)
        cpu_plan_use_value(plan, node->sources[i]);
    cpu_plan_make_value(plan, node->result, false);
    return STATUS_OK;
}

static bool is_of(const struct node *node, const struct tensor *x, const struct tensor *route)
{
    return node->op == OP_LORA && node->sources[1] == x && x != NULL && node->sources[2] == route;
}

enum status cpu_plan_hiddens(struct plan *plan, const struct tensor *x, const struct tensor *route, struct error *error)
{
    for (size_t i = 0; i < plan->n_hiddens; i++) {
        if (is_of(plan->hiddens[i].node, x, route))
            return STATUS_OK;
    }
    struct step *step = NULL;
    for (size_t i = plan->next_node; i < plan->graph->n_nodes; i++) {
        const struct node *node = plan->graph->nodes[i];
        if (!is_of(node, x, route))
            continue;
        if (step == NULL) {
            step = cpu_plan_add_step(plan, STEP_LORA, route != NULL ? ROWS_PAIRS : x->rows);
            if (step == NULL)
                return error_memory(error, "the plan");
            step->per_row = route != NULL ? route->producer->attributes.routing.n_used : 0;
            step->route = route;
            step->first_hidden = (uint32_t)plan->n_hiddens;
            cpu_plan_use_value(plan, x);
            cpu_plan_use_value(plan, route);
        }
        enum status status = add_hidden(plan, node, error);
        if (status != STATUS_OK)
            return status;
        step->n_hiddens++;
    }
    return STATUS_OK;
}

enum status cpu_plan_lora(struct plan *plan, const struct node *node, struct error *error)
{
    struct step *step = plan->n_steps == 0 ? NULL : &plan->steps[plan->n_steps - 1];
    struct product *product = NULL;
    for (uint32_t i = 0; step != NULL && i < step->n_products; i++) {
        if (step->products[i].result == node->sources[0])
            product = &step->products[i];
    }
    uint32_t hidden = 0;
    while (hidden < plan->n_hiddens && plan->hiddens[hidden].node != node)
        hidden++;
    if (product == NULL || hidden == plan->n_hiddens || node->sources[0]->n_uses != 1)
        return error_set(error, STATUS_INVALID, "lora: '%s' is not the product before it", node->sources[0]->name);
    bool shared = product->node->op == OP_MUL_MAT_ID_SUM && node->sources[2] == NULL;
    *(shared ? &product->shared_hidden : &product->hidden) = hidden;
    plan->slots[product->result->index].used = false;
    product->result = node->result;
    cpu_plan_make_value(plan, node->result, false);
    cpu_plan_use_slot(plan, &plan->hiddens[hidden].slot);
    cpu_plan_use_value(plan, node->sources[3]);
    return STATUS_OK;
}

// An unpacked panel, then either source rows of a first product or the second products and their sums.
void cpu_lora_measure(struct plan *plan)
{
    size_t panel = 0, rows = 2 * PART_ROWS * PANEL_ROWS * sizeof(float);
    for (size_t i = 0; i < plan->n_hiddens; i++) {
        const struct lora *lora = plan->hiddens[i].node->attributes.lora;
        for (uint32_t t = 0; t < lora->n_terms; t++) {
            const struct tensor *first = lora->terms[t].first, *second = lora->terms[t].second;
            size_t second_k = second == NULL ? 0 : second->ne[0]; // a hidden value has no second matrices
            panel = max_size(panel, cpu_panel_scratch(PRECISION_F32, max_size(first->ne[0], second_k)));
            rows =
                max_size(rows, PART_ROWS * (f32_row_bytes(first->ne[0]) + MAX_SEGMENTS * PANEL_ROWS * sizeof(float)));
            rows = max_size(rows, PART_ROWS * (2 * PANEL_ROWS * sizeof(float) + f32_row_bytes(second_k)));
        }
    }
    plan->lora_panel_bytes = panel;
    plan->lora_bytes = plan->n_hiddens == 0 ? 0 : panel + rows;
}

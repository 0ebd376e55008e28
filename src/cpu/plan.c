// From a graph to steps: one pass over the nodes, each appended to the step before it where that saves a barrier.
#include "cpu/plan.h"

#include "base/checked.h"
#include "tensor/op.h"

#include <stdlib.h>
#include <string.h>

size_t form_row_bytes(enum precision precision, size_t k)
{
    return precision == PRECISION_Q8 ? q8_row_bytes(k) : f32_row_bytes(k);
}

static enum status out_of_memory(struct error *error)
{
    return error_memory(error, "the plan");
}

static struct step *current_step(struct plan *plan)
{
    return plan->n_steps == 0 ? NULL : &plan->steps[plan->n_steps - 1];
}

// A new step at the end; NULL where memory ran out.
struct step *cpu_plan_add_step(struct plan *plan, enum step_kind kind, enum rows rows)
{
    if (!array_grow((void **)&plan->steps, &plan->steps_capacity, plan->n_steps + 1, sizeof(*plan->steps)))
        return NULL;
    struct step *step = &plan->steps[plan->n_steps++];
    *step =
        (struct step){.kind = kind, .rows = rows, .source = NO_INDEX, .shared_source = NO_INDEX, .out_form = NO_INDEX};
    return step;
}

// The current step where it has this kind and this value's rows, else a new one.
static struct step *step_of_kind(struct plan *plan, enum step_kind kind, const struct tensor *value)
{
    struct step *step = current_step(plan);
    if (step != NULL && step->kind == kind && step->rows == value->rows && step->per_row == value->per_row &&
        step->attention == NULL)
        return step;
    step = cpu_plan_add_step(plan, kind, value->rows);
    if (step != NULL)
        step->per_row = value->per_row;
    return step;
}

static bool add_op(struct step *step, const struct node *node, uint32_t form)
{
    if (!array_grow((void **)&step->ops, &step->ops_capacity, step->n_ops + 1, sizeof(*step->ops)))
        return false;
    step->ops[step->n_ops++] = (struct micro_op){.node = node, .form = form};
    return true;
}

void cpu_plan_use_slot(const struct plan *plan, struct slot *slot)
{
    slot->last = (uint32_t)plan->n_steps - 1;
}

void cpu_plan_use_value(struct plan *plan, const struct tensor *tensor)
{
    if (tensor != NULL && tensor->rows != ROWS_NONE)
        cpu_plan_use_slot(plan, &plan->slots[tensor->index]);
}

// Gives a value memory as a result of the current step.
void cpu_plan_make_value(struct plan *plan, const struct tensor *tensor, bool by_rows)
{
    uint32_t now = (uint32_t)plan->n_steps - 1;
    plan->slots[tensor->index] = (struct slot){.rows = tensor->rows,
                                               .per_row = tensor->per_row,
                                               .row_bytes = (tensor->n_parts > 1 ? tensor->n_parts : 1) *
                                                            round_up(tensor->ne[0], 16) * sizeof(float),
                                               .first = now,
                                               .last = now,
                                               .by_rows = by_rows,
                                               .used = true};
}

static bool is_head_op(const struct node *node)
{
    bool by_heads = node->op == OP_RMS_NORM || node->op == OP_POSITION_SCALE;
    return node->op == OP_ROPE || node->op == OP_CONCAT || (by_heads && node->attributes.head_dim != 0);
}

uint32_t head_op_n_heads(const struct node *node)
{
    size_t width = node->attributes.head_dim + (node->op == OP_CONCAT ? node->attributes.width : 0);
    return (uint32_t)(node->result->ne[0] / width);
}

// Whether unit by unit a value of n_heads heads is made by ops of this step as it is read: always the same share.
static bool made_by_unit(const struct step *step, const struct tensor *value, uint32_t n_heads)
{
    for (size_t i = 0; i < step->n_ops; i++)
        if (value != NULL && step->ops[i].node->result == value)
            return head_op_n_heads(step->ops[i].node) == n_heads;
    return true;
}

// As many units as the value of the most heads has, so that threads share the work of a single row too. No unit may
// need what another one of the same step makes (a head that all others take).
static uint32_t count_units(const struct step *step)
{
    uint32_t n_units = 1;
    if (step->attention != NULL) {
        n_units = step->attention->attributes.n_kv_head;
        if (!made_by_unit(step, step->attention->sources[1], n_units) ||
            !made_by_unit(step, step->attention->sources[2], n_units))
            return 1;
    }
    for (size_t i = 0; i < step->n_ops; i++) {
        const struct node *node = step->ops[i].node;
        uint32_t n_heads = head_op_n_heads(node);
        for (uint32_t s = 0; s < node->n_sources; s++)
            if (!made_by_unit(step, node->sources[s], n_heads))
                return 1;
        n_units = n_heads > n_units ? n_heads : n_units;
    }
    return n_units;
}

static enum status plan_row_op(struct plan *plan, const struct node *node, struct error *error)
{
    enum step_kind kind = is_head_op(node) ? STEP_HEADS : STEP_ROWS;
    struct step *step = step_of_kind(plan, kind, node->result);
    if (step == NULL || !add_op(step, node, NO_INDEX))
        return out_of_memory(error);
    for (uint32_t i = 0; i < node->n_sources; i++)
        cpu_plan_use_value(plan, node->sources[i]);
    cpu_plan_make_value(plan, node->result, kind == STEP_ROWS);
    return STATUS_OK;
}

// ---- what is done where a product is made ----

// A bias of experts is added to the product that the current step makes. NULL: to none.
static struct product *product_of_bias(struct plan *plan, const struct node *node)
{
    struct step *step = current_step(plan);
    if (node->op != OP_ADD_ID || step == NULL || step->kind != STEP_EXPERTS || step->glu != NULL ||
        node->sources[0]->n_uses != 1 || node->sources[2] != step->route)
        return NULL;
    for (uint32_t i = 0; i < step->n_products; i++) {
        if (step->products[i].result == node->sources[0])
            return &step->products[i];
    }
    return NULL;
}

static void plan_fused_bias(struct plan *plan, struct product *product, const struct node *node)
{
    plan->slots[product->result->index].used = false;
    product->bias = node;
    product->result = node->result;
    cpu_plan_make_value(plan, node->result, false);
}

// A gated unit of the products that the current step makes (of one, where gate and up are the same) is done there, a
// tile of outputs at a time.
static bool fuses_glu(struct plan *plan, const struct node *node)
{
    const struct step *step = current_step(plan);
    if (node->op != OP_GLU || step == NULL || (step->kind != STEP_MATMUL && step->kind != STEP_EXPERTS) ||
        step->glu != NULL)
        return false;
    const struct tensor *gate = node->sources[0], *up = node->sources[1];
    bool same = gate == up;
    if (step->n_products != (same ? 1 : 2) || step->products[0].result != gate || gate->n_uses != (same ? 2 : 1))
        return false;
    return same || (step->products[1].result == up && up->n_uses == 1);
}

static void plan_fused_glu(struct plan *plan, const struct node *node)
{
    struct step *step = current_step(plan);
    step->glu = node;
    plan->slots[node->sources[0]->index].used = false;
    plan->slots[node->sources[1]->index].used = false;
    cpu_plan_make_value(plan, node->result, false);
}

static bool same_segments(const struct segments *a, const struct segments *b)
{
    return a->n == b->n && a->grain == b->grain && memcmp(a->border, b->border, sizeof(a->border)) == 0;
}

// Whether the current step, which makes the value in tiles, can round it as well. Where there is a scale a segment the
// tiles are the segments, so there must be enough of them for the threads.
static bool fuses_form(const struct plan *plan, const struct step *step, const struct form *form)
{
    if (step == NULL || step->glu == NULL || step->glu->result != form->value || step->out_form != NO_INDEX ||
        form->n_parts != 1 || plan->params.observe) // a row is seen as a whole
        return false;
    if (form->precision != PRECISION_F16)
        return true;
    size_t n_threads = plan->device->n_threads, n_items = form->segments.n;
    if (step->kind == STEP_EXPERTS)
        n_items *= form->value->per_row;
    return n_items % n_threads == 0 || n_items >= 4 * n_threads;
}

// Adds the rounding of a value to the plan: in the gated unit that makes it, in the row step that made it, or in a row
// step of its own.
static enum status make_form(struct plan *plan, uint32_t index, struct error *error)
{
    struct form *form = &plan->forms[index];
    const struct slot *value = &plan->slots[form->value->index];
    struct step *step = current_step(plan);
    bool fused = fuses_form(plan, step, form);
    uint32_t made = (uint32_t)plan->n_steps - 1;
    if (fused) {
        step->out_form = index;
        if (form->value->n_uses == 1)
            plan->slots[form->value->index].used = false;
    } else if (value->by_rows && plan->steps[value->first].kind == STEP_ROWS) {
        made = value->first;
        if (!add_op(&plan->steps[made], NULL, index))
            return out_of_memory(error);
    } else {
        step = step_of_kind(plan, STEP_ROWS, form->value);
        if (step == NULL || !add_op(step, NULL, index))
            return out_of_memory(error);
        cpu_plan_use_value(plan, form->value);
        made = (uint32_t)plan->n_steps - 1;
    }
    form->slot = (struct slot){.rows = form->value->rows,
                               .per_row = form->value->per_row,
                               .row_bytes = form->n_parts * form_row_bytes(form->precision, form_k(form)),
                               .first = made,
                               .last = made,
                               .by_rows = !fused,
                               .used = true};
    return STATUS_OK;
}

// Whether a product gives the partial sum that it is asked for: one of the segments that its weight has.
static enum status check_leaves(const struct plan *plan, const struct node *node, struct error *error)
{
    struct leaves leaves = node->attributes.leaves;
    const struct tensor *weight = node->sources[0];
    uint32_t n_segments = plan->described.items[weight->index].packed.segments.n;
    if (leaves.n == 0 || (leaves.n <= MAX_SEGMENTS && leaves.first < leaves.end && leaves.end <= leaves.n &&
                          (uint32_t)leaves.end - leaves.first == n_segments))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID, "a partial sum of segments %u to %u of %u is asked of '%s', which has %u",
                     leaves.first, leaves.end, leaves.n, weight->name, n_segments);
}

// Whether there is a product of this weight with sources of this precision.
static enum status check_precision(const struct plan *plan, const struct tensor *weight, enum precision precision,
                                   struct error *error)
{
    const struct packed_format *format = plan->described.items[weight->index].packed.format;
    if (precision != PRECISION_Q8 || (format != NULL && format->scaling != SCALING_NONE))
        return STATUS_OK;
    return error_set(error, STATUS_UNSUPPORTED,
                     "the CPU has no product of %s weights with q8 sources, which '%s' is asked to take: use f32, bf16 "
                     "or f16 for it (--precision)",
                     dtype_get(weight->dtype)->name, weight->name);
}

// The form of `value`, of n_parts heads, that a weight with these segments takes; made where it is not there yet.
static enum status find_form(struct plan *plan, const struct tensor *value, enum precision precision, uint32_t n_parts,
                             const struct segments *segments, uint32_t *index, struct error *error)
{
    struct segments wanted = {0};
    if (precision == PRECISION_F16) // only there is a scale a segment
        wanted = *segments;
    for (size_t i = 0; i < plan->n_forms; i++) {
        const struct form *form = &plan->forms[i];
        if (form->value == value && form->precision == precision && form->n_parts == n_parts &&
            same_segments(&form->segments, &wanted)) {
            *index = (uint32_t)i;
            return STATUS_OK;
        }
    }
    if (!array_grow((void **)&plan->forms, &plan->forms_capacity, plan->n_forms + 1, sizeof(*plan->forms)))
        return out_of_memory(error);
    *index = (uint32_t)plan->n_forms++;
    plan->forms[*index] = (struct form){.value = value, .precision = precision, .n_parts = n_parts, .segments = wanted};
    return make_form(plan, *index, error);
}

static void add_product(struct plan *plan, struct step *step, const struct node *node)
{
    step->products[step->n_products++] = (struct product){.node = node,
                                                          .weight = node->sources[0]->index,
                                                          .hidden = NO_INDEX,
                                                          .shared_hidden = NO_INDEX,
                                                          .result = node->result};
    cpu_plan_make_value(plan, node->result, false);
}

// The form that source `x`, of n_parts heads, takes for a weight.
static enum status source_form(struct plan *plan, const struct tensor *weight, const struct tensor *x,
                               enum precision precision, uint32_t n_parts, uint32_t *source, struct error *error)
{
    enum status status = check_precision(plan, weight, precision, error);
    if (status != STATUS_OK)
        return status;
    return find_form(plan, x, precision, n_parts, &plan->described.items[weight->index].packed.segments, source, error);
}

// A product with one matrix, or (MATMUL_HEADS) with one a head.
static enum status plan_matmul(struct plan *plan, const struct node *node, struct error *error)
{
    uint32_t source = NO_INDEX, n_parts = node->op == OP_MATMUL_HEADS ? (uint32_t)node->sources[0]->ne[2] : 1;
    enum status status =
        source_form(plan, node->sources[0], node->sources[1], node->attributes.precision, n_parts, &source, error);
    if (status == STATUS_OK)
        status = check_leaves(plan, node, error);
    if (status == STATUS_OK)
        status = cpu_plan_hiddens(plan, node->sources[1], NULL, error);
    if (status != STATUS_OK)
        return status;
    struct step *step = current_step(plan);
    bool joins =
        step->kind == STEP_MATMUL && step->source == source && step->glu == NULL && step->n_products < MAX_PRODUCTS;
    if (!joins)
        step = cpu_plan_add_step(plan, STEP_MATMUL, node->result->rows);
    if (step == NULL)
        return out_of_memory(error);
    step->source = source;
    add_product(plan, step, node);
    cpu_plan_use_slot(plan, &plan->forms[source].slot);
    return STATUS_OK;
}

// Room for the tables of a route's pairs.
enum status cpu_plan_measure_pairs(struct plan *plan, const struct routing *routing, struct error *error)
{
    size_t n_pairs;
    if (!checked_mul_size(plan->params.n_rows, routing->n_used, &n_pairs) || n_pairs > UINT32_MAX / 2)
        return error_set(error, STATUS_INVALID,
                         "batches of %zu with %u experts a token are too large: use a smaller -b", plan->params.n_rows,
                         routing->n_used);
    plan->max_pairs = n_pairs > plan->max_pairs ? n_pairs : plan->max_pairs;
    plan->max_experts = routing->n_expert > plan->max_experts ? routing->n_expert : plan->max_experts;
    return STATUS_OK;
}

// Products of one source by one route are one step: of gate and up, which then may end in their gated unit.
static enum status plan_mul_mat_id(struct plan *plan, const struct node *node, struct error *error)
{
    const struct tensor *route = node->sources[2];
    uint32_t source = NO_INDEX;
    enum status status = cpu_plan_measure_pairs(plan, &route->producer->attributes.routing, error);
    if (status == STATUS_OK)
        status = source_form(plan, node->sources[0], node->sources[1], node->attributes.precision, 1, &source, error);
    if (status == STATUS_OK)
        status = cpu_plan_hiddens(plan, node->sources[1], route, error);
    if (status != STATUS_OK)
        return status;
    struct step *step = current_step(plan);
    bool joins = step->kind == STEP_EXPERTS && step->source == source && step->route == route && step->glu == NULL &&
                 step->n_products == 1 && step->products[0].bias == NULL &&
                 step->products[0].node->result->ne[0] == node->result->ne[0];
    if (!joins)
        step = cpu_plan_add_step(plan, STEP_EXPERTS, ROWS_PAIRS);
    if (step == NULL)
        return out_of_memory(error);
    step->per_row = node->result->per_row;
    step->source = source;
    step->route = route;
    add_product(plan, step, node);
    cpu_plan_use_slot(plan, &plan->forms[source].slot);
    cpu_plan_use_value(plan, route);
    return STATUS_OK;
}

static enum status plan_mul_mat_id_sum(struct plan *plan, const struct node *node, struct error *error)
{
    const struct tensor *shared = node->sources[4], *hidden = node->sources[5];
    uint32_t source = NO_INDEX, shared_source = NO_INDEX;
    enum status status = cpu_plan_measure_pairs(plan, &node->sources[2]->producer->attributes.routing, error);
    if (status == STATUS_OK)
        status = source_form(plan, node->sources[0], node->sources[1], node->attributes.precision, 1, &source, error);
    if (status == STATUS_OK)
        status = check_leaves(plan, node, error);
    if (status == STATUS_OK && shared != NULL)
        status = source_form(plan, shared, hidden, node->attributes.shared_precision, 1, &shared_source, error);
    if (status == STATUS_OK)
        status = cpu_plan_hiddens(plan, node->sources[1], node->sources[2], error);
    if (status == STATUS_OK && shared != NULL)
        status = cpu_plan_hiddens(plan, hidden, NULL, error);
    if (status != STATUS_OK)
        return status;
    struct step *step = cpu_plan_add_step(plan, STEP_EXPERTS_SUM, node->result->rows);
    if (step == NULL)
        return out_of_memory(error);
    step->source = source;
    step->shared_source = shared_source;
    step->route = node->sources[2];
    add_product(plan, step, node);
    cpu_plan_use_slot(plan, &plan->forms[source].slot);
    if (shared_source != NO_INDEX)
        cpu_plan_use_slot(plan, &plan->forms[shared_source].slot);
    cpu_plan_use_value(plan, node->sources[2]);
    cpu_plan_use_value(plan, node->sources[6]);
    return STATUS_OK;
}

static enum status plan_attention(struct plan *plan, const struct node *node, struct error *error)
{
    struct step *heads = step_of_kind(plan, STEP_HEADS, node->result);
    if (heads == NULL)
        return out_of_memory(error);
    heads->attention = node;
    cpu_plan_use_value(plan, node->sources[1]);
    cpu_plan_use_value(plan, node->sources[2]);
    struct step *step = cpu_plan_add_step(plan, STEP_ATTENTION, node->result->rows);
    if (step == NULL)
        return out_of_memory(error);
    step->attention = node;
    cpu_plan_use_value(plan, node->sources[0]);
    cpu_plan_make_value(plan, node->result, false);
    return STATUS_OK;
}

// A meeting, and the row op that puts together what came. Where only another device gets the value, there is no more
// than the meeting.
static enum status plan_collective(struct plan *plan, const struct node *node, struct error *error)
{
    const struct collective *c = node->attributes.collective;
    if (plan->params.transport == NULL && plan->weights != NULL)
        return error_set(error, STATUS_INVALID, "the graph is for a device of a mesh, but there is no transport");
    struct step *step = cpu_plan_add_step(plan, STEP_EXCHANGE, c->rows);
    if (step == NULL || !array_grow((void **)&plan->exchanges, &plan->exchanges_capacity, plan->n_exchanges + 1,
                                    sizeof(*plan->exchanges)))
        return out_of_memory(error);
    uint32_t index = (uint32_t)plan->n_exchanges++;
    step->per_row = c->per_row;
    step->exchange = index;
    cpu_exchange_describe(&plan->exchanges[index], node);
    cpu_plan_use_value(plan, node->sources[0]);
    if (c->root >= 0 && (uint32_t)c->root != plan->params.rank)
        return STATUS_OK;
    enum status status = plan_row_op(plan, node, error);
    plan->slots[node->result->index].exchange = index;
    return status;
}

// What a device gave, and where it added its share, is read by others until the exchange behind the next one begins.
static void keep_until_next_exchange(struct plan *plan)
{
    uint32_t next = (uint32_t)plan->n_steps - 1;
    for (size_t i = plan->n_steps; i-- > 0;) {
        const struct step *step = &plan->steps[i];
        if (step->kind != STEP_EXCHANGE)
            continue;
        const struct node *node = plan->exchanges[step->exchange].node;
        struct slot *result = &plan->slots[node->result->index];
        if (node->sources[0] != NULL && plan->slots[node->sources[0]->index].last < next)
            plan->slots[node->sources[0]->index].last = next;
        if (result->used && plan->params.transport != NULL && plan->params.transport->scatter_bytes != 0 &&
            result->last < next)
            result->last = next;
        if (!node->attributes.collective->adapters) // which may be left out
            next = (uint32_t)i;
    }
}

static enum status plan_node(struct plan *plan, const struct node *node, struct error *error)
{
    switch (node->op) {
    case OP_MATMUL:
    case OP_MATMUL_HEADS:
        return plan_matmul(plan, node, error);
    case OP_ATTENTION:
        return plan_attention(plan, node, error);
    case OP_MUL_MAT_ID:
        return plan_mul_mat_id(plan, node, error);
    case OP_MUL_MAT_ID_SUM:
        return plan_mul_mat_id_sum(plan, node, error);
    case OP_ALL_REDUCE:
    case OP_ALL_GATHER:
        return plan_collective(plan, node, error);
    case OP_LORA_HIDDEN:
        return cpu_plan_lora_hidden(plan, node, error);
    case OP_LORA:
        return node->sources[4] != NULL   ? cpu_plan_lora_add(plan, node, error)
               : node->sources[1] == NULL ? plan_row_op(plan, node, error)
                                          : cpu_plan_lora(plan, node, error);
    default:
        break;
    }
    struct product *product = product_of_bias(plan, node);
    if (product != NULL)
        plan_fused_bias(plan, product, node);
    else if (fuses_glu(plan, node))
        plan_fused_glu(plan, node);
    else
        return plan_row_op(plan, node, error);
    return STATUS_OK;
}

static enum status plan_steps(struct plan *plan, struct error *error)
{
    const struct graph *graph = plan->graph;
    while (plan->next_node < graph->n_nodes) {
        enum status status = plan_node(plan, graph->nodes[plan->next_node++], error);
        if (status != STATUS_OK)
            return status;
    }
    for (size_t i = 0; i < plan->n_steps; i++)
        plan->steps[i].n_units = plan->steps[i].kind == STEP_HEADS ? count_units(&plan->steps[i]) : 0;
    if (graph->output == NULL || graph->output->rows != ROWS_LOGITS)
        return error_set(error, STATUS_INVALID, "the graph has no logits");
    // A device of a mesh may have no selected row itself and only meet the others for them.
    while (plan->tail < plan->n_steps && plan->steps[plan->tail].rows != ROWS_LOGITS)
        plan->tail++;
    // What the tail reads of the batch must outlive all windows of the tail; the logits are read behind the last step.
    for (size_t i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i]->op == OP_SELECT_ROWS)
            plan->slots[graph->nodes[i]->sources[0]->index].last = (uint32_t)plan->n_steps - 1;
    }
    plan->slots[graph->output->index].last = (uint32_t)plan->n_steps - 1;
    keep_until_next_exchange(plan);
    return STATUS_OK;
}

enum status cpu_plan_create(struct device *device, const struct graph *graph, const struct weights *weights,
                            const struct plan_params *params, struct plan **result, struct error *error)
{
    struct plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL)
        return out_of_memory(error);
    plan->device = (struct cpu_device *)device;
    plan->graph = graph;
    plan->weights = weights;
    plan->params = *params;
    plan->slots = calloc(graph->n_values, sizeof(*plan->slots));
    plan->stats = calloc(1, sizeof(*plan->stats));
    enum status status = plan->slots == NULL || plan->stats == NULL ? out_of_memory(error) : STATUS_OK;
    if (status == STATUS_OK)
        status = cpu_weights_describe(graph, &plan->described, error);
    if (status == STATUS_OK)
        status = cpu_adapters_describe(graph, &plan->described_adapters, error);
    if (status == STATUS_OK)
        status = cpu_plan_place_kv(plan, error);
    if (status == STATUS_OK)
        status = plan_steps(plan, error);
    if (status == STATUS_OK)
        status = cpu_plan_place(plan, error);
    if (status == STATUS_OK && params->observe)
        status = cpu_observer_create(plan, error);
    if (status != STATUS_OK) {
        cpu_plan_free(plan);
        return status;
    }
    *result = plan;
    return STATUS_OK;
}

void cpu_plan_stats(const struct plan *plan, struct plan_stats *stats)
{
    *stats = *plan->stats;
}

void cpu_plan_free(struct plan *plan)
{
    if (plan == NULL)
        return;
    for (size_t i = 0; i < plan->n_steps; i++)
        free(plan->steps[i].ops);
    for (uint32_t kind = 0; kind < plan->n_kinds; kind++)
        free(plan->pages[kind]);
    free(plan->steps);
    free(plan->forms);
    free(plan->slots);
    free(plan->exchanges);
    free(plan->receive);
    free(plan->stats);
    free(plan->hiddens);
    free(plan->described.items);
    free(plan->described_adapters.items);
    free(plan->kv_places);
    free(plan->memory);
    free(plan->thread_memory);
    free(plan->partials);
    cpu_observer_free(plan->observer);
    free(plan);
}

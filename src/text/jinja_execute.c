// Statements, and the scopes in which names are set.
#include "text/jinja_repr.h"
#include "text/jinja_run.h"

struct jinja_scope *scope_create(struct jinja *jinja, struct jinja_scope *outer)
{
    struct jinja_scope *scope = jinja_alloc(jinja, 1, sizeof *scope);
    if (scope)
        scope->outer = outer;
    return scope;
}

bool scope_set(struct jinja *jinja, struct jinja_scope *scope, const struct jinja_string *name, struct value value)
{
    for (size_t i = 0; i < scope->count; i++) {
        if (scope->bindings[i].name == name) {
            scope->bindings[i].value = value;
            return true;
        }
    }
    void *bindings = scope->bindings;
    if (!jinja_grow(jinja, &bindings, &scope->capacity, scope->count + 1, sizeof *scope->bindings))
        return false;
    scope->bindings = bindings;
    scope->bindings[scope->count++] = (struct binding){name, value};
    return true;
}

bool scope_begin(struct jinja *jinja, struct jinja_scope *scope, const struct scope_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct value undefined;
        if (!value_undefined_name(jinja, plan->names[i], &undefined) ||
            !scope_set(jinja, scope, plan->names[i], undefined))
            return false;
    }
    return true;
}

// A scope inside of outer, begun.
static struct jinja_scope *open_scope(struct jinja *jinja, struct jinja_scope *outer, const struct scope_plan *plan)
{
    struct jinja_scope *scope = scope_create(jinja, outer);
    return scope && scope_begin(jinja, scope, plan) ? scope : NULL;
}

static bool assign_tuple(struct jinja *jinja, const struct jinja_node *target, struct value value,
                         struct jinja_scope *scope)
{
    const struct jinja_list *items;
    size_t count = target->items.count;
    if (value.kind == VALUE_UNDEFINED || !value_is_iterable(value))
        return jinja_fail(jinja, "cannot unpack '%s' into %zu names", value_type_name(value), count);
    if (!value_collect(jinja, value, &items))
        return false;
    if (items->count != count)
        return jinja_fail(jinja,
                          items->count > count ? "too many values to unpack (expected %zu, got %zu)"
                                               : "not enough values to unpack (expected %zu, got %zu)",
                          count, items->count);
    if (!jinja_enter(jinja))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!jinja_assign(jinja, target->items.items[i], items->items[i], scope))
            return false;
    jinja_leave(jinja);
    return true;
}

bool jinja_assign(struct jinja *jinja, const struct jinja_node *target, struct value value, struct jinja_scope *scope)
{
    if (target->kind == NODE_TUPLE)
        return assign_tuple(jinja, target, value, scope);
    if (target->kind == NODE_NAME)
        return scope_set(jinja, scope, target->name, value);
    struct value namespace;
    if (!jinja_evaluate(jinja, target->attribute.object, scope, &namespace))
        return false;
    if (namespace.kind != VALUE_NAMESPACE)
        return jinja_fail(jinja, "cannot assign attribute on non-namespace object");
    return dict_set(jinja, namespace.namespace, value_string(target->attribute.name), value);
}

bool jinja_capture(struct jinja *jinja, const struct node_list *body, struct jinja_scope *scope, enum flow *flow,
                   struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja, .limit = jinja->limits->memory}, *outer = jinja->output;
    jinja->output = &writer;
    *flow = jinja_execute(jinja, body, scope);
    jinja->output = outer;
    if (*flow == FLOW_FAILED)
        return false;
    writer.markup = jinja->autoescape;
    return writer_finish_value(&writer, out);
}

static enum flow result(bool done)
{
    return done ? FLOW_NORMAL : FLOW_FAILED;
}

static bool print_value(struct jinja *jinja, struct value value)
{
    struct jinja_string *string;
    if (!jinja->autoescape)
        return value_write(jinja->output, value);
    return value_to_string(jinja, value, &string) && (string = string_escape(jinja, string)) &&
           writer_string(jinja->output, string);
}

static enum flow execute_data(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    (void)scope;
    return result(writer_slice(jinja->output, node->data));
}

static enum flow execute_print(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    for (size_t i = 0; i < node->items.count; i++) {
        struct value value;
        if (!jinja_evaluate(jinja, node->items.items[i], scope, &value) || !print_value(jinja, value))
            return FLOW_FAILED;
    }
    return FLOW_NORMAL;
}

static enum flow execute_if(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    for (size_t i = 0; i < node->branches.count; i++) {
        const struct branch *branch = &node->branches.branches[i];
        struct value test = value_bool(true);
        if (branch->test && !jinja_evaluate(jinja, branch->test, scope, &test))
            return FLOW_FAILED;
        if (value_truth(test))
            return jinja_execute(jinja, &branch->body, scope);
    }
    return FLOW_NORMAL;
}

static enum flow execute_set(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    struct value value;
    return result(jinja_evaluate(jinja, node->set.value, scope, &value) &&
                  jinja_assign(jinja, node->set.target, value, scope));
}

static enum flow execute_set_block(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    struct jinja_scope *inner = open_scope(jinja, scope, &node->set.plan);
    struct value value;
    enum flow flow;
    if (!inner || !jinja_capture(jinja, &node->set.body, inner, &flow, &value))
        return FLOW_FAILED;
    if (flow != FLOW_NORMAL)
        return flow;
    if (node->set.value && !jinja_apply_filter(jinja, node->set.value, value, inner, &value))
        return FLOW_FAILED;
    return result(jinja_assign(jinja, node->set.target, value, scope));
}

static enum flow execute_macro(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    struct value macro;
    return result(macro_create(jinja, node, scope, &macro) && scope_set(jinja, scope, node->macro.name, macro));
}

// What a filter or call block gives is written as it is.
static bool write_text(struct jinja *jinja, struct value value)
{
    if (value.kind != VALUE_STRING)
        return jinja_fail(jinja, "the block gives %s, not str", value_type_name(value));
    return writer_string(jinja->output, value.string);
}

static enum flow execute_call_block(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    const struct jinja_node *call = node->macro.call;
    struct value function, caller, text;
    struct arguments arguments;
    if (!macro_create(jinja, node, scope, &caller) || !jinja_evaluate(jinja, call->call.function, scope, &function) ||
        !jinja_evaluate_arguments(jinja, &call->call.arguments, scope, &arguments))
        return FLOW_FAILED;
    struct binding *named = jinja_alloc(jinja, arguments.n_named + 1, sizeof *named);
    if (!named)
        return FLOW_FAILED;
    for (size_t i = 0; i < arguments.n_named; i++)
        named[i] = arguments.named[i];
    named[arguments.n_named++] = (struct binding){jinja->syntax->caller, caller};
    arguments.named = named;
    return result(jinja_call(jinja, function, &arguments, &text) && write_text(jinja, text));
}

static enum flow execute_filter_block(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    struct jinja_scope *inner = open_scope(jinja, scope, &node->filter_block.plan);
    struct value text;
    enum flow flow;
    if (!inner || !jinja_capture(jinja, &node->filter_block.body, inner, &flow, &text))
        return FLOW_FAILED;
    if (flow != FLOW_NORMAL)
        return flow;
    return result(jinja_apply_filter(jinja, node->filter_block.filter, text, inner, &text) && write_text(jinja, text));
}

static enum flow execute_with(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    struct jinja_scope *inner = open_scope(jinja, scope, &node->with.plan);
    for (size_t i = 0; inner && i < node->with.targets.count; i++) {
        struct value value;
        if (!jinja_evaluate(jinja, node->with.values.items[i], scope, &value) ||
            !jinja_assign(jinja, node->with.targets.items[i], value, inner))
            return FLOW_FAILED;
    }
    return inner ? jinja_execute(jinja, &node->with.body, inner) : FLOW_FAILED;
}

static enum flow execute_block(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    struct value text;
    if (node->block.required)
        return result(jinja_fail(jinja, "required block '%.*s' is not defined", (int)(node->block.name->size & 0xff),
                                 node->block.name->data));
    return result(jinja_call_block(jinja, node, node->block.scoped ? scope : jinja->root, &text) &&
                  writer_string(jinja->output, text.string));
}

bool jinja_call_block(struct jinja *jinja, const struct jinja_node *block, struct jinja_scope *scope, struct value *out)
{
    struct jinja_scope *inner = open_scope(jinja, scope, &block->block.plan);
    enum flow flow;
    return inner && jinja_capture(jinja, &block->block.body, inner, &flow, out);
}

static enum flow execute_autoescape(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    struct jinja_scope *inner = open_scope(jinja, scope, &node->autoescape.plan);
    struct value value;
    bool before = jinja->autoescape;
    if (!inner || !jinja_evaluate(jinja, node->autoescape.value, scope, &value))
        return FLOW_FAILED;
    jinja->autoescape = value_truth(value);
    enum flow flow = jinja_execute(jinja, &node->autoescape.body, inner);
    jinja->autoescape = before;
    return flow;
}

static enum flow execute_generation(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    struct jinja_scope *inner = open_scope(jinja, scope, &node->autoescape.plan);
    return inner ? jinja_execute(jinja, &node->autoescape.body, inner) : FLOW_FAILED;
}

static enum flow execute_break(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    (void)jinja;
    (void)scope;
    return node->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
}

static enum flow execute_needs_loader(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope)
{
    (void)node;
    (void)scope;
    return result(jinja_fail(jinja, "a chat template stands alone: there is no loader for include, import or extends"));
}

typedef enum flow executor(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope);

static executor *const executors[NODE_KINDS] = {
    [NODE_DATA] = execute_data,
    [NODE_PRINT] = execute_print,
    [NODE_IF] = execute_if,
    [NODE_FOR] = jinja_execute_loop,
    [NODE_SET] = execute_set,
    [NODE_SET_BLOCK] = execute_set_block,
    [NODE_MACRO] = execute_macro,
    [NODE_CALL_BLOCK] = execute_call_block,
    [NODE_FILTER_BLOCK] = execute_filter_block,
    [NODE_WITH] = execute_with,
    [NODE_BLOCK] = execute_block,
    [NODE_AUTOESCAPE] = execute_autoescape,
    [NODE_GENERATION] = execute_generation,
    [NODE_BREAK] = execute_break,
    [NODE_CONTINUE] = execute_break,
    [NODE_NEEDS_LOADER] = execute_needs_loader,
};

enum flow jinja_execute(struct jinja *jinja, const struct node_list *body, struct jinja_scope *scope)
{
    if (!jinja_enter(jinja))
        return FLOW_FAILED;
    enum flow flow = FLOW_NORMAL;
    for (size_t i = 0; flow == FLOW_NORMAL && i < body->count; i++) {
        const struct jinja_node *node = body->items[i];
        if (!jinja_step(jinja))
            return FLOW_FAILED;
        jinja->line = node->line;
        flow = executors[node->kind](jinja, node, scope);
    }
    jinja_leave(jinja);
    return flow;
}

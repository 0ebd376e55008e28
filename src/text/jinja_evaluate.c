// Expressions. jinja_evaluate is the one recursion over nodes; it counts steps and depth.
#include "text/jinja_number.h"
#include "text/jinja_repr.h"
#include "text/jinja_run.h"

static bool evaluate_name(struct jinja *jinja, const struct jinja_string *name, const struct jinja_scope *scope,
                          struct value *out)
{
    for (; scope; scope = scope->outer) {
        for (size_t i = 0; i < scope->count; i++) {
            if (scope->bindings[i].name == name) {
                *out = scope->bindings[i].value;
                return true;
            }
        }
    }
    if (!dict_get(jinja, jinja->context, value_string((struct jinja_string *)name), out))
        return false;
    return out->kind != VALUE_ABSENT || value_undefined_name(jinja, name, out);
}

static bool evaluate_items(struct jinja *jinja, const struct node_list *nodes, struct jinja_scope *scope,
                           struct jinja_list **out)
{
    struct jinja_list *list = list_create(jinja, nodes->count);
    if (!list)
        return false;
    for (size_t i = 0; i < nodes->count; i++)
        if (!jinja_evaluate(jinja, nodes->items[i], scope, &list->items[i]))
            return false;
    *out = list;
    return true;
}

static bool evaluate_list(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                          struct value *out)
{
    struct jinja_list *list;
    if (!evaluate_items(jinja, &node->items, scope, &list))
        return false;
    *out = node->kind == NODE_TUPLE ? value_tuple(list) : value_list(list);
    return true;
}

static bool evaluate_dict(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                          struct value *out)
{
    struct jinja_dict *dict = dict_create(jinja, node->items.count / 2);
    for (size_t i = 0; dict && i < node->items.count; i += 2) {
        struct value key, value;
        if (!jinja_evaluate(jinja, node->items.items[i], scope, &key) ||
            !jinja_evaluate(jinja, node->items.items[i + 1], scope, &value) || !dict_set(jinja, dict, key, value))
            return false;
    }
    *out = value_dict(dict);
    return dict != NULL;
}

// All are made text; under autoescape they are Markup together as soon as one of them is.
static bool evaluate_concat(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                            struct value *out)
{
    struct jinja_list *list;
    if (!evaluate_items(jinja, &node->items, scope, &list))
        return false;
    bool markup = false;
    size_t following = 0;
    for (size_t i = 0; i < list->count; i++)
        markup |= jinja->autoescape && list->items[i].kind == VALUE_STRING && list->items[i].string->markup;
    for (size_t i = 0; i < list->count; i++) {
        struct jinja_string *string;
        if (!value_to_string(jinja, list->items[i], &string))
            return false;
        if (markup && !(string = string_escape(jinja, string)))
            return false;
        list->items[i] = value_string(string);
        following += string->size; // cannot overflow: they all lie in memory, or share what does
    }
    struct jinja_string *text = list->items[0].string;
    for (size_t i = 1; i < list->count && text; i++) {
        const struct jinja_string *more = list->items[i].string;
        following = following > text->size + more->size ? following - more->size : 0;
        text = string_concat(jinja, text, more, following);
    }
    if (text && text->markup != markup) {
        text = string_from_slice(jinja, string_all(text), markup);
    }
    *out = value_string(text);
    return text != NULL;
}

static bool evaluate_slice(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                           struct value *out)
{
    struct value object, parts[3];
    if (!jinja_evaluate(jinja, node->slice.object, scope, &object))
        return false;
    for (size_t i = 0; i < 3; i++) {
        parts[i] = value_none();
        if (node->slice.parts[i] && !jinja_evaluate(jinja, node->slice.parts[i], scope, &parts[i]))
            return false;
    }
    // Jinja folds constants, and what it cannot fold of them is undefined instead of an error: 5[1:].
    if (node->slice.object->kind == NODE_CONSTANT && object.kind != VALUE_STRING)
        return value_undefined_text(jinja, "a constant cannot be sliced", out);
    return value_slice(jinja, object, parts, out);
}

static bool evaluate_item(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                          struct value *out)
{
    struct value object, key;
    return jinja_evaluate(jinja, node->item.object, scope, &object) &&
           jinja_evaluate(jinja, node->item.key, scope, &key) && value_item(jinja, object, key, out);
}

static bool evaluate_attribute(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                               struct value *out)
{
    struct value object;
    return jinja_evaluate(jinja, node->attribute.object, scope, &object) &&
           value_attribute(jinja, object, node->attribute.name, out);
}

static bool add_named(struct jinja *jinja, struct arguments *arguments, size_t *capacity, struct jinja_string *name,
                      struct value value)
{
    for (size_t i = 0; i < arguments->n_named; i++)
        if (string_equal(arguments->named[i].name, name))
            return jinja_fail(jinja, "got multiple values for keyword argument '%.*s'", (int)(name->size & 0xff),
                              name->data);
    void *named = arguments->named;
    if (!jinja_grow(jinja, &named, capacity, arguments->n_named + 1, sizeof *arguments->named))
        return false;
    arguments->named = named;
    arguments->named[arguments->n_named++] = (struct binding){name, value};
    return true;
}

static bool evaluate_star(struct jinja *jinja, const struct jinja_node *star, struct jinja_scope *scope,
                          struct arguments *out)
{
    struct value value;
    const struct jinja_list *more;
    if (!jinja_evaluate(jinja, star, scope, &value) || !value_collect(jinja, value, &more))
        return false;
    struct jinja_list *all = list_create(jinja, out->count + more->count);
    if (!all)
        return false;
    for (size_t i = 0; i < all->count; i++)
        all->items[i] = i < out->count ? out->positional[i] : more->items[i - out->count];
    out->positional = all->items;
    out->count = all->count;
    return true;
}

bool jinja_evaluate_arguments(struct jinja *jinja, const struct call_arguments *nodes, struct jinja_scope *scope,
                              struct arguments *out)
{
    struct jinja_list *positional;
    size_t capacity = 0;
    if (!evaluate_items(jinja, &nodes->positional, scope, &positional))
        return false;
    *out = (struct arguments){.positional = positional->items, .count = positional->count};
    for (size_t i = 0; i < nodes->n_named; i++) {
        struct value value;
        if (!jinja_evaluate(jinja, nodes->named[i].value, scope, &value) ||
            !add_named(jinja, out, &capacity, (struct jinja_string *)nodes->named[i].name, value))
            return false;
    }
    if (nodes->star && !evaluate_star(jinja, nodes->star, scope, out))
        return false;
    struct value more;
    if (!nodes->double_star)
        return true;
    if (!jinja_evaluate(jinja, nodes->double_star, scope, &more))
        return false;
    if (more.kind != VALUE_DICT)
        return jinja_fail(jinja, "argument after ** must be a mapping, not %s", value_type_name(more));
    for (size_t i = 0; i < more.dict->count; i++) {
        const struct jinja_dict_entry *entry = &more.dict->entries[i];
        if (entry->key.kind != VALUE_STRING)
            return jinja_fail(jinja, "keywords must be strings");
        if (!add_named(jinja, out, &capacity, entry->key.string, entry->value))
            return false;
    }
    return true;
}

static bool evaluate_call(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                          struct value *out)
{
    struct value function;
    struct arguments arguments;
    if (!jinja_evaluate(jinja, node->call.function, scope, &function) ||
        !jinja_evaluate_arguments(jinja, &node->call.arguments, scope, &arguments))
        return false;
    jinja->line = node->line;
    return jinja_call(jinja, function, &arguments, out);
}

static bool call_filter(struct jinja *jinja, const struct jinja_node *node, struct value subject,
                        struct jinja_scope *scope, struct value *out)
{
    struct arguments arguments;
    if (!node->filter.builtin)
        return jinja_fail(jinja, "no %s named '%.*s'", node->kind == NODE_FILTER ? "filter" : "test",
                          (int)(node->filter.name->size & 0xff), node->filter.name->data);
    if (!jinja_evaluate_arguments(jinja, &node->filter.arguments, scope, &arguments))
        return false;
    jinja->line = node->line;
    return builtin_call(jinja, node->filter.builtin, subject, &arguments, out);
}

bool jinja_apply_filter(struct jinja *jinja, const struct jinja_node *filter, struct value subject,
                        struct jinja_scope *scope, struct value *out)
{
    if (filter->filter.subject) { // the innermost comes first
        if (!jinja_enter(jinja) || !jinja_apply_filter(jinja, filter->filter.subject, subject, scope, &subject))
            return false;
        jinja_leave(jinja);
    }
    return call_filter(jinja, filter, subject, scope, out);
}

static bool evaluate_filter(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                            struct value *out)
{
    struct value subject;
    return jinja_evaluate(jinja, node->filter.subject, scope, &subject) &&
           call_filter(jinja, node, subject, scope, out);
}

static bool evaluate_unary(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                           struct value *out)
{
    struct value operand;
    return jinja_evaluate(jinja, node->binary.right, scope, &operand) &&
           operator_unary(jinja, node->binary.operator, operand, out);
}

static bool evaluate_binary(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                            struct value *out)
{
    struct value left, right;
    if (!jinja_evaluate(jinja, node->binary.left, scope, &left) ||
        !jinja_evaluate(jinja, node->binary.right, scope, &right))
        return false;
    jinja->line = node->line;
    return operator_binary(jinja, node->binary.operator, left, right, out);
}

static bool evaluate_compare(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                             struct value *out)
{
    struct value left, right;
    bool holds = true;
    if (!jinja_evaluate(jinja, node->compare.left, scope, &left))
        return false;
    for (size_t i = 0; holds && i < node->compare.count; i++) {
        const struct comparison *comparison = &node->compare.comparisons[i];
        if (!jinja_evaluate(jinja, comparison->right, scope, &right) ||
            !operator_compare(jinja, comparison->operator, left, right, &holds))
            return false;
        left = right;
    }
    *out = value_bool(holds);
    return true;
}

static bool evaluate_and_or(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                            struct value *out)
{
    if (!jinja_evaluate(jinja, node->binary.left, scope, out))
        return false;
    if (value_truth(*out) == (node->kind == NODE_OR))
        return true;
    return jinja_evaluate(jinja, node->binary.right, scope, out);
}

static bool evaluate_not(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                         struct value *out)
{
    if (!jinja_evaluate(jinja, node->binary.right, scope, out))
        return false;
    *out = value_bool(!value_truth(*out));
    return true;
}

static bool evaluate_conditional(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                                 struct value *out)
{
    struct value test;
    if (!jinja_evaluate(jinja, node->conditional.test, scope, &test))
        return false;
    if (value_truth(test))
        return jinja_evaluate(jinja, node->conditional.yes, scope, out);
    if (node->conditional.no)
        return jinja_evaluate(jinja, node->conditional.no, scope, out);
    return value_undefined_text(jinja, "the inline if-expression evaluated to false and no else section was defined",
                                out);
}

typedef bool evaluator(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope,
                       struct value *out);

static evaluator *const evaluators[NODE_KINDS] = {
    [NODE_LIST] = evaluate_list,
    [NODE_TUPLE] = evaluate_list,
    [NODE_DICT] = evaluate_dict,
    [NODE_ATTRIBUTE] = evaluate_attribute,
    [NODE_ITEM] = evaluate_item,
    [NODE_SLICE] = evaluate_slice,
    [NODE_CALL] = evaluate_call,
    [NODE_FILTER] = evaluate_filter,
    [NODE_TEST] = evaluate_filter,
    [NODE_UNARY] = evaluate_unary,
    [NODE_BINARY] = evaluate_binary,
    [NODE_COMPARE] = evaluate_compare,
    [NODE_CONCAT] = evaluate_concat,
    [NODE_AND] = evaluate_and_or,
    [NODE_OR] = evaluate_and_or,
    [NODE_NOT] = evaluate_not,
    [NODE_CONDITIONAL] = evaluate_conditional,
};

bool jinja_evaluate(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope, struct value *out)
{
    if (!jinja_step(jinja))
        return false;
    jinja->line = node->line;
    if (node->kind == NODE_CONSTANT) {
        *out = node->constant;
        return true;
    }
    if (node->kind == NODE_NAME)
        return evaluate_name(jinja, node->name, scope, out);
    if (!jinja_enter(jinja))
        return false;
    bool done = evaluators[node->kind](jinja, node, scope, out);
    jinja_leave(jinja);
    return done;
}

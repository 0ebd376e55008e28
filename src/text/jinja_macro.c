// Macros and the bodies of call blocks: code with the scope that it was written in.
#include "text/jinja_run.h"

#include <string.h>

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope;
    bool autoescape; // where it was written
};

bool macro_create(struct jinja *jinja, const struct jinja_node *node, struct jinja_scope *scope, struct value *out)
{
    struct jinja_macro *macro = jinja_alloc(jinja, 1, sizeof *macro);
    if (!macro)
        return false;
    *macro = (struct jinja_macro){node, scope, jinja->autoescape};
    *out = (struct value){.kind = VALUE_MACRO, .macro = macro};
    return true;
}

const struct jinja_string *macro_name(const struct jinja_macro *macro)
{
    return macro->node->macro.name;
}

static int shown(const struct jinja_string *name)
{
    return name ? (int)(name->size & 0xff) : 9;
}

// Binds every parameter; named arguments that are used are marked in `used`. A default sees the parameters before it.
static bool bind_arguments(struct jinja *jinja, const struct jinja_macro *macro, const struct arguments *arguments,
                           struct jinja_scope *scope, bool *used)
{
    const struct macro_signature *signature = &macro->node->macro.signature;
    bool *given = jinja_alloc(jinja, signature->count, sizeof *given);
    if (!given)
        return false;
    for (size_t i = 0; i < signature->count; i++) {
        struct value value = {0};
        if (i < arguments->count)
            value = arguments->positional[i];
        for (size_t k = 0; i >= arguments->count && k < arguments->n_named; k++) {
            if (string_equal(arguments->named[k].name, signature->names[i])) {
                value = arguments->named[k].value;
                used[k] = true;
            }
        }
        given[i] = value.kind != VALUE_ABSENT;
        if ((!given[i] && !value_undefined_name(jinja, signature->names[i], &value)) ||
            !scope_set(jinja, scope, signature->names[i], value))
            return false;
    }
    for (size_t i = 0; i < signature->count; i++) {
        struct value value;
        if (given[i] || !signature->defaults[i])
            continue;
        if (!jinja_evaluate(jinja, signature->defaults[i], scope, &value) ||
            !scope_set(jinja, scope, signature->names[i], value))
            return false;
    }
    return true;
}

static bool bind_caller(struct jinja *jinja, const struct arguments *arguments, struct jinja_scope *scope, bool *used)
{
    struct value caller = {0};
    for (size_t i = 0; i < arguments->n_named; i++) {
        if (string_equal(arguments->named[i].name, jinja->syntax->caller)) {
            caller = arguments->named[i].value;
            used[i] = true;
        }
    }
    if (caller.kind == VALUE_ABSENT || caller.kind == VALUE_NONE)
        if (!value_undefined_text(jinja, "no caller defined", &caller))
            return false;
    return scope_set(jinja, scope, jinja->syntax->caller, caller);
}

static bool bind_kwargs(struct jinja *jinja, const struct jinja_macro *macro, const struct arguments *arguments,
                        struct jinja_scope *scope, const bool *used)
{
    bool takes = macro->node->macro.signature.takes_kwargs;
    struct jinja_dict *kwargs = takes ? dict_create(jinja, 0) : NULL;
    for (size_t i = 0; i < arguments->n_named; i++) {
        struct jinja_string *name = (struct jinja_string *)arguments->named[i].name;
        if (used[i])
            continue;
        if (!takes)
            return jinja_fail(jinja, "macro '%.*s' takes no keyword argument '%.*s'", shown(macro_name(macro)),
                              macro_name(macro) ? macro_name(macro)->data : "anonymous", shown(name), name->data);
        if (!kwargs || !dict_set(jinja, kwargs, value_string(name), arguments->named[i].value))
            return false;
    }
    return !takes || (kwargs && scope_set(jinja, scope, jinja->syntax->kwargs, value_dict(kwargs)));
}

static bool bind_varargs(struct jinja *jinja, const struct jinja_macro *macro, const struct arguments *arguments,
                         struct jinja_scope *scope)
{
    const struct macro_signature *signature = &macro->node->macro.signature;
    size_t more = arguments->count > signature->count ? arguments->count - signature->count : 0;
    if (!signature->takes_varargs && more)
        return jinja_fail(jinja, "macro '%.*s' takes not more than %zu argument(s)", shown(macro_name(macro)),
                          macro_name(macro) ? macro_name(macro)->data : "anonymous", signature->count);
    if (!signature->takes_varargs)
        return true;
    struct jinja_list *varargs = list_create(jinja, more);
    if (!varargs)
        return false;
    for (size_t i = 0; i < more; i++)
        varargs->items[i] = arguments->positional[signature->count + i];
    return scope_set(jinja, scope, jinja->syntax->varargs, value_tuple(varargs));
}

bool macro_call(struct jinja *jinja, struct jinja_macro *macro, const struct arguments *arguments, struct value *out)
{
    struct jinja_scope *scope = scope_create(jinja, macro->scope);
    bool *used = jinja_alloc(jinja, arguments->n_named, sizeof *used);
    if (!scope || !used)
        return false;
    bool caller_autoescape = jinja->autoescape;
    jinja->autoescape = macro->autoescape;
    enum flow flow;
    bool done = scope_begin(jinja, scope, &macro->node->macro.plan) &&
                bind_arguments(jinja, macro, arguments, scope, used) &&
                (!macro->node->macro.signature.takes_caller || bind_caller(jinja, arguments, scope, used)) &&
                bind_kwargs(jinja, macro, arguments, scope, used) && bind_varargs(jinja, macro, arguments, scope) &&
                jinja_capture(jinja, &macro->node->macro.body, scope, &flow, out);
    jinja->autoescape = caller_autoescape;
    if (done)
        out->string->markup = caller_autoescape;
    return done;
}

bool macro_attribute(struct jinja *jinja, struct jinja_macro *macro, const struct jinja_string *name, struct value *out)
{
    const struct jinja_node *node = macro->node;
    const struct macro_signature *signature = &node->macro.signature;
    if (string_is(name, "name")) {
        *out = node->macro.name ? value_string(node->macro.name) : value_none();
    } else if (string_is(name, "catch_kwargs")) {
        *out = value_bool(signature->takes_kwargs);
    } else if (string_is(name, "catch_varargs")) {
        *out = value_bool(signature->takes_varargs);
    } else if (string_is(name, "caller")) {
        *out = value_bool(signature->takes_caller);
    } else if (string_is(name, "arguments")) {
        struct jinja_list *names = list_create(jinja, signature->count);
        for (size_t i = 0; names && i < signature->count; i++)
            names->items[i] = value_string(signature->names[i]);
        *out = value_tuple(names);
        return names != NULL;
    } else {
        *out = (struct value){0};
    }
    return true;
}

// Calling values, and matching arguments with the parameters of built-in functions.
#include "text/jinja_number.h"
#include "text/jinja_run.h"

#include <string.h>

enum { MOST_PARAMETERS = 6 };

bool value_is_callable(struct value value)
{
    switch (value.kind) {
    case VALUE_MACRO:
    case VALUE_FUNCTION:
    case VALUE_METHOD:
    case VALUE_LOOP:
    case VALUE_JOINER:
    case VALUE_BLOCK:
    case VALUE_UNDEFINED: // has __call__, which fails
        return true;
    default:
        return false;
    }
}

static bool set_named(struct jinja *jinja, const struct jinja_builtin *builtin, struct call *call,
                      const struct binding *named)
{
    for (size_t i = 0; i < MOST_PARAMETERS && builtin->parameters[i] && !builtin->positional_only; i++) {
        if (!string_is(named->name, builtin->parameters[i]))
            continue;
        if (call->arguments[i].kind != VALUE_ABSENT)
            return jinja_fail(jinja, "%s() got multiple values for argument '%s'", builtin->name,
                              builtin->parameters[i]);
        call->arguments[i] = named->value;
        return true;
    }
    return jinja_fail(jinja, "%s() got an unexpected keyword argument '%.*s'", builtin->name,
                      (int)(named->name->size & 0xff), named->name->data);
}

bool builtin_call(struct jinja *jinja, const struct jinja_builtin *builtin, struct value self,
                  const struct arguments *arguments, struct value *out)
{
    struct call call = {.self = self, .all = arguments};
    size_t n_parameters = 0;
    if (!builtin->variadic) {
        while (n_parameters < MOST_PARAMETERS && builtin->parameters[n_parameters])
            n_parameters++;
        if (arguments->count > n_parameters)
            return jinja_fail(jinja, "%s() takes at most %zu argument(s), got %zu", builtin->name, n_parameters,
                              arguments->count);
        for (size_t i = 0; i < arguments->count; i++)
            call.arguments[i] = arguments->positional[i];
        for (size_t i = 0; i < arguments->n_named; i++)
            if (!set_named(jinja, builtin, &call, &arguments->named[i]))
                return false;
        for (size_t i = 0; i < builtin->n_required; i++)
            if (call.arguments[i].kind == VALUE_ABSENT)
                return jinja_fail(jinja, "%s() misses its argument '%s'", builtin->name, builtin->parameters[i]);
    }
    // Filters call filters (map), so this is a recursion of its own.
    if (!jinja_step(jinja) || !jinja_enter(jinja))
        return false;
    bool done = builtin->function(jinja, &call, out);
    jinja_leave(jinja);
    return done;
}

static bool joiner_call(struct jinja *jinja, struct jinja_joiner *joiner, struct value *out)
{
    if (joiner->used) {
        *out = joiner->separator;
        return true;
    }
    joiner->used = true;
    return value_from_literal(jinja, "", out);
}

bool jinja_call(struct jinja *jinja, struct value function, const struct arguments *arguments, struct value *out)
{
    switch (function.kind) {
    case VALUE_UNDEFINED:
        return value_fail_undefined(jinja, function);
    case VALUE_MACRO:
        return macro_call(jinja, function.macro, arguments, out);
    case VALUE_FUNCTION:
        return builtin_call(jinja, function.function, value_none(), arguments, out);
    case VALUE_METHOD:
        return builtin_call(jinja, function.method->builtin, function.method->self, arguments, out);
    case VALUE_LOOP:
        return loop_call(jinja, function.loop, arguments, out);
    case VALUE_JOINER:
        if (arguments->count || arguments->n_named)
            return jinja_fail(jinja, "a joiner takes no arguments");
        return joiner_call(jinja, function.joiner, out);
    case VALUE_BLOCK:
        if (arguments->count || arguments->n_named)
            return jinja_fail(jinja, "a block takes no arguments");
        return jinja_call_block(jinja, function.block, jinja->root, out);
    default:
        return jinja_fail(jinja, "'%s' object is not callable", value_type_name(function));
    }
}

const struct jinja_builtin *builtin_find(const struct jinja_builtin *table, const struct jinja_string *name)
{
    for (; table->name; table++)
        if (string_is(name, table->name))
            return table;
    return NULL;
}

bool argument_bool(const struct call *call, size_t index, bool absent)
{
    return call->arguments[index].kind == VALUE_ABSENT ? absent : value_truth(call->arguments[index]);
}

bool argument_int(struct jinja *jinja, const struct call *call, size_t index, const char *what, int64_t absent,
                  int64_t *out)
{
    *out = absent;
    return call->arguments[index].kind == VALUE_ABSENT || number_to_int64(jinja, call->arguments[index], what, out);
}

bool argument_string(struct jinja *jinja, const struct call *call, size_t index, const char *what,
                     struct jinja_string **out)
{
    struct value value = call->arguments[index];
    *out = NULL;
    if (value.kind == VALUE_ABSENT || value.kind == VALUE_NONE)
        return true;
    if (value.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, value);
    if (value.kind != VALUE_STRING)
        return jinja_fail(jinja, "%s must be str, not '%s'", what, value_type_name(value));
    *out = value.string;
    return true;
}

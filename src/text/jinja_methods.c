// Methods of lists, dicts and the other containers; and which methods the sandbox refuses.
#include "text/jinja_methods.h"

#include "text/jinja_number.h"

#include <math.h>

static bool method_unsupported(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)call;
    (void)out;
    return jinja_fail(jinja, "this method is not supported in chat templates");
}

// Whether element i of the sequence equals what is looked for.
static bool equals_at(struct jinja *jinja, const struct call *call, size_t i, bool *equal)
{
    struct value item;
    if (!value_at(jinja, call->self, i, &item))
        return false;
    *equal = value_same(item, call->arguments[0]);
    return *equal || value_equal(jinja, item, call->arguments[0], equal);
}

static bool sequence_index(struct jinja *jinja, const struct call *call, struct value *out)
{
    size_t length;
    int64_t begin, end;
    if (!value_length(jinja, call->self, &length) || !argument_int(jinja, call, 1, "start", 0, &begin) ||
        !argument_int(jinja, call, 2, "stop", INT64_MAX, &end))
        return false;
    begin = begin < 0 ? begin + (int64_t)length : begin;
    end = end < 0 ? end + (int64_t)length : end;
    for (size_t i = begin < 0 ? 0 : (size_t)begin; i < length && (int64_t)i < end; i++) {
        bool equal;
        if (!equals_at(jinja, call, i, &equal))
            return false;
        if (equal) {
            *out = value_int((int64_t)i);
            return true;
        }
    }
    return jinja_fail(jinja, "the value that index() looks for is not in the %s", value_type_name(call->self));
}

static bool sequence_count(struct jinja *jinja, const struct call *call, struct value *out)
{
    size_t length;
    int64_t count = 0;
    if (!value_length(jinja, call->self, &length))
        return false;
    for (size_t i = 0; i < length; i++) {
        bool equal;
        if (!equals_at(jinja, call, i, &equal))
            return false;
        count += equal;
    }
    *out = value_int(count);
    return true;
}

static bool copy(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    *out = call->self; // values do not change, so a copy is the same
    return true;
}

static const struct jinja_builtin list_methods[] = {
    {.name = "index",
     .function = sequence_index,
     .parameters = {"value", "start", "stop"},
     .n_required = 1,
     .positional_only = true},
    {.name = "count", .function = sequence_count, .parameters = {"value"}, .n_required = 1, .positional_only = true},
    {.name = "copy", .function = copy},
    {0},
};

// Tuples and ranges.
static const struct jinja_builtin sequence_methods[] = {
    {.name = "index",
     .function = sequence_index,
     .parameters = {"value", "start", "stop"},
     .n_required = 1,
     .positional_only = true},
    {.name = "count", .function = sequence_count, .parameters = {"value"}, .n_required = 1, .positional_only = true},
    {0},
};

static bool view(struct jinja *jinja, const struct call *call, enum view_kind kind, struct value *out)
{
    struct jinja_view *made = jinja_alloc(jinja, 1, sizeof *made);
    if (!made)
        return false;
    *made = (struct jinja_view){call->self.dict, kind};
    *out = (struct value){.kind = VALUE_VIEW, .view = made};
    return true;
}

static bool dict_keys(struct jinja *jinja, const struct call *call, struct value *out)
{
    return view(jinja, call, VIEW_KEYS, out);
}

static bool dict_values(struct jinja *jinja, const struct call *call, struct value *out)
{
    return view(jinja, call, VIEW_VALUES, out);
}

static bool dict_items(struct jinja *jinja, const struct call *call, struct value *out)
{
    return view(jinja, call, VIEW_ITEMS, out);
}

static bool dict_get_method(struct jinja *jinja, const struct call *call, struct value *out)
{
    if (!dict_get(jinja, call->self.dict, call->arguments[0], out))
        return false;
    if (out->kind == VALUE_ABSENT)
        *out = call->arguments[1].kind == VALUE_ABSENT ? value_none() : call->arguments[1];
    return true;
}

static bool dict_fromkeys(struct jinja *jinja, const struct call *call, struct value *out)
{
    const struct jinja_list *keys;
    struct jinja_dict *dict = dict_create(jinja, 0);
    if (!dict || !value_collect(jinja, call->arguments[0], &keys))
        return false;
    struct value value = call->arguments[1].kind == VALUE_ABSENT ? value_none() : call->arguments[1];
    for (size_t i = 0; i < keys->count; i++)
        if (!dict_set(jinja, dict, keys->items[i], value))
            return false;
    *out = value_dict(dict);
    return true;
}

static const struct jinja_builtin dict_methods[] = {
    {.name = "get",
     .function = dict_get_method,
     .parameters = {"key", "default"},
     .n_required = 1,
     .positional_only = true},
    {.name = "items", .function = dict_items},
    {.name = "keys", .function = dict_keys},
    {.name = "values", .function = dict_values},
    {.name = "copy", .function = copy},
    {.name = "fromkeys",
     .function = dict_fromkeys,
     .parameters = {"iterable", "value"},
     .n_required = 1,
     .positional_only = true},
    {0},
};

static bool cycler_next(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_cycler *cycler = call->self.cycler;
    (void)jinja;
    *out = cycler->items->items[cycler->position];
    cycler->position = (cycler->position + 1) % cycler->items->count;
    return true;
}

static bool cycler_reset(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    call->self.cycler->position = 0;
    *out = value_none();
    return true;
}

static const struct jinja_builtin cycler_methods[] = {
    {.name = "next", .function = cycler_next},
    {.name = "reset", .function = cycler_reset},
    {0},
};

static bool float_is_integer(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    *out = value_bool(isfinite(call->self.real) && call->self.real == floor(call->self.real));
    return true;
}

static const struct jinja_builtin float_methods[] = {
    {.name = "is_integer", .function = float_is_integer},
    {.name = "hex", .function = method_unsupported, .variadic = true},
    {.name = "as_integer_ratio", .function = method_unsupported, .variadic = true},
    {.name = "conjugate", .function = method_unsupported, .variadic = true},
    {0},
};

static const struct jinja_builtin int_methods[] = {
    {.name = "bit_length", .function = method_unsupported, .variadic = true},
    {.name = "bit_count", .function = method_unsupported, .variadic = true},
    {.name = "to_bytes", .function = method_unsupported, .variadic = true},
    {.name = "as_integer_ratio", .function = method_unsupported, .variadic = true},
    {.name = "conjugate", .function = method_unsupported, .variadic = true},
    {0},
};

const struct jinja_builtin *methods_find(struct value self, const struct jinja_string *name)
{
    static const struct jinja_builtin *const tables[VALUE_KINDS] = {
        [VALUE_BOOL] = int_methods,       [VALUE_INT] = int_methods,        [VALUE_BIG] = int_methods,
        [VALUE_FLOAT] = float_methods,    [VALUE_STRING] = string_methods,  [VALUE_LIST] = list_methods,
        [VALUE_TUPLE] = sequence_methods, [VALUE_RANGE] = sequence_methods, [VALUE_DICT] = dict_methods,
        [VALUE_CYCLER] = cycler_methods,
    };
    const struct jinja_builtin *table = tables[self.kind];
    return table ? builtin_find(table, name) : NULL;
}

bool method_is_refused(struct value self, const struct jinja_string *name)
{
    static const char *const of_list[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *names = self.kind == VALUE_LIST ? of_list : self.kind == VALUE_DICT ? of_dict : NULL;
    for (; names && *names; names++)
        if (string_is(name, *names))
            return true;
    return false;
}

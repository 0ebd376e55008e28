// == and < between values, as Python has them.
#include "text/jinja_number.h"

#include <math.h>

static bool lists_equal(struct jinja *jinja, const struct jinja_list *a, const struct jinja_list *b, bool *equal)
{
    *equal = a->count == b->count;
    for (size_t i = 0; *equal && a != b && i < a->count; i++)
        if (!value_equal(jinja, a->items[i], b->items[i], equal))
            return false;
    return true;
}

static bool dicts_equal(struct jinja *jinja, const struct jinja_dict *a, const struct jinja_dict *b, bool *equal)
{
    *equal = a->count == b->count;
    for (size_t i = 0; *equal && a != b && i < a->count; i++) {
        struct value other;
        if (!dict_get(jinja, b, a->entries[i].key, &other))
            return false;
        if (other.kind == VALUE_ABSENT)
            *equal = false;
        else if (!value_equal(jinja, a->entries[i].value, other, equal))
            return false;
    }
    return true;
}

static bool ranges_equal(const struct jinja_range *a, const struct jinja_range *b)
{
    return a->count == b->count && (a->count == 0 || a->start == b->start) && (a->count < 2 || a->step == b->step);
}

static bool equal_inside(struct jinja *jinja, struct value a, struct value b, bool *equal)
{
    if (value_is_number(a) && value_is_number(b)) {
        *equal = number_compare(a, b) == 0;
        return true;
    }
    *equal = false;
    if (a.kind != b.kind)
        return true;
    switch (a.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
    case VALUE_SELF:
        *equal = true;
        return true;
    case VALUE_STRING:
        *equal = string_equal(a.string, b.string);
        return a.string->size != b.string->size || jinja_work(jinja, a.string->size);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return lists_equal(jinja, a.list, b.list, equal);
    case VALUE_DICT:
        return dicts_equal(jinja, a.dict, b.dict, equal);
    case VALUE_METHOD:
        *equal = a.method->builtin == b.method->builtin && value_same(a.method->self, b.method->self);
        return true;
    case VALUE_RANGE:
        *equal = ranges_equal(a.range, b.range);
        return true;
    default:
        *equal = value_same(a, b);
        return true;
    }
}

bool value_equal(struct jinja *jinja, struct value a, struct value b, bool *equal)
{
    if (!jinja_step(jinja) || !jinja_enter(jinja))
        return false;
    bool done = equal_inside(jinja, a, b, equal);
    jinja_leave(jinja);
    return done;
}

bool value_same(struct value a, struct value b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case VALUE_NONE:
    case VALUE_SELF:
        return true;
    case VALUE_BOOL:
        return a.boolean == b.boolean;
    case VALUE_INT:
        return a.integer == b.integer;
    case VALUE_FLOAT:
        return a.real == b.real;
    case VALUE_STRING: // Python keeps one object of each character below 256
        return a.string == b.string ||
               (a.string->size == 1 && string_equal(a.string, b.string) && a.string->markup == b.string->markup);
    default: // all others are pointers
        return a.string == b.string;
    }
}

static bool lists_less(struct jinja *jinja, const struct jinja_list *a, const struct jinja_list *b, bool *less)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        bool equal;
        if (!value_equal(jinja, a->items[i], b->items[i], &equal))
            return false;
        if (!equal)
            return value_less(jinja, a->items[i], b->items[i], less);
    }
    *less = a->count < b->count;
    return true;
}

static bool less_inside(struct jinja *jinja, struct value a, struct value b, bool *less)
{
    if (value_is_number(a) && value_is_number(b)) {
        *less = number_compare(a, b) == -1;
        return true;
    }
    if (a.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, a);
    if (b.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, b);
    if (a.kind == b.kind && a.kind == VALUE_STRING) {
        *less = string_compare(a.string, b.string) < 0;
        return jinja_work(jinja, a.string->size < b.string->size ? a.string->size : b.string->size);
    }
    if (a.kind == b.kind && value_is_list(a))
        return lists_less(jinja, a.list, b.list, less);
    return jinja_fail(jinja, "'<' not supported between instances of '%s' and '%s'", value_type_name(a),
                      value_type_name(b));
}

bool value_less(struct jinja *jinja, struct value a, struct value b, bool *less)
{
    if (!jinja_step(jinja) || !jinja_enter(jinja))
        return false;
    bool done = less_inside(jinja, a, b, less);
    jinja_leave(jinja);
    return done;
}

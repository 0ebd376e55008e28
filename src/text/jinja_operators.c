// + - * / // % ** and comparisons.
#include "text/jinja_format.h"
#include "text/jinja_number.h"
#include "text/jinja_run.h"

#include <string.h>

static const struct {
    char symbol[3];
    enum number_operator operator;
} number_operators[] = {
    {"+", NUMBER_ADD},    {"-", NUMBER_SUBTRACT}, {"*", NUMBER_MULTIPLY}, {"/", NUMBER_DIVIDE},
    {"//", NUMBER_FLOOR}, {"%", NUMBER_MODULO},   {"**", NUMBER_POWER},
};

static bool unsupported(struct jinja *jinja, const char *operator, struct value a, struct value b)
{
    if (strcmp(operator, "+") == 0 && a.kind == VALUE_STRING)
        return jinja_fail(jinja, "can only concatenate str (not \"%s\") to str", value_type_name(b));
    if (strcmp(operator, "+") == 0 && a.kind == VALUE_LIST)
        return jinja_fail(jinja, "can only concatenate list (not \"%s\") to list", value_type_name(b));
    return jinja_fail(jinja, "unsupported operand type(s) for %s: '%s' and '%s'", operator, value_type_name(a),
                      value_type_name(b));
}

// Where one of two texts is Markup the other one is escaped.
static bool add_strings(struct jinja *jinja, struct jinja_string *a, struct jinja_string *b, struct value *out)
{
    if (a->markup != b->markup && (!(a = string_escape(jinja, a)) || !(b = string_escape(jinja, b))))
        return false;
    *out = value_string(string_concat(jinja, a, b, 0));
    return out->string != NULL;
}

static bool add_lists(struct jinja *jinja, struct value a, struct value b, struct value *out)
{
    struct jinja_list *list = list_create(jinja, a.list->count + b.list->count);
    if (!list || !jinja_work(jinja, list->count))
        return false;
    memcpy(list->items, a.list->items, a.list->count * sizeof *list->items);
    memcpy(list->items + a.list->count, b.list->items, b.list->count * sizeof *list->items);
    *out = a.kind == VALUE_LIST ? value_list(list) : value_tuple(list);
    return true;
}

static bool repeat(struct jinja *jinja, struct value sequence, struct value times, struct value *out)
{
    int64_t n;
    if (!number_to_int64(jinja, times, "the number of repetitions", &n))
        return false;
    n = n < 0 ? 0 : n;
    if (sequence.kind == VALUE_STRING) {
        struct jinja_writer writer = {.jinja = jinja, .markup = sequence.string->markup};
        return writer_repeat(&writer, string_all(sequence.string), (size_t)n) && writer_finish_value(&writer, out);
    }
    size_t count = sequence.list->count, total;
    if (__builtin_mul_overflow(count, (size_t)n, &total) || total > jinja->limits->memory)
        return jinja_fail(jinja, "a list of %zu × %lld elements is too long", count, (long long)n);
    struct jinja_list *list = list_create(jinja, total);
    if (!list || !jinja_work(jinja, total))
        return false;
    for (size_t i = 0; i < total; i += count)
        memcpy(list->items + i, sequence.list->items, count * sizeof *list->items);
    *out = sequence.kind == VALUE_LIST ? value_list(list) : value_tuple(list);
    return true;
}

static bool is_sequence(struct value value)
{
    return value.kind == VALUE_STRING || value_is_list(value);
}

bool operator_binary(struct jinja *jinja, const char *operator, struct value a, struct value b, struct value *out)
{
    bool adds = strcmp(operator, "+") == 0, multiplies = strcmp(operator, "*") == 0;
    if (strcmp(operator, "%") == 0 && a.kind == VALUE_STRING)
        return format_percent(jinja, a.string, b, out);
    if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, a.kind == VALUE_UNDEFINED ? a : b);
    if (adds && a.kind == VALUE_STRING && b.kind == VALUE_STRING)
        return add_strings(jinja, a.string, b.string, out);
    if (adds && value_is_list(a) && a.kind == b.kind)
        return add_lists(jinja, a, b, out);
    if (multiplies && is_sequence(a) && value_is_integer(b))
        return repeat(jinja, a, b, out);
    if (multiplies && is_sequence(b) && value_is_integer(a))
        return repeat(jinja, b, a, out);
    if (!value_is_number(a) || !value_is_number(b))
        return unsupported(jinja, operator, a, b);
    for (size_t i = 0; i < sizeof number_operators / sizeof number_operators[0]; i++)
        if (strcmp(number_operators[i].symbol, operator) == 0)
            return number_operate(jinja, number_operators[i].operator, a, b, out);
    return unsupported(jinja, operator, a, b);
}

bool operator_unary(struct jinja *jinja, const char *operator, struct value a, struct value *out)
{
    if (a.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, a);
    if (!value_is_number(a))
        return jinja_fail(jinja, "bad operand type for unary %s: '%s'", operator, value_type_name(a));
    if (operator[0] == '-')
        return number_negate(jinja, a, out);
    *out = a.kind == VALUE_BOOL ? value_int(a.boolean) : a;
    return true;
}

bool operator_compare(struct jinja *jinja, enum compare_operator operator, struct value a, struct value b, bool *out)
{
    bool numbers = value_is_number(a) && value_is_number(b);
    int order = numbers ? number_compare(a, b) : 0;
    bool done;
    switch (operator) {
    case COMPARE_EQ:
        return value_equal(jinja, a, b, out);
    case COMPARE_NE:
        done = value_equal(jinja, a, b, out);
        *out = !*out;
        return done;
    case COMPARE_IN:
        return value_contains(jinja, b, a, out);
    case COMPARE_NOT_IN:
        done = value_contains(jinja, b, a, out);
        *out = !*out;
        return done;
    case COMPARE_LT:
        return value_less(jinja, a, b, out);
    case COMPARE_GT:
        return value_less(jinja, b, a, out);
    case COMPARE_LE:
        *out = order == -1 || order == 0;
        if (numbers)
            return true;
        done = value_less(jinja, b, a, out);
        *out = !*out;
        return done;
    default: // COMPARE_GE
        *out = order == 1 || order == 0;
        if (numbers)
            return true;
        done = value_less(jinja, a, b, out);
        *out = !*out;
        return done;
    }
}

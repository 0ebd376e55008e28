// Tests: what stands behind `is`.
#include "text/jinja_number.h"
#include "text/jinja_repr.h"
#include "text/jinja_run.h"
#include "text/jinja_text.h"

static bool answer(bool holds, struct value *out)
{
    *out = value_bool(holds);
    return true;
}

static bool compare(struct jinja *jinja, const struct call *call, enum compare_operator operator, struct value * out)
{
    bool holds;
    return operator_compare(jinja, operator, call->self, call->arguments[0], &holds) && answer(holds, out);
}

static bool test_eq(struct jinja *jinja, const struct call *call, struct value *out)
{
    return compare(jinja, call, COMPARE_EQ, out);
}

static bool test_ne(struct jinja *jinja, const struct call *call, struct value *out)
{
    return compare(jinja, call, COMPARE_NE, out);
}

static bool test_lt(struct jinja *jinja, const struct call *call, struct value *out)
{
    return compare(jinja, call, COMPARE_LT, out);
}

static bool test_le(struct jinja *jinja, const struct call *call, struct value *out)
{
    return compare(jinja, call, COMPARE_LE, out);
}

static bool test_gt(struct jinja *jinja, const struct call *call, struct value *out)
{
    return compare(jinja, call, COMPARE_GT, out);
}

static bool test_ge(struct jinja *jinja, const struct call *call, struct value *out)
{
    return compare(jinja, call, COMPARE_GE, out);
}

static bool test_in(struct jinja *jinja, const struct call *call, struct value *out)
{
    return compare(jinja, call, COMPARE_IN, out);
}

static bool test_sameas(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(value_same(call->self, call->arguments[0]), out);
}

// self % divisor == expected
static bool remainder_is(struct jinja *jinja, struct value self, struct value divisor, int64_t expected,
                         struct value *out)
{
    struct value rest;
    bool equal;
    return operator_binary(jinja, "%", self, divisor, &rest) && value_equal(jinja, rest, value_int(expected), &equal) &&
           answer(equal, out);
}

static bool test_divisibleby(struct jinja *jinja, const struct call *call, struct value *out)
{
    return remainder_is(jinja, call->self, call->arguments[0], 0, out);
}

static bool test_even(struct jinja *jinja, const struct call *call, struct value *out)
{
    return remainder_is(jinja, call->self, value_int(2), 0, out);
}

static bool test_odd(struct jinja *jinja, const struct call *call, struct value *out)
{
    return remainder_is(jinja, call->self, value_int(2), 1, out);
}

static bool has_case(struct jinja *jinja, const struct call *call, bool upper, struct value *out)
{
    struct jinja_string *text;
    return value_to_string(jinja, call->self, &text) && jinja_work(jinja, text->size) &&
           answer(text_has_case(text, upper), out);
}

static bool test_lower(struct jinja *jinja, const struct call *call, struct value *out)
{
    return has_case(jinja, call, false, out);
}

static bool test_upper(struct jinja *jinja, const struct call *call, struct value *out)
{
    return has_case(jinja, call, true, out);
}

static bool test_boolean(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_BOOL, out);
}

static bool test_true(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_BOOL && call->self.boolean, out);
}

static bool test_false(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_BOOL && !call->self.boolean, out);
}

static bool test_none(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_NONE, out);
}

static bool test_defined(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind != VALUE_UNDEFINED, out);
}

static bool test_undefined(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_UNDEFINED, out);
}

static bool test_integer(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_INT || call->self.kind == VALUE_BIG, out);
}

static bool test_float(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_FLOAT, out);
}

static bool test_number(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(value_is_number(call->self), out);
}

static bool test_string(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_STRING, out);
}

static bool test_mapping(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_DICT, out);
}

// Whatever has a length and can be subscribed; so a dict, too, and what is undefined.
static bool test_sequence(struct jinja *jinja, const struct call *call, struct value *out)
{
    enum value_kind kind = call->self.kind;
    (void)jinja;
    return answer(kind == VALUE_STRING || kind == VALUE_LIST || kind == VALUE_TUPLE || kind == VALUE_DICT ||
                      kind == VALUE_RANGE || kind == VALUE_UNDEFINED,
                  out);
}

static bool test_iterable(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(value_is_iterable(call->self), out);
}

static bool test_callable(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(value_is_callable(call->self), out);
}

static bool test_escaped(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_STRING && call->self.string->markup, out);
}

static bool test_filter(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_STRING && filter_find(call->self.string), out);
}

static bool test_test(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)jinja;
    return answer(call->self.kind == VALUE_STRING && test_find(call->self.string), out);
}

#define WITH_OTHER(called, test)                                                                                       \
    {                                                                                                                  \
        .name = called, .function = test, .parameters = {"other"}, .n_required = 1                                     \
    }

static const struct jinja_builtin tests[] = {
    {.name = "boolean", .function = test_boolean},
    {.name = "callable", .function = test_callable},
    {.name = "defined", .function = test_defined},
    {.name = "divisibleby", .function = test_divisibleby, .parameters = {"num"}, .n_required = 1},
    {.name = "escaped", .function = test_escaped},
    {.name = "even", .function = test_even},
    {.name = "false", .function = test_false},
    {.name = "filter", .function = test_filter},
    {.name = "float", .function = test_float},
    {.name = "in", .function = test_in, .parameters = {"seq"}, .n_required = 1},
    {.name = "integer", .function = test_integer},
    {.name = "iterable", .function = test_iterable},
    {.name = "lower", .function = test_lower},
    {.name = "mapping", .function = test_mapping},
    {.name = "none", .function = test_none},
    {.name = "number", .function = test_number},
    {.name = "odd", .function = test_odd},
    {.name = "sequence", .function = test_sequence},
    {.name = "string", .function = test_string},
    {.name = "test", .function = test_test},
    {.name = "true", .function = test_true},
    {.name = "undefined", .function = test_undefined},
    {.name = "upper", .function = test_upper},
    WITH_OTHER("sameas", test_sameas),
    WITH_OTHER("eq", test_eq),
    WITH_OTHER("==", test_eq),
    WITH_OTHER("equalto", test_eq),
    WITH_OTHER("ne", test_ne),
    WITH_OTHER("!=", test_ne),
    WITH_OTHER("lt", test_lt),
    WITH_OTHER("<", test_lt),
    WITH_OTHER("lessthan", test_lt),
    WITH_OTHER("le", test_le),
    WITH_OTHER("<=", test_le),
    WITH_OTHER("gt", test_gt),
    WITH_OTHER(">", test_gt),
    WITH_OTHER("greaterthan", test_gt),
    WITH_OTHER("ge", test_ge),
    WITH_OTHER(">=", test_ge),
    {0},
};

const struct jinja_builtin *test_find(const struct jinja_string *name)
{
    return builtin_find(tests, name);
}

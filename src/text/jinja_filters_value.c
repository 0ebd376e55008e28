// Filters on numbers and single values; minimum, maximum and sum.
#include "text/jinja_big.h"
#include "text/jinja_filters.h"
#include "text/jinja_number.h"
#include "text/jinja_repr.h"

#include <math.h>

bool filter_abs(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct value value = call->self;
    if (value.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, value);
    if (!value_is_number(value))
        return jinja_fail(jinja, "bad operand type for abs(): '%s'", value_type_name(value));
    if (value.kind == VALUE_FLOAT) {
        *out = value_float(fabs(value.real));
        return true;
    }
    if (number_is_negative(value))
        return number_negate(jinja, value, out);
    *out = value.kind == VALUE_BOOL ? value_int(value.boolean) : value;
    return true;
}

bool filter_attr(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *name;
    return value_to_string(jinja, call->arguments[0], &name) && value_own_attribute(jinja, call->self, name, out);
}

bool filter_default(struct jinja *jinja, const struct call *call, struct value *out)
{
    *out = call->self;
    if (out->kind != VALUE_UNDEFINED && (!argument_bool(call, 1, false) || value_truth(*out)))
        return true;
    *out = call->arguments[0];
    return out->kind != VALUE_ABSENT || value_from_literal(jinja, "", out);
}

bool filter_length(struct jinja *jinja, const struct call *call, struct value *out)
{
    size_t length;
    if (!value_length(jinja, call->self, &length))
        return false;
    *out = value_int((int64_t)length);
    return true;
}

// float(value). *valid is false where Python raises TypeError or ValueError.
static bool to_float(struct jinja *jinja, struct value value, double *real, bool *valid)
{
    *valid = true;
    if (value.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, value);
    if (value.kind == VALUE_STRING)
        return number_parse_float(jinja, value.string, real, valid);
    *valid = value_is_number(value);
    return !*valid || number_to_double(jinja, value, real);
}

bool filter_float(struct jinja *jinja, const struct call *call, struct value *out)
{
    double real;
    bool valid;
    if (!to_float(jinja, call->self, &real, &valid))
        return false;
    *out = valid ? value_float(real) : call->arguments[0].kind == VALUE_ABSENT ? value_float(0) : call->arguments[0];
    return true;
}

bool filter_int(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct value value = call->self;
    int64_t base;
    double real;
    bool valid = false;
    if (!argument_int(jinja, call, 1, "base", 10, &base))
        return false;
    if (value.kind == VALUE_STRING && (base == 0 || (base >= 2 && base <= 36)) &&
        !number_parse_int(jinja, value.string, (unsigned)base, out, &valid))
        return false;
    if (valid)
        return true;
    if (value_is_integer(value)) {
        *out = value.kind == VALUE_BOOL ? value_int(value.boolean) : value;
        return true;
    }
    if (!to_float(jinja, value, &real, &valid))
        return false;
    if (value.kind == VALUE_FLOAT && isinf(real))
        return jinja_fail(jinja, "cannot convert float infinity to integer");
    if (valid && isfinite(real))
        return big_from_double(jinja, real, out);
    *out = call->arguments[0].kind == VALUE_ABSENT ? value_int(0) : call->arguments[0];
    return true;
}

// floor or ceil at a decimal place: value * 10^precision, rounded, / 10^precision.
static bool round_towards(struct jinja *jinja, struct value value, int64_t precision, bool up, struct value *out)
{
    struct value scale, whole;
    double real;
    if (!number_operate(jinja, NUMBER_POWER, value_int(10), value_int(precision), &scale) ||
        !number_operate(jinja, NUMBER_MULTIPLY, value, scale, &whole))
        return false;
    if (whole.kind == VALUE_FLOAT) {
        real = up ? ceil(whole.real) : floor(whole.real);
        if (!isfinite(real))
            return jinja_fail(jinja, "cannot convert float %s to integer", isnan(real) ? "NaN" : "infinity");
        if (!big_from_double(jinja, real, &whole))
            return false;
    }
    return number_operate(jinja, NUMBER_DIVIDE, whole, scale, out);
}

// round(integer, −n): to the even multiple of 10^n in a tie.
static bool round_integer(struct jinja *jinja, struct value value, int64_t precision, struct value *out)
{
    struct value unit, rest, twice, whole, quotient;
    *out = value.kind == VALUE_BOOL ? value_int(value.boolean) : value;
    if (precision >= 0)
        return true;
    if (precision < -BIG_MOST_DIGITS) {
        *out = value_int(0);
        return true;
    }
    if (!number_operate(jinja, NUMBER_POWER, value_int(10), value_int(-precision), &unit) ||
        !big_divide(jinja, *out, unit, &quotient, &rest) ||
        !number_operate(jinja, NUMBER_SUBTRACT, *out, rest, &whole) ||
        !number_operate(jinja, NUMBER_ADD, rest, rest, &twice))
        return false;
    int order = number_compare(twice, unit);
    bool up = order > 0 || (order == 0 && big_is_odd(quotient));
    *out = whole;
    return !up || number_operate(jinja, NUMBER_ADD, whole, unit, out);
}

bool filter_round(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct value value = call->self;
    struct jinja_string *method;
    int64_t precision;
    if (!argument_int(jinja, call, 0, "precision", 0, &precision) ||
        !argument_string(jinja, call, 1, "method", &method))
        return false;
    bool up = method && string_is(method, "ceil"), down = method && string_is(method, "floor");
    if (method && !up && !down && !string_is(method, "common"))
        return jinja_fail(jinja, "method must be common, ceil or floor");
    if (value.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, value);
    if (!value_is_number(value))
        return jinja_fail(jinja, "type %s cannot be rounded", value_type_name(value));
    if (up || down)
        return round_towards(jinja, value, precision, up, out);
    if (value.kind != VALUE_FLOAT)
        return round_integer(jinja, value, precision, out);
    *out = value_float(number_round(value.real, precision));
    return true;
}

bool filter_sum(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct attribute_path path;
    struct jinja_iterator *iterator;
    struct value item, sum = call->arguments[1].kind == VALUE_ABSENT ? value_int(0) : call->arguments[1];
    if (sum.kind == VALUE_STRING)
        return jinja_fail(jinja, "sum() can't sum strings [use ''.join(seq) instead]");
    if (!attribute_parse(jinja, call->arguments[0], &path) || !iterator_open(jinja, call->self, &iterator))
        return false;
    for (;;) {
        if (!iterator_next(jinja, iterator, &item))
            return false;
        if (item.kind == VALUE_ABSENT)
            break;
        if (!attribute_get(jinja, &path, item, &item) || !operator_binary(jinja, "+", sum, item, &sum))
            return false;
    }
    *out = sum;
    return true;
}

static bool extreme(struct jinja *jinja, const struct call *call, bool largest, struct value *out)
{
    struct attribute_path path;
    struct jinja_iterator *iterator;
    struct value item, key, best_key = {0};
    bool case_sensitive = argument_bool(call, 0, false);
    if (!attribute_parse(jinja, call->arguments[1], &path) || !iterator_open(jinja, call->self, &iterator))
        return false;
    for (;;) {
        bool better = true;
        if (!iterator_next(jinja, iterator, &item))
            return false;
        if (item.kind == VALUE_ABSENT)
            break;
        if (!attribute_key(jinja, &path, item, case_sensitive, &key))
            return false;
        if (best_key.kind != VALUE_ABSENT &&
            !value_less(jinja, largest ? best_key : key, largest ? key : best_key, &better))
            return false;
        if (better) {
            best_key = key;
            *out = item;
        }
    }
    return best_key.kind != VALUE_ABSENT || value_undefined_text(jinja, "no aggregated item, sequence was empty", out);
}

bool filter_min(struct jinja *jinja, const struct call *call, struct value *out)
{
    return extreme(jinja, call, false, out);
}

bool filter_max(struct jinja *jinja, const struct call *call, struct value *out)
{
    return extreme(jinja, call, true, out);
}

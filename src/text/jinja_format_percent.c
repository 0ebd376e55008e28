// '%s and %5.2f' % (a, b)
#include "text/jinja_big.h"
#include "text/jinja_format.h"
#include "text/jinja_number.h"
#include "text/jinja_repr.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

struct percent_formatter {
    struct jinja *jinja;
    struct slice format;
    size_t at;
    struct value arguments;
    size_t next; // of a tuple's
    bool markup;
};

static bool next_argument(struct percent_formatter *formatter, struct value *out)
{
    struct value arguments = formatter->arguments;
    size_t count = arguments.kind == VALUE_TUPLE ? arguments.list->count : 1;
    if (formatter->next >= count)
        return jinja_fail(formatter->jinja, "not enough arguments for format string");
    *out = arguments.kind == VALUE_TUPLE ? arguments.list->items[formatter->next] : arguments;
    formatter->next++;
    return true;
}

static bool peek(const struct percent_formatter *formatter, char *c)
{
    *c = formatter->at < formatter->format.size ? formatter->format.data[formatter->at] : '\0';
    return *c != '\0' || jinja_fail(formatter->jinja, "incomplete format");
}

// (key): the value of a dict.
static bool keyed_argument(struct percent_formatter *formatter, struct value *out)
{
    struct jinja *jinja = formatter->jinja;
    size_t begin = ++formatter->at;
    int open = 1;
    for (; formatter->at < formatter->format.size; formatter->at++) {
        char c = formatter->format.data[formatter->at];
        open += (c == '(') - (c == ')');
        if (open == 0)
            break;
    }
    if (open)
        return jinja_fail(jinja, "incomplete format key");
    struct jinja_string *key = string_create(jinja, formatter->format.data + begin, formatter->at - begin, true);
    formatter->at++;
    if (!key)
        return false;
    if (formatter->arguments.kind != VALUE_DICT)
        return jinja_fail(jinja, "format requires a mapping");
    if (!dict_get(jinja, formatter->arguments.dict, value_string(key), out))
        return false;
    return out->kind != VALUE_ABSENT ||
           jinja_fail(jinja, "the format's key '%.*s' is missing", (int)(key->size & 0xff), key->data);
}

// A width or precision: digits, or * for an argument. −1: none.
static bool read_size(struct percent_formatter *formatter, int64_t *size)
{
    char c;
    *size = -1;
    if (!peek(formatter, &c))
        return false;
    if (c == '*') {
        struct value value;
        formatter->at++;
        return next_argument(formatter, &value) && number_to_int64(formatter->jinja, value, "*", size);
    }
    for (; isdigit((unsigned char)c); formatter->at++) {
        *size = (*size < 0 ? 0 : *size) * 10 + (c - '0');
        *size = *size > INT32_MAX ? INT32_MAX : *size;
        c = formatter->at + 1 < formatter->format.size ? formatter->format.data[formatter->at + 1] : '\0';
    }
    return true;
}

static bool read_spec(struct percent_formatter *formatter, struct format_spec *spec)
{
    *spec = (struct format_spec){.fill = ' ', .align = '>', .precision = -1};
    bool left = false, zero = false;
    char c;
    for (;; formatter->at++) {
        if (!peek(formatter, &c))
            return false;
        if (c == '-')
            left = true;
        else if (c == '0')
            zero = true;
        else if (c == '#')
            spec->alternate = true;
        else if (c == '+' || (c == ' ' && spec->sign != '+'))
            spec->sign = c;
        else if (c != ' ')
            break;
    }
    if (!read_size(formatter, &spec->width) || !peek(formatter, &c))
        return false;
    if (spec->width < -1) {
        left = true;
        spec->width = -(spec->width < -INT32_MAX ? -INT32_MAX : spec->width);
    }
    if (c == '.') {
        formatter->at++;
        if (!read_size(formatter, &spec->precision))
            return false;
        spec->precision = spec->precision < 0 ? 0 : spec->precision;
    }
    do {
        if (!peek(formatter, &c))
            return false;
        formatter->at++;
    } while (c == 'l' || c == 'h' || c == 'L');
    spec->type = c;
    if (zero && !strchr("sracSRAC%", c) && !left) {
        spec->fill = '0';
        spec->align = '=';
    }
    if (left)
        spec->align = '<';
    return true;
}

static bool write_text(struct percent_formatter *formatter, struct jinja_writer *writer, struct value value,
                       struct format_spec *spec)
{
    struct jinja *jinja = formatter->jinja;
    struct jinja_string *string;
    char type = spec->type;
    if (type != 's') {
        struct jinja_writer repr = {.jinja = jinja};
        bool text = value.kind == VALUE_STRING;
        if (!(text ? repr_text(&repr, string_all(value.string), type == 'a') : value_repr(&repr, value)) ||
            !writer_finish_value(&repr, &value))
            return false;
    }
    if (!value_to_string(jinja, value, &string) || (formatter->markup && !(string = string_escape(jinja, string))))
        return false;
    spec->type = 's';
    spec->sign = 0;
    spec->alternate = false;
    return format_value(writer, value_string(string), spec);
}

static bool write_character(struct percent_formatter *formatter, struct jinja_writer *writer, struct value value,
                            struct format_spec *spec)
{
    spec->precision = -1;
    spec->sign = 0;
    spec->alternate = false;
    if (value.kind != VALUE_STRING)
        return format_value(writer, value, spec);
    if (string_length(value.string) != 1)
        return jinja_fail(formatter->jinja, "%%c requires int or char");
    return format_padded(writer, string_all(value.string), spec);
}

static bool write_integer(struct percent_formatter *formatter, struct jinja_writer *writer, struct value value,
                          struct format_spec *spec)
{
    struct jinja *jinja = formatter->jinja;
    bool decimal = strchr("diu", spec->type) != NULL;
    if (value.kind == VALUE_FLOAT && decimal) {
        if (!isfinite(value.real))
            return jinja_fail(jinja, "cannot convert float %s to integer", isnan(value.real) ? "NaN" : "infinity");
        if (!big_from_double(jinja, value.real, &value))
            return false;
    }
    if (value.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, value);
    if (!value_is_integer(value))
        return jinja_fail(jinja, "%%%c format: a number is required, not %s", spec->type, value_type_name(value));
    if (decimal)
        spec->type = 'd';
    int64_t digits = spec->precision;
    spec->precision = -1;
    if (digits < 0)
        return format_value(writer, value, spec);
    // A precision is the least number of digits: a field of its own with zeros in front.
    struct format_spec inner = *spec;
    struct jinja_writer text = {.jinja = jinja};
    inner.fill = '0';
    inner.align = '=';
    inner.width = digits + (number_is_negative(value) || spec->sign) + (spec->alternate && !decimal ? 2 : 0);
    if (spec->align == '=' && spec->width > inner.width)
        inner.width = spec->width;
    if (!format_value(&text, value, &inner))
        return false;
    return format_padded(writer, (struct slice){text.data, text.size, NULL, false}, spec);
}

static bool write_real(struct percent_formatter *formatter, struct jinja_writer *writer, struct value value,
                       struct format_spec *spec)
{
    struct jinja *jinja = formatter->jinja;
    double real;
    if (value.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, value);
    if (!value_is_number(value))
        return jinja_fail(jinja, "must be real number, not %s", value_type_name(value));
    return number_to_double(jinja, value, &real) && format_value(writer, value_float(real), spec);
}

static bool write_field(struct percent_formatter *formatter, struct jinja_writer *writer)
{
    struct value value = {0};
    struct format_spec spec;
    char c;
    bool keyed;
    if (!peek(formatter, &c))
        return false;
    if (c == '%') {
        formatter->at++;
        return writer_text(writer, "%");
    }
    keyed = c == '(';
    if ((keyed && !keyed_argument(formatter, &value)) || !read_spec(formatter, &spec))
        return false;
    if (!keyed && !next_argument(formatter, &value))
        return false;
    if (strchr("sra", spec.type))
        return write_text(formatter, writer, value, &spec);
    if (spec.type == 'c')
        return write_character(formatter, writer, value, &spec);
    if (strchr("diuoxX", spec.type))
        return write_integer(formatter, writer, value, &spec);
    if (strchr("eEfFgG", spec.type))
        return write_real(formatter, writer, value, &spec);
    return jinja_fail(formatter->jinja, "unsupported format character '%c'",
                      isprint((unsigned char)spec.type) ? spec.type : '?');
}

bool format_percent(struct jinja *jinja, struct jinja_string *format, struct value arguments, struct value *out)
{
    struct percent_formatter formatter = {
        .jinja = jinja, .format = string_all(format), .arguments = arguments, .markup = format->markup};
    struct jinja_writer writer = {.jinja = jinja, .markup = format->markup};
    while (formatter.at < format->size) {
        const char *percent = memchr(format->data + formatter.at, '%', format->size - formatter.at);
        size_t end = percent ? (size_t)(percent - format->data) : format->size;
        if (!writer_slice(&writer, string_slice(format, formatter.at, end)))
            return false;
        formatter.at = end + 1;
        if (percent && !write_field(&formatter, &writer))
            return false;
    }
    bool mapping = arguments.kind == VALUE_DICT || arguments.kind == VALUE_LIST || arguments.kind == VALUE_UNDEFINED;
    size_t count = arguments.kind == VALUE_TUPLE ? arguments.list->count : mapping ? 0 : 1;
    if (formatter.next < count)
        return jinja_fail(jinja, "not all arguments converted during string formatting");
    return writer_finish_value(&writer, out);
}

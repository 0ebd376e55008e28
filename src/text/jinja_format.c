// Laying out one value by a specification, and '{}'.format.
#include "text/jinja_format.h"

#include "text/jinja_big.h"
#include "text/jinja_number.h"
#include "text/jinja_repr.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NESTING = 2 }; // fields inside the specification of a field

static struct slice plain(const char *data, size_t size)
{
    return (struct slice){data, size, NULL, false};
}

static size_t count_characters(struct slice text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return count;
}

static bool write_fill(struct jinja_writer *writer, uint32_t fill, int64_t times)
{
    char bytes[4];
    size_t size = 0;
    struct jinja_writer one = {.jinja = writer->jinja};
    if (times <= 0)
        return true;
    if (fill < 0x80) {
        bytes[size++] = (char)fill;
        return writer_repeat(writer, plain(bytes, size), (size_t)times);
    }
    return writer_code_point(&one, fill, false) && writer_repeat(writer, plain(one.data, one.size), (size_t)times);
}

bool format_padded(struct jinja_writer *writer, struct slice text, const struct format_spec *spec)
{
    int64_t missing = spec->width - (int64_t)count_characters(text);
    missing = missing < 0 ? 0 : missing;
    int64_t left = spec->align == '>' ? missing : spec->align == '^' ? missing / 2 : 0;
    return write_fill(writer, spec->fill, left) && writer_slice(writer, text) &&
           write_fill(writer, spec->fill, missing - left);
}

// A number in parts: sign and prefix, digits before the point (grouped), and what follows them.
static bool write_number(struct jinja_writer *writer, const char *head, struct slice digits, struct slice tail,
                         const struct format_spec *spec)
{
    struct jinja *jinja = writer->jinja;
    struct jinja_writer body = {.jinja = jinja}, whole = {.jinja = jinja};
    size_t group = spec->grouping ? (strchr("boxX", spec->type) && spec->type ? 4 : 3) : SIZE_MAX;
    bool zeros = spec->align == '=' && spec->fill == '0';
    int64_t room = spec->width - (int64_t)strlen(head) - (int64_t)tail.size;
    // Zeros in front are digits like others: they are grouped too.
    size_t count = digits.size;
    if (zeros && room > (int64_t)digits.size) {
        count = (size_t)room;
        if (spec->grouping) {
            count = digits.size;
            while ((int64_t)(count + (count - 1) / group) < room)
                count++;
        }
        if (count > jinja->limits->memory || !jinja_work(jinja, count))
            return jinja_fail(jinja, "a field of width %lld is too wide", (long long)spec->width);
    }
    for (size_t i = 0; i < count; i++) {
        size_t follow = count - i;
        char digit = follow > digits.size ? '0' : digits.data[digits.size - follow];
        if (i && spec->grouping && follow % group == 0 && !writer_bytes(&body, &spec->grouping, 1, false))
            return false;
        if (!writer_bytes(&body, &digit, 1, false))
            return false;
    }
    if (!writer_slice(&body, tail))
        return false;
    if (spec->align == '=') {
        int64_t missing = spec->width - (int64_t)strlen(head) - (int64_t)body.size;
        return writer_text(writer, head) && write_fill(writer, spec->fill, missing) &&
               writer_bytes(writer, body.data, body.size, false);
    }
    struct format_spec field = *spec;
    field.align = spec->align ? spec->align : '>';
    return writer_text(&whole, head) && (!body.size || writer_bytes(&whole, body.data, body.size, false)) &&
           format_padded(writer, plain(whole.data, whole.size), &field);
}

static const char *sign_text(bool negative, char sign)
{
    return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

static bool format_character(struct jinja_writer *writer, struct value value, const struct format_spec *spec)
{
    int64_t code_point;
    struct jinja_writer text = {.jinja = writer->jinja};
    struct format_spec field = *spec;
    field.align = spec->align ? spec->align : '<';
    if (!number_to_int64(writer->jinja, value, "a character's code", &code_point))
        return false;
    if (code_point < 0 || code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000))
        return jinja_fail(writer->jinja, "%lld is not the code of a character", (long long)code_point);
    return writer_code_point(&text, (uint32_t)code_point, false) &&
           format_padded(writer, plain(text.data, text.size), &field);
}

static bool format_integer(struct jinja_writer *writer, struct value value, const struct format_spec *spec)
{
    static const struct {
        char type;
        unsigned base;
        const char *prefix;
    } bases[] = {{'b', 2, "0b"}, {'o', 8, "0o"}, {'x', 16, "0x"}, {'X', 16, "0X"}};
    unsigned base = 10;
    const char *prefix = "";
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        if (bases[i].type == spec->type) {
            base = bases[i].base;
            prefix = spec->alternate ? bases[i].prefix : "";
        }
    }
    struct jinja_writer digits = {.jinja = writer->jinja};
    char head[8];
    if (!big_write(&digits, value, base))
        return false;
    for (size_t i = 0; spec->type == 'X' && i < digits.size; i++)
        digits.data[i] = (char)toupper((unsigned char)digits.data[i]);
    strcpy(head, sign_text(big_is_negative(value), spec->sign));
    strcat(head, prefix);
    return write_number(writer, head, plain(digits.data, digits.size), plain("", 0), spec);
}

// No type: as repr, or with a precision like 'g' but with a digit behind the point always.
static bool write_untyped(struct jinja_writer *writer, double magnitude, int64_t precision, bool alternate)
{
    if (precision < 0)
        return number_write_float(writer, magnitude);
    if (precision > 400)
        precision = 400;
    precision = precision ? precision : 1;
    struct jinja_writer exponent = {.jinja = writer->jinja};
    if (!number_write_formatted(&exponent, magnitude, 'e', (int)precision - 1, alternate) ||
        !writer_bytes(&exponent, "\0", 1, false))
        return false;
    const char *e = strchr(exponent.data, 'e');
    int power = e ? (e[1] == '-' ? -1 : 1) * (int)strtol(e + 2, NULL, 10) : 0;
    if (power < -4 || power + 1 > precision - 1) {
        // As 'e' but without zeros at the end of the fraction.
        const char *end = e;
        while (!alternate && memchr(exponent.data, '.', (size_t)(e - exponent.data)) && end[-1] == '0')
            end--;
        end -= !alternate && end[-1] == '.';
        return writer_bytes(writer, exponent.data, (size_t)(end - exponent.data), false) && writer_text(writer, e);
    }
    struct jinja_writer fixed = {.jinja = writer->jinja};
    if (!number_write_formatted(&fixed, magnitude, 'g', (int)precision, alternate))
        return false;
    bool point = memchr(fixed.data, '.', fixed.size) != NULL;
    return writer_bytes(writer, fixed.data, fixed.size, false) && (point || writer_text(writer, ".0"));
}

static bool format_real(struct jinja_writer *writer, double real, const struct format_spec *spec)
{
    struct jinja_writer text = {.jinja = writer->jinja};
    char lower = (char)tolower((unsigned char)spec->type);
    int64_t precision = spec->precision < 0 ? 6 : spec->precision;
    if (precision > 100000)
        return jinja_fail(writer->jinja, "a precision of %lld is too large", (long long)precision);
    double magnitude = fabs(real);
    bool done;
    if (!isfinite(real))
        done = writer_text(&text, isnan(real) ? "nan" : "inf");
    else if (lower == 0)
        done = write_untyped(&text, magnitude, spec->precision, spec->alternate);
    else if (lower == '%')
        done = number_write_formatted(&text, magnitude * 100, 'f', (int)precision, spec->alternate);
    else
        done = number_write_formatted(&text, magnitude, lower == 'n' ? 'g' : lower, (int)precision, spec->alternate);
    if (!done || (lower == '%' && !writer_text(&text, "%")))
        return false;
    for (size_t i = 0; isupper((unsigned char)spec->type) && i < text.size; i++)
        text.data[i] = (char)toupper((unsigned char)text.data[i]);
    size_t whole = 0;
    while (whole < text.size && isdigit((unsigned char)text.data[whole]))
        whole++;
    return write_number(writer, sign_text(signbit(real) && !isnan(real), spec->sign), plain(text.data, whole),
                        plain(text.data + whole, text.size - whole), spec);
}

static bool format_text(struct jinja_writer *writer, struct value value, const struct format_spec *spec)
{
    struct jinja_string *string = value.string;
    struct format_spec field = *spec;
    if (spec->type && spec->type != 's')
        return jinja_fail(writer->jinja, "unknown format code '%c' for a text", spec->type);
    if (spec->zeros)
        field.align = 0;
    if (spec->sign || spec->alternate || spec->grouping || field.align == '=')
        return jinja_fail(writer->jinja, "a sign, '=', '#' and grouping are not allowed in the format of a text");
    field.align = field.align ? field.align : '<';
    size_t end = string->size;
    if (spec->precision >= 0 && (uint64_t)spec->precision < string_length(string))
        end = string_offset(string, (size_t)spec->precision);
    return format_padded(writer, string_slice(string, 0, end), &field);
}

bool format_value(struct jinja_writer *writer, struct value value, const struct format_spec *spec)
{
    struct jinja *jinja = writer->jinja;
    if (value.kind == VALUE_STRING)
        return format_text(writer, value, spec);
    if (spec->grouping && spec->type == 'n')
        return jinja_fail(jinja, "grouping is not allowed with 'n' in a format");
    if (value.kind == VALUE_FLOAT && (!spec->type || strchr("eEfFgGn%", spec->type)))
        return format_real(writer, value.real, spec);
    if (!value_is_integer(value))
        return jinja_fail(jinja, "this format does not suit a value of type %s", value_type_name(value));
    if (spec->type && strchr("eEfFgG%", spec->type)) {
        double real;
        return number_to_double(jinja, value, &real) && format_real(writer, real, spec);
    }
    if (spec->precision >= 0)
        return jinja_fail(jinja, "precision is not allowed in the format of an integer");
    if (spec->type == 'c' && (spec->sign || spec->alternate))
        return jinja_fail(jinja, "a sign and '#' are not allowed in the format of a character");
    if (spec->grouping && spec->type && strchr(spec->grouping == ',' ? "cnboxX" : "cn", spec->type))
        return jinja_fail(jinja, "'%c' is not allowed with '%c' in a format", spec->grouping, spec->type);
    if (spec->type == 'c')
        return format_character(writer, value, spec);
    if (spec->type && !strchr("bdoxXn", spec->type))
        return jinja_fail(jinja, "unknown format code '%c' for an integer", spec->type);
    return format_integer(writer, value, spec);
}

// Reads a number at text[*at]; −1 where there is none, INT64_MAX/2 where it is too large.
static int64_t read_number(struct slice text, size_t *at)
{
    int64_t number = -1;
    for (; *at < text.size && isdigit((unsigned char)text.data[*at]); ++*at) {
        number = (number < 0 ? 0 : number) * 10 + (text.data[*at] - '0');
        number = number > INT32_MAX ? INT32_MAX : number;
    }
    return number;
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static bool parse_spec(struct jinja *jinja, struct slice text, struct format_spec *spec)
{
    size_t at = 0, length = 0;
    *spec = (struct format_spec){.fill = ' ', .precision = -1};
    uint32_t first = text.size ? string_decode(text.data, text.size, &length) : 0;
    if (length && length < text.size && is_align(text.data[length])) {
        spec->fill = first;
        spec->align = text.data[length];
        at = length + 1;
    } else if (text.size && is_align(text.data[0])) {
        spec->align = text.data[at++];
    }
    bool filled = at > 1;
    if (at < text.size && (text.data[at] == '+' || text.data[at] == '-' || text.data[at] == ' '))
        spec->sign = text.data[at++];
    if (at < text.size && text.data[at] == 'z')
        at++;
    if (at < text.size && text.data[at] == '#')
        spec->alternate = text.data[at++];
    if (at < text.size && text.data[at] == '0') {
        at++;
        spec->fill = filled ? spec->fill : '0';
        spec->zeros = spec->align == 0;
        spec->align = spec->align ? spec->align : '=';
    }
    int64_t width = read_number(text, &at);
    spec->width = width < 0 ? 0 : width;
    if (at < text.size && (text.data[at] == ',' || text.data[at] == '_'))
        spec->grouping = text.data[at++];
    if (at < text.size && text.data[at] == '.') {
        at++;
        spec->precision = read_number(text, &at);
        if (spec->precision < 0)
            return jinja_fail(jinja, "format specifier missing precision");
    }
    if (at < text.size)
        spec->type = text.data[at++];
    return at == text.size || jinja_fail(jinja, "invalid format specifier");
}

struct brace_formatter {
    struct jinja *jinja;
    const struct arguments *arguments;
    int64_t next;   // automatic number
    bool automatic; // fields without a number were seen
    bool manual;
    bool markup;
};

static bool expand(struct brace_formatter *formatter, struct slice text, int nesting, struct jinja_writer *writer);

static bool named_argument(const struct brace_formatter *formatter, struct slice name, struct value *out)
{
    for (size_t i = 0; i < formatter->arguments->n_named; i++) {
        const struct binding *named = &formatter->arguments->named[i];
        if (named->name->size == name.size && memcmp(named->name->data, name.data, name.size) == 0) {
            *out = named->value;
            return true;
        }
    }
    return jinja_fail(formatter->jinja, "format() got no argument '%.*s'", (int)(name.size & 0xff), name.data);
}

static bool numbered_argument(struct brace_formatter *formatter, struct slice name, struct value *out)
{
    size_t at = 0;
    int64_t number = read_number(name, &at);
    if (number < 0) {
        formatter->automatic = true;
        number = formatter->next++;
    } else {
        formatter->manual = true;
    }
    if (formatter->automatic && formatter->manual)
        return jinja_fail(formatter->jinja, "cannot switch between automatic and manual numbering of fields");
    if ((uint64_t)number >= formatter->arguments->count)
        return jinja_fail(formatter->jinja, "format() has no argument %lld", (long long)number);
    *out = formatter->arguments->positional[number];
    return true;
}

// name.attribute[key] …
static bool find_field(struct brace_formatter *formatter, struct slice name, struct value *out)
{
    struct jinja *jinja = formatter->jinja;
    size_t at = 0;
    while (at < name.size && name.data[at] != '.' && name.data[at] != '[')
        at++;
    struct slice first = {name.data, at, NULL, false};
    bool number = at == 0;
    for (size_t i = 0; i < at; i++)
        number = isdigit((unsigned char)name.data[i]) && (number || i == 0);
    if (!(number ? numbered_argument(formatter, first, out) : named_argument(formatter, first, out)))
        return false;
    while (at < name.size) {
        bool item = name.data[at++] == '[';
        size_t begin = at;
        while (at < name.size && (item ? name.data[at] != ']' : name.data[at] != '.' && name.data[at] != '['))
            at++;
        if (at == begin || (item && at == name.size))
            return jinja_fail(jinja, "a field name of format() is not valid");
        struct jinja_string *key = string_create(jinja, name.data + begin, at - begin, false);
        size_t digits = 0;
        int64_t index = read_number(plain(name.data + begin, at - begin), &digits);
        if (!key)
            return false;
        if (!item ? !value_attribute(jinja, *out, key, out)
                  : !value_item(jinja, *out, digits == key->size ? value_int(index) : value_string(key), out))
            return false;
        at += item;
        if (at < name.size && name.data[at] != '.' && name.data[at] != '[')
            return jinja_fail(jinja, "a field name of format() is not valid");
    }
    return true;
}

static bool convert(struct jinja *jinja, char conversion, struct value *value)
{
    struct jinja_writer writer = {.jinja = jinja}, ascii = {.jinja = jinja};
    struct jinja_string *string;
    if (conversion == 's') {
        if (!value_to_string(jinja, *value, &string))
            return false;
        *value = value_string(string);
        return true;
    }
    if (conversion != 'r' && conversion != 'a')
        return jinja_fail(jinja, "unknown conversion specifier '%c'", conversion);
    if (conversion == 'a' && value->kind == VALUE_STRING)
        return repr_text(&ascii, string_all(value->string), true) && writer_finish_value(&ascii, value);
    return value_repr(&writer, *value) && writer_finish_value(&writer, value);
}

// The inside of a field: name, !conversion, :specification.
static bool expand_field(struct brace_formatter *formatter, struct slice field, int nesting,
                         struct jinja_writer *writer)
{
    struct jinja *jinja = formatter->jinja;
    size_t at = 0;
    for (bool brackets = false; at < field.size; at++) {
        brackets = field.data[at] == '[' || (brackets && field.data[at] != ']');
        if (!brackets && (field.data[at] == '!' || field.data[at] == ':'))
            break;
    }
    struct value value;
    if (!find_field(formatter, (struct slice){field.data, at, NULL, false}, &value))
        return false;
    if (at < field.size && field.data[at] == '!') {
        if (at + 1 >= field.size || (at + 2 < field.size && field.data[at + 2] != ':'))
            return jinja_fail(jinja, "a conversion of format() is not valid");
        if (!convert(jinja, field.data[at + 1], &value))
            return false;
        at += 2;
    }
    struct jinja_writer spec_text = {.jinja = jinja};
    if (at < field.size && !expand(formatter, (struct slice){field.data + at + 1, field.size - at - 1, NULL, false},
                                   nesting + 1, &spec_text))
        return false;
    struct format_spec spec;
    struct jinja_writer text = {.jinja = jinja};
    bool markup = value.kind == VALUE_STRING && value.string->markup;
    if (spec_text.size == 0) {
        if (!value_write(&text, value))
            return false;
    } else if (!parse_spec(jinja, plain(spec_text.data, spec_text.size), &spec) || !format_value(&text, value, &spec)) {
        return false;
    }
    struct jinja_string *string = writer_finish(&text);
    if (!string)
        return false;
    return formatter->markup && !markup ? writer_escaped(writer, string_all(string)) : writer_string(writer, string);
}

static bool expand(struct brace_formatter *formatter, struct slice text, int nesting, struct jinja_writer *writer)
{
    struct jinja *jinja = formatter->jinja;
    if (nesting >= MOST_NESTING + 1)
        return jinja_fail(jinja, "fields of format() are nested too deep");
    size_t done = 0;
    for (size_t at = 0; at < text.size; at++) {
        char c = text.data[at];
        if (c != '{' && c != '}')
            continue;
        bool doubled = at + 1 < text.size && text.data[at + 1] == c;
        struct slice before = {text.data + done, at + doubled - done, text.shadow ? text.shadow + done : NULL,
                               text.trusted};
        if (!writer_slice(writer, before))
            return false;
        if (doubled) {
            done = ++at + 1;
            continue;
        }
        if (c == '}')
            return jinja_fail(jinja, "single '}' encountered in format string");
        size_t end = at + 1;
        for (int open = 1; end < text.size; end++) {
            open += (text.data[end] == '{') - (text.data[end] == '}');
            if (open == 0)
                break;
        }
        if (end >= text.size)
            return jinja_fail(jinja, "single '{' encountered in format string");
        if (!expand_field(formatter, (struct slice){text.data + at + 1, end - at - 1, NULL, false}, nesting, writer))
            return false;
        at = end;
        done = end + 1;
    }
    struct slice rest = {text.data + done, text.size - done, text.shadow ? text.shadow + done : NULL, text.trusted};
    return writer_slice(writer, rest);
}

bool format_braces(struct jinja *jinja, struct jinja_string *format, const struct arguments *arguments,
                   struct value *out)
{
    struct brace_formatter formatter = {.jinja = jinja, .arguments = arguments, .markup = format->markup};
    struct jinja_writer writer = {.jinja = jinja, .markup = format->markup};
    return expand(&formatter, string_all(format), 0, &writer) && writer_finish_value(&writer, out);
}

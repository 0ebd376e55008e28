// See jinja_number.h. Conversions between text and double go through the C library without ever showing it a decimal
// point: digits are given as "12345e-2" and taken from "%e" as digits and exponent alone.
#include "text/jinja_number.h"

#include "text/jinja_big.h"
#include "text/jinja_unicode.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PRECISION = 10000 }; // digits behind the point that a format may ask for

static int64_t small(struct value value)
{
    return value.kind == VALUE_BOOL ? value.boolean : value.integer;
}

bool number_to_double(struct jinja *jinja, struct value a, double *out)
{
    *out = a.kind == VALUE_FLOAT ? a.real : a.kind == VALUE_BIG ? big_to_double(a, 0) : (double)small(a);
    return a.kind != VALUE_BIG || !isinf(*out) || jinja_fail(jinja, "int too large to convert to float");
}

bool number_to_int64(struct jinja *jinja, struct value a, const char *what, int64_t *out)
{
    if (a.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, a);
    if (!value_is_integer(a))
        return jinja_fail(jinja, "%s must be an integer, not '%s'", what, value_type_name(a));
    if (a.kind == VALUE_BIG)
        return jinja_fail(jinja, "%s is too large", what);
    *out = small(a);
    return true;
}

bool number_is_negative(struct value a)
{
    return a.kind == VALUE_FLOAT ? a.real < 0 : big_is_negative(a);
}

int number_compare(struct value a, struct value b)
{
    if (a.kind != VALUE_FLOAT && b.kind != VALUE_FLOAT)
        return big_compare(a, b);
    if (a.kind == VALUE_FLOAT && b.kind == VALUE_FLOAT)
        return isunordered(a.real, b.real) ? NUMBER_UNORDERED : (a.real > b.real) - (a.real < b.real);
    if (b.kind != VALUE_FLOAT) {
        int order = number_compare(b, a);
        return order == NUMBER_UNORDERED ? order : -order;
    }
    if (isnan(b.real))
        return NUMBER_UNORDERED;
    if (isinf(b.real))
        return b.real > 0 ? -1 : 1;
    return big_compare_double(a, b.real);
}

static bool int_power(struct jinja *jinja, struct value base, int64_t exponent, struct value *out)
{
    struct value result = value_int(1);
    while (exponent) {
        if (exponent & 1 && !number_operate(jinja, NUMBER_MULTIPLY, result, base, &result))
            return false;
        exponent >>= 1;
        if (exponent && !number_operate(jinja, NUMBER_MULTIPLY, base, base, &base))
            return false;
    }
    *out = result;
    return true;
}

static bool int_operate(struct jinja *jinja, enum number_operator operator, struct value a, struct value b,
                        struct value *out)
{
    bool fits = a.kind != VALUE_BIG && b.kind != VALUE_BIG;
    int64_t x = fits ? small(a) : 0, y = fits ? small(b) : 0, result = 0;
    bool zero = b.kind != VALUE_BIG && small(b) == 0;
    switch (operator) {
    case NUMBER_ADD:
        if (fits && !__builtin_add_overflow(x, y, &result))
            break;
        return big_add(jinja, a, b, false, out);
    case NUMBER_SUBTRACT:
        if (fits && !__builtin_sub_overflow(x, y, &result))
            break;
        return big_add(jinja, a, b, true, out);
    case NUMBER_MULTIPLY:
        if (fits && !__builtin_mul_overflow(x, y, &result))
            break;
        return big_multiply(jinja, a, b, out);
    case NUMBER_DIVIDE:
        if (zero)
            return jinja_fail(jinja, "division by zero");
        *out = value_float(0);
        if (fits && llabs(x) <= 1ll << 53 && llabs(y) <= 1ll << 53) {
            out->real = (double)x / (double)y;
            return true;
        }
        return big_true_divide(jinja, a, b, &out->real);
    case NUMBER_FLOOR:
    case NUMBER_MODULO: {
        if (zero)
            return jinja_fail(jinja, "integer division or modulo by zero");
        bool floor = operator== NUMBER_FLOOR;
        if (!fits || y == -1) // −1: the least integer has no negative
            return big_divide(jinja, a, b, floor ? out : NULL, floor ? NULL : out);
        bool down = x % y != 0 && (x < 0) != (y < 0);
        result = floor ? x / y - down : x % y + (down ? y : 0);
        break;
    }
    default: // NUMBER_POWER
        if (big_is_negative(b)) {
            double base, exponent;
            if (!number_to_double(jinja, a, &base) || !number_to_double(jinja, b, &exponent))
                return false;
            if (base == 0)
                return jinja_fail(jinja, "0.0 cannot be raised to a negative power");
            *out = value_float(pow(base, exponent));
            return true;
        }
        if (b.kind == VALUE_BIG && a.kind != VALUE_BIG && small(a) >= -1 && small(a) <= 1) {
            *out = value_int(small(a) == -1 && !big_is_odd(b) ? 1 : small(a));
            return true;
        }
        if (b.kind == VALUE_BIG)
            return jinja_fail(jinja, "an integer is too large");
        return int_power(jinja, a, small(b), out);
    }
    *out = value_int(result);
    return true;
}

static bool float_operate(struct jinja *jinja, enum number_operator operator, double a, double b, double *out)
{
    switch (operator) {
    case NUMBER_ADD:
        *out = a + b;
        return true;
    case NUMBER_SUBTRACT:
        *out = a - b;
        return true;
    case NUMBER_MULTIPLY:
        *out = a * b;
        return true;
    case NUMBER_DIVIDE:
        *out = a / b;
        return b != 0 || jinja_fail(jinja, "float division by zero");
    case NUMBER_FLOOR:
    case NUMBER_MODULO: {
        if (b == 0)
            return jinja_fail(jinja, "float floor division or modulo by zero");
        double rest = fmod(a, b);
        double quotient = (a - rest) / b;
        if (rest != 0 && (rest < 0) != (b < 0)) {
            rest += b;
            quotient -= 1;
        } else if (rest == 0) {
            rest = copysign(0, b);
        }
        double whole = floor(quotient);
        if (quotient != 0)
            whole += quotient - whole > 0.5;
        else
            whole = copysign(0, a / b);
        *out = operator== NUMBER_FLOOR ? whole : rest;
        return true;
    }
    default: // NUMBER_POWER
        if (a == 0 && b < 0)
            return jinja_fail(jinja, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
            return jinja_fail(jinja, "a negative number to a fractional power is complex");
        *out = pow(a, b);
        return !isinf(*out) || isinf(a) || isinf(b) || jinja_fail(jinja, "the result of ** is too large");
    }
}

bool number_operate(struct jinja *jinja, enum number_operator operator, struct value a, struct value b,
                    struct value *out)
{
    if (a.kind != VALUE_FLOAT && b.kind != VALUE_FLOAT)
        return int_operate(jinja, operator, a, b, out);
    double x, y, result = 0;
    if (!number_to_double(jinja, a, &x) || !number_to_double(jinja, b, &y) ||
        !float_operate(jinja, operator, x, y, &result))
        return false;
    *out = value_float(result);
    return true;
}

bool number_negate(struct jinja *jinja, struct value a, struct value *out)
{
    if (a.kind == VALUE_FLOAT) {
        *out = value_float(-a.real);
        return true;
    }
    return big_negate(jinja, a, out);
}

double number_from_decimal(const char *digits, size_t n_digits, long exponent)
{
    while (n_digits && *digits == '0') {
        digits++;
        n_digits--;
    }
    if (n_digits == 0)
        return 0;
    // More than 800 digits cannot matter beyond whether any of them is not 0.
    char text[840];
    size_t kept = n_digits < 800 ? n_digits : 800;
    memcpy(text, digits, kept);
    bool cut = false;
    for (size_t i = kept; i < n_digits; i++)
        cut |= digits[i] != '0';
    exponent += (long)(n_digits - kept);
    if (cut) {
        text[kept++] = '1';
        exponent--;
    }
    exponent = exponent > 99999 ? 99999 : exponent < -99999 ? -99999 : exponent;
    snprintf(text + kept, sizeof text - kept, "e%ld", exponent);
    return strtod(text, NULL);
}

// Digits with single underscores between them, from text[*at] on, appended to out without underscores.
static size_t read_digits(const char *text, size_t size, size_t *at, char *out)
{
    size_t n = 0;
    while (*at < size) {
        if (isdigit((unsigned char)text[*at]))
            out[n++] = text[(*at)++];
        else if (text[*at] == '_' && n && *at + 1 < size && isdigit((unsigned char)text[*at + 1]))
            ++*at;
        else
            break;
    }
    return n;
}

static bool is_word(const char *text, size_t size, const char *word)
{
    return size == strlen(word) && strncasecmp(text, word, size) == 0;
}

// A copy without white space around, in which the decimal digits of every script are ASCII.
static bool plain_text(struct jinja *jinja, const struct jinja_string *text, char **out, size_t *size)
{
    struct slice slice = string_strip(string_all(text), NULL, true, true);
    struct jinja_writer writer = {.jinja = jinja};
    if (!writer_reserve(&writer, slice.size + 1))
        return false;
    for (size_t i = 0, length; i < slice.size; i += length) {
        uint32_t code_point = string_decode(slice.data + i, slice.size - i, &length);
        int digit = unicode_decimal(code_point);
        if (!writer_code_point(&writer, digit >= 0 ? (uint32_t)('0' + digit) : code_point, false))
            return false;
    }
    *out = writer.data;
    *size = writer.size;
    return true;
}

bool number_parse_float(struct jinja *jinja, const struct jinja_string *text, double *out, bool *valid)
{
    *valid = false;
    char *plain;
    size_t size, at = 0;
    if (!plain_text(jinja, text, &plain, &size))
        return false;
    char *digits = jinja_alloc(jinja, size + 1, 1);
    if (!digits)
        return false;
    bool negative = size && plain[0] == '-';
    if (size && (plain[0] == '-' || plain[0] == '+'))
        at++;
    const char *word = plain + at;
    if (is_word(word, size - at, "inf") || is_word(word, size - at, "infinity") || is_word(word, size - at, "nan")) {
        *valid = true;
        *out = tolower((unsigned char)word[0]) == 'n' ? NAN : negative ? -INFINITY : INFINITY;
        return true;
    }
    size_t n = read_digits(plain, size, &at, digits);
    long exponent = 0;
    if (at < size && plain[at] == '.') {
        at++;
        size_t fraction = read_digits(plain, size, &at, digits + n);
        exponent = -(long)fraction;
        n += fraction;
    }
    if (n == 0)
        return true;
    if (at < size && (plain[at] == 'e' || plain[at] == 'E')) {
        bool minus = ++at < size && plain[at] == '-';
        if (at < size && (plain[at] == '-' || plain[at] == '+'))
            at++;
        char *shown = jinja_alloc(jinja, size + 1, 1);
        if (!shown)
            return false;
        size_t n_shown = read_digits(plain, size, &at, shown);
        if (n_shown == 0)
            return true;
        long scale = n_shown > 9 && strspn(shown, "0") < n_shown - 9 ? 999999999 : strtol(shown, NULL, 10);
        exponent += minus ? -scale : scale;
    }
    if (at != size)
        return true;
    *valid = true;
    *out = number_from_decimal(digits, n, exponent);
    if (negative)
        *out = -*out;
    return true;
}

// The value of a digit in bases up to 36, or 36.
static unsigned digit_value(char c)
{
    return c >= '0' && c <= '9'        ? (unsigned)(c - '0')
           : isalpha((unsigned char)c) ? (unsigned)((c | 32) - 'a') + 10
                                       : 36;
}

bool number_parse_int(struct jinja *jinja, const struct jinja_string *text, unsigned base, struct value *out,
                      bool *valid)
{
    static const struct {
        char letter;
        unsigned base;
    } prefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    *valid = false;
    char *plain;
    size_t size, at = 0, n = 0;
    if (!plain_text(jinja, text, &plain, &size))
        return false;
    char *digits = jinja_alloc(jinja, size + 1, 1);
    if (!digits)
        return false;
    bool negative = size && plain[0] == '-';
    if (size && (plain[0] == '-' || plain[0] == '+'))
        at++;
    bool prefixed = false, guessed = base == 0;
    for (size_t i = 0; i < 3 && size - at > 1 && plain[at] == '0'; i++) {
        if ((plain[at + 1] | 32) == prefixes[i].letter && (guessed || base == prefixes[i].base)) {
            base = prefixes[i].base;
            prefixed = true;
        }
    }
    at += prefixed ? 2 : 0;
    base = base ? base : 10;
    for (bool may_underscore = prefixed; at < size; at++) {
        if (plain[at] == '_' && may_underscore) {
            may_underscore = false;
            if (at + 1 == size)
                return true;
            continue;
        }
        if (digit_value(plain[at]) >= base)
            return true;
        digits[n++] = plain[at];
        may_underscore = true;
    }
    if (n == 0 || (guessed && !prefixed && digits[0] == '0' && strspn(digits, "0") != n))
        return true;
    *valid = true;
    return big_from_digits(jinja, digits, n, base, negative, out);
}

// Takes digits and exponent from printf's "%.*e".
static void take_digits(double real, int n_digits, struct decimal *decimal)
{
    char text[64];
    snprintf(text, sizeof text, "%.*e", n_digits - 1, real);
    int n = 0;
    const char *c = text;
    for (; *c && *c != 'e'; c++)
        if (isdigit((unsigned char)*c))
            decimal->digits[n++] = *c;
    decimal->digits[n] = '\0';
    decimal->n_digits = n;
    decimal->point = (*c ? (int)strtol(c + 1, NULL, 10) : 0) + 1;
}

static bool reads_back(const struct decimal *decimal, double real)
{
    char text[48];
    snprintf(text, sizeof text, "%se%d", decimal->digits, decimal->point - decimal->n_digits);
    return strtod(text, NULL) == real;
}

// Adds one to the last digit.
static void round_up_digits(struct decimal *decimal)
{
    int i = decimal->n_digits - 1;
    while (i >= 0 && decimal->digits[i] == '9')
        decimal->digits[i--] = '0';
    if (i >= 0) {
        decimal->digits[i]++;
    } else {
        decimal->digits[0] = '1';
        decimal->point++;
    }
}

void number_shortest(double real, struct decimal *decimal)
{
    real = fabs(real);
    if (real == 0) {
        *decimal = (struct decimal){.digits = "0", .n_digits = 1, .point = 1};
        return;
    }
    // Every decimal of 15 digits survives the way through a double: where 15 digits read back, the shortest text is
    // those without trailing zeros. Not so among subnormals.
    int exponent;
    bool power_of_two = frexp(real, &exponent) == 0.5;
    for (int n = real >= DBL_MIN ? 15 : 1; n <= 17; n++) {
        take_digits(real, n, decimal);
        if (reads_back(decimal, real))
            break;
        if (power_of_two) { // the gap below is half of that above: the neighbour above may be near enough
            round_up_digits(decimal);
            if (reads_back(decimal, real))
                break;
        }
    }
    while (decimal->n_digits > 1 && decimal->digits[decimal->n_digits - 1] == '0')
        decimal->digits[--decimal->n_digits] = '\0';
}

bool number_write_float(struct jinja_writer *writer, double real)
{
    if (!isfinite(real))
        return writer_text(writer, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
    struct decimal decimal;
    number_shortest(real, &decimal);
    int n = decimal.n_digits, point = decimal.point;
    const char *digits = decimal.digits;
    if (signbit(real) && !writer_text(writer, "-"))
        return false;
    if (point > 16 || point < -3)
        return writer_format(writer, n > 1 ? "%c.%se%c%02d" : "%c%se%c%02d", digits[0], digits + 1,
                             point > 0 ? '+' : '-', abs(point - 1));
    if (point <= 0)
        return writer_format(writer, "0.%.*s%s", -point, "000", digits);
    if (point >= n)
        return writer_format(writer, "%s%.*s.0", digits, point - n, "0000000000000000");
    return writer_format(writer, "%.*s.%s", point, digits, digits + point);
}

bool number_write_int(struct jinja_writer *writer, struct value integer)
{
    if (integer.kind != VALUE_BIG)
        return writer_format(writer, "%lld", (long long)small(integer));
    return (!big_is_negative(integer) || writer_text(writer, "-")) && big_write(writer, integer, 10);
}

// Rounds digits (most significant first) to the first `kept` of them: ties to even.
static bool rounds_up(const char *digits, size_t n_digits, size_t kept)
{
    bool beyond_half = digits[kept] > '5', half = digits[kept] == '5';
    for (size_t i = kept + 1; half && i < n_digits; i++)
        beyond_half |= digits[i] != '0';
    bool odd = kept && (digits[kept - 1] - '0') % 2;
    return beyond_half || (half && odd);
}

double number_round(double real, int64_t digits)
{
    // The exact decimal value: 309 digits before the point at most; behind it 60 are enough where digits are negative,
    // and printf itself rounds exactly, ties to even, where they are not.
    enum { EXACT_FRACTION = 60 };
    char text[800], plain[800] = "0"; // a leading 0, for a carry
    if (!isfinite(real) || real == 0 || digits > 323)
        return real;
    if (digits < -309)
        return copysign(0, real);
    size_t n = 1;
    snprintf(text, sizeof text, "%.*f", digits < 0 ? EXACT_FRACTION : (int)digits, fabs(real));
    for (const char *c = text; *c; c++)
        if (isdigit((unsigned char)*c))
            plain[n++] = *c;
    if (digits >= 0)
        return copysign(number_from_decimal(plain, n, (long)-digits), real);
    size_t before = n - EXACT_FRACTION; // the point
    if ((size_t)-digits >= before)      // to the place of the leading 0 at least
        return copysign(0, real);
    size_t kept = before - (size_t)-digits;
    if (rounds_up(plain, n, kept)) {
        size_t i = kept - 1;
        while (plain[i] == '9')
            plain[i--] = '0';
        plain[i]++;
    }
    return copysign(number_from_decimal(plain, kept, (long)-digits), real);
}

bool number_write_formatted(struct jinja_writer *writer, double real, char conversion, int precision, bool alternate)
{
    if (precision > MOST_PRECISION)
        return jinja_fail(writer->jinja, "a precision of %d is too large", precision);
    char format[8] = {
        '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : conversion, alternate ? conversion : '\0',
        '\0'};
    size_t capacity = 400 + (size_t)precision;
    char *text = jinja_alloc(writer->jinja, capacity, 1);
    if (!text)
        return false;
    int length = snprintf(text, capacity, format, precision, real);
    // The locale's decimal point is whatever is neither digit, letter nor sign.
    for (int i = 0; i < length; i++) {
        bool plain = isalnum((unsigned char)text[i]) || text[i] == '-' || text[i] == '+';
        bool first = !plain && (i == 0 || isalnum((unsigned char)text[i - 1]));
        if (plain ? !writer_bytes(writer, text + i, 1, false) : first && !writer_text(writer, "."))
            return false;
    }
    return true;
}

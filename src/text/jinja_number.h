// Numbers as Python has them: integers without overflow, floor division and modulo towards minus infinity, floats that
// print as the shortest text which reads back as the same number. Nothing here depends on the locale.
#ifndef MOTE_TEXT_JINJA_NUMBER_H
#define MOTE_TEXT_JINJA_NUMBER_H

#include "text/jinja_string.h"

enum { NUMBER_UNORDERED = 2 }; // one of them is not a number

enum number_operator {
    NUMBER_ADD,
    NUMBER_SUBTRACT,
    NUMBER_MULTIPLY,
    NUMBER_DIVIDE,
    NUMBER_FLOOR,
    NUMBER_MODULO,
    NUMBER_POWER
};

static inline bool value_is_integer(struct value value) // bool is one in Python
{
    return value.kind == VALUE_BOOL || value.kind == VALUE_INT || value.kind == VALUE_BIG;
}

static inline bool value_is_number(struct value value)
{
    return value_is_integer(value) || value.kind == VALUE_FLOAT;
}

// Both are numbers.
bool number_operate(struct jinja *jinja, enum number_operator operator, struct value a, struct value b,
                    struct value *out);
bool number_negate(struct jinja *jinja, struct value a, struct value *out);
bool number_is_negative(struct value a);
int number_compare(struct value a, struct value b); // −1, 0, 1 or NUMBER_UNORDERED

// Fails where an integer is too large.
bool number_to_double(struct jinja *jinja, struct value a, double *out);
// An integer argument that must fit in 64 bits; `what` names it in the error.
bool number_to_int64(struct jinja *jinja, struct value a, const char *what, int64_t *out);

// float(text), int(text, base) as Python reads them: white space around, a sign, underscores between digits,
// inf and nan; base 0 to 36. *valid is false where the text is something else.
bool number_parse_float(struct jinja *jinja, const struct jinja_string *text, double *out, bool *valid);
bool number_parse_int(struct jinja *jinja, const struct jinja_string *text, unsigned base, struct value *out,
                      bool *valid);

// Digits (ASCII, no sign) times 10^exponent.
double number_from_decimal(const char *digits, size_t n_digits, long exponent);

// The decimal digits of a finite |real|, no point: real = 0.d1d2d3… × 10^point. Shortest that reads back as real.
struct decimal {
    char digits[20];
    int n_digits;
    int point;
};
void number_shortest(double real, struct decimal *decimal);

bool number_write_float(struct jinja_writer *writer, double real); // repr
bool number_write_int(struct jinja_writer *writer, struct value integer);

// round(real, digits) of Python: to the even neighbour in a tie of the exact decimal value.
double number_round(double real, int64_t digits);

// printf of one double with the point as '.', whatever the locale: conversion is one of e, f, g.
bool number_write_formatted(struct jinja_writer *writer, double real, char conversion, int precision, bool alternate);

#endif

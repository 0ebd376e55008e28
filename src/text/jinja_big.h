// Integers that do not fit in 64 bits: Python's have no bound, ours have BIG_MOST_LIMBS. A result that fits in 64 bits
// is always a VALUE_INT, so that equal numbers have one form.
#ifndef MOTE_TEXT_JINJA_BIG_H
#define MOTE_TEXT_JINJA_BIG_H

#include "text/jinja_string.h"

enum {
    BIG_MOST_LIMBS = 2048,  // 65536 bits
    BIG_MOST_DIGITS = 4300, // decimal digits that are printed or read: Python's own limit
};

struct jinja_big {
    bool negative;
    size_t count; // limbs, the last one not 0
    uint32_t limbs[];
};

// a and b are BOOL, INT or BIG in all of these.
bool big_add(struct jinja *jinja, struct value a, struct value b, bool subtract, struct value *out);
bool big_multiply(struct jinja *jinja, struct value a, struct value b, struct value *out);
// Rounded towards minus infinity, as // and % are; either result may be NULL. b is not 0.
bool big_divide(struct jinja *jinja, struct value a, struct value b, struct value *quotient, struct value *remainder);
bool big_negate(struct jinja *jinja, struct value a, struct value *out);
// −1, 0 or 1.
int big_compare(struct value a, struct value b);
// Exactly; real is finite.
int big_compare_double(struct value a, double real);
// The nearest double (ties to even), times 2^-shift; infinite where it is too large.
double big_to_double(struct value a, int shift);
// a / b, rounded once. Fails where it is too large for a double.
bool big_true_divide(struct jinja *jinja, struct value a, struct value b, double *out);
// The integer part of a finite double.
bool big_from_double(struct jinja *jinja, double real, struct value *out);
// Digits of base 2 to 36, no sign, at least one.
bool big_from_digits(struct jinja *jinja, const char *digits, size_t n_digits, unsigned base, bool negative,
                     struct value *out);
// The digits of |a| in base 2, 8, 10 or 16.
bool big_write(struct jinja_writer *writer, struct value a, unsigned base);
bool big_is_negative(struct value a);
bool big_is_odd(struct value a);

#endif

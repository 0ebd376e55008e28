// Schoolbook arithmetic on sign and magnitude, 32 bits a limb, least first.
#include "text/jinja_big.h"

#include <math.h>
#include <string.h>

struct number {
    bool negative;
    size_t count;
    const uint32_t *limbs;
    uint32_t own[2]; // where the number is an INT
};

static void load(struct value value, struct number *number)
{
    if (value.kind == VALUE_BIG) {
        number->negative = value.big->negative;
        number->count = value.big->count;
        number->limbs = value.big->limbs;
        return;
    }
    int64_t integer = value.kind == VALUE_BOOL ? value.boolean : value.integer;
    uint64_t magnitude = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;
    number->negative = integer < 0;
    number->own[0] = (uint32_t)magnitude;
    number->own[1] = (uint32_t)(magnitude >> 32);
    number->limbs = number->own;
    number->count = number->own[1] ? 2 : number->own[0] ? 1 : 0;
}

static struct jinja_big *create(struct jinja *jinja, size_t count)
{
    if (count > BIG_MOST_LIMBS) {
        jinja_fail(jinja, "an integer has more than %d bits", BIG_MOST_LIMBS * 32);
        return NULL;
    }
    struct jinja_big *big = jinja_alloc(jinja, 1, sizeof *big + count * sizeof big->limbs[0]);
    if (big)
        big->count = count;
    return big;
}

// Drops leading zeros; what fits in 64 bits becomes an INT.
static void store(struct jinja_big *big, struct value *out)
{
    while (big->count && big->limbs[big->count - 1] == 0)
        big->count--;
    if (big->count <= 2) {
        uint64_t magnitude = (big->count > 0 ? big->limbs[0] : 0) | (uint64_t)(big->count > 1 ? big->limbs[1] : 0)
                                                                        << 32;
        uint64_t most = (uint64_t)INT64_MAX + big->negative;
        if (magnitude <= most) {
            *out = value_int((int64_t)(big->negative ? -magnitude : magnitude));
            return;
        }
    }
    *out = (struct value){.kind = VALUE_BIG, .big = big};
}

static int compare_magnitude(const struct number *a, const struct number *b)
{
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    for (size_t i = a->count; i-- > 0;)
        if (a->limbs[i] != b->limbs[i])
            return a->limbs[i] < b->limbs[i] ? -1 : 1;
    return 0;
}

static struct jinja_big *add_magnitude(struct jinja *jinja, const struct number *a, const struct number *b)
{
    size_t count = (a->count > b->count ? a->count : b->count) + 1;
    struct jinja_big *big = create(jinja, count);
    uint64_t carry = 0;
    for (size_t i = 0; big && i < count; i++) {
        carry += (uint64_t)(i < a->count ? a->limbs[i] : 0) + (i < b->count ? b->limbs[i] : 0);
        big->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return big;
}

// |a| − |b|, where |a| ≥ |b|.
static struct jinja_big *subtract_magnitude(struct jinja *jinja, const struct number *a, const struct number *b)
{
    struct jinja_big *big = create(jinja, a->count);
    int64_t borrow = 0;
    for (size_t i = 0; big && i < a->count; i++) {
        int64_t limb = (int64_t)a->limbs[i] - (i < b->count ? b->limbs[i] : 0) + borrow;
        big->limbs[i] = (uint32_t)limb;
        borrow = limb < 0 ? -1 : 0;
    }
    return big;
}

bool big_add(struct jinja *jinja, struct value a, struct value b, bool subtract, struct value *out)
{
    struct number x, y;
    load(a, &x);
    load(b, &y);
    y.negative ^= subtract;
    struct jinja_big *big;
    bool negative = x.negative;
    if (x.negative == y.negative) {
        big = add_magnitude(jinja, &x, &y);
    } else if (compare_magnitude(&x, &y) >= 0) {
        big = subtract_magnitude(jinja, &x, &y);
    } else {
        big = subtract_magnitude(jinja, &y, &x);
        negative = y.negative;
    }
    if (!big)
        return false;
    big->negative = negative;
    store(big, out);
    return true;
}

bool big_multiply(struct jinja *jinja, struct value a, struct value b, struct value *out)
{
    struct number x, y;
    load(a, &x);
    load(b, &y);
    struct jinja_big *big = create(jinja, x.count + y.count);
    if (!big || !jinja_work(jinja, x.count * y.count))
        return false;
    for (size_t i = 0; i < x.count; i++) {
        uint64_t carry = 0;
        for (size_t k = 0; k < y.count; k++) {
            carry += (uint64_t)x.limbs[i] * y.limbs[k] + big->limbs[i + k];
            big->limbs[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
        big->limbs[i + y.count] = (uint32_t)carry;
    }
    big->negative = x.negative != y.negative;
    store(big, out);
    return true;
}

// Divides by one limb, in place; returns the remainder.
static uint32_t divide_small(uint32_t *limbs, size_t count, uint32_t divisor)
{
    uint64_t remainder = 0;
    for (size_t i = count; i-- > 0;) {
        remainder = remainder << 32 | limbs[i];
        limbs[i] = (uint32_t)(remainder / divisor);
        remainder %= divisor;
    }
    return (uint32_t)remainder;
}

// Knuth's algorithm D. work: a->count + 1 limbs that hold |a| << shift, and hold the remainder << shift afterwards;
// divisor: |b| << shift, whose highest bit is set; b has at least 2 limbs, |a| at least as many.
static void divide_long(uint32_t *work, size_t n_work, const uint32_t *divisor, size_t n, uint32_t *quotient)
{
    for (size_t i = n_work - n; i-- > 0;) {
        uint64_t top = (uint64_t)work[i + n] << 32 | work[i + n - 1];
        uint64_t guess = top / divisor[n - 1], rest = top % divisor[n - 1];
        while (guess >> 32 || guess * divisor[n - 2] > (rest << 32 | work[i + n - 2])) {
            guess--;
            rest += divisor[n - 1];
            if (rest >> 32)
                break;
        }
        int64_t borrow = 0;
        uint64_t carry = 0;
        for (size_t k = 0; k < n; k++) {
            carry += guess * divisor[k];
            int64_t limb = (int64_t)work[i + k] - (int64_t)(uint32_t)carry + borrow;
            work[i + k] = (uint32_t)limb;
            borrow = limb < 0 ? -1 : 0;
            carry >>= 32;
        }
        int64_t limb = (int64_t)work[i + n] - (int64_t)carry + borrow;
        work[i + n] = (uint32_t)limb;
        if (limb < 0) { // one too many: add the divisor back
            guess--;
            carry = 0;
            for (size_t k = 0; k < n; k++) {
                carry += (uint64_t)work[i + k] + divisor[k];
                work[i + k] = (uint32_t)carry;
                carry >>= 32;
            }
            work[i + n] += (uint32_t)carry;
        }
        quotient[i] = (uint32_t)guess;
    }
}

// |a| / |b| rounded down, and the remainder.
static bool divide_magnitude(struct jinja *jinja, const struct number *a, const struct number *b,
                             struct jinja_big **quotient, struct jinja_big **remainder)
{
    if (!jinja_work(jinja, a->count * b->count))
        return false;
    size_t n_quotient = a->count >= b->count ? a->count - b->count + 1 : 0;
    *quotient = create(jinja, n_quotient);
    if (!*quotient)
        return false;
    if (b->count < 2 || a->count < b->count) {
        *remainder = create(jinja, a->count > 0 ? a->count : 1);
        if (!*remainder)
            return false;
        if (b->count < 2 && a->count >= b->count) {
            memcpy((*quotient)->limbs, a->limbs, a->count * sizeof(uint32_t));
            (*remainder)->limbs[0] = divide_small((*quotient)->limbs, a->count, b->limbs[0]);
        } else if (a->count) {
            memcpy((*remainder)->limbs, a->limbs, a->count * sizeof(uint32_t));
        }
        return true;
    }
    *remainder = create(jinja, a->count + 1);
    struct jinja_big *divisor = create(jinja, b->count);
    if (!*remainder || !divisor)
        return false;
    int shift = __builtin_clz(b->limbs[b->count - 1]);
    uint64_t carry = 0;
    for (size_t i = 0; i < b->count; i++) {
        carry |= (uint64_t)b->limbs[i] << shift;
        divisor->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    carry = 0;
    uint32_t *work = (*remainder)->limbs;
    for (size_t i = 0; i < a->count; i++) {
        carry |= (uint64_t)a->limbs[i] << shift;
        work[i] = (uint32_t)carry;
        carry >>= 32;
    }
    work[a->count] = (uint32_t)carry;
    divide_long(work, a->count + 1, divisor->limbs, b->count, (*quotient)->limbs);
    for (size_t i = 0; i < b->count; i++)
        work[i] = (uint32_t)(((uint64_t)work[i + 1] << 32 | work[i]) >> shift);
    memset(work + b->count, 0, (a->count + 1 - b->count) * sizeof work[0]);
    return true;
}

bool big_divide(struct jinja *jinja, struct value a, struct value b, struct value *quotient, struct value *remainder)
{
    struct number x, y;
    load(a, &x);
    load(b, &y);
    struct jinja_big *q, *r;
    if (!divide_magnitude(jinja, &x, &y, &q, &r))
        return false;
    q->negative = x.negative != y.negative;
    r->negative = x.negative;
    struct value whole, rest;
    store(q, &whole);
    store(r, &rest);
    bool exact = rest.kind == VALUE_INT && rest.integer == 0;
    if (!exact && x.negative != y.negative) // round down, not towards 0
        if (!big_add(jinja, whole, value_int(1), true, &whole) || !big_add(jinja, rest, b, false, &rest))
            return false;
    if (quotient)
        *quotient = whole;
    if (remainder)
        *remainder = rest;
    return true;
}

bool big_negate(struct jinja *jinja, struct value a, struct value *out)
{
    return big_add(jinja, value_int(0), a, true, out);
}

int big_compare(struct value a, struct value b)
{
    struct number x, y;
    load(a, &x);
    load(b, &y);
    if (x.negative != y.negative)
        return x.negative ? -1 : 1;
    int order = compare_magnitude(&x, &y);
    return x.negative ? -order : order;
}

int big_compare_double(struct value a, double real)
{
    // The integer part of real takes at most 1024 bits.
    uint32_t limbs[34] = {0};
    int exponent;
    double whole = trunc(real), fraction = frexp(fabs(whole), &exponent);
    uint64_t mantissa = (uint64_t)ldexp(fraction, 53);
    int shift = exponent - 53;
    if (shift < 0) {
        mantissa >>= -shift;
        shift = 0;
    }
    size_t at = (size_t)shift / 32;
    limbs[at] = (uint32_t)(mantissa << shift % 32);
    limbs[at + 1] = (uint32_t)(mantissa >> (32 - shift % 32));
    limbs[at + 2] = shift % 32 ? (uint32_t)(mantissa >> 32 >> (32 - shift % 32)) : 0;
    struct number x, y = {.negative = real < 0, .count = 34, .limbs = limbs};
    load(a, &x);
    while (y.count && limbs[y.count - 1] == 0)
        y.count--;
    int order = x.negative != y.negative ? 1 : compare_magnitude(&x, &y);
    order = x.negative ? -order : order;
    return order ? order : (whole > real) - (whole < real);
}

bool big_is_negative(struct value a)
{
    struct number x;
    load(a, &x);
    return x.negative;
}

bool big_is_odd(struct value a)
{
    struct number x;
    load(a, &x);
    return x.count && x.limbs[0] & 1;
}

double big_to_double(struct value a, int shift)
{
    struct number x;
    load(a, &x);
    // The highest 64 bits, the last of which says whether anything non-zero was cut: then the rounding is right.
    uint64_t bits = 0;
    size_t used = x.count > 2 ? 3 : x.count;
    size_t low = x.count - used; // first limb used
    int lead = used == 3 ? __builtin_clz(x.limbs[x.count - 1]) : 0;
    if (used == 3) {
        bits = (uint64_t)x.limbs[low + 2] << 32 | x.limbs[low + 1];
        bits = lead ? bits << lead | x.limbs[low] >> (32 - lead) : bits;
        bool cut = lead ? (uint32_t)(x.limbs[low] << lead) != 0 : x.limbs[low] != 0;
        for (size_t i = 0; i < low; i++)
            cut |= x.limbs[i] != 0;
        bits |= cut;
    } else {
        for (size_t i = 0; i < used; i++)
            bits |= (uint64_t)x.limbs[i] << 32 * i;
    }
    int exponent = used == 3 ? (int)(low + 1) * 32 - lead : 0;
    double real = ldexp((double)bits, exponent - shift);
    return x.negative ? -real : real;
}

static bool shift_left(struct jinja *jinja, struct value a, size_t bits, struct value *out)
{
    struct number x;
    load(a, &x);
    size_t limbs = bits / 32, rest = bits % 32;
    struct jinja_big *big = create(jinja, x.count + limbs + 1);
    if (!big)
        return false;
    uint64_t carry = 0;
    for (size_t i = 0; i <= x.count; i++) {
        carry |= (uint64_t)(i < x.count ? x.limbs[i] : 0) << rest;
        big->limbs[i + limbs] = (uint32_t)carry;
        carry >>= 32;
    }
    big->negative = x.negative;
    store(big, out);
    return true;
}

bool big_true_divide(struct jinja *jinja, struct value a, struct value b, double *out)
{
    struct number x, y;
    load(a, &x);
    load(b, &y);
    // Shifted so that the quotient has at least 64 bits; a remainder sets its last bit, which then decides ties.
    int shift = x.count < y.count + 3 ? (int)(y.count + 3 - x.count) * 32 : 0;
    struct value scaled, quotient, remainder;
    if (!shift_left(jinja, a, (size_t)shift, &scaled))
        return false;
    struct number s;
    load(scaled, &s);
    s.negative = false;
    y.negative = false;
    struct jinja_big *q, *r;
    if (!divide_magnitude(jinja, &s, &y, &q, &r))
        return false;
    store(q, &quotient);
    store(r, &remainder);
    if (remainder.kind != VALUE_INT || remainder.integer != 0)
        if (!big_is_odd(quotient) && !big_add(jinja, quotient, value_int(1), false, &quotient))
            return false;
    double real = big_to_double(quotient, shift);
    if (isinf(real))
        return jinja_fail(jinja, "integer division result too large for a float");
    *out = x.negative != big_is_negative(b) ? -real : real;
    return true;
}

bool big_from_double(struct jinja *jinja, double real, struct value *out)
{
    if (fabs(real) < 0x1p63) {
        *out = value_int((int64_t)real);
        return true;
    }
    int exponent;
    double fraction = frexp(fabs(real), &exponent); // exponent > 63: the 53 bits of the fraction are whole
    struct value mantissa = value_int((int64_t)ldexp(fraction, 53));
    if (!shift_left(jinja, mantissa, (size_t)(exponent - 53), out))
        return false;
    return real >= 0 || big_negate(jinja, *out, out);
}

bool big_from_digits(struct jinja *jinja, const char *digits, size_t n_digits, unsigned base, bool negative,
                     struct value *out)
{
    if (n_digits > BIG_MOST_DIGITS || !jinja_work(jinja, n_digits * n_digits / 8))
        return jinja_fail(jinja, "an integer has more than %d digits", BIG_MOST_DIGITS);
    struct jinja_big *big = create(jinja, n_digits / 5 + 1); // a limb holds at least 5 digits of any base up to 36
    if (!big)
        return false;
    size_t count = 0;
    for (size_t i = 0; i < n_digits; i++) {
        unsigned char c = (unsigned char)digits[i];
        uint64_t carry = c <= '9' ? c - (unsigned)'0' : (c | 32u) - 'a' + 10;
        for (size_t k = 0; k < count; k++) {
            carry += (uint64_t)big->limbs[k] * base;
            big->limbs[k] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry)
            big->limbs[count++] = (uint32_t)carry;
    }
    big->negative = negative;
    store(big, out);
    return true;
}

bool big_write(struct jinja_writer *writer, struct value a, unsigned base)
{
    struct number x;
    load(a, &x);
    struct jinja *jinja = writer->jinja;
    struct jinja_big *big = create(jinja, x.count);
    char *digits = jinja_alloc(jinja, x.count + 1, 32); // bits are the most digits that there can be
    if (!big || !digits || !jinja_work(jinja, x.count * x.count))
        return false;
    memcpy(big->limbs, x.limbs, x.count * sizeof x.limbs[0]);
    // Several digits at a time: 10^9, 16^7, 8^10, 2^31 fit in a limb.
    uint32_t unit = base;
    size_t per_unit = 1;
    while ((uint64_t)unit * base <= UINT32_MAX) {
        unit *= base;
        per_unit++;
    }
    size_t capacity = (x.count + 1) * 32, n = 0, count = x.count;
    while (count) {
        uint32_t rest = divide_small(big->limbs, count, unit);
        while (count && big->limbs[count - 1] == 0)
            count--;
        for (size_t i = 0; i < per_unit && (rest || count); i++, rest /= base)
            digits[capacity - ++n] = "0123456789abcdef"[rest % base];
    }
    if (n == 0)
        digits[capacity - ++n] = '0';
    if (base == 10 && n > BIG_MOST_DIGITS)
        return jinja_fail(jinja, "an integer has more than %d digits", BIG_MOST_DIGITS);
    return writer_bytes(writer, digits + capacity - n, n, false);
}

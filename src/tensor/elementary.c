// Elementary functions in F64, the same bits on every machine: sums, products, quotients, fma and rint only, in a fixed
// order. Polynomials are Taylor's, long enough that the cut is below 2^-60 of the result. docs/numerics.md has the
// measured errors.
#include "tensor/elementary.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

// ln 2: the first part has 42 bits behind the point, so that its products with exponents are exact.
static const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;

static double double_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint64_t double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

// x · 2^n, rounded once, for |n| ≤ 1100: a factor may overflow or be subnormal, so two are used.
static double scale_by_power(double x, int n)
{
    int half = n / 2;
    double first = double_from_bits((uint64_t)(half + 1023) << 52);
    double second = double_from_bits((uint64_t)(n - half + 1023) << 52);
    return x * first * second; // x is near 1, so that only the second product can round
}

// exp(x + low), |low| far below 1.
static double exp_sum(double x, double low)
{
    static const double inverse_factorial[] = {
        1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800,
    };
    if (x > 710.0)
        return INFINITY;
    if (x < -746.0)
        return 0.0;
    if (x != x)
        return x;
    double n = rint(x * 0x1.71547652b82fep+0); // log2(e)
    double r_high = fma(-n, ln2_high, x);      // exact
    double r_low = fma(-n, ln2_low, low);
    double r = r_high + r_low;
    r_low += r_high - r; // |r_high| ≥ |r_low|, or both are so small that it does not matter
    double p = inverse_factorial[13];
    for (int i = 12; i >= 2; i--)
        p = fma(p, r, inverse_factorial[i]);
    // 1 + r + tail, with what the two sums lose.
    double tail = fma(r * r, p, r_low);
    double t = r + tail;
    double t_low = tail - (t - r);
    double sum = 1.0 + t;
    sum += t - (sum - 1.0) + t_low;
    return scale_by_power(sum, (int)n);
}

// log(x) as high + low, about 60 bits; x positive, finite.
// x = 2^k · m, m in [√½, √2); log m = 2 artanh(s), s = (m - 1)/(m + 1).
static double log_sum(double x, double *low)
{
    uint64_t bits = double_bits(x);
    int k = 0;
    if (bits < 0x0010000000000000u) { // subnormal
        bits = double_bits(x * 0x1p54);
        k = -54;
    }
    // The exponent that puts the rest into [√½, √2).
    const uint64_t sqrt_half = 0x3fe6a09e667f3bcdu;
    int64_t exponent = (int64_t)(bits - sqrt_half) >> 52;
    k += (int)exponent;
    double m = double_from_bits(bits - ((uint64_t)exponent << 52));

    double f = m - 1.0;   // exact
    double sum = 2.0 + f; // rounded: its error goes into s_low
    double sum_low = f - (sum - 2.0);
    double s = f / sum;
    double s_low = (fma(-s, sum, f) - s * sum_low) / sum;
    double z = s * s;
    double p = 0.0;
    for (int i = 12; i >= 1; i--) // z/3 + z²/5 + …
        p = fma(p, z, 1.0 / (2 * i + 1));
    p *= z;
    double tail = 2.0 * fma(s, p, s_low) + k * ln2_low;
    double head = k * ln2_high; // exact
    double high = head + 2.0 * s;
    tail += 2.0 * s - (high - head); // |head| ≥ |2 s| or head is 0
    double result = high + tail;
    *low = tail - (result - high);
    return result;
}

double elementary_exp(double x)
{
    return exp_sum(x, 0.0);
}

double elementary_log(double x)
{
    double low;
    if (x < 0.0)
        return NAN;
    if (x == 0.0)
        return -INFINITY;
    if (x - x != 0.0) // inf, NaN
        return x;
    return log_sum(x, &low);
}

double elementary_pow(double base, double exponent)
{
    double low;
    if (exponent == 0.0 || base == 1.0)
        return 1.0;
    if (!(base > 0.0) || base - base != 0.0 || exponent - exponent != 0.0)
        return NAN;
    double log_high = log_sum(base, &low);
    double product = exponent * log_high;
    if (product - product != 0.0) // beyond F64
        return product > 0.0 ? INFINITY : 0.0;
    return exp_sum(product, fma(exponent, log_high, -product) + exponent * low);
}

// sin(r + low) and cos(r + low) for |r| ≤ 0.8.
static void sincos_near_zero(double r, double low, double *sine, double *cosine)
{
    // 1/3!, 1/5! … and 1/4!, 1/6! …, signs alternating.
    static const double odd[] = {-1.0 / 6,        1.0 / 120,         -1.0 / 5040,           1.0 / 362880,
                                 -1.0 / 39916800, 1.0 / 6227020800., -1.0 / 1307674368000., 1.0 / 355687428096000.};
    static const double even[] = {
        1.0 / 24,        -1.0 / 720,          1.0 / 40320,           -1.0 / 3628800,
        1.0 / 479001600, -1.0 / 87178291200., 1.0 / 20922789888000., -1.0 / 6402373705728000.};
    double z = r * r;
    double p = odd[7], q = even[7];
    for (int i = 6; i >= 0; i--) {
        p = fma(p, z, odd[i]);
        q = fma(q, z, even[i]);
    }
    *sine = r + fma(r * z, p, low * fma(-0.5, z, 1.0));
    double half = 0.5 * z;
    double w = 1.0 - half;
    *cosine = w + ((1.0 - w - half) + fma(z * z, q, -(r * low)));
}

void elementary_sincos(double x, double *sine, double *cosine)
{
    // π/2 in three parts. n · PART1 and x are multiples of 2^-52 (or x is small and n is 0), so r is exact.
    static const double part1 = 0x1.921fb54442d18p+0, part2 = 0x1.1a62633145c07p-54, part3 = -0x1.f1976b7ed8fbcp-110;
    *sine = NAN;
    *cosine = NAN;
    if (!(fabs(x) <= 0x1p30))
        return;
    double n = rint(x * 0x1.45f306dc9c883p-1); // 2/π
    double r = fma(-n, part1, x);
    // r - n · part2 and what the rounding of the product and of the difference lose (r may be the smaller).
    double product = n * part2, product_low = fma(n, part2, -product);
    double reduced = r - product;
    double taken = r - reduced;
    double low = (r - (reduced + taken)) + (taken - product);
    low = fma(-n, part3, low - product_low);
    double s, c;
    sincos_near_zero(reduced, low, &s, &c);
    switch ((int64_t)n & 3) {
    case 0:
        *sine = s;
        *cosine = c;
        break;
    case 1:
        *sine = c;
        *cosine = -s;
        break;
    case 2:
        *sine = -s;
        *cosine = -c;
        break;
    default:
        *sine = -c;
        *cosine = s;
        break;
    }
}

// Elementary functions in F64 for what is computed once per position or model (RoPE angles, YaRN, scales): our own,
// because the C library's differ between machines. Only +, -, *, /, fma, sqrt, rint and floor are used.
// docs/numerics.md has their coefficients and measured error.
#ifndef MOTE_TENSOR_ELEMENTARY_H
#define MOTE_TENSOR_ELEMENTARY_H

double elementary_exp(double x);
double elementary_log(double x);
double elementary_pow(double base, double exponent);            // base > 0
void elementary_sincos(double x, double *sine, double *cosine); // |x| up to 2^30

#endif

// Special functions of single numbers, computed in double so that a float32 result is right to its
// last bit or nearly so. At poles and outside the domain they give what PyTorch gives.
#pragma once

#include <cstdint>

namespace tessera {

double log_gamma(double x);
double digamma(double x);
// The n-th derivative of digamma, n >= 0.
double polygamma(int64_t n, double x);
// The sum of (k + q)^-s over k >= 0.
double hurwitz_zeta(double s, double q);

// exp(x^2) * erfc(x)
double scaled_erfc(double x);
double inverse_erf(double x);
// The normal distribution: the logarithm of its probability below x, and the x below which a share
// p of it lies.
double log_normal_below(double x);
double normal_quantile(double p);

// Modified Bessel functions of the first kind, of order 0 or 1, times exp(-|x|) where `scaled`.
double bessel_i(int order, double x, bool scaled);

}  // namespace tessera

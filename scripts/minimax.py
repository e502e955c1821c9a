#!/usr/bin/env python3
"""The polynomials of src/targets/cpu/vector_math: where their coefficients come from.

    .venv/bin/python scripts/minimax.py [name...]

For each row of TABLE it prints the coefficients, lowest power first, rounded to what the code computes in, and the
largest error of the rounded polynomial in exact arithmetic (what rounding at run time adds is measured by
tests/unit/test_vector_math.cpp). Coefficients are rounded one by one, lowest power first, and the others fitted again to
what rounding left.
"""
import struct
import sys
from dataclasses import dataclass
from typing import Callable

import mpmath as mp

mp.mp.prec = 360


@dataclass
class Fit:
    target: Callable  # what the polynomial in x stands for
    weight: Callable  # its error is measured as weight(x) * (p(x) - target(x))
    low: float
    high: float
    degree: int
    fixed: tuple = ()  # leading coefficients given, for instance an exact 1
    single: bool = True  # coefficients are float, otherwise double


def rounded(x, single):
    if not single:
        return mp.mpf(float(x))
    return mp.mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def horner(coefficients, x):
    result = mp.mpf(0)
    for c in reversed(coefficients):
        result = result * x + c
    return result


def minimax(target, weight, low, high, powers, points=160, rounds=60):
    """Coefficients of the given powers that all but minimise the largest |weight * (p - target)|.

    Lawson's iteration: least squares, where each point counts the more the larger its error was. Unlike Remez'
    exchange it also works when low powers are missing and the interval contains 0.
    """
    low, high = mp.mpf(low), mp.mpf(high)
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (i + 0.37) / points) for i in range(points)]
    grid = [low, *grid, high]
    basis = [[weight(x) * x**p for p in powers] for x in grid]
    goal = [weight(x) * target(x) for x in grid]
    share = [mp.mpf(1) / len(grid)] * len(grid)
    best, best_error = None, mp.inf
    for _ in range(rounds):
        normal = mp.matrix(len(powers), len(powers))
        right = mp.matrix(len(powers), 1)
        for row, y, w in zip(basis, goal, share):
            if w < 1e-18:
                continue
            for i, a in enumerate(row):
                right[i] += w * a * y
                for j in range(i + 1):
                    normal[i, j] += w * a * row[j]
        for i in range(len(powers)):
            for j in range(i):
                normal[j, i] = normal[i, j]
        solution = mp.lu_solve(normal, right)
        errors = [abs(sum(c * a for c, a in zip(solution, row)) - y) for row, y in zip(basis, goal)]
        if max(errors) < best_error:
            best, best_error = list(solution), max(errors)
        share = [w * e for w, e in zip(share, errors)]
        total = sum(share)
        share = [w / total for w in share]
    return best


def fit(row):
    done = [rounded(c, row.single) for c in row.fixed]
    while len(done) <= row.degree:
        rest = lambda x: row.target(x) - horner(done, x)
        powers = list(range(len(done), row.degree + 1))
        found = minimax(rest, row.weight, row.low, row.high, powers)
        # Doubles are so much finer than the error that nothing is to be made good.
        done += [rounded(c, row.single) for c in (found[:1] if row.single else found)]
    points = [row.low + (row.high - row.low) * mp.mpf(i) / 2000 for i in range(2001)]
    error = max(abs(row.weight(x) * (horner(done, x) - row.target(x))) for x in points if row.weight(x) != 0)
    return done, error


def beyond(f, series, skip):
    """(f(x) - the first `skip` terms of its series) / x^skip. Near 0, where that is 0 / 0, the series itself."""
    terms = [mp.mpf(series(k)) for k in range(skip + 40)]
    head, tail = terms[:skip], terms[skip:]
    return lambda x: horner(tail, x) if abs(x) < 0.05 else (f(x) - horner(head, x)) / mp.mpf(x) ** skip


def over_x(f, first):
    """Of an odd function that starts with x * first: f(x) / x as a function of z = x^2."""
    return lambda z: f(mp.sqrt(z)) / mp.sqrt(z) if z > 1e-20 else mp.mpf(first)


def cubic(f, third):
    """The p in f(x) = x + x^3 p(x^2), as a function of z = x^2."""
    return lambda z: (f(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z > 1e-10 else mp.mpf(third)


def cubic_weight(f):
    return lambda z: z * mp.sqrt(z) / f(mp.sqrt(z)) if z else mp.mpf(0)


LN2, HALF_LN2 = mp.log(2), mp.log(2) / 2 + mp.mpf("0.0001")
ERF, QUARTER_PI = 2 / mp.sqrt(mp.pi), mp.pi / 4 + mp.mpf("0.001")
SQRT_HALF, SQRT_TWO = mp.sqrt(mp.mpf(1) / 2), mp.sqrt(2)


def erf_log2(x):
    """log2(1 - erf(x)) / x: the large half of erf is 1 - 2^(x p(x))."""
    return mp.log(mp.erfc(x), 2) / x


def erfc_fit(middle, far, degree, single):
    """erfc(x) = exp(-x^2) (1/2 + s p(2 s - 1)) / (x + 1/2) with s = x / (x + middle)."""

    def rest(w):
        s = (1 + w) / 2
        x = middle * s / (1 - s)
        return (x + 0.5) * mp.exp(x * x) * mp.erfc(x) - 0.5

    at_zero = (1 - 1 / mp.sqrt(mp.pi)) * middle
    return Fit(lambda w: 2 * rest(w) / (1 + w) if w > -1 else at_zero, lambda w: (1 + w) / 2 / (rest(w) + 0.5), -1,
               (mp.mpf(far) - middle) / (mp.mpf(far) + middle), degree, single=single)


def relative(f, skip):
    """The weight of a polynomial p in f(x) = terms + x^skip p(x) that makes its error f's relative error."""
    return lambda x: abs(mp.mpf(x) ** skip / f(x)) if x else mp.mpf(0)


def log1p_series(k):
    return mp.mpf(-1) ** (k + 1) / k if k else 0


def cos_beyond(z):
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2 if z > 1e-10 else 1 / mp.mpf(24)


def log_ratio_rest(z):
    """((log((1 + s) / (1 - s)) / s - 2) / z - 2 / 3) / z where z = s^2."""
    return horner([mp.mpf(2) / (2 * k + 5) for k in range(60)], z)


TABLE = {
    # exp(r), |r| <= ln(2) / 2
    "exp": lambda: Fit(mp.exp, lambda x: mp.exp(-x), -HALF_LN2, HALF_LN2, 6, fixed=(1, 1)),
    # 2^r, |r| <= 1/2
    "exp2": lambda: Fit(lambda x: 2**x, lambda x: 2**-x, -0.5001, 0.5001, 6, fixed=(1,)),
    # expm1(r) = r + r^2 p(r)
    "expm1": lambda: Fit(beyond(mp.exp, lambda k: 1 / mp.factorial(k), 2), relative(mp.expm1, 2), -HALF_LN2, HALF_LN2,
                         5, fixed=(0.5,)),
    # log(1 + f) = f - f^2 / 2 + f^3 p(f), sqrt(1/2) <= 1 + f < sqrt(2)
    "log": lambda: Fit(beyond(mp.log1p, log1p_series, 3), relative(mp.log1p, 3), SQRT_HALF - 1, SQRT_TWO - 1, 7),
    # 3/2 exp(r): see tanh_erf.cpp
    "sigmoid": lambda: Fit(lambda x: 1.5 * mp.exp(x), lambda x: mp.exp(-x) / 1.5, -HALF_LN2, HALF_LN2, 6,
                           fixed=(1.5, 1.5)),
    # erf(x) = x + x p(x^2), |x| < 0.8, and 1 - 2^(x p(x)) from there to where it rounds to 1
    "erf_small": lambda: Fit(lambda z: over_x(mp.erf, ERF)(z) - 1, lambda z: 1 / over_x(mp.erf, ERF)(z), 0, 0.81**2, 5),
    "erf_large": lambda: Fit(erf_log2, lambda x: x * mp.erfc(x) / (1 - mp.erfc(x)), 0.79, 4.0, 6),
    # erfc from 0 to where it is no number any more
    "erfc": lambda: erfc_fit(mp.mpf(3), 10.1, 9, True),
    # x + x^3 p(x^2) for sin, tan, asin, atan; cos is 1 - x^2 / 2 + x^4 p(x^2)
    "sin": lambda: Fit(cubic(mp.sin, -1 / mp.mpf(6)), cubic_weight(mp.sin), 0, QUARTER_PI**2, 2),
    "cos": lambda: Fit(cos_beyond, lambda z: z**2 / mp.cos(mp.sqrt(z)), 0, QUARTER_PI**2, 2),
    "tan": lambda: Fit(cubic(mp.tan, 1 / mp.mpf(3)), cubic_weight(mp.tan), 0, QUARTER_PI**2, 6),
    "asin": lambda: Fit(cubic(mp.asin, 1 / mp.mpf(6)), cubic_weight(mp.asin), 0, 0.5626**2, 5),
    "atan": lambda: Fit(cubic(mp.atan, -1 / mp.mpf(3)), cubic_weight(mp.atan), 0, 1.0001, 7),
    # tanh(x) = x + x^3 p(x^2), |x| < 0.55, and 1 - 2 / (exp(2 x) + 1) from there
    "tanh": lambda: Fit(cubic(mp.tanh, -1 / mp.mpf(3)), cubic_weight(mp.tanh), 0, 0.551**2, 4),
    # sinh(x) = x + x^3 p(x^2), |x| < 1
    "sinh": lambda: Fit(cubic(mp.sinh, 1 / mp.mpf(6)), cubic_weight(mp.sinh), 0, 1.0001, 3),
    # pow goes through double: log2(1 + f) = f p(f), and 2^r
    "pow_log2": lambda: Fit(lambda x: mp.log1p(x) / (x * LN2) if x else 1 / LN2, lambda x: LN2 * x / mp.log1p(x) if x else LN2,
                            SQRT_HALF - 1, SQRT_TWO - 1, 13, single=False),
    "pow_exp2": lambda: Fit(lambda x: 2**x, lambda x: 2**-x, -0.5001, 0.5001, 7, single=False),
    # The same for double.
    "exp_wide": lambda: Fit(mp.exp, lambda x: mp.exp(-x), -HALF_LN2, HALF_LN2, 11, fixed=(1, 1), single=False),
    "exp2_wide": lambda: Fit(lambda x: 2**x, lambda x: 2**-x, -0.5001, 0.5001, 11, fixed=(1,), single=False),
    "expm1_wide": lambda: Fit(beyond(mp.exp, lambda k: 1 / mp.factorial(k), 2), relative(mp.expm1, 2), -HALF_LN2,
                              HALF_LN2, 10, fixed=(0.5,), single=False),
    "log_wide": lambda: Fit(beyond(mp.log1p, log1p_series, 3), relative(mp.log1p, 3), SQRT_HALF - 1, SQRT_TWO - 1, 18,
                            single=False),
    "sigmoid_wide": lambda: Fit(lambda x: 1.5 * mp.exp(x), lambda x: mp.exp(-x) / 1.5, -HALF_LN2, HALF_LN2, 11,
                                fixed=(1.5, 1.5), single=False),
    "erf_small_wide": lambda: Fit(lambda z: over_x(mp.erf, ERF)(z) - 1, lambda z: 1 / over_x(mp.erf, ERF)(z), 0, 1.01,
                                  12, single=False),
    "erf_large_wide": lambda: Fit(erf_log2, lambda x: x * mp.erfc(x) / (1 - mp.erfc(x)), 0.99, 6.0, 20, single=False),
    "erfc_wide": lambda: erfc_fit(mp.mpf(4), 27.3, 22, False),
    "sin_wide": lambda: Fit(cubic(mp.sin, -1 / mp.mpf(6)), cubic_weight(mp.sin), 0, QUARTER_PI**2, 5, single=False),
    "cos_wide": lambda: Fit(cos_beyond, lambda z: z**2 / mp.cos(mp.sqrt(z)), 0, QUARTER_PI**2, 5, single=False),
    "tan_wide": lambda: Fit(cubic(mp.tan, 1 / mp.mpf(3)), cubic_weight(mp.tan), 0, QUARTER_PI**2, 13, single=False),
    "asin_wide": lambda: Fit(cubic(mp.asin, 1 / mp.mpf(6)), cubic_weight(mp.asin), 0, 0.5626**2, 13, single=False),
    "atan_wide": lambda: Fit(cubic(mp.atan, -1 / mp.mpf(3)), cubic_weight(mp.atan), 0, 1.0001, 19, single=False),
    "tanh_wide": lambda: Fit(cubic(mp.tanh, -1 / mp.mpf(3)), cubic_weight(mp.tanh), 0, 0.551**2, 9, single=False),
    "sinh_wide": lambda: Fit(cubic(mp.sinh, 1 / mp.mpf(6)), cubic_weight(mp.sinh), 0, 1.0001, 6, single=False),
    # log((1 + s) / (1 - s)) = 2 s + s^3 (2/3 + s^2 p(s^2)), 1 + s over 1 - s from sqrt(1/2) to sqrt(2)
    "pow_log_wide": lambda: Fit(log_ratio_rest, lambda z: z**2 / 2, 0, 0.0295, 7, single=False),
}


if __name__ == "__main__":
    for name in sys.argv[1:] or TABLE:
        coefficients, error = fit(TABLE[name]())
        single = TABLE[name]().single
        print(f"{name}: error 2^{float(mp.log(error, 2)):.1f}")
        print("  {" + ", ".join(mp.nstr(c, 9 if single else 17) for c in coefficients) + "}")

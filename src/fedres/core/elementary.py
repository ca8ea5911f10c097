"""exp, log, powers and the normal distribution in additions, multiplications and divisions alone.

Libraries compute these differently from one CPU to the next, and a last bit that differs can
become a whole step of a model. Each works on a number, compiled or not (exp and log1p on arrays
too), and gives the same bits everywhere; the error is at most a few units in the last place of a
double.
"""

import math
from typing import Any

import numpy as np

ONE, EIGHT = np.float32(1), np.float32(8)
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
# 1/k! from k = 13 down to 0, and 1/(2k + 1) from k = 17 down to 0.
EXP_SERIES = (
    1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08, 2.755731922398589e-07,
    2.7557319223985893e-06, 2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889,
    0.008333333333333333, 0.041666666666666664, 0.16666666666666666, 0.5, 1.0, 1.0,
)  # fmt: skip
# In single precision: the polynomial that meets exp at ten Chebyshev nodes from -1 to 1.
SHORT_EXP_SERIES = tuple(
    map(
        np.float32,
        (
            2.81901911e-06, 2.54990647e-05, 0.000198357138, 0.00138827621, 0.00833335321,
            0.0416668859, 0.166666664, 0.499999973, 1.0, 1.0,
        ),
    )
)  # fmt: skip
ATANH_SERIES = (
    0.02857142857142857, 0.030303030303030304, 0.03225806451612903, 0.034482758620689655,
    0.037037037037037035, 0.04, 0.043478260869565216, 0.047619047619047616, 0.05263157894736842,
    0.058823529411764705, 0.06666666666666667, 0.07692307692307693, 0.09090909090909091,
    0.1111111111111111, 0.14285714285714285, 0.2, 0.3333333333333333, 1.0,
)  # fmt: skip
SHORT_ATANH_SERIES = tuple(map(np.float32, ATANH_SERIES[-6:]))
# 2^-1022 to 2^1023: a table, since the compiler would call a library for `ldexp`.
TWO_TO = np.ldexp(1.0, np.arange(-1022, 1024))


def polynomial(series: tuple[Any, ...], x: Any) -> Any:
    """The polynomial with these coefficients, an even number of them, that of 1 last.

    Odd powers and even ones apart, since neither sum has to wait for the other.
    """
    square = x * x
    odd: Any = series[0]
    even: Any = series[1]
    for k in range(2, len(series), 2):
        odd = odd * square + series[k]
        even = even * square + series[k + 1]
    return odd * x + even


def exp(x: Any) -> Any:
    """The exponential, of numbers from -700 to 700; what lies beyond is brought there.

    Examples
    --------
    >>> round(float(exp(1.0)), 12)
    2.718281828459
    """
    x = np.minimum(np.maximum(np.float64(1.0) * x, -700.0), 700.0)
    turns = np.floor(x * LOG2_E + 0.5)
    rest = (x - turns * LN2_HIGH) - turns * LN2_LOW
    # NaN, of which `fmax` makes a number, must not be a place in a table.
    return polynomial(EXP_SERIES, rest) * TWO_TO[np.int32(np.fmax(turns, -1022.0)) + 1022]


def exp_of_small(x: Any) -> Any:
    """The exponential of a number from -1 to 1, in single precision.

    Examples
    --------
    >>> exp_of_small(np.float32(0))
    np.float32(1.0)
    """
    return polynomial(SHORT_EXP_SERIES, x)


def normal_share(x: Any) -> Any:
    """How much of a standard normal distribution lies below x, to seven digits.

    By 26.2.17 of Abramowitz and Stegun's handbook.

    Examples
    --------
    >>> round(float(normal_share(1.96)), 6)
    0.975002
    """
    k = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    above = 1.781477937 + k * (-1.821255978 + k * 1.330274429)
    above = k * (0.319381530 + k * (-0.356563782 + k * above))
    above = above * 0.3989422804014327 * exp(-0.5 * (x * x))
    return above if x < 0.0 else 1.0 - above


def log1p(x: Any) -> Any:
    """log(1 + x) for x from 0 to 1.

    Examples
    --------
    >>> round(float(log1p(1.0)), 12)
    0.69314718056
    """
    part = np.float64(1.0) * x / (2.0 + x)
    return 2.0 * (part * polynomial(ATANH_SERIES, part * part))


def log(x: float) -> float:
    """The natural logarithm of a positive number.

    Examples
    --------
    >>> round(float(log(10.0)), 12)
    2.302585092994
    """
    part, exponent = math.frexp(x)
    if part < 0.7071067811865476:
        part, exponent = 2.0 * part, exponent - 1
    part = (part - 1.0) / (part + 1.0)
    near = 2.0 * (part * polynomial(ATANH_SERIES, part * part))
    found: float = exponent * LN2_HIGH + (exponent * LN2_LOW + near)
    return found


def log_of_middling(x: Any) -> Any:
    """The natural logarithm of a number from 1/8 to 8, in single precision.

    Examples
    --------
    >>> log_of_middling(np.float32(1))
    np.float32(0.0)
    """
    root = np.sqrt(np.sqrt(x))
    part = (root - ONE) / (root + ONE)
    return EIGHT * (part * polynomial(SHORT_ATANH_SERIES, part * part))


def power(base: int, exponent: float) -> float:
    """A whole number from 1 up, to some power.

    Examples
    --------
    >>> round(float(power(9, 0.5)), 12)
    3.0
    """
    raised: float = exp(exponent * log(base))
    return raised

"""Numbers that are far away from all others, as marks of missing values and slips are."""

import numpy as np

from fedres.core.types import F64, I64

FAR = 20  # usual spreads from the median
MOST_FAR = 0.1  # of all numbers: more are no outliers
FEWEST = 20  # other numbers, of which the tail is learned
LEAST_TAIL = 0.35  # about that of uniform numbers
CHANCE = 7.0  # exp(-7): how often a power law has such a gap


def far_out(x: F64) -> I64:
    """Return the places of numbers that no long tail explains; NaN is ignored.

    They are over `FAR` times the usual spread from the median, and beyond a gap. The usual spread
    is twice the median distance from the median of those numbers that differ from it, which is the
    interquartile range unless many numbers are equal. In the tail of a power law with the index
    1 / g, k numbers are beyond a factor of exp(g c / k) with probability exp(-c), at any distance
    (Rényi). The g of the others comes from the bulk of their distances, where that of tails which
    are no power law is larger than further out.

    Examples
    --------
    >>> x = np.append(np.linspace(-1, 1, 100), [1e6, 1e6])
    >>> far_out(x), far_out(np.exp(10 * x[:100]))
    (array([100, 101]), array([], dtype=int64))
    """
    none, known = np.zeros(0, np.int64), np.flatnonzero(~np.isnan(x))
    if len(known) < FEWEST:
        return none
    with np.errstate(over="ignore"):
        distance = np.abs(x[known] - np.median(x[known]))
    differ = distance[distance > 0]
    if len(differ) < FEWEST:
        return none
    far = int((distance > 2 * FAR * np.median(differ)).sum())
    if not 0 < far <= MOST_FAR * len(known):
        return none
    differ.sort()
    count, logs = len(differ), np.log(np.minimum(differ, np.finfo(np.float64).max))
    k = np.arange(1, min(far, count - FEWEST) + 1)
    gap, rest = logs[count - k] - logs[count - k - 1], count - k
    tail = (logs[rest * 9 // 10] - logs[rest // 2]) / np.log(5)
    beyond = np.flatnonzero(k * gap > np.maximum(tail, LEAST_TAIL) * (CHANCE + 2 * np.log(k)))
    return known[distance >= differ[count - k[beyond[-1]]]] if len(beyond) else none

"""Columns that tell the label of every row, which are often known only with the label."""

import numpy as np
from scipy.special import gammaln
from scipy.stats import rankdata

from fedres.core.types import F64, I64

EXACT = 1 - 1e-5  # correlation: of a copy that is rounded, or has a little noise
FEWEST_ROWS = 30
FEWEST_A_CATEGORY = 5  # rows, on average
CHANCE = np.log(1e-6)
LEAVE_OUT = "leave it out, unless you will know it before you know the label"


def same_number(x: F64, y: F64) -> str | None:
    """Return what a column of numbers has in common with labels that are numbers, if it tells them.

    Examples
    --------
    >>> y = np.linspace(0, 9, 50)
    >>> print(same_number(1000 - 3 * y, y))
    equals the label up to a factor and a constant
    >>> print(same_number(np.exp(y), y))
    has the order of the label
    >>> print(same_number(np.sin(y), y))
    None
    """
    there = ~(np.isnan(x) | np.isnan(y))
    if there.sum() < FEWEST_ROWS:
        return None
    x, y = x[there], y[there]
    if _correlation(x, y) > EXACT:
        return "equals the label up to a factor and a constant"
    return "has the order of the label" if _correlation(rankdata(x), rankdata(y)) > EXACT else None


def same_class(codes: I64, y: I64, client: I64, *, in_order: bool) -> str | None:
    """Return how the values of a column tell labels that repeat, if they do.

    Either each value goes with one label, and there are too few values for that to be chance: of
    all ways to deal the labels to the rows, so many as there are ways to name a label for each
    value are a vanishing share. Or each label has one interval of values. If all rows of a client
    have one label, its equal rows count once.

    Parameters
    ----------
    codes
        Number of the value in each row, from 0; -1 where it is missing.
    y, client
        Number of the label and of the client.
    in_order
        Whether codes are in the order of numbers, which have intervals.

    Examples
    --------
    >>> rows, one = np.arange(60), np.zeros(60, int)
    >>> print(same_class(rows % 4, rows % 2, one, in_order=False))
    goes with one label in each of its 4 values
    >>> print(same_class(rows, rows // 30, one, in_order=True))
    separates the classes without a mistake
    >>> print(same_class(rows, rows // 30, one, in_order=False))
    None
    """
    codes, y, client = (one[codes >= 0] for one in (codes, y, client))
    pairs = _firsts(codes, y)
    if len(codes) < FEWEST_ROWS or len(np.unique(codes)) < len(pairs):
        return None
    values = y[pairs]  # in the order of codes
    if len(_firsts(client, y)) == len(np.unique(client)) > 1:
        y = y[_firsts(codes, y, client)]
    counts = np.unique(y, return_counts=True)[1]
    dealt = gammaln(len(y) + 1) - gammaln(counts + 1).sum()
    if (
        len(values) * FEWEST_A_CATEGORY <= len(y)
        and len(values) * np.log(len(counts)) - dealt < CHANCE
    ):
        return f"goes with one label in each of its {len(values):,} values"
    changes = int((np.diff(values) != 0).sum())
    if in_order and changes == len(counts) - 1 and gammaln(len(counts) + 1) - dealt < CHANCE:
        return "separates the classes without a mistake"
    return None


def _correlation(x: F64, y: F64) -> float:
    def scaled(values: F64) -> F64:
        units = values / (np.abs(values).max() or 1.0)  # whose squares do not overflow
        return np.asarray(units - units.mean())

    x, y = scaled(x), scaled(y)
    size = np.sqrt((x @ x) * (y @ y))
    return float(abs(x @ y) / size) if size > 0 else 0.0


def _firsts(numbers: I64, *others: I64) -> I64:
    """Return the first row of each combination of numbers, in the order of the combinations."""
    for other in others:
        numbers = numbers * (int(other.max(initial=0)) + 1) + other
    return np.unique(numbers, return_index=True)[1]

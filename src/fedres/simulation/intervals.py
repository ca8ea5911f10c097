"""Means with 95% confidence intervals."""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike


class Interval(NamedTuple):
    """A mean, and half the width of its interval; NaN where one value cannot tell."""

    mean: float
    half: float

    def __str__(self) -> str:
        return format(self)

    def __format__(self, spec: str) -> str:
        """Both numbers in that format, the mean alone where there is no interval.

        Examples
        --------
        >>> f"{Interval(0.5, 0.25)}, {Interval(0.5, 0.25):+.2f}, {Interval(0.5, np.nan):+.2f}"
        '0.500 ± 0.250, +0.50 ± 0.25, +0.50'
        """
        spec = spec or ".3f"
        mean = format(self.mean, spec)
        return mean if np.isnan(self.half) else f"{mean} ± {format(self.half, spec.lstrip('+'))}"

    def times(self, factor: float) -> "Interval":
        """In another unit, such as points of a hundred."""
        return Interval(factor * self.mean, factor * self.half)

    def in_words(self, more: str, less: str) -> str:
        """Of a difference: which of the two words it bears out, if any.

        Examples
        --------
        >>> Interval(0.02, 0.03).in_words("beats", "loses to")
        'is within noise of'
        """
        if np.isnan(self.half):
            return "over one seed differs from"
        if abs(self.mean) <= self.half:
            return "is within noise of"
        return more if self.mean > 0 else less

    def named(self, name: str) -> dict[str, float | None]:
        """Both numbers for JSON, which knows no NaN."""
        return {name: self.mean, f"{name}_interval": None if np.isnan(self.half) else self.half}


def interval(values: ArrayLike) -> Interval:
    """Student's 95% interval of a mean.

    Examples
    --------
    >>> print(interval([0.90, 0.92, 0.94]))
    0.920 ± 0.050
    """
    mean, half = band(np.asarray(values, float)[:, None])
    return Interval(float(mean[0]), float(half[0]))


def band(curves: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The same for every column: means and half widths."""
    values = np.asarray(curves, float)
    n = len(values)
    if n == 1:
        return values[0], np.full(values.shape[1], np.nan)
    half = scipy.special.stdtrit(n - 1, 0.975) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return values.mean(axis=0), half


def or_none(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if np.isnan(value) else float(value)

"""Labels as the models see them: standardised numbers, or -1 and 1 for each class."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedres.core.one_against_all import targets_of
from fedres.core.types import F32, F64

LONGEST_CLASS = 1024  # bytes of a class in an array of texts, which may be longer than all
FARTHEST = 1e8  # in units of the spread: far beyond, squares of gradients overflow


@dataclass
class Running:
    """Mean and spread of the numbers seen so far (Welford's sums)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def see(self, x: float) -> None:
        """Take in one number more."""
        self.count += 1
        step = x - self.mean
        self.mean += step / self.count
        self.squares += step * (x - self.mean)

    @property
    def spread(self) -> float:
        """The standard deviation, 1 while all numbers are alike."""
        return float(np.sqrt(self.squares / self.count)) if self.squares > 0 else 1.0


@dataclass
class NumberLabels:
    """Labels of a regression: what the models see is ``(y - mean) / scale``.

    Attributes
    ----------
    mean, scale
        Of the labels there were at first.
    low, high
        The range of all labels seen: predictions stay within.
    running
        Mean and scale so far, for models that began with single rows.
    """

    mean: float = 0.0
    scale: float = 1.0
    low: float = 0.0
    high: float = 0.0
    running: Running | None = None

    @classmethod
    def fit(cls, y: F64, offset: F64 | None = None, weight: F64 | None = None) -> "NumberLabels":
        """Learn mean, scale and range; with offsets, mean and scale of what they leave.

        Examples
        --------
        >>> NumberLabels.fit(np.array([1.0, 3.0]))
        NumberLabels(mean=2.0, scale=1.0, low=1.0, high=3.0, running=None)
        """
        left = y if offset is None else y - offset
        largest = float(np.abs(left).max()) or 1.0
        in_units = left / largest  # whose squares do not overflow
        mean = float(np.average(in_units, weights=weight))
        scale = float(np.sqrt(np.average((in_units - mean) ** 2, weights=weight)))
        return cls.of_moments(largest, mean, scale, float(y.min()), float(y.max()))

    @classmethod
    def of_moments(
        cls, largest: float, mean: float, deviation: float, low: float, high: float
    ) -> "NumberLabels":
        """From mean and standard deviation in units of the largest absolute value, and a range."""
        varies = deviation > 4 * np.finfo(np.float64).eps
        return cls(mean * largest, deviation * largest if varies else 1.0, low, high)

    @property
    def outputs(self) -> int:
        """How many problems the models solve."""
        return 1

    @property
    def names(self) -> list[Any]:
        """What each of these problems is about."""
        return ["number"]

    @property
    def limits(self) -> tuple[float, float]:
        """The range that predictions of the models are clipped to."""
        return (self.low - self.mean) / self.scale, (self.high - self.mean) / self.scale

    @property
    def units(self) -> tuple[float, float]:
        """Factor and summand that make labels of what the models predict."""
        return self.scale, self.mean

    def targets(self, y: F64) -> F32:
        """What the models are to predict: (1, rows)."""
        z = (y - self.mean) / self.scale
        if (far := np.flatnonzero(np.abs(z) > FARTHEST)).size:
            raise ValueError(
                f"y has {y[far[0]]:g} in row {far[0]}, more than {FARTHEST:g} times the spread of "
                "the labels seen first: remove it, or fit anew"
            )
        return z.astype(np.float32)[None]

    def see(self, y: F64) -> None:
        """Extend the range of labels."""
        self.low, self.high = min(self.low, float(y.min())), max(self.high, float(y.max()))

    def grow(self, y: F64) -> int:
        """Take one label into mean and scale; how many outputs that adds."""
        assert self.running is not None
        if not self.running.count:
            self.low = self.high = float(y[0])
        self.running.see(float(y[0]))
        self.mean, self.scale = self.running.mean, self.running.spread
        return 0

    def values(self, scores: F32) -> F64:
        """Predictions in units of y, from (1, rows)."""
        values: F64 = self.mean + self.scale * scores[0].astype(np.float64)
        return values.clip(self.low, self.high)

    def variance(self, _values: F64, noise: float, of_scores: F64) -> F64:
        """Of what a label may differ by from these predictions."""
        return np.asarray(self.scale**2 * (noise + of_scores))

    def residual(self, noise: F64) -> F64 | None:
        """Variance of what the models leave of labels, by output, given that of the noise."""
        return np.asarray(noise * self.scale**2)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "NumberLabels":
        """What `to_dict` gave."""
        numbers = {name: float(value) for name, value in stored.items() if name != "running"}
        running = stored["running"]
        return cls(**numbers, running=running and Running(**running))


@dataclass
class CountLabels(NumberLabels):
    """Counts: the models see them as they are, and predict the logarithm of their mean."""

    @classmethod
    def fit(cls, y: F64, offset: F64 | None = None, weight: F64 | None = None) -> "CountLabels":
        """Learn the logarithm of the mean, where models begin.

        Examples
        --------
        >>> labels = CountLabels.fit(np.array([1.0, 3.0]))
        >>> labels.values(np.zeros((1, 1), np.float32))
        array([2.])
        """
        expected = np.ones(len(y)) if offset is None else np.exp(offset)
        total = np.average(y, weights=weight) / np.average(expected, weights=weight)
        return cls(float(np.log(max(total, 1e-9))), 1.0, float(y.min()), float(y.max()))

    @property
    def limits(self) -> tuple[float, float]:
        """Rates know no bounds."""
        return -np.inf, np.inf

    def targets(self, y: F64) -> F32:
        """Counts themselves: (1, rows)."""
        return y.astype(np.float32)[None]

    def values(self, scores: F32) -> F64:
        """Means, from (1, rows)."""
        return np.asarray(np.exp((self.mean + scores[0].astype(np.float64)).clip(-50, 50)))

    def variance(self, values: F64, _noise: float, of_scores: F64) -> F64:
        """Poisson's own variance, and that of a mean whose logarithm is normal."""
        return np.asarray(values + values**2 * np.expm1(of_scores.clip(0, 10)))

    def residual(self, noise: F64) -> F64 | None:  # noqa: ARG002
        """None: the variance of a count is its mean, and not a part of its logarithm."""
        return None


@dataclass
class ClassLabels:
    """Labels of a classification: one problem for two classes, else one a class.

    Attributes
    ----------
    classes
        All there are, in their order.
    grows
        Whether more may come, for models that began with single rows: then each has a problem.
    """

    classes: NDArray[Any]
    grows: bool = False

    @property
    def binary(self) -> bool:
        """Whether one problem tells two classes apart."""
        return len(self.classes) == 2 and not self.grows

    @property
    def outputs(self) -> int:
        """How many problems the models solve."""
        return 1 if self.binary else len(self.classes)

    @property
    def names(self) -> list[Any]:
        """The class whose odds each of these problems is about."""
        classes: list[Any] = self.classes.tolist()
        return classes[-1:] if self.binary else classes

    @property
    def limits(self) -> tuple[float, float]:
        """Log odds know no bounds."""
        return -np.inf, np.inf

    @property
    def units(self) -> tuple[float, float]:
        """Log odds are what the models predict."""
        return 1.0, 0.0

    def targets(self, y: NDArray[Any]) -> F32:
        """1 for rows of the class and -1 for others: (outputs, rows).

        Examples
        --------
        >>> ClassLabels(np.array(["no", "yes"])).targets(np.array(["yes", "no", "no"]))
        array([[ 1., -1., -1.]], dtype=float32)
        """
        import pandas as pd

        codes, uniques = pd.factorize(y)
        number = {class_: k for k, class_ in enumerate(self.classes.tolist())}
        for class_ in uniques.tolist():
            if class_ not in number:
                known = ", ".join(map(repr, number))
                raise ValueError(
                    f"y has {class_!r}, and the classes are {known}: name all of them by `classes` "
                    "when training begins"
                )
        numbers = np.array([number[class_] for class_ in uniques.tolist()])[codes]
        return targets_of(numbers, np.arange(len(number))[len(number) - self.outputs :])

    def see(self, y: NDArray[Any]) -> None:
        """Known classes teach nothing new."""

    def grow(self, y: NDArray[Any]) -> int:
        """Take in the class of one label; how many outputs that adds."""
        if y[0] in self.classes.tolist():
            return 0
        self.classes = np.array([*self.classes.tolist(), y[0]], object)
        return 1

    def log_odds(self, scores: F32) -> F64:
        """(rows,) for two classes, else (rows, classes)."""
        odds = scores.T.astype(np.float64)
        return odds[:, 0] if self.binary else odds

    def probabilities(self, scores: F32) -> F64:
        """(rows, classes), each row summing to 1."""
        from scipy.special import expit

        if self.binary:
            second = expit(scores[0].astype(np.float64))
            return np.stack([1 - second, second], axis=1)
        each: F64 = expit(scores.T.astype(np.float64))
        total = each.sum(axis=1, keepdims=True)
        even = np.full_like(each, 1 / len(scores))
        shares: F64 = np.divide(each, total, out=even, where=total > 0)
        return shares

    def residual(self, noise: F64) -> F64 | None:
        """Variance of the logistic distribution that log odds are of."""
        return np.full_like(noise, np.pi**2 / 3)

    def likeliest(self, scores: F32) -> NDArray[Any]:
        """The class of each row."""
        numbers = (scores[0] > 0).astype(int) if self.binary else scores.argmax(axis=0)
        found: NDArray[Any] = self.classes[numbers]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "classes": self.classes.tolist(),
            "dtype": self.classes.dtype.str,
            "grows": self.grows,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "ClassLabels":
        """What `to_dict` gave."""
        dtype = np.dtype(stored["dtype"])
        # An element of a fixed length takes it even if its text is short.
        fixed = dtype.kind in "US" and dtype.itemsize > LONGEST_CLASS
        classes = np.array(stored["classes"], None if fixed else dtype)
        if classes.ndim != 1 or classes.dtype.kind not in "biufUO":
            raise ValueError(f"classes are not {classes.dtype} of shape {classes.shape}")
        return cls(classes, bool(stored["grows"]))


Labels = NumberLabels | ClassLabels

"""Losses of a joint prediction: their value and their slope d loss / d prediction.

    squared    l = (p - y)^2             slope 2 (p - y)
    logistic   l = log(1 + exp(-y p))    slope -y / (1 + exp(y p)),   y in {-1, 1}

`slope` and `value` are for one prediction, by the number of the loss: what compiled code knows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedres.core.elementary import exp, log1p
from fedres.core.source import apart
from fedres.core.types import F32

SQUARED_NUMBER, _LOGISTIC = 0, 1


def squared(prediction: Any, y: Any) -> Any:
    """The squared loss, of numbers or arrays."""
    return (prediction - y) * (prediction - y)


def squared_slope(prediction: Any, y: Any) -> Any:
    """Its derivative in the prediction."""
    return np.float32(2) * (prediction - y)


@apart
def logistic(prediction: Any, y: Any) -> Any:
    """The logistic loss, of numbers or arrays."""
    margin = y * prediction
    return np.maximum(-margin, np.float32(0)) + log1p(exp(-np.abs(margin)))


@apart
def logistic_slope(prediction: Any, y: Any) -> Any:
    """Its derivative in the prediction."""
    return -y / (1.0 + exp(y * prediction))


def slope(loss: int, prediction: np.float32, y: np.float32) -> np.float32:
    """The derivative of the loss of that number."""
    if loss == SQUARED_NUMBER:
        return squared_slope(prediction, y)  # type: ignore[no-any-return]
    return np.float32(logistic_slope(prediction, y))


def value(loss: int, prediction: np.float32, y: np.float32) -> np.float32:
    """The loss of that number."""
    if loss == SQUARED_NUMBER:
        return squared(prediction, y)  # type: ignore[no-any-return]
    return np.float32(logistic(prediction, y))


@dataclass(frozen=True)
class Loss:
    """A loss of the sum of the local and the global prediction.

    Attributes
    ----------
    name
        How users ask for it.
    number
        How compiled code knows it.
    value, slope
        The loss and its derivative in the prediction, of numbers or arrays.
    labels
        The only labels it takes, or None if it takes any number.
    clip
        Where the range that the adaptive step clips predictions to begins. It grows with the
        labels seen, as in Vowpal Wabbit.
    residuals
        The range that few-bit residuals cover, or None for twice the range of the labels.

    Examples
    --------
    >>> SQUARED.slope(np.float32([0.5]), np.float32([1.0]))
    array([-1.], dtype=float32)
    """

    name: str
    number: int
    value: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]
    labels: tuple[float, ...] | None
    clip: tuple[float, float]
    residuals: tuple[float, float] | None

    def check(self, y: F32) -> None:
        """Refuse labels that the loss cannot take."""
        if self.labels is not None and not np.isin(y, self.labels).all():
            wrong = y[~np.isin(y, self.labels)][0]
            raise ValueError(
                f"the {self.name} loss takes labels {_either(self.labels)}, not {wrong:g}: "
                "recode the labels or use loss='squared'"
            )


def _either(labels: tuple[float, ...]) -> str:
    return " or ".join(f"{label:g}" for label in labels)


SQUARED = Loss("squared", SQUARED_NUMBER, squared, squared_slope, None, (0.0, 0.0), None)
LOGISTIC = Loss(
    "logistic", _LOGISTIC, logistic, logistic_slope, (-1.0, 1.0), (-50.0, 50.0), (-4.0, 4.0)
)
LOSSES = {loss.name: loss for loss in (SQUARED, LOGISTIC)}


def find_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name.

    Examples
    --------
    >>> find_loss("squared").labels is None
    True
    """
    known = LOSSES.get(loss.name if isinstance(loss, Loss) else loss)
    if known is None or (isinstance(loss, Loss) and loss != known):
        raise ValueError(f"unknown loss {loss!r}: choose one of {', '.join(LOSSES)}")
    return known

"""Losses of a joint prediction: their value and their slope d loss / d prediction."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedres.core.types import F32


@dataclass(frozen=True)
class Loss:
    """A loss of the sum of the local and the global prediction.

    Attributes
    ----------
    name
        How users ask for it.
    value, slope
        The loss and its derivative, of arrays of predictions and labels.
    labels
        The only labels it takes, or None if it takes any number.
    clip
        Where the range that the adaptive step clips predictions to begins. It grows with the
        labels seen, as in Vowpal Wabbit.
    residuals
        The range that few-bit residuals cover, or None for twice the range of the labels.
    """

    name: str
    value: Callable[[F32, F32], F32]
    slope: Callable[[F32, F32], F32]
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


def _squared(prediction: F32, y: F32) -> F32:
    return (prediction - y) ** 2


def _squared_slope(prediction: F32, y: F32) -> F32:
    return np.float32(2) * (prediction - y)


def _logistic(prediction: F32, y: F32) -> F32:
    loss: F32 = np.logaddexp(np.float32(0), -y * prediction)
    return loss


def _logistic_slope(prediction: F32, y: F32) -> F32:
    with np.errstate(over="ignore"):
        odds: F32 = np.exp(y * prediction)
    return -y / (np.float32(1) + odds)


SQUARED = Loss("squared", _squared, _squared_slope, None, (0.0, 0.0), None)
LOGISTIC = Loss("logistic", _logistic, _logistic_slope, (-1.0, 1.0), (-50.0, 50.0), (-4.0, 4.0))
LOSSES = {loss.name: loss for loss in (SQUARED, LOGISTIC)}


def find_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name.

    Examples
    --------
    >>> find_loss("squared").slope(np.float32([0.5]), np.float32([1.0]))
    array([-1.], dtype=float32)
    """
    if isinstance(loss, Loss):
        return loss
    if loss not in LOSSES:
        raise ValueError(f"unknown loss {loss!r}: choose one of {', '.join(LOSSES)}")
    return LOSSES[loss]

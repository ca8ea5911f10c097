"""Losses of a joint prediction: their value and their slope d loss / d prediction.

    squared    l = (p - y)^2             slope 2 (p - y)
    logistic   l = log(1 + exp(-y p))    slope -y / (1 + exp(y p)),   y in {-1, 1}

`slope` and `value` are for one prediction, by the number of the loss: what compiled code knows.
A `PairLoss` is l(y, y^g, y^l) as section 2 of the paper has it, not only of their sum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
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


def clip(prediction: Any, low: Any, high: Any) -> Any:
    """Bring a prediction into the range of labels seen."""
    return min(max(prediction, low), high)


@singledispatch
def joint_slope(
    loss: Any,
    local: bool,  # noqa: ARG001
    mine: Any,
    theirs: Any,
    reach: Any,
    y: Any,
) -> Any:
    """The derivative of the loss of two predictions in that of one side, the `local` one or not."""
    return slope(loss, clip(mine + theirs, reach[0], reach[1]), y)


@singledispatch
def joint_value(
    loss: Any,
    prediction: Any,
    from_global: Any,  # noqa: ARG001
    from_local: Any,  # noqa: ARG001
    y: Any,
) -> Any:
    """The loss of two predictions, whose sum is `prediction` when clipped."""
    return value(loss, prediction, y)


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

    @property
    def of_sum(self) -> "Loss":
        """The same: it is a loss of the sum of both predictions."""
        return self

    def check(self, y: F32) -> None:
        """Refuse labels that the loss cannot take."""
        if self.labels is not None and not np.isin(y, self.labels).all():
            wrong = y[~np.isin(y, self.labels)][0]
            raise ValueError(
                f"the {self.name} loss takes labels {_either(self.labels)}, not {wrong:g}: "
                "recode the labels or use loss='squared'"
            )


@dataclass(frozen=True)
class PairLoss:
    """A loss l(y, y^g, y^l) of the global and the local prediction, of one's own.

    It cannot be compiled, so a run with it takes the same functions as they stand. What is
    reported as the prediction stays the sum of both, which nothing clips.

    Attributes
    ----------
    name
        What errors call it.
    value
        The loss of (label, global prediction, local prediction).
    slope_global, slope_local
        Its derivatives in the two predictions: what the server and the client step along.

    Examples
    --------
    The squared loss, with a price on what the client adds to the shared model:

    >>> import fedres
    >>> modest = PairLoss(
    ...     "modest",
    ...     value=lambda y, g, own: (y - g - own) ** 2 + 0.5 * own**2,
    ...     slope_global=lambda y, g, own: 2 * (g + own - y),
    ...     slope_local=lambda y, g, own: 2 * (g + own - y) + own,
    ... )
    >>> federation = fedres.federate("digits", clients=10, seed=0)
    >>> runs = [fedres.simulate(federation, rounds=20, loss=loss) for loss in ("squared", modest)]
    >>> sizes = [sum(float(abs(w).sum()) for w in run.w_local) for run in runs]
    >>> sizes[1] < sizes[0]
    True
    """

    name: str
    value: Callable[[Any, Any, Any], Any]
    slope_global: Callable[[Any, Any, Any], Any]
    slope_local: Callable[[Any, Any, Any], Any]
    clip = (-np.inf, np.inf)
    residuals = None

    @property
    def number(self) -> "PairLoss":
        """What the core knows it by: itself."""
        return self

    @property
    def of_sum(self) -> Loss:
        """What a loss of two predictions is not."""
        raise ValueError(
            f"the loss {self.name!r} is not one of the sum of two predictions, which only the "
            "steps of SGD can do without: use loss='squared' or 'logistic' here"
        )

    def check(self, y: F32) -> None:
        """Any label will do."""


@joint_slope.register
def _(loss: PairLoss, local: bool, mine: Any, theirs: Any, reach: Any, y: Any) -> Any:
    del reach
    if local:
        return np.float32(loss.slope_local(y, theirs, mine))
    return np.float32(loss.slope_global(y, mine, theirs))


@joint_value.register
def _(loss: PairLoss, prediction: Any, from_global: Any, from_local: Any, y: Any) -> Any:
    del prediction
    return np.float32(loss.value(y, from_global, from_local))


def _either(labels: tuple[float, ...]) -> str:
    return " or ".join(f"{label:g}" for label in labels)


SQUARED = Loss("squared", SQUARED_NUMBER, squared, squared_slope, None, (0.0, 0.0), None)
LOGISTIC = Loss(
    "logistic", _LOGISTIC, logistic, logistic_slope, (-1.0, 1.0), (-50.0, 50.0), (-4.0, 4.0)
)
LOSSES = {loss.name: loss for loss in (SQUARED, LOGISTIC)}


def joint_loss(loss: str | Loss | PairLoss) -> Loss | PairLoss:
    """A loss of two predictions, or the loss of their sum that has this name."""
    return loss if isinstance(loss, PairLoss) else find_loss(loss)


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

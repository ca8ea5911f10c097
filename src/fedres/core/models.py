"""One linear model between two messages: what a client or the server holds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedres.core.primitives import View, fold, view_of
from fedres.core.rule import Rule
from fedres.core.sgd import Flight, Linear, Many, Message, evaluate, new_models
from fedres.core.steps import Step
from fedres.core.types import F32, I32, Matrix


class LinearModel:
    """f(x; w) = w . (x, 1), with its sums of squares and the range of labels it has learned from.

    A model of width zero predicts 0, has no constant and never moves.

    Parameters
    ----------
    width
        Number of features.
    rule
        What clients and server agree on.
    step
        How it moves: that of the rule for clients, or for the server.
    initial
        Weights to begin with, the constant's last; zeros if None.
    versions
        Copies of the weights: two where gradients are taken at one and applied to the other.

    Examples
    --------
    >>> model = LinearModel(2, Rule(), Rule().step)
    >>> model.weights[:] = [1.0, 2.0, 0.5]  # two features and the constant
    >>> model.f(np.float32([[1.0, 1.0]]))
    array([3.5], dtype=float32)
    """

    def __init__(
        self, width: int, rule: Rule, step: Step, initial: F32 | None = None, versions: int = 1
    ) -> None:
        self.width, self.constant = width, rule.constant and width > 0
        self.models = new_models(np.array([width]), rule.constant, rule.reach, versions)
        self._eta, self._sums = np.float32(step.eta), np.zeros(width + 1, np.float32)
        if initial is not None:
            self.weights[:] = initial

    @property
    def weights(self) -> F32:
        """w, the constant's weight last if there is one; a view that can be written to."""
        return self.models.weights[: self.width + self.constant]

    @property
    def squares(self) -> F32:
        """The running sums of squares, likewise."""
        return self.models.squares[: self.width + self.constant]

    @property
    def reach(self) -> tuple[float, float]:
        """The range of the labels learned from so far, which predictions are clipped to."""
        return float(self.models.low[0]), float(self.models.high[0])

    @reach.setter
    def reach(self, reach: tuple[float, float]) -> None:
        self.models.low[:], self.models.high[:] = reach

    def state(self) -> dict[str, F32]:
        """All that learning has changed, to be kept."""
        models = self.models
        changed = (models.weights, models.squares, models.low, models.high)
        return dict(zip(("weights", "squares", "low", "high"), changed, strict=True))

    def restore(self, state: Mapping[str, F32]) -> None:
        """Go on from a state that was kept."""
        for name, now in self.state().items():
            now[:] = state[name]

    def f(self, x: Matrix) -> F32:
        """f(x; w) of every row, not clipped."""
        return linear(x, self.weights, self.constant)

    def clip(self, prediction: F32) -> F32:
        """Bring predictions into the range of the labels seen so far."""
        low, high = self.models.low[0], self.models.high[0]
        return np.asarray(np.minimum(np.maximum(prediction, low), high), np.float32)

    def on(self, x: View) -> Linear:
        """The model as one side of a federation, with these rows."""
        return Linear(x, self.models, self._eta, self._sums)


def batch_of(y: F32) -> Flight:
    """A message under way alone, with the rows 0, 1, ... and these labels."""
    numbers = np.zeros((7, len(y)), np.float32)
    numbers[0] = y
    return Flight(1, *(_ALONE if len(y) == 1 else _places(len(y))), *numbers)


def _places(count: int) -> tuple[Many, I32, I32]:
    rows = np.arange(count, dtype=np.int32)
    return Many(count, np.array([count], np.int32)), rows, np.zeros(count, np.int32)


_ALONE = _places(1)  # nobody writes there: made once


def whole(flight: Flight) -> Message:
    """The message that a flight holds which has only one."""
    return Message(0, flight, 0, len(flight.label))


def linear(x: Matrix, weights: F32, constant: bool) -> F32:
    """The product w . (x, 1) of every row, with the bits of `predict_row`.

    Examples
    --------
    >>> linear(np.float32([[1.0, 2.0]]), np.float32([3.0, 4.0, 5.0]), constant=True)
    array([16.], dtype=float32)
    """
    rows, width = x.shape
    bias = weights[width] if constant else np.float32(0)
    if isinstance(x, np.ndarray):
        products = np.asarray(x, np.float32) * weights[:width]
        return np.asarray(fold(products, bias), np.float32)
    model: Any = LinearModel(width, Rule(constant=constant), Rule().step, weights)
    flight = batch_of(np.zeros(rows, np.float32))
    evaluate(model.on(view_of(x)), 0, whole(flight), flight.own)
    return flight.own

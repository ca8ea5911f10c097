"""A linear model that steps along gradients: what each client and the server hold."""

from typing import Any

import numpy as np

from fedres.core.losses import Loss
from fedres.core.steps import SMALLEST, Step, project
from fedres.core.types import F32, Matrix


class LinearModel:
    """f(x; w) = w . (x, 1), its step, and the range of the labels it has learned from.

    A model of width zero predicts 0, has no constant and never moves.

    Parameters
    ----------
    width
        Number of features.
    step, loss
        How it moves, and along the slope of what.
    radius
        Radius D of the ball it is projected on; None for no projection.
    constant
        Whether a feature that is always 1 is added.
    initial
        Weights to begin with, the constant's last; zeros if None.

    Examples
    --------
    >>> from fedres.core.losses import SQUARED
    >>> from fedres.core.steps import Adaptive
    >>> model = LinearModel(2, Adaptive(0.5), SQUARED)
    >>> x, y = np.float32([[1.0, 0.0]]), np.float32([1.0])
    >>> model.see(y)
    >>> model.move(x, model.slope(model.f(x), y))
    >>> model.weights  # two features and the constant
    array([0.5, 0. , 0.5], dtype=float32)
    """

    def __init__(
        self,
        width: int,
        step: Step,
        loss: Loss,
        radius: float | None = None,
        constant: bool = True,
        initial: F32 | None = None,
    ) -> None:
        self.width = width
        self.step = step
        self.loss = loss
        self.radius = radius
        self.constant = constant and width > 0
        self.weights = np.zeros(width + self.constant, np.float32)
        if initial is not None:
            self.weights[:] = initial
        self.squares = np.full_like(self.weights, SMALLEST)
        low, high = loss.clip if step.clip else (-np.inf, np.inf)
        self.low, self.high = np.float32(low), np.float32(high)

    def f(self, x: Matrix) -> F32:
        """f(x; w) of every row, not clipped."""
        prediction: F32 = linear(x, self.weights, self.constant)
        return prediction

    def clip(self, prediction: F32) -> F32:
        """Bring predictions into the range of the labels seen so far."""
        return np.clip(prediction, self.low, self.high)

    def see(self, y: F32) -> None:
        """Extend the range by labels about to be learned from."""
        self.low, self.high = np.minimum(self.low, y.min()), np.maximum(self.high, y.max())

    def slope(self, prediction: F32, y: F32) -> F32:
        """The slope of the loss at the clipped prediction."""
        return self.loss.slope(self.clip(prediction), y)

    def gradient(self, x: Matrix, slope: F32) -> F32:
        """The mean of slope * x over the rows."""
        mean = (x.T @ slope) / np.float32(len(slope))
        if self.constant:
            mean = np.append(mean, slope.mean(dtype=np.float32))
        return np.asarray(mean, np.float32)

    def descend(self, gradient: F32, weight: float = 1.0) -> None:
        """One step along a gradient, then the projection."""
        self.step.move(self.weights, self.squares, gradient, weight)
        project(self.weights, self.radius)

    def move(self, x: Matrix, slope: F32, weight: float = 1.0) -> None:
        """One step along the mean gradient of the rows, then the projection."""
        self.descend(self.gradient(x, slope), weight)


def linear(x: Matrix, weights: Any, constant: bool, dtype: Any = np.float32) -> Any:
    """The product w . (x, 1) of every row.

    Examples
    --------
    >>> linear(np.float32([[1.0, 2.0]]), np.float32([3.0, 4.0, 5.0]), constant=True)
    array([16.], dtype=float32)
    """
    if constant:
        return np.asarray(x @ weights[:-1] + weights[-1], dtype)
    return np.asarray(x @ weights, dtype)

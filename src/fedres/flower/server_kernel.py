"""`rows.learn` compiled, for the server: its process lasts, and every client's rows come to it."""

from typing import Any

import numpy as np

from fedres.core.kernels import LOGISTIC, SQUARED, U, _adapt_one, _compile, _project, _slope
from fedres.core.kernels import dot as _dot
from fedres.core.models import LinearModel
from fedres.core.types import F32, Matrix
from fedres.core.views import View, matrix_view


def learn(model: LinearModel, x: Matrix, other: F32, y: F32) -> None:
    """Learn from rows in their order, each at the model the row before left behind.

    Examples
    --------
    >>> from fedres.core.losses import SQUARED as squared
    >>> from fedres.core.steps import Adaptive
    >>> model = LinearModel(1, Adaptive(0.5), squared)
    >>> learn(model, np.float32([[1.0]]), np.float32([0.0]), np.float32([1.0]))
    >>> model.weights.round(3)
    array([0.5, 0.5], dtype=float32)
    """
    if not model.width:
        model.see(y)
        return
    x = np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x
    reach = np.array([model.low, model.high], np.float32)
    _learn_rows(
        SQUARED if model.loss.name == "squared" else LOGISTIC,
        np.float32(model.step.eta),
        np.float32(np.inf if model.radius is None else model.radius),
        matrix_view(x, np.zeros(2, np.int64)),
        np.require(other, np.float32, ["C", "W"]),
        np.require(y, np.float32, ["C", "W"]),
        model.weights,
        model.squares,
        np.float32(model.constant),
        reach,
    )
    model.low, model.high = reach


def _rows(
    loss: int,
    eta: np.float32,
    radius: np.float32,
    x: View,
    other: F32,
    y: F32,
    weights: F32,
    squares: F32,
    constant: np.float32,
    reach: F32,
) -> None:
    one = np.float32(1)
    for k in range(y.shape[0]):
        label = y[U(k)]
        low, high = min(reach[0], label), max(reach[1], label)
        reach[0], reach[1] = low, high
        prediction = _dot(x, x.start, 0, k, weights, 0, constant) + other[U(k)]
        slope = _slope(loss, min(max(prediction, low), high), label)
        _adapt_one(x, x.start, 0, k, slope, one, eta, weights, 0, squares, 0, constant)
        _project(weights, 0, weights.shape[0], radius)


_learn_rows: Any = _compile(_rows)

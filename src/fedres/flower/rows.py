"""A batch of rows worked through one after the other, with nothing allocated on the way.

The arithmetic is that of `fedres.core.models.LinearModel` with the adaptive step, row by row.
A client's process lives for one message: loading compiled code would take longer.
"""

from collections.abc import Callable, Iterator
from math import exp, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedres.core.models import LinearModel
from fedres.core.types import F32, Matrix

SLOPES: dict[str, Callable[[float, float], float]] = {
    "squared": lambda prediction, y: 2.0 * (prediction - y),
    "logistic": lambda prediction, y: -y / (1.0 + exp(y * prediction)),
}


def learn(model: LinearModel, x: Matrix, other: F32, y: F32) -> tuple[F32, F32]:
    """Learn from rows in their order, each at the model the row before left behind.

    Parameters
    ----------
    model
        With the adaptive step; changed in place.
    x, y
        Its features and the labels.
    other
        What the other model adds to each prediction.

    Returns
    -------
    own, joint
        Of each row, just before its label was seen: f(x; w), and the clipped prediction.

    Examples
    --------
    >>> from fedres.core.losses import SQUARED
    >>> from fedres.core.steps import Adaptive
    >>> model = LinearModel(1, Adaptive(0.5), SQUARED)
    >>> x, y = np.float32([[1.0], [1.0]]), np.float32([1.0, 1.0])
    >>> own, joint = learn(model, x, np.zeros(2, np.float32), y)
    >>> own
    array([0., 1.], dtype=float32)
    """
    own, joint = np.empty(len(y), np.float32), np.empty(len(y), np.float32)
    slope, step = SLOPES[model.loss.name], _step(model)
    low, high, weights = float(model.low), float(model.high), model.weights
    samples = zip(_rows(x, model.constant), other.tolist(), y.tolist(), strict=True)
    for i, ((columns, values), more, label) in enumerate(samples):
        own[i] = f = float(values @ weights[columns])
        prediction = f + more
        joint[i] = min(max(prediction, low), high)
        low, high = min(low, label), max(high, label)
        step(columns, values, slope(min(max(prediction, low), high), label))
    model.low, model.high = np.float32(low), np.float32(high)
    return own, joint


def move(model: LinearModel, x: Matrix, slopes: F32) -> None:
    """Step along slopes taken elsewhere, row by row."""
    step = _step(model)
    for slope, (columns, values) in zip(slopes.tolist(), _rows(x, model.constant), strict=True):
        step(columns, values, slope)


Columns = slice | NDArray[Any]


def _step(model: LinearModel) -> Callable[[Columns, F32, float], None]:
    """The adaptive step of one row, and the projection."""
    weights, squares, eta = model.weights, model.squares, np.float32(model.step.eta)
    radius = np.inf if model.radius is None else model.radius
    farthest = radius**2
    gradient, scratch = np.empty_like(weights), np.empty_like(weights)
    multiply, add, root, divide, subtract = np.multiply, np.add, np.sqrt, np.divide, np.subtract

    def step(columns: Columns, values: F32, slope: float) -> None:
        if isinstance(columns, slice):
            multiply(values, slope, gradient)
            multiply(gradient, gradient, scratch)
            add(squares, scratch, squares)
            root(squares, scratch)
            divide(gradient, scratch, gradient)
            multiply(gradient, eta, gradient)
            subtract(weights, gradient, weights)
        else:
            own = values * np.float32(slope)
            grown = squares[columns] + own * own
            squares[columns] = grown
            weights[columns] -= eta * own / root(grown)
        if (norm := float(weights @ weights)) > farthest:
            multiply(weights, np.float32(radius / sqrt(norm)), weights)

    return step


def _rows(x: Matrix, constant: bool) -> Iterator[tuple[Columns, F32]]:
    """The columns and values of every row, that of the constant last."""
    ones = np.ones((x.shape[0], int(constant)), np.float32)
    if isinstance(x, np.ndarray):
        everything = slice(None)
        for row in np.hstack([x, ones]):
            yield everything, row
        return
    from scipy import sparse

    full = sparse.csr_array(sparse.hstack([x, sparse.csr_array(ones)], format="csr"))
    for first, last in zip(full.indptr[:-1], full.indptr[1:], strict=True):
        yield full.indices[first:last], full.data[first:last]

"""One stream of rows for all clients, compiled: each row is predicted, then learned from.

    p = w^g . (x^g, 1) + w_i . (x^l, 1),   g = d loss(p, y) / d p
    both models:  G_j += (g x_j)^2,   w_j -= eta g x_j / sqrt(G_j)

This is FedRes.SGD without delay, a sample a message, and predictions that are not clipped. The
arithmetic is imported from `kernels`; numba's disk cache does not notice changes there, so touch
this file along with it. A row of the local side names the slots of its client's weights, that of
its constant among them: rows may come in any order, and nothing is looked up here.
"""

from typing import NamedTuple

import numpy as np

from fedres.core.kernels import U, _adapt_one, _compile, _slope, dot
from fedres.core.types import F32, I32
from fedres.core.views import View


class Side(NamedTuple):
    """The rows that one side sees, and its weights with their running sums of squares."""

    x: View
    weights: F32
    squares: F32
    constant: np.float32  # 1 for a constant after the weights, else 0


@_compile
def learn_rows(
    loss: int,
    eta: np.float32,
    global_: Side,
    local: Side,
    y: F32,
    order: I32,
    predictions: F32,
) -> None:
    """Learn from the rows named by `order`; `predictions` are those made on the way."""
    xg, xl = global_.x, local.x
    one = np.float32(1)
    for n in range(U(order.shape[0])):
        k = order[n]
        prediction = dot(xg, xg.start, 0, k, global_.weights, 0, global_.constant) + dot(
            xl, xl.start, 0, k, local.weights, 0, local.constant
        )
        predictions[n] = prediction
        slope = _slope(loss, prediction, y[U(k)])
        _adapt_one(
            xl, xl.start, 0, k, slope, one, eta,
            local.weights, 0, local.squares, 0, local.constant,
        )  # fmt: skip
        _adapt_one(
            xg, xg.start, 0, k, slope, one, eta,
            global_.weights, 0, global_.squares, 0, global_.constant,
        )  # fmt: skip


@_compile
def predict_rows(global_: Side, local: Side, order: I32, predictions: F32) -> None:
    """The sum of both models on the rows named by `order`."""
    xg, xl = global_.x, local.x
    for n in range(U(order.shape[0])):
        k = order[n]
        predictions[n] = dot(xg, xg.start, 0, k, global_.weights, 0, global_.constant) + dot(
            xl, xl.start, 0, k, local.weights, 0, local.constant
        )

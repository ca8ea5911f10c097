"""One stream of rows of all clients: each row is predicted, then learned from.

This is FedRes.SGD (`fedres.core.sgd`) with the adaptive step, a sample a message and no delay,
where nothing is clipped: `predict`, `take_slopes` and `descend` of both sides come down to one
prediction, one slope and two steps, which are called here straight away. A row of the local side
names the slots of its client's weights, that of its constant among them: to the core all clients
are one, rows may come in any order, and nothing is looked up.
"""

import numpy as np

from fedres.core.losses import slope
from fedres.core.primitives import adapt_row, predict_row
from fedres.core.sgd import Linear, U
from fedres.core.types import F32, I32

ONE = np.float32(1)


def joint_row(global_: Linear, local: Linear, row: int) -> np.float32:
    """f(x^g; w^g) + f(x^l; w_i)."""
    return predict_row(global_.models, 0, global_.x, 0, row, 0) + predict_row(
        local.models, 0, local.x, 0, row, 0
    )


def learn_rows(loss: int, global_: Linear, local: Linear, y: F32, order: I32, out: F32) -> None:
    """Learn from the rows named by `order`; `out` are the predictions made on the way."""
    for n in range(U(len(order))):
        row = order[n]
        prediction = joint_row(global_, local, row)
        out[n], along = prediction, slope(loss, prediction, y[U(row)])
        adapt_row(local.models, 0, local.x, 0, row, 0, along, ONE, local.eta)
        adapt_row(global_.models, 0, global_.x, 0, row, 0, along, ONE, global_.eta)


def predict_rows(global_: Linear, local: Linear, order: I32, out: F32) -> None:
    """The sum of both models on these rows."""
    for n in range(U(len(order))):
        out[n] = joint_row(global_, local, order[n])


def learn_and_tell(loss: int, global_: Linear, local: Linear, y: F32, order: I32, own: F32) -> None:
    """The same, but note what the local side said of each row: with it the server can learn it."""
    for n in range(U(len(order))):
        row = order[n]
        own[n] = predict_row(local.models, 0, local.x, 0, row, 0)
        prediction = predict_row(global_.models, 0, global_.x, 0, row, 0) + own[n]
        along = slope(loss, prediction, y[U(row)])
        adapt_row(local.models, 0, local.x, 0, row, 0, along, ONE, local.eta)
        adapt_row(global_.models, 0, global_.x, 0, row, 0, along, ONE, global_.eta)


def apply_told(loss: int, global_: Linear, y: F32, order: I32, own: F32) -> None:
    """The server's part alone, at its newest model, given what local models said of each row."""
    for n in range(U(len(order))):
        row = order[n]
        prediction = predict_row(global_.models, 0, global_.x, 0, row, 0) + own[n]
        along = slope(loss, prediction, y[U(row)])
        adapt_row(global_.models, 0, global_.x, 0, row, 0, along, ONE, global_.eta)

"""What an upload does to the other clients, judged on rows that they sent themselves.

Checks keep out what is malformed, and clipping bounds the slope of a row, but a client that pulls
the wrong way in every row within those bounds still wins against nine that have almost learned
their task. The server holds what tells: (x^g, residual, y) of everyone. An upload that raises the
loss of the median other client is used by half, by a quarter, or not at all.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedres.core.losses import Loss
from fedres.core.messages import Upload
from fedres.core.models import LinearModel
from fedres.core.types import F32, F64, Matrix

ROWS = 64  # of each client
FEWEST, MOST = 3, 50  # clients that judge
TOLERANCE = 0.02  # of the median loss: what rows differ by without meaning harm
SHARES = (1.0, 0.5, 0.25, 0.0)


class Jury:
    """The newest rows of every client.

    Examples
    --------
    >>> from fedres.core.losses import SQUARED
    >>> from fedres.core.rule import Rule
    >>> from fedres.core.steps import Sgd
    >>> jury, model = Jury(SQUARED), LinearModel(1, Rule(Sgd(0.1)), Sgd(0.1))
    >>> x, y = np.float32([[1.0]]), np.float32([1.0])
    >>> for client in "abc":
    ...     jury.hear(client, Upload(0, 0, 0, x, np.float32([0.0]), y))
    >>> def astray():
    ...     model.weights[:] -= 1
    >>> jury.apply(model, "d", astray)
    0.0
    >>> model.weights
    array([0., 0.], dtype=float32)
    """

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._heard: dict[str, list[tuple[Matrix, F32, F32]]] = {}

    def hear(self, client: str, upload: Upload) -> None:
        """Keep the newest rows of a client."""
        kept = self._heard.pop(client, [])
        newest = slice(-ROWS, None)
        kept.append((upload.x_global[newest], upload.residual[newest], upload.y[newest]))
        while sum(len(y) for _, _, y in kept[1:]) >= ROWS:
            kept.pop(0)
        self._heard[client] = kept

    def apply(self, model: LinearModel, client: str, step: Callable[[], object]) -> float:
        """Let a step change the model as far as the others bear it; the share that they did."""
        before = self._losses(model, client)
        weights, squares = model.weights.copy(), model.squares.copy()
        step()
        if len(before) < FEWEST:
            return 1.0
        moved, grown = model.weights - weights, model.squares - squares
        bearable = TOLERANCE * np.median(before)
        for share in SHARES:
            model.weights[:] = weights + np.float32(share) * moved
            model.squares[:] = squares + np.float32(share**2) * grown
            if np.median(self._losses(model, client) - before) <= bearable:
                break
        return share

    def _losses(self, model: LinearModel, client: str) -> F64:
        """Mean loss of each of the clients heard last, but for that one."""
        others = [name for name in reversed(self._heard) if name != client][:MOST]

        def lost(x: Matrix, residual: F32, y: F32) -> Any:
            return self._loss.value(model.clip(model.f(x) + residual), y)

        losses = [np.concatenate([lost(*rows) for rows in self._heard[name]]) for name in others]
        return np.array([np.mean(own) for own in losses])

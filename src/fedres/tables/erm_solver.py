"""The best pair of models for all rows at once, by Newton's method, for ``solver="erm"``.

Constants are features like others, so that ridges hold them too: a client with few rows shall not
take its own mean for granted.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from fedres.core.best_pair import Samples, best_pair
from fedres.core.losses import find_loss
from fedres.core.primitives import SMALLEST
from fedres.core.types import F64, I32, Matrix
from fedres.simulation.parallel import run_all
from fedres.tables.online_models import ModelShape, OnlineModels
from fedres.tables.sgd_tuning import FEWEST, Encoded, split_for_tuning

WIDEST = 2000  # the work grows with the cube of it
RIDGES_GLOBAL = (0.1, 1.0, 10.0)
RIDGES_LOCAL = (0.1, 1.0, 10.0, 100.0)


class Ridges(NamedTuple):
    """Weights of |w|^2, and the mean loss they had on rows held out if any were."""

    ridge_global: float
    shrinkage: float
    loss: float = np.nan


DEFAULT = Ridges(1.0, 1.0)


class Pair(NamedTuple):
    """(outputs, features) and (outputs, clients, features), constants last."""

    w_global: F64
    w_local: F64


class PairSearch:
    """Rows of all clients, dense, for each of several outputs.

    Parameters
    ----------
    settings
        Widths and loss.
    data
        The rows.
    """

    def __init__(self, settings: ModelShape, data: Encoded) -> None:
        self.settings, self.data = settings, data
        self.x_global = _dense(data.x_global, settings.width_global, "global")
        self.x_local = _dense(data.x_local, settings.width_local, "local")

    def solve(self, ridges: Ridges, rows: I32 | None = None) -> Pair:
        """The best pair for these rows; every client has some."""
        client = self.data.client
        rows = np.arange(len(client), dtype=np.int32) if rows is None else rows
        rows = rows[np.argsort(client[rows], kind="stable")]
        parts = np.split(rows, np.cumsum(np.bincount(client[rows]))[:-1])
        fits = [
            best_pair(
                [Samples(self.x_global[part], self.x_local[part], y[part]) for part in parts],
                find_loss(self.settings.loss),
                constant=False,
                ridge_global=ridges.ridge_global,
                ridge_local=ridges.shrinkage,
            )
            for y in self.data.y
        ]
        return Pair(
            np.stack([fit.w_global for fit in fits]), np.stack([np.stack(f.w_local) for f in fits])
        )

    def try_ridges(self, shrinkages: Sequence[float], rng: Any) -> list[Ridges]:
        """Try all ridges on rows held out, if there are enough."""
        client = self.data.client
        rest, held = split_for_tuning(client, rng)
        if len(held) < FEWEST:
            return []

        def try_out(ridge_global: float, shrinkage: float) -> Ridges:
            pair = self.solve(Ridges(ridge_global, shrinkage), rest)
            own = np.einsum("nd,knd->kn", self.x_local[held], pair.w_local[:, client[held]])
            predictions = (pair.w_global @ self.x_global[held].T + own).astype(np.float32)
            loss = self.data.loss_of(predictions, held, self.settings.loss)
            return Ridges(ridge_global, shrinkage, loss)

        return run_all([partial(try_out, *ridges) for ridges in product(RIDGES_GLOBAL, shrinkages)])

    def train(self, shrinkage: float | None, rng: Any) -> tuple[OnlineModels, Ridges, list[Ridges]]:
        """Choose ridges, then fit all rows: the models, the choice, and all that was tried."""
        best = DEFAULT if shrinkage is None else DEFAULT._replace(shrinkage=shrinkage)
        shrinkages = RIDGES_LOCAL if shrinkage is None else (shrinkage,)
        tried = self.try_ridges(shrinkages, rng)
        if tried:
            best = min(tried, key=lambda ridges: ridges.loss)
        return self.models(self.solve(best)), best, tried

    def models(self, pair: Pair) -> OnlineModels:
        """The pair as models to predict with."""
        outputs, clients, size = pair.w_local.shape
        weights = pair.w_local.reshape(outputs, -1).T.astype(np.float32)
        w_global = np.zeros((outputs, 1)) if not pair.w_global.shape[1] else pair.w_global
        w_global = w_global.astype(np.float32)
        return OnlineModels.unpack(
            self.settings,
            {"weights": w_global, "squares": np.full_like(w_global, SMALLEST)},
            {
                "start": np.arange(clients + 1, dtype=np.int64) * size,
                "columns": np.tile(np.arange(size, dtype=np.int32), clients),
                "weights": weights,
                "squares": np.full_like(weights, SMALLEST),
            },
        )


def _dense(x: Matrix, width: int | None, side: str) -> F64:
    """Rows with their constant; nothing for a side without a model."""
    if width is None:
        return np.empty((x.shape[0], 0))
    if width > WIDEST:
        raise ValueError(
            f"solver='erm' fits at most {WIDEST} {side} features, not {width}: use solver='sgd'"
        )
    rows = x.toarray() if sparse.issparse(x) else x
    return np.hstack([rows, np.ones((len(rows), 1))])

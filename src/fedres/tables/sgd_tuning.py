"""Step size, shrinkage and passes, chosen by progressive validation with rows held out.

Every candidate learns from nine rows in ten and, after each pass, predicts those that it never
learns from, as Vowpal Wabbit does with `--passes`. Candidates that stopped gaining leave the race,
and now and then the worse half of all. The best is trained on all rows, and at last for three
passes with smaller and smaller steps: what is left of the noise of single rows averages out.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fedres.core.losses import find_loss
from fedres.core.types import F32, F64, I32, I64, Matrix
from fedres.simulation.parallel import count_cores, run_all
from fedres.tables.online_models import ModelShape, OnlineModels

ETAS = (0.03, 0.1, 0.3, 1.0)
SHRINKAGES = (0.0, 10.0, 100.0, 1000.0, 100_000.0)  # the last leaves hardly any local model
MOST_PASSES = 32
ANNEALED = (0.3, 0.1, 0.03)  # of eta: the steps of three more passes
PATIENCE = 2  # passes without a gain end a candidate's race
HALVE_EVERY = 4  # passes
ONE_IN = 10  # rows is held out
FEWEST = 5  # rows held out, to choose anything by
MOST_ROWS = 200_000  # more choose no better


class Encoded(NamedTuple):
    """Rows of all clients as the models see them.

    Attributes
    ----------
    x_global, x_local
        Features.
    y
        What to predict, (outputs, rows).
    client
        The number of each row's client.
    limits
        The range that predictions are clipped to.
    weight, offset
        How many rows each stands for, and what is added to its score; None for one and nothing.
    """

    x_global: Matrix
    x_local: Matrix
    y: F32
    client: I64
    limits: tuple[float, float]
    weight: F64 | None = None
    offset: F64 | None = None

    def only(self, rows: I64) -> "Encoded":
        """Some of the rows."""
        return self._replace(
            x_global=self.x_global[rows],
            x_local=self.x_local[rows],
            y=np.ascontiguousarray(self.y[:, rows]),
            client=self.client[rows],
            weight=None if self.weight is None else self.weight[rows],
            offset=None if self.offset is None else self.offset[rows],
        )

    def of_clients(self, rows: I64) -> "Encoded":
        """All rows of some clients, who are numbered anew."""
        part = self.only(rows)
        return part._replace(client=np.unique(part.client, return_inverse=True)[1])

    def loss_of(self, predictions: F32, rows: I32, loss: str) -> float:
        """The mean loss of predictions of some of the rows, (outputs, rows)."""
        losses = find_loss(loss).value(predictions.clip(*self.limits), self.y[:, rows])
        return float(losses.sum(axis=0).mean())


class Trial(NamedTuple):
    """A candidate, and its mean loss on the rows held out, if there were any."""

    eta: float
    shrinkage: float
    passes: int
    loss: float = np.nan


DEFAULT = Trial(eta=0.3, shrinkage=10.0, passes=8)


def split_for_tuning(client: I64, rng: Any) -> tuple[I32, I32]:
    """Rows to learn from and rows held out: of each client one in ten, but never all.

    Examples
    --------
    >>> rest, held = split_for_tuning(np.repeat([0, 1, 2], [400, 1, 9]), np.random.RandomState(0))
    >>> len(rest) + len(held), int((held < 400).sum()), 400 in rest
    (410, 40, True)
    """
    order = rng.permutation(len(client))
    order = order[np.argsort(client[order], kind="stable")]
    _, first, count = np.unique(client[order], return_index=True, return_counts=True)
    place = np.arange(len(client)) - np.repeat(first, count)
    turn = np.repeat(rng.randint(ONE_IN, size=len(first)), count)
    # A client's first row stays; of a client with few rows mostly all do.
    held = (place > 0) & ((place - 1) % ONE_IN == turn)
    return np.sort(order[~held]).astype(np.int32), np.sort(order[held]).astype(np.int32)


def of_some_clients(client: I64, rng: Any, most: int = MOST_ROWS) -> I64:
    """Rows to choose by where all would be too many: all rows of some clients."""
    rows = np.bincount(client)
    order = rng.permutation(len(rows))
    some = np.zeros(len(rows), bool)
    some[order[: 1 + np.searchsorted(np.cumsum(rows[order]), most)]] = True
    return np.flatnonzero(some[client])


def try_candidates(
    settings: ModelShape,
    data: Encoded,
    etas: Sequence[float],
    shrinkages: Sequence[float],
    passes: int | None,
    rng: Any,
) -> list[Trial]:
    """Try all candidates: one trial for each, and for each number of passes; none if rows are few.

    Parameters
    ----------
    settings
        Widths and loss.
    data
        The rows.
    etas, shrinkages
        The candidates.
    passes
        How many; if None, from 1 until more do not help.
    rng
        Decides which rows are held out, and the order of others.
    """
    if len(data.client) > MOST_ROWS:
        data = data.only(of_some_clients(data.client, rng))
    rest, held = split_for_tuning(data.client, rng)
    if len(held) < FEWEST:  # hardly any client has two rows
        rest, held = split_for_tuning(np.zeros_like(data.client), rng)
    if len(held) < FEWEST:
        return []
    blank = OnlineModels(settings, len(data.y))
    rows = blank.rows(data.x_global, data.x_local, data.client)

    def learn(models: OnlineModels, order: I32) -> float:
        models.learn(rows, data.y, order)
        return data.loss_of(models.predict(rows, held), held, settings.loss)

    races = [_Race(blank.fresh(*candidate), []) for candidate in product(etas, shrinkages)]
    running = races
    for n in range(1, 1 + (passes or MOST_PASSES)):
        order = rng.permutation(rest)
        losses = run_all([partial(learn, race.models, order) for race in running])
        for race, loss in zip(running, losses, strict=True):
            race.losses.append(loss)
        running = running if passes else _still_running(running, n)
        if not running:
            break
    return [
        Trial(race.models.settings.eta, race.models.settings.shrinkage, n, loss)
        for race in races
        for n, loss in enumerate(race.losses, 1)
        if passes in (None, n)
    ]


class _Race(NamedTuple):
    models: OnlineModels
    losses: list[float]  # after each pass


def _still_running(races: list[_Race], passes: int) -> list[_Race]:
    gaining = [race for race in races if np.argmin(race.losses) >= passes - PATIENCE]
    if passes % HALVE_EVERY:
        return gaining
    return sorted(gaining, key=lambda race: race.losses[-1])[: (len(gaining) + 1) // 2]


def or_default(eta: float | None, shrinkage: float | None, passes: int | None) -> Trial:
    """What is not None, and defaults for the rest."""
    return Trial(
        DEFAULT.eta if eta is None else eta,
        DEFAULT.shrinkage if shrinkage is None else shrinkage,
        DEFAULT.passes if passes is None else passes,
    )


def tune_and_train(
    settings: ModelShape,
    data: Encoded,
    eta: float | None,
    shrinkage: float | None,
    passes: int | None,
    rng: Any,
) -> tuple[OnlineModels, Trial, list[Trial]]:
    """Choose what is None, then train on all rows: the models, the choice, and all trials."""
    trials: list[Trial] = []
    best = or_default(eta, shrinkage, passes)
    etas = ETAS if eta is None else (eta,)
    shrinkages = SHRINKAGES if shrinkage is None else (shrinkage,)
    if settings.width_local is None:  # then all clients are one
        data, shrinkages = data._replace(client=np.zeros_like(data.client)), (best.shrinkage,)
    if None in (eta, shrinkage, passes):
        trials = try_candidates(settings, data, etas, shrinkages, passes, rng)
    if trials:
        best = min(trials, key=lambda trial: trial.loss)
    settings = settings._replace(eta=best.eta, shrinkage=best.shrinkage)
    models = OnlineModels(settings, len(data.y))
    rows = models.rows(data.x_global, data.x_local, data.client)
    n_jobs = min(models.outputs, count_cores(None))
    for share in (*[1.0] * best.passes, *ANNEALED):
        models.settings = settings._replace(eta=share * best.eta)
        models.learn(rows, data.y, rng.permutation(rows.total).astype(np.int32), n_jobs)
    models.settings = settings
    return models, best, trials

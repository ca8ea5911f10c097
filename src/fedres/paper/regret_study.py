"""Regret against T, P, tau and b, beside what Theorem 2 says of them.

Synthetic data that meet the paper's assumptions: features uniform in the unit ball, labels
u^g.x^g + u_i.x^l plus bounded noise, models in a ball that holds the truth, all samples
independent. FedRes.SGD by plain SGD, in its aligned form and, beside it, by the other rules.
Regret is against the best joint pair in hindsight. The step size of each point is the best of a
grid on seeds that are not drawn: Theorem 2's own, with bounds for constants, is far from the best
one at any T that can be run.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedres.core.sgd import ALIGNMENTS, Alignment
from fedres.core.steps import Sgd
from fedres.core.types import F64
from fedres.simulation.engine import simulate
from fedres.simulation.federation import Federation
from fedres.simulation.intervals import Interval, interval
from fedres.simulation.run_store import RunStore

if TYPE_CHECKING:
    import pandas as pd

WIDTH, NORM_GLOBAL, NORM_LOCAL, NOISE = 4, 1.0, 0.2, 0.5
RADIUS = 2.0
ROUNDS = (500, 2000, 8000, 32_000, 128_000)
CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128)
DELAYS = (0, 10, 50)
BATCHES = (10, 50)
GRID = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)  # of 2 b / sqrt(T)
TUNING_SEEDS = (10_000, 10_001)
MOST_SEEDS = 10
OTHERS: tuple[Alignment, ...] = ("asymmetric", "late", "arrival")  # than the theorem's
LAGS, LAG_ROUNDS = (0, 5, 10, 20, 50, 100, 200), 2000


@dataclass(frozen=True)
class Point:
    """A place in the figure."""

    axis: str
    rounds: int
    clients: int = 10
    delay: int = 0
    batch: int = 1
    alignment: Alignment = "aligned"

    def run(self, seed: int, eta: float) -> "tuple[Samples, Play]":
        """What is run there."""
        return (self.clients, self.rounds, seed), Play(self.delay, self.batch, self.alignment, eta)


Samples = tuple[int, int, int]  # clients, rounds and seed


class Play(NamedTuple):
    """How a run goes about its samples."""

    delay: int
    batch: int
    alignment: Alignment
    eta: float


POINTS = (
    *(Point("delay", rounds, delay=tau) for rounds in ROUNDS for tau in DELAYS),
    *(
        Point("delay", rounds, delay=tau, alignment=rule)
        for rounds, tau, rule in product(ROUNDS[:-1], DELAYS[1:], OTHERS)
    ),
    *(
        Point("lag", LAG_ROUNDS, delay=tau, alignment=rule)
        for tau, rule in product(LAGS, ALIGNMENTS)
    ),
    *(Point("batch", rounds, batch=b) for rounds in ROUNDS for b in BATCHES),
    *(Point("clients", 1000, clients=clients) for clients in CLIENTS),
)


def synthetic(clients: int, rounds: int, seed: int) -> Federation:
    """Samples of clients that share most of what makes their labels.

    Examples
    --------
    >>> synthetic(clients=3, rounds=50, seed=0).train.counts
    array([50, 50, 50])
    """
    rng = np.random.default_rng([seed, clients, rounds])

    def ball(n: int) -> F64:
        return np.asarray(_unit(rng, n) * rng.random((n, 1)) ** (1 / WIDTH))

    shared, own = NORM_GLOBAL * _unit(rng, 1)[0], NORM_LOCAL * _unit(rng, clients)
    owner = np.repeat(np.arange(clients), rounds)
    x, z = ball(len(owner)), ball(len(owner))
    y = x @ shared + (z * own[owner]).sum(axis=1) + rng.uniform(-NOISE, NOISE, len(owner))
    return Federation.from_arrays(x, z, y, owner)


def measure(job: tuple[Samples, tuple[Play, ...]]) -> list[float]:
    """The average regret at the end of runs on the same samples."""
    samples, plays = job
    federation = synthetic(*samples)
    runs = (
        simulate(
            federation,
            "fedres",
            rounds=samples[1],
            delay=play.delay,
            alignment=play.alignment,
            step=Sgd(play.eta),
            batch=play.batch,
            radius=RADIUS,
            constant=False,
            shuffle=False,
        )
        for play in plays
    )
    first = next(runs)
    best = first.loss - float(first.regret()[-1])  # samples alone decide what the best pair loses
    return [run.loss - best for run in chain([first], runs)]


def regret(
    seeds: int = MOST_SEEDS,
    points: Sequence[Point] = POINTS,
    store: RunStore | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> "pd.DataFrame":
    """One row a point and seed: the point, eta, and the regret measured."""
    import pandas as pd

    store = store or RunStore(None)

    def all_of(wanted: list[tuple[Point, float]], seeds: Sequence[int], what: str) -> pd.DataFrame:
        jobs: dict[Samples, dict[Play, None]] = defaultdict(dict)
        for (point, eta), seed in product(wanted, seeds):
            samples, play = point.run(seed, eta)
            jobs[samples][play] = None
        todo = [(samples, tuple(jobs[samples])) for samples in sorted(jobs, key=_longest_first)]
        done = store.map(measure, todo, n_jobs, what if progress else None)
        found = {
            (samples, play): value
            for (samples, plays), values in zip(todo, done, strict=True)
            for play, value in zip(plays, values, strict=True)
        }
        return pd.DataFrame(
            [
                vars(point) | {"seed": seed, "eta": eta, "regret": found[point.run(seed, eta)]}
                for (point, eta), seed in product(wanted, seeds)
            ]
        )

    grid = [
        (point, float(factor * 2 * point.batch / np.sqrt(point.rounds)))
        for point in points
        for factor in GRID
    ]
    tried = all_of(grid, TUNING_SEEDS, "regret: tuning").regret.to_numpy()
    scores = tried.reshape(len(points), len(GRID), -1).mean(axis=2)
    best = np.nan_to_num(scores, nan=np.inf).argmin(axis=1)
    chosen = [grid[i * len(GRID) + k] for i, k in enumerate(best)]
    return all_of(chosen, range(min(seeds, MOST_SEEDS)), "regret: measuring")


def slope(table: "pd.DataFrame", x: str) -> Interval:
    """The slope of log regret in log x, fitted seed by seed; its mean and interval.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"seed": [0, 0, 1, 1], "rounds": [1, 4, 1, 4],
    ...                       "regret": [1.0, 0.5, 2.0, 1.0]})
    >>> round(slope(table, "rounds").mean, 6)
    -0.5
    """
    return interval(
        [np.polyfit(np.log(one[x]), np.log(one.regret), 1)[0] for _, one in table.groupby("seed")]
    )


def amortised(clients: F64) -> F64:
    """How Theorem 2's leading term depends on P: sqrt((||w^g||^2 + P ||w_i||^2) / P)."""
    return np.sqrt((NORM_GLOBAL**2 + clients * NORM_LOCAL**2) / clients)


def _longest_first(samples: Samples) -> int:
    return -samples[0] * samples[1]


def _unit(rng: np.random.Generator, n: int) -> F64:
    direction = rng.normal(size=(n, WIDTH))
    return np.asarray(direction / np.linalg.norm(direction, axis=1, keepdims=True))

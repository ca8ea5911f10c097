"""Regret against T, P, tau and b, beside what Theorem 2 says of them.

Synthetic data that meet the paper's assumptions: features uniform in the unit ball, labels
u^g.x^g + u_i.x^l plus bounded noise, models in a ball that holds the truth, all samples
independent. FedRes.SGD by plain SGD, in its aligned form and, beside it, by the other rules.
Regret is against the best joint pair in hindsight. The step size of each point is the best of a
grid on seeds that are not drawn: Theorem 2's own, with bounds for constants, is far from the best
one at any T that can be run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

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


def measure(job: tuple[Point, int, float]) -> float:
    """The average regret at the end of a run: of a point, a seed, a step size."""
    point, seed, eta = job
    run = simulate(
        synthetic(point.clients, point.rounds, seed),
        "fedres",
        rounds=point.rounds,
        delay=point.delay,
        alignment=point.alignment,
        step=Sgd(eta),
        batch=point.batch,
        radius=RADIUS,
        constant=False,
        shuffle=False,
    )
    return float(run.regret()[-1])


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

    def all_of(jobs: list[tuple[Point, int, float]], what: str) -> list[float]:
        return store.map(measure, jobs, n_jobs, what if progress else None)

    grid = [
        (point, float(factor * 2 * point.batch / np.sqrt(point.rounds)))
        for point in points
        for factor in GRID
    ]
    jobs = [(point, seed, eta) for point, eta in grid for seed in TUNING_SEEDS]
    scores = np.reshape(all_of(jobs, "regret: tuning"), (len(points), len(GRID), -1)).mean(axis=2)
    best = np.nan_to_num(scores, nan=np.inf).argmin(axis=1)
    chosen = [grid[i * len(GRID) + k] for i, k in enumerate(best)]
    jobs = [(point, seed, eta) for point, eta in chosen for seed in range(min(seeds, MOST_SEEDS))]
    found = all_of(jobs, "regret: measuring")
    return pd.DataFrame(
        [
            vars(point) | {"seed": seed, "eta": eta, "regret": value}
            for (point, seed, eta), value in zip(jobs, found, strict=True)
        ]
    )


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


def _unit(rng: np.random.Generator, n: int) -> F64:
    direction = rng.normal(size=(n, WIDTH))
    return np.asarray(direction / np.linalg.norm(direction, axis=1, keepdims=True))

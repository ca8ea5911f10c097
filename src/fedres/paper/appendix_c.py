"""Appendix C: why fictitious play fails, on data made for it.

One client; a, b ~ N(0, 1), epsilon ~ N(0, 0.25), x^g = (a + epsilon, b), x^l = (1 - a, 1 - b),
y = 1. Both models begin at (1, 0) and should go to (0, 1), where the loss is zero. No constant,
no delay, T = 20,000.

The paper names eta = 1 for plain SGD, which diverges here; SGD is run with the adaptive step
and eta = 1 instead, without clipping (all labels being 1, clipping to them would hide errors).
In the first rounds, samples do not determine the models of ERM and fictitious play: in some
rollouts one nearly singular round costs more than all others together. So medians are drawn, and
means beside them.
"""

from typing import TYPE_CHECKING

import numpy as np

from fedres.core.steps import Adaptive
from fedres.core.types import F64
from fedres.simulation.engine import simulate
from fedres.simulation.federation import Federation
from fedres.simulation.run_store import RunStore
from fedres.simulation.settings import SGD_METHODS, Method

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = 20_000
METHODS: tuple[Method, ...] = ("fedres", "fedres-erm", "fictitious-play")


def rollout_data(seed: int, rounds: int = ROUNDS) -> Federation:
    """The samples of one rollout.

    Examples
    --------
    >>> rollout_data(0, rounds=100).train.counts
    array([100])
    """
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, rounds))
    epsilon = rng.normal(0, np.sqrt(0.25), rounds)
    return Federation.from_arrays(
        np.column_stack([a + epsilon, b]),
        np.column_stack([1 - a, 1 - b]),
        np.ones(rounds),
        np.zeros(rounds, int),
    )


def marks(rounds: int = ROUNDS) -> F64:
    """Rounds that curves are drawn at: the beginning, then evenly on a log axis."""
    return np.unique(np.concatenate([[0], np.geomspace(1, rounds, 120).astype(int)]))


def rollout(seed: int) -> list[dict[str, object]]:
    """Average loss and global model over time, for the three algorithms on the same samples."""
    federation, at = rollout_data(seed, ROUNDS), marks(ROUNDS)
    rows: list[dict[str, object]] = []
    for method in METHODS:
        run = simulate(
            federation,
            method,
            rounds=ROUNDS,
            shuffle=False,
            constant=False,
            initial_global=[1.0, 0.0],
            initial_local=[1.0, 0.0],
            step=Adaptive(1.0, clip=False) if method in SGD_METHODS else None,
            keep_path=True,
        )
        average = [None, *(np.cumsum(run.loss_by_round) / np.arange(1, ROUNDS + 1)).tolist()]
        assert run.global_path is not None
        rows += [
            {"method": method, "seed": seed, "round": int(t), "loss": average[t],
             "first": float(run.global_path[t, 0]), "second": float(run.global_path[t, 1])}
            for t in at
        ]  # fmt: skip
    return rows


def appendix_c(
    rollouts: int = 50,
    store: RunStore | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> "pd.DataFrame":
    """All rollouts: method, seed, round, average loss so far, and the two weights of w^g."""
    import pandas as pd

    store, bar = store or RunStore(None), "appendix C" if progress else None
    parts = store.map(rollout, range(rollouts), n_jobs, bar)
    return pd.DataFrame([row for part in parts for row in part])

"""Independent, Central and FedRes side by side on the same federations."""

from dataclasses import dataclass, fields
from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from fedres.core.sgd import Alignment
from fedres.core.types import F64
from fedres.simulation.dataset import Dataset, load_data
from fedres.simulation.engine import simulate
from fedres.simulation.intervals import Interval, interval
from fedres.simulation.parallel import run_all, working
from fedres.simulation.run import Run
from fedres.simulation.settings import SGD_METHODS, Method, at_least_1
from fedres.simulation.split import federate

METRICS = ("accuracy", "loss")  # on test rows; progressive


@dataclass(frozen=True)
class MethodOutcome:
    """One method over all seeds, one entry a seed."""

    accuracy: F64
    loss: F64
    bytes_up: int
    bytes_down: int
    seconds: float
    curves: F64  # (seeds, rounds): average loss up to each round
    accuracy_per_client: F64  # (seeds, clients)


@dataclass(frozen=True)
class SimulatedComparison:
    """What `compare` found on a data set, dealt to clients again and again."""

    data: str
    clients: int
    delay: int
    seeds: int
    rounds: int
    alignment: Alignment
    outcomes: dict[Method, MethodOutcome]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics; the verdict goes by the first."""
        return METRICS

    def score(self, method: Method, metric: str) -> Interval:
        """A metric over all seeds."""
        return interval(getattr(self.outcomes[method], metric))

    def gain_over(self, method: Method) -> Interval:
        """Accuracy of FedRes less that of another method, paired by seed."""
        return interval(self.outcomes["fedres"].accuracy - self.outcomes[method].accuracy)

    def verdict(self) -> str:
        """One sentence: does personal + shared beat only personal and only shared here?"""
        parts = []
        for method in ("independent", "central"):
            gain = self.gain_over(method)
            relation = gain.in_words("beats", "loses to")
            parts.append(f"{relation} {method} ({gain.times(100):+.1f} points)")
        return f"On {self.data}, FedRes {' and '.join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)[:-1]},
            "verdict": self.verdict(),
            "methods": {
                method: {
                    **self.score(method, "accuracy").named("accuracy"),
                    "accuracy_per_seed": outcome.accuracy.tolist(),
                    **self.score(method, "loss").named("loss"),
                    "bytes_up": outcome.bytes_up,
                    "bytes_down": outcome.bytes_down,
                    "seconds": outcome.seconds,
                }
                for method, outcome in self.outcomes.items()
            },
        }


def compare_simulated(
    data: str | PathLike[str] | Dataset = "digits",
    *,
    clients: int = 10,
    delay: int = 0,
    seeds: int = 20,
    rounds: int = 500,
    alignment: Alignment = "arrival",
    n_jobs: int | None = None,
    progress: bool = False,
) -> SimulatedComparison:
    """Run the three methods on the same federations, one a seed: see `fedres.compare`.

    Examples
    --------
    >>> print(compare_simulated(seeds=2, rounds=60).verdict()[:17])
    On digits, FedRes
    """
    at_least_1(seeds=seeds)
    dataset = data if isinstance(data, Dataset) else load_data(data)

    def one(seed: int) -> dict[Method, Run]:
        federation = federate(dataset, clients=clients, seed=seed)
        late: Any = {"delay": delay, "alignment": alignment}
        return {
            method: simulate(
                federation, method, rounds=rounds, seed=seed,
                **({} if method == "independent" else late),
            )
            for method in SGD_METHODS
        }  # fmt: skip

    with working("loading compiled code (the first time, compiling it)", progress):
        one(0)  # not to be timed
    bar = f"comparing on {dataset.name}" if progress else None
    runs = run_all([partial(one, seed) for seed in range(seeds)], n_jobs, bar)
    outcomes = {method: _outcome([run[method] for run in runs]) for method in SGD_METHODS}
    return SimulatedComparison(dataset.name, clients, delay, seeds, rounds, alignment, outcomes)


def _outcome(runs: list[Run]) -> MethodOutcome:
    steps = np.arange(1, len(runs[0].loss_by_round) + 1)
    return MethodOutcome(
        np.array([run.accuracy for run in runs]),
        np.array([run.loss for run in runs]),
        runs[0].bytes_up,
        runs[0].bytes_down,
        sum(run.seconds for run in runs),
        np.array([np.cumsum(run.loss_by_round) / steps for run in runs]),
        np.array([run.accuracy_per_client for run in runs]),
    )

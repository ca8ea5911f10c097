"""Independent, Central, FedRes and their mixture side by side on the same federations."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from os import PathLike
from typing import Any, Literal

import numpy as np

from fedres.core.display import Displayed, Grid
from fedres.core.sgd import Alignment
from fedres.core.types import F64
from fedres.simulation.dataset import Dataset, load_data
from fedres.simulation.engine import simulate
from fedres.simulation.intervals import Interval, interval
from fedres.simulation.parallel import run_all, working
from fedres.simulation.run import Run
from fedres.simulation.settings import NAMES, SGD_METHODS, Method, at_least_1
from fedres.simulation.split import federate

METRICS = ("accuracy", "loss")  # on test rows; progressive
COMPARED: tuple[Method, ...] = (*SGD_METHODS, "mixture")
MARGIN = 0.02  # so much more loss than alone is no accident


@dataclass(frozen=True)
class MethodOutcome:
    """One method over all seeds, one entry a seed."""

    accuracy: F64 = field(repr=False)
    loss: F64 = field(repr=False)
    bytes_up: int
    bytes_down: int
    seconds: float
    curves: F64 = field(repr=False)  # (seeds, rounds): average loss up to each round
    accuracy_per_client: F64 = field(repr=False)  # (seeds, clients)
    loss_per_client: F64 = field(repr=False)  # the same of the progressive loss


@dataclass(frozen=True, repr=False)
class SimulatedComparison(Displayed):
    """What `compare` found on a data set, dealt to clients again and again."""

    data: str
    clients: int
    delay: int
    seeds: int
    rounds: int
    alignment: Alignment
    local: Literal["rest", "all"]
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

    def excess_over_alone(self, method: Method) -> F64:
        """How much more a client loses than alone, as a share of that: (seeds, clients)."""
        alone = self.outcomes["independent"].loss_per_client
        return np.asarray(self.outcomes[method].loss_per_client / alone - 1, np.float64)

    def worse_off(self, method: Method) -> float:
        """The share of clients that lose over 2% more than alone."""
        return float((self.excess_over_alone(method) > MARGIN).mean())

    def hurt(self) -> str:
        """In words: who is worse off than alone, and by how much."""
        parts = []
        for method, name in (("fedres", "FedRes"), ("mixture", "the mixture")):
            excess = self.excess_over_alone(method)  # type: ignore[arg-type]
            hurt = excess[excess > MARGIN]
            many = f"{len(hurt) / excess.size:.1%} of clients" if len(hurt) else "no client"
            much = f" (half of these by over {np.median(hurt):.0%})" if len(hurt) else ""
            parts.append(f"{many} with {name}{much}")
        return f"Over {MARGIN:.0%} more loss than alone: {', '.join(parts)}."

    def verdict(self) -> str:
        """One sentence: does personal + shared beat only personal and only shared here?"""
        parts = []
        for method in ("independent", "central"):
            gain = self.gain_over(method)
            relation = gain.in_words("beats", "loses to")
            parts.append(f"{relation} {method.capitalize()} ({gain.times(100):+.1f} points)")
        losses = {method: self.score(method, "loss").mean for method in COMPARED}
        best = min(losses[method] for method in SGD_METHODS)
        change = losses["mixture"] / best - 1
        return (
            f"On {self.data}, FedRes {' and '.join(parts)}; clients who mix all three lose "
            f"{abs(change):.1%} {'less' if change <= 0 else 'more'} than with the best of them."
        )

    def title(self) -> str:
        """Return what was simulated, in words."""
        return (
            f"{self.data}: {self.clients} clients, {self.rounds} rounds, round-trip delay "
            f"{self.delay}, {self.seeds} seeds"
        )

    def table(self) -> Grid:
        """Return what each method reached and what it sent, one row per method."""
        from rich.filesize import decimal

        rows = [
            [
                NAMES[method],
                str(self.score(method, "accuracy")),
                str(self.score(method, "loss")),
                "" if method == "independent" else f"{self.worse_off(method):.1%}",
                decimal(outcome.bytes_up),
                decimal(outcome.bytes_down),
            ]
            for method, outcome in self.outcomes.items()
        ]
        return Grid(("method", "accuracy", "loss", "hurt", "sent up", "sent down"), rows)

    def _display(self) -> Iterator[str | Grid]:
        yield self.title()
        yield self.table()
        yield self.verdict()
        yield self.hurt()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            **{one.name: getattr(self, one.name) for one in fields(self)[:-1]},
            "verdict": self.verdict(),
            "worse_off": {method: self.worse_off(method) for method in self.outcomes},
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
    local: Literal["rest", "all"] = "all",
    n_jobs: int | None = None,
    progress: bool = False,
) -> SimulatedComparison:
    """Run all methods on the same federations, one a seed: see `fedres.compare`.

    Examples
    --------
    >>> print(compare_simulated(seeds=2, rounds=60).verdict()[:17])
    On digits, FedRes
    """
    at_least_1(seeds=seeds)
    dataset = data if isinstance(data, Dataset) else load_data(data)

    def one(seed: int) -> dict[Method, Run]:
        federation = federate(dataset, clients=clients, seed=seed, local=local)
        mixed = simulate(
            federation, "mixture", rounds=rounds, seed=seed, delay=delay, alignment=alignment
        )
        return {**mixed.experts, "mixture": mixed}

    with working("loading compiled code (the first time, compiling it)", progress):
        one(0)  # not to be timed
    bar = f"comparing on {dataset.name}" if progress else None
    runs = run_all([partial(one, seed) for seed in range(seeds)], n_jobs, bar)
    outcomes = {method: _outcome([run[method] for run in runs]) for method in COMPARED}
    return SimulatedComparison(
        dataset.name, clients, delay, seeds, rounds, alignment, local, outcomes
    )


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
        np.array([run.loss_by_client for run in runs]),
    )

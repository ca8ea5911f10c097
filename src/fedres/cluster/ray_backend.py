"""Which Ray cluster to train on, and how that went."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedres.cluster.local_parts import GlobalState
from fedres.cluster.ray_actors import count_workers, owned
from fedres.cluster.ray_bayes import solve_on_ray
from fedres.cluster.ray_sgd import train_on_ray
from fedres.cluster.shard_bayes import BayesProblem
from fedres.cluster.shard_sgd import SgdProblem, count_passes
from fedres.cluster.shards import Shard
from fedres.cluster.shared_server import Used
from fedres.cluster.worker_progress import worker_bars
from fedres.core.types import F64
from fedres.tables.sgd_tuning import Trial


@dataclass
class RayBackend:
    """Solvers on a Ray cluster.

    Attributes
    ----------
    workers
        How many actors own shards.
    used
        What the server of ``solver="sgd"`` has learned from; None before.
    """

    workers: int
    used: Used | None = None

    @classmethod
    def connect(cls, address: str | None, workers: int | None) -> "RayBackend":
        """Connect to a cluster, or start Ray on this machine."""
        return cls(count_workers(workers, address))

    def solve(
        self,
        shards: Sequence[Shard],
        problem: BayesProblem,
        progress: str | None,
        go_on: bool = False,
    ) -> list[F64]:
        """``solver="bayes"``, as `shard_bayes.solve`."""
        return solve_on_ray(shards, problem, self.workers, progress, go_on)

    def train(
        self,
        shards: Sequence[Shard],
        problem: SgdProblem,
        best: Trial,
        rng: Any,
        progress: str | None,
        go_on: bool = False,
    ) -> GlobalState:
        """``solver="sgd"``, as `shard_sgd.train`."""
        if progress is None:
            run = train_on_ray(shards, problem, best, rng, self.workers, go_on=go_on)
        else:
            rows = [sum(one.rows for one in own) for own in owned(shards, self.workers)]
            with worker_bars([count_passes(best) * count for count in rows], progress) as show:
                run = train_on_ray(shards, problem, best, rng, self.workers, show, go_on=go_on)
        self.used = run.used
        return run.global_

    def facts(self) -> dict[str, Any]:
        """How it went, as JSON has it."""
        used = {} if self.used is None else {"messages": self.used.summary()}
        return {"workers": self.workers, **used}

    def words(self) -> str:
        """How it went, in words."""
        words = f"On Ray: {self.workers} worker{'s' if self.workers > 1 else ''}."
        if self.used is None:
            return words
        return (
            "{} {used:,} messages were used, {mean_delay:.2f} versions late on average and "
            "{largest_delay} at most; {dropped} that came again were dropped."
        ).format(words, **self.used.summary())

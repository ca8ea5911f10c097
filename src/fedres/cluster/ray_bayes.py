"""``solver="bayes"`` on Ray: actors add up their shards, the shared system is solved here.

Sums are added in the order of shards: the same bits whatever the number of workers. A shard whose
actor dies is worked on again, from where it was, and its sums count once: the same bits as well.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedres.cluster.ray_actors import actors, owned, result
from fedres.cluster.row_progress import with_rate
from fedres.cluster.shard_bayes import BayesProblem, solve
from fedres.cluster.shards import Shard
from fedres.core.types import F64
from fedres.simulation.ray_cluster import connect


class SumsWorker:
    """An actor that owns shards."""

    def work(self, work: Callable[[Shard], Any], shard: Shard) -> Any:
        """Do something with one of them."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        with threadpool_limits(1, "blas"):
            return work(shard)


def solve_on_ray(
    shards: Sequence[Shard],
    problem: BayesProblem,
    workers: int,
    progress: str | None = None,
    go_on: bool = False,
) -> list[F64]:
    """The global model of every output; the local models are written beside their shards."""
    ray = connect()
    owners = len(owned(shards, workers))

    with actors(SumsWorker, owners) as made:

        def each(
            work: Callable[[Shard], Any], shards: Sequence[Shard], _: int, progress: str | None
        ) -> Iterator[Any]:
            shared = ray.put(work)
            sums = [made[i % owners].work.remote(shared, one) for i, one in enumerate(shards)]
            rows = [shard.rows for shard in shards]
            done = ((result(sums.pop(0)), count) for count in rows)
            return with_rate(done, sum(rows), progress)

        return solve(shards, problem, owners, progress, each, go_on)

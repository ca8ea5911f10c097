"""Actors of a Ray cluster, each of which owns some shards; Ray starts them again when they die.

What an actor knows is in the files of its shards, which all nodes must be able to read and write
(a shared disk): one that is started again, on whatever node, goes on from there.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from fedres.simulation.parallel import count_cores
from fedres.simulation.ray_cluster import connect

MOST_DEATHS = 8  # of one actor: whatever kills it more often will do so again

S = TypeVar("S")


def count_workers(workers: int | None, address: str | None) -> int:
    """Connect to the cluster, and say how many workers to have: a core each, unless asked for."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}: leave it out for all cores")
    ray = connect(address, max(workers or 0, count_cores(None)))
    cores = int(ray.cluster_resources().get("CPU", 0))
    if not cores or (workers or 0) > cores:
        raise ValueError(
            f"the Ray cluster has {cores} cores, too few for {workers or 1} workers: add nodes, or "
            "ask for fewer by --workers"
        )
    return workers or cores


def owned(shards: Sequence[S], workers: int) -> list[list[S]]:
    """The shards of each worker, about as many each; a worker without any is none.

    Examples
    --------
    >>> owned("abcde", 2), owned("ab", 3)
    ([['a', 'c', 'e'], ['b', 'd']], [['a'], ['b']])
    """
    return [list(shards[i::workers]) for i in range(min(workers, len(shards)))]


@contextmanager
def actors(kind: type, workers: int, *arguments: Any) -> Iterator[list[Any]]:
    """So many actors, a core each, on as many nodes as there are; killed in the end.

    All of them have started: each has its own part of the work, so that none is done earlier if
    some begin before others, and those would learn what others know nothing of.
    """
    ray = connect()
    make = ray.remote(kind).options(
        num_cpus=1,
        max_restarts=MOST_DEATHS,
        max_task_retries=MOST_DEATHS,
        scheduling_strategy="SPREAD",
    )
    with _killed([make.remote(*arguments) for _ in range(workers)]) as made:
        for actor in made:
            result(actor.__ray_ready__.remote())
        yield made


@contextmanager
def actor_here(kind: type, *arguments: Any) -> Iterator[Any]:
    """An actor on this node, as long as it lives, that needs no core of its own."""
    ray = connect()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    make = ray.remote(kind).options(
        num_cpus=0,
        max_restarts=MOST_DEATHS,
        max_task_retries=MOST_DEATHS,
        scheduling_strategy=here,
    )
    with _killed([make.remote(*arguments)]) as (made,):
        yield made


@contextmanager
def _killed(made: list[Any]) -> Iterator[list[Any]]:
    ray = connect()
    try:
        yield made
    finally:
        for actor in made:
            ray.kill(actor)


def result(reference: Any) -> Any:
    """What an actor returns or raises; an error says so when it died too often."""
    ray = connect()
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayActorError as error:
        raise ValueError(
            f"a Ray actor died {MOST_DEATHS + 1} times, or could not be started: {error}. Is there "
            "enough memory on all nodes, and can all of them read the folder of the model?"
        ) from None

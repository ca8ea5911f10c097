"""The same work on every shard, some at once, and what comes of it one after the other."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fedres.cluster.row_progress import with_rate
from fedres.cluster.shards import Shard

T = TypeVar("T")


def over_shards(
    work: Callable[[Shard], T], shards: Sequence[Shard], n_jobs: int, progress: str | None = None
) -> Iterator[T]:
    """Results in the order of shards, whatever the number of cores: sums have the same bits.

    Parameters
    ----------
    work
        What to do with a shard.
    shards
        All of them.
    n_jobs
        How many at once, in threads: kernels release Python's lock.
    progress
        What to write before a progress bar; None for no bar.
    """
    from joblib import Parallel, delayed

    rows = [shard.rows for shard in shards]
    if n_jobs == 1 or len(shards) == 1:
        done: Iterator[T] = map(work, shards)
    else:
        pool = Parallel(n_jobs, backend="threading", return_as="generator", pre_dispatch=n_jobs)
        done = pool(delayed(work)(shard) for shard in shards)
    sized = zip(done, rows, strict=True)
    return with_rate(sized, sum(rows), progress)

"""Many runs at once on the cores of this machine."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from joblib import Parallel, delayed

T = TypeVar("T")


def run_all(
    calls: Sequence[Callable[[], T]], cores: int | None = None, progress: str | None = None
) -> list[T]:
    """Make every call and return the results in order, the same whatever the number of cores.

    Parameters
    ----------
    calls
        Functions without arguments.
    cores
        How many to use; None for all.
    progress
        What to write before a progress bar; None for no bar.

    Examples
    --------
    >>> run_all([lambda: 1, lambda: 2], cores=2)
    [1, 2]
    """
    return list(iter_all(calls, cores, progress))


def iter_all(
    calls: Sequence[Callable[[], T]], cores: int | None = None, progress: str | None = None
) -> Iterator[T]:
    """The same, one result after the other as soon as it is there.

    The kernels release Python's lock, so threads suffice and nothing is copied.
    """
    if cores is not None and cores < 1:
        raise ValueError(f"cores must be at least 1, not {cores}")
    jobs = cores or len(os.sched_getaffinity(0))
    done: Iterator[T] = Parallel(n_jobs=jobs, backend="threading", return_as="generator")(
        delayed(call)() for call in calls
    )
    return with_bar(done, len(calls), progress)


def with_bar(done: Iterable[T], total: int, progress: str | None) -> Iterator[T]:
    """Pass results on and show how many there are, and how long the rest will take."""
    if progress is None or total == 0:
        yield from done
        return
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(done, progress, total=total, console=console, transient=True)


@contextmanager
def working(message: str, shown: bool = True) -> Iterator[None]:
    """Show that something is going on while the block runs."""
    if not shown:
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(message):
        yield

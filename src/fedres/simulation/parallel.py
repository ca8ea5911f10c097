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

    The kernels release Python's lock, so threads suffice and nothing is copied.

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
    if cores is not None and cores < 1:
        raise ValueError(f"cores must be at least 1, not {cores}")
    jobs = cores or len(os.sched_getaffinity(0))
    done: Iterable[T] = Parallel(n_jobs=jobs, backend="threading", return_as="generator")(
        delayed(call)() for call in calls
    )
    if progress is not None:
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        done = track(done, progress, total=len(calls), console=console, transient=True)
    return list(done)


@contextmanager
def working(message: str, shown: bool = True) -> Iterator[None]:
    """Show that something is going on while the block runs."""
    if not shown:
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(message):
        yield

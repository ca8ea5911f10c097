"""Many runs at once on the cores of this machine."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import TypeVar

SECONDS_A_LINE = 10.0  # of progress, where output is no terminal

A = TypeVar("A")
T = TypeVar("T")


def run_all(
    calls: Sequence[Callable[[], T]], n_jobs: int | None = None, progress: str | None = None
) -> list[T]:
    """Make every call and return the results in order, the same whatever the number of cores.

    Parameters
    ----------
    calls
        Functions without arguments.
    n_jobs
        How many cores to use; None for all.
    progress
        What to write before a progress bar; None for no bar.

    Examples
    --------
    >>> run_all([lambda: 1, lambda: 2], n_jobs=2)
    [1, 2]
    """
    from joblib import Parallel, delayed

    # The kernels release Python's lock: threads start at once, and nothing is copied.
    pool = Parallel(n_jobs=count_cores(n_jobs), backend="threading", return_as="generator")
    return list(with_bar(pool(delayed(call)() for call in calls), len(calls), progress))


def map_in_order(
    function: Callable[[A], T], arguments: Sequence[A], n_jobs: int | None, progress: str | None
) -> list[T]:
    """Call an importable function on each argument; all results at the end, in order."""
    return list(map_in_processes(function, arguments, n_jobs, progress, "generator"))


def map_in_processes(
    function: Callable[[A], T],
    arguments: Sequence[A],
    n_jobs: int | None,
    progress: str | None,
    return_as: str = "generator_unordered",
) -> Iterator[T]:
    """The same, results as they come: processes start slowly, but do not wait for each other."""
    jobs = count_cores(n_jobs)
    if jobs == 1 or len(arguments) <= 1:
        return with_bar(map(function, arguments), len(arguments), progress)
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=jobs, backend="loky", return_as=return_as)
    done = pool(delayed(function)(argument) for argument in arguments)
    return with_bar(done, len(arguments), progress)


def count_cores(n_jobs: int | None) -> int:
    """The number asked for, or that of this machine which this process may use."""
    if n_jobs is not None and n_jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, not {n_jobs}: leave it out for all cores")
    from joblib import cpu_count

    return n_jobs or int(cpu_count())


def with_bar(done: Iterable[T], total: int, progress: str | None) -> Iterator[T]:
    """Pass results on and show how many there are, and how long the rest will take."""
    if progress is None or total == 0:
        yield from done
        return
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if console.is_terminal:
        yield from track(done, progress, total=total, console=console, transient=True)
    else:
        yield from _with_lines(done, total, progress)


def _with_lines(done: Iterable[T], total: int, progress: str) -> Iterator[T]:
    """Where a bar cannot move: a line now and then, and one at the end."""
    began = told = time.monotonic()
    for count, result in enumerate(done, start=1):
        yield result
        now = time.monotonic()
        if now - told >= SECONDS_A_LINE or count == total:
            told, left = now, (now - began) * (total - count) / count
            print(f"{progress}: {count} of {total}, {left:.0f} s left", file=sys.stderr, flush=True)


@contextmanager
def working(message: str, shown: bool = True) -> Iterator[None]:
    """Show that something is going on while the block runs; not in a terminal, if it takes long."""
    if not shown:
        yield
        return
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(message):
            yield
        return
    late = Timer(SECONDS_A_LINE, print, (f"{message} ...",), {"file": sys.stderr, "flush": True})
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()

"""How many rows are done, and how many a second."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from fedres.simulation.parallel import SECONDS_A_LINE

T = TypeVar("T")


def with_rate(
    sized: Iterable[tuple[T, int]], total: int | None, progress: str | None
) -> Iterator[T]:
    """Pass results on, and show how many rows they are of how many, and rows a second.

    Parameters
    ----------
    sized
        Results, and how many rows each is of.
    total
        Rows in all; None if that is not known.
    progress
        What to write before them; None to show nothing.

    Examples
    --------
    >>> list(with_rate([("a", 3), ("b", 4)], total=7, progress=None))
    ['a', 'b']
    """
    if progress is None:
        yield from (result for result, _ in sized)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    began = told = time.monotonic()
    rows = 0
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(progress, total=total, rate="")
        for result, size in sized:
            rows += size
            now = time.monotonic()
            rate = f"{rows:,} rows, {rows / max(now - began, 1e-9):,.0f} a second"
            bar.update(task, completed=rows, rate=rate)
            is_last = rows == total
            if not console.is_terminal and (now - told >= SECONDS_A_LINE or is_last):
                told = now
                print(f"{progress}: {rate}", file=sys.stderr, flush=True)
            yield result

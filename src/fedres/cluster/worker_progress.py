"""How many rows each worker has done, and how many a second."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fedres.cluster.row_progress import row_bars, shown_rate
from fedres.simulation.parallel import SECONDS_A_LINE


@contextmanager
def worker_bars(totals: Sequence[int], progress: str) -> Iterator[Callable[[Sequence[int]], None]]:
    """A bar for each worker: what is yielded is to be told how many rows each has done.

    Parameters
    ----------
    totals
        How many rows each worker is to do.
    progress
        What to write before them.
    """
    began = told = time.monotonic()
    with row_bars() as bars:
        names = [f"{progress}: worker {i}" for i in range(1, 1 + len(totals))]
        tasks = [
            bars.add_task(name, total=total, rate="")
            for name, total in zip(names, totals, strict=True)
        ]

        def show(rows: Sequence[int]) -> None:
            nonlocal told
            now = time.monotonic()
            rates = [shown_rate(count, now - began) for count in rows]
            for task, count, rate in zip(tasks, rows, rates, strict=True):
                bars.update(task, completed=count, rate=rate)
            if bars.disable and (now - told >= SECONDS_A_LINE or [*rows] == [*totals]):
                told = now
                for name, rate in zip(names, rates, strict=True):
                    print(f"{name}: {rate}", file=sys.stderr, flush=True)

        yield show

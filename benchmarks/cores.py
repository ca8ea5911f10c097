"""What a second core is worth to a sweep, beside what it is worth to the bare kernel.

Run with `make bench-cores`. Two copies of the bare kernel, in processes that share nothing, show
what the machine gives: two cores of one chip share caches and memory. The sweep and the bare
kernel take turns, so that both see the machine in the same state.
"""

from concurrent.futures import ProcessPoolExecutor
from time import perf_counter

from rich import box
from rich.console import Console
from rich.table import Table

import fedres
from fedres.simulation.sweep import dataset, fingerprint
from speed import CLIENTS, ROUNDS, dense_federation

DATA, SEEDS, REPEATS = ("letter", "usps"), 60, 3


def bare(_copy):
    """Seconds in the kernel for 120 runs of a federation like usps at P = 50."""
    federation = dense_federation(256)
    fedres.simulate(federation, rounds=2)
    return sum(fedres.simulate(federation, rounds=ROUNDS, seed=s).seconds for s in range(120))


def sweep(n_jobs):
    began = perf_counter()
    fedres.sweep(DATA, clients=[10, CLIENTS], delays=[0, 20, 80, 200], seeds=SEEDS, n_jobs=n_jobs)
    return perf_counter() - began


def main():
    for name in DATA:
        dataset(name)
        fingerprint(name)
    sweep(2)  # starts the worker processes, which a long sweep pays for once
    table = Table(title="The worth of a second core", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("bare kernel: 2 copies", "sweep: --jobs 2", "share of what is possible"):
        table.add_column(column, justify="right")
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(bare, range(2)))
        for _ in range(REPEATS):
            alone = pool.submit(bare, 0).result()
            together = max(pool.map(bare, range(2)))
            possible = 2 * alone / together
            reached = sweep(1) / sweep(2)
            table.add_row(f"{possible:.2f}x", f"{reached:.2f}x", f"{reached / possible:.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()

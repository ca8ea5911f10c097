"""What a second worker is worth to a fit on Ray, and where the time goes.

    python benchmarks/ray_workers.py [rows]

The table is that of benchmarks/scale.py, a million rows by default, in eight shards. Training alone
is timed: rows a second from when all actors have started. The server of ``sgd`` is a process of its
own: with two workers it shares their two cores, which bounds the ratio. So CPU seconds of server
and workers are shown beside.
"""

import os
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from unittest.mock import patch

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

from ray._private.state import actors
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.utils import check_random_state

from fedres.cluster import ray_bayes, ray_sgd, shard_bayes
from fedres.cluster.fit_parts import ColumnRoles, prepare_parts, train_parts
from fedres.cluster.ray_actors import count_workers
from fedres.cluster.ray_backend import RayBackend
from fedres.cluster.shard_sgd import count_passes
from fedres.cluster.table_parts import TableParts
from fedres.tables.sgd_tuning import Trial
from scale import generate

SHARDS, BEST, MOST_WORKERS = 8, Trial(0.1, 10.0, 3), 2
PASSES_OF_BAYES = 2  # over the rows: sums, then clients' own models
TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Notes when the first rows were learned, and CPU seconds of actors since."""

    def __init__(self):
        self.began = None

    def __call__(self, rows):
        if not all(rows):
            return
        if self.began is None:
            self.began, self.first, self.cpu = perf_counter(), sum(rows), cpu_seconds()
        self.ended, self.last, self.now = perf_counter(), sum(rows), cpu_seconds() or self.now

    @property
    def rate(self):
        return (self.last - self.first) / (self.ended - self.began)

    def cpu_of(self, kind):
        """Microseconds a row."""
        return 1e6 * (self.now[kind] - self.cpu[kind]) / (self.last - self.first)


def cpu_seconds():
    """CPU seconds of the actors that live, by kind."""
    total = {}
    for one in actors().values():
        if one["State"] == "ALIVE":
            fields = Path(f"/proc/{one['Pid']}/stat").read_text().rsplit(")", 1)[1].split()
            spent = (int(fields[11]) + int(fields[12])) / TICKS
            total[one["ActorClassName"]] = total.get(one["ActorClassName"], 0) + spent
    return total


class Timed:
    """`solve` with actors that have started: seconds."""

    def __call__(self, shards, problem, n_jobs, progress, each):
        list(each(partial(shard_bayes.begin, problem=problem), shards[:n_jobs], n_jobs, None))
        began = perf_counter()
        solved = shard_bayes.solve(shards, problem, n_jobs, progress, each)
        self.seconds = perf_counter() - began
        return solved


class Capture(RayBackend):
    """Keeps what it is asked to solve, and does so."""

    def solve(self, shards, problem, progress):
        self.task = partial(ray_bayes.solve_on_ray, shards, problem)
        return super().solve(shards, problem, progress)

    def train(self, shards, problem, best, rng, progress):
        self.task = partial(ray_sgd.train_on_ray, shards, problem)
        return super().train(shards, problem, best, rng, progress)


def main(rows):
    count_workers(MOST_WORKERS, None)
    table = Table(title=f"{rows:,} rows in {SHARDS} shards", box=box.SIMPLE_HEAD)
    for column in ("solver", "workers", "rows/s", "rows/s a worker", "ratio", "mean delay"):
        table.add_column(column, justify="right" if column != "solver" else "left")
    table.add_column("CPU us a row: workers", justify="right")
    table.add_column("server", justify="right")
    with TemporaryDirectory(dir=os.environ.get("FEDRES_SCRATCH")) as folder:
        events, parted = Path(folder) / "events", Path(folder) / "shards"
        events.mkdir()
        parted.mkdir()
        generate(events, rows)
        parts = TableParts.find(str(events))
        roles = ColumnRoles("user", "y")
        prepared = prepare_parts(parts, roles, parted, memory=4 * 10**9, shards=SHARDS)
        for solver in ("sgd", "bayes"):
            capture = Capture(MOST_WORKERS)
            prepared.model.set_params(solver=solver)
            once = {"eta": BEST.eta, "shrinkage": BEST.shrinkage, "passes": 1}
            train_parts(prepared, "fedres", once, backend=capture)  # compiles, too
            rates = []
            for workers in range(1, 1 + MOST_WORKERS):
                cells = ("", "", "")
                if solver == "sgd":
                    watch = Watch()
                    run = capture.task(BEST, check_random_state(0), workers, watch)
                    rates.append(watch.rate)
                    late = run.used.summary()["mean_delay"]
                    cpu = (watch.cpu_of(kind) for kind in ("SgdWorker", "SharedServer"))
                    cells = (f"{late:.2f}", *(f"{one:.2f}" for one in cpu))
                else:
                    with patch.object(ray_bayes, "solve", Timed()) as timed:
                        capture.task(workers)
                    rates.append(PASSES_OF_BAYES * rows / timed.seconds)
                table.add_row(
                    solver,
                    str(workers),
                    f"{rates[-1]:,.0f}",
                    f"{rates[-1] / workers:,.0f}",
                    f"{rates[-1] / rates[0]:.2f}",
                    *cells,
                )
    Console(width=110).print(table)
    print(f"{count_passes(BEST)} passes of sgd, {PASSES_OF_BAYES} of bayes")


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if sys.argv[1:] else 1_000_000)

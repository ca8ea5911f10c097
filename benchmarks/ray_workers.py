"""What a second worker is worth to a fit on Ray, and where the time goes.

    python benchmarks/ray_workers.py [rows]

The table is that of benchmarks/scale.py, a million rows by default, in four shards. Training alone
is timed, from when all actors have started. Beside the workers there is one process more: the
server of ``sgd``, which works while workers do, or the command itself, which adds up the sums of
``bayes`` and solves for the global model while they wait. CPU seconds of both say how many times
faster two workers can be where there are two cores for all, and nothing else runs on them.
"""

import os
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
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
from fedres.reading.table_files import TableFiles
from fedres.tables.sgd_tuning import Trial
from scale import generate

SHARDS, BEST = 4, Trial(0.1, 10.0, 3)
PASSES_OF_BAYES = 2  # over the rows: sums, then clients' own models
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds():
    """CPU seconds of the workers that live, and of the process beside them."""
    spent = {"SgdWorker": 0.0, "SumsWorker": 0.0, "SharedServer": 0.0}
    for one in actors().values():
        if one["State"] == "ALIVE":
            fields = Path(f"/proc/{one['Pid']}/stat").read_text().rsplit(")", 1)[1].split()
            spent[one["ActorClassName"]] += (int(fields[11]) + int(fields[12])) / TICKS
    workers = spent["SgdWorker"] + spent["SumsWorker"]
    return workers, spent["SharedServer"] if spent["SgdWorker"] else process_time()


class Sgd:
    """Watches a run: seconds a row, of the wall, of workers' CPUs and of the server's."""

    def __init__(self, workers):
        self.workers, self.began = workers, None

    def run(self, task):
        self.late = task(BEST, check_random_state(0), self.workers, self).used.summary()
        (first, *began), (last, *ended) = self.began, self.ended
        self.wall, self.mine, self.beside = (
            (b - a) / (last - first) for a, b in zip(began, ended, strict=True)
        )

    def __call__(self, rows):
        if not all(rows):
            return
        now = (sum(rows), perf_counter(), *cpu_seconds())
        self.began = self.began or now
        self.ended = now

    @staticmethod
    def possible(one, two):
        """The server works at the same time, on the second core if there is one worker."""
        return max(one.mine, one.beside) / ((two.mine + two.beside) / 2)


class Bayes:
    """The same of sums."""

    def __init__(self, workers):
        self.workers, self.late = workers, None

    def run(self, task):
        with patch.object(ray_bayes, "solve", self):
            task(self.workers)

    def __call__(self, shards, problem, n_jobs, progress, each, go_on):
        list(each(partial(shard_bayes.begin, problem=problem), shards[:n_jobs], n_jobs, None))
        began = (perf_counter(), *cpu_seconds())
        solved = shard_bayes.solve(shards, problem, n_jobs, progress, each, go_on)
        ended, rows = (perf_counter(), *cpu_seconds()), sum(shard.rows for shard in shards)
        self.wall, self.mine, self.beside = (
            (b - a) / (PASSES_OF_BAYES * rows) for a, b in zip(began, ended, strict=True)
        )
        return solved

    @staticmethod
    def possible(one, two):
        """Workers wait for the command."""
        return (one.mine + one.beside) / (two.mine / 2 + two.beside)


class Capture(RayBackend):
    """Keeps what it is asked to solve, and does so."""

    def solve(self, shards, problem, *options):
        self.task = partial(ray_bayes.solve_on_ray, shards, problem)
        return super().solve(shards, problem, *options)

    def train(self, shards, problem, *options):
        self.task = partial(ray_sgd.train_on_ray, shards, problem)
        return super().train(shards, problem, *options)


def main(rows):
    count_workers(2, None)
    table = Table(title=f"{rows:,} rows in {SHARDS} shards", box=box.SIMPLE_HEAD)
    for column in (
        "solver",
        "workers",
        "rows/s",
        "rows/s a worker",
        "times one",
        "possible",
        "CPU us a row: workers",
        "beside",
        "versions late",
    ):
        table.add_column(column, justify="right" if column != "solver" else "left")
    with TemporaryDirectory(dir=os.environ.get("FEDRES_SCRATCH")) as folder:
        events, parted = Path(folder) / "events", Path(folder) / "shards"
        events.mkdir()
        parted.mkdir()
        generate(events, rows)
        roles = ColumnRoles("user", "y")
        parts = TableFiles.find(str(events))
        prepared = prepare_parts(parts, roles, parted, memory=4 * 10**9, shards=SHARDS)
        for solver, kind in (("sgd", Sgd), ("bayes", Bayes)):
            capture = Capture(2)
            prepared.model.set_params(solver=solver)
            once = {"eta": BEST.eta, "shrinkage": BEST.shrinkage, "passes": 1}
            train_parts(prepared, "fedres", once, backend=capture)  # compiles, too
            one, two = kind(1), kind(2)
            for run in (one, two):
                run.run(capture.task)
                table.add_row(
                    solver,
                    str(run.workers),
                    f"{1 / run.wall:,.0f}",
                    f"{1 / run.wall / run.workers:,.0f}",
                    f"{one.wall / run.wall:.2f}",
                    "" if run is one else f"{kind.possible(one, two):.2f}",
                    f"{1e6 * run.mine:.2f}",
                    f"{1e6 * run.beside:.2f}",
                    "" if run.late is None else f"{run.late['mean_delay']:.2f}",
                )
    Console(width=110).print(table)


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if sys.argv[1:] else 1_000_000)

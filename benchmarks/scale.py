"""Tables larger than memory: CPU seconds by number of rows, peak memory, and a line through them.

    python benchmarks/scale.py [rows ...]

Generates tables of so many rows (default a million), a tenth as many clients and 20 columns, half
of them numbers and half categories, as Parquet, and fits each in shards with ``--memory 2GB`` by a
process that the system lets have no more than 4 GB of addresses (RLIMIT_AS). A table that fits into
memory is fitted there as well, without a limit. With three sizes or more, a line is drawn through
their seconds, up to a billion rows.
The workload is frozen: change it and the numbers mean nothing.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from rich import box
from rich.console import Console
from rich.table import Table

from fedres.cluster import shard_bayes, shard_sgd
from fedres.cluster.client_sample import some_rows
from fedres.cluster.fit_parts import ColumnRoles, prepare_parts
from fedres.reading.table_files import TableFiles
from fedres.tables.arrow import Arrow
from fedres.tables.empirical_bayes import find_all_variances, labels_of
from fedres.tables.online_models import OnlineModels

NUMBERS, CATEGORIES = 10, (3, 4, 5, 6, 8, 12, 20, 50, 100, 200)
LOCAL = "x0,k0"  # the columns that clients' own models see
FILE = 1_000_000  # rows
IN_MEMORY = 1_000_000  # rows of a table that is fitted in memory, too
MEMORY, LIMIT = "2GB", 4 * 10**9  # what the command may take, and what the system lets it
FURTHER = (10**8, 10**9)  # rows that the line is drawn to
console = Console(width=110)


def generate(folder, rows, seed=0):
    """Write a table, a million rows a file."""
    rng = np.random.default_rng(seed)
    clients = rows // 10
    slopes = rng.normal(size=NUMBERS) / 3
    effects = [rng.normal(size=size) / 3 for size in CATEGORIES]
    own = rng.normal(size=(clients, 2)).astype(np.float32) / 2
    for number, first in enumerate(range(0, rows, FILE)):
        count = min(FILE, rows - first)
        client = rng.integers(0, clients, count)
        x = rng.standard_normal((count, NUMBERS), np.float32)
        y = x @ slopes + own[client, 0] + own[client, 1] * x[:, 0]
        columns = {"user": client, **{f"x{j}": x[:, j] for j in range(NUMBERS)}}
        for j, size in enumerate(CATEGORIES):
            code = rng.integers(0, size, count)
            y += effects[j][code]
            names = pa.array([f"c{k}" for k in range(size)])
            columns[f"k{j}"] = pa.DictionaryArray.from_arrays(code.astype(np.int32), names)
        columns["y"] = (y + rng.standard_normal(count)).astype(np.float32)
        path = Path(folder) / f"part-{number:05d}.parquet"
        parquet.write_table(pa.table(columns), path, row_group_size=2**18)


def fit(table, out, *options, limit=None):
    """`fedres fit`: what `run` returns."""
    roles = ["--client", "user", "--label", "y", "--local", LOCAL]
    return run("fit", table, *roles, "--out", out, *options, limit=limit)


def run(*arguments, limit=None):
    """Run a command: seconds of wall and CPU, peak GB, and what it printed."""
    command = [sys.executable, "-c", "from fedres.cli import main; main()"]
    command += [*map(str, arguments), "--json"]

    def limited():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    began = perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=limited)  # noqa: PLW1509
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{command[3:]} ended with {status}")
    cpu = usage.ru_utime + usage.ru_stime
    return perf_counter() - began, cpu, usage.ru_maxrss * 1024 / 1e9, json.loads(printed)


def spent(call):
    """CPU seconds."""
    began = process_time()
    call()
    return process_time() - began


def passes(events, folder):
    """Rows a CPU second of both solvers, on the same encoded rows in four shards and in memory."""
    folder.mkdir()
    roles = ColumnRoles("user", "y")
    parameters = {"shared": "linear", "local_features": LOCAL.split(",")}
    prepared = prepare_parts(
        TableFiles.find(str(events)), roles, folder, memory=10**10, shards=4, parameters=parameters
    )
    shards, model = prepared.shards, prepared.model
    rows = sum(shard.rows for shard in shards)
    data, shape = some_rows(shards, model.encoder_, rows), model._settings(0.3, 10.0)
    groups, rng = model._groups, np.random.RandomState(0)
    problem = shard_sgd.SgdProblem(model.encoder_, shape, 1)
    state = shard_sgd.new_global(problem)

    def learn_shards():
        nonlocal state
        for shard in shards:
            order = rng.permutation(shard.rows).astype(np.int32)
            state = shard_sgd.learn_shard(shard, problem, state, 0.3, order)

    learn_shards()  # compiles
    for shard in shards:
        shard.path("stream").unlink()
        shard.path("local").unlink()
    first, again = spent(learn_shards), spent(learn_shards)
    models = OnlineModels(shape)
    laid_out = spent(lambda: models.rows(data.x_global, data.x_local, data.client))
    stream = models.rows(data.x_global, data.x_local, data.client)
    order = rng.permutation(rows).astype(np.int32)
    learned = spent(lambda: models.learn(stream, data.y, order))
    variances = find_all_variances(shape, data, groups, 0, rng)
    bayes = shard_bayes.BayesProblem(model.encoder_, shape, groups, variances)
    shard_bayes.begin(shards[0], bayes)  # compiles

    def solve():
        alive = variances[0].of_groups > 0
        arrow = Arrow(shape, data, groups, alive)
        arrow.weigh(np.ones(rows))
        arrow.set_ridges(bayes.ridges(0))
        labels = labels_of(shape, data, arrow, 0)
        arrow.means(labels.y, np.zeros(arrow.width), 1e-5)

    in_shards, in_memory = spent(lambda: shard_bayes.solve(shards, bayes)), spent(solve)
    table = Table(title=f"Solvers alone, {rows:,} rows: rows a CPU second", box=box.SIMPLE_HEAD)
    table.add_column("what")
    for column in ("in shards", "in memory", "ratio"):
        table.add_column(column, justify="right")
    for what, ours, theirs in (
        ("sgd, first pass (rows are laid out)", first, laid_out + learned),
        ("sgd, another pass", again, learned),
        ("bayes", in_shards, in_memory),
    ):
        cells = f"{rows / ours:,.0f}", f"{rows / theirs:,.0f}", f"{theirs / ours:.2f}"
        table.add_row(what, *cells)
    console.print(table)


def line(rows, seconds, what):
    """The line through seconds, as text: what all tables cost, a row, residuals, and further on."""
    millions = np.asarray(rows) / 1e6
    slope, intercept = np.polyfit(millions, seconds, 1)
    off = seconds - (intercept + slope * millions)
    console.print(f"{what} seconds = {intercept:.1f} + {slope:.2f} * millions of rows", end="; ")
    console.print("residuals", ", ".join(f"{one:+.1f}" for one in off))
    for count in FURTHER:
        hours = (intercept + slope * count / 1e6) / 3600
        console.print(f"  {count:,} rows: {hours:.1f} hours")


def main(sizes):
    table = Table(title="A tenth as many clients as rows, 20 columns", box=box.SIMPLE_HEAD)
    for column in ("what", "rows", "shards", "wall s", "CPU s", "rows / CPU s", "peak GB", "rmse"):
        table.add_column(column, justify="right" if column != "what" else "left")

    def add(what, count, wall, cpu, peak, found):
        error = found["rmse"] if "rmse" in found else found["methods"]["fedres"]["rmse"]
        cells = (f"{count:,}", str(found.get("shards", "")), f"{wall:.0f}", f"{cpu:.0f}")
        table.add_row(what, *cells, f"{count / cpu:,.0f}", f"{peak:.2f}", f"{error:.4f}")

    walls, cpus = [], []
    for rows in sizes:
        with TemporaryDirectory(dir=os.environ.get("FEDRES_SCRATCH")) as folder:
            events, out = Path(folder) / "events", Path(folder) / "model"
            events.mkdir()
            generate(events, rows)
            within = {"limit": LIMIT}
            done = fit(events / "*.parquet", out, "--memory", MEMORY, **within)
            walls.append(done[0])
            cpus.append(done[1])
            add("fit in shards", rows, *done)
            console.print(f"{rows:,} rows: {done[0]:.1f} s, {done[1]:.1f} CPU s, {done[2]:.2f} GB")
            if rows <= IN_MEMORY:
                options = events / "*.parquet", "--memory", MEMORY
                add("evaluate in batches", rows, *run("evaluate", out, *options, **within))
                whole = Path(folder) / "whole.parquet"
                parquet.write_table(parquet.read_table(events), whole)
                found = fit(whole, Path(folder) / "other", "--shared", "linear")
                add("fit in memory", rows, *found)
                passes(events, Path(folder) / "shards")
    console.print(table)
    if len(sizes) > 2:
        line(sizes, walls, "wall")
        line(sizes, cpus, "CPU")


if __name__ == "__main__":
    main([int(float(rows)) for rows in sys.argv[1:]] or [1_000_000])

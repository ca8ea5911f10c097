"""One client's model out of ten million, read from the folder of a table in shards.

    python benchmarks/one_client.py [clients]

The folder is written by the writer of tables in shards (`fedres.cluster.model_writer`), for the
columns of benchmarks/scale.py and clients' own models with 5 weights, which are drawn by chance.
Twenty processes read ten clients each: "cold" after the system was told to forget the files, and
"warm" once more, from the folder to the model both times. Imports are not counted.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from fedres import load_model
from fedres.cluster.fit_parts import ColumnRoles, prepare_parts, train_parts
from fedres.cluster.local_parts import write_part
from fedres.cluster.model_writer import write_model
from fedres.cluster.shards import Shard
from fedres.reading.table_files import TableFiles
from scale import LOCAL, generate
from storage import forget

A_SHARD = 1_000_000  # clients
PROCESSES, READS = 20, 10  # of each


def fitted(folder):
    """A model of few clients, and the layout of its rows."""
    events, parted = folder / "events", folder / "parted"
    for one in (events, parted):
        one.mkdir()
    generate(events, 2000)
    prepared = prepare_parts(
        TableFiles.find(str(events)),
        ColumnRoles("user", "y"),
        parted,
        memory=2 * 10**9,
        parameters={"shared": "linear", "local_features": LOCAL.split(",")},
    )
    return train_parts(prepared, "fedres", {}), prepared.shards[0].layout


def write(folder, clients):
    """The folder of a model of so many clients."""
    few, layout = fitted(folder)
    write_model(
        folder / "few", few.model, few.shape, few.global_, [Shard(folder / "parted", 0, layout)]
    )
    rng, width = np.random.default_rng(0), few.model.encoder_.width_local + 1
    many = folder / "many"
    many.mkdir()
    ids, shards = rng.permutation(clients), []
    for number, first in enumerate(range(0, clients, A_SHARD)):
        shard, mine = Shard(many, number, layout), ids[first : first + A_SHARD]
        records = np.zeros(len(mine), layout.dtype)
        records["client"] = mine
        records.tofile(shard.path("rows"))
        weights = rng.standard_normal((len(mine) * width, 1), np.float32)
        arrays = {
            "start": np.arange(len(mine) + 1) * width,
            "columns": np.tile(np.arange(width, dtype=np.int32), len(mine)),
            "weights": weights,
            "squares": np.ones_like(weights),
        }
        write_part(shard, arrays)
        shards.append(shard)
    assert write_model(folder / "model", few.model, few.shape, few.global_, shards) == clients


def read(out, id_):
    """Milliseconds to one client's model."""
    began = perf_counter()
    load_model(out, client=id_)
    return 1000 * (perf_counter() - began)


def read_some(few, out, *ids):
    """Print milliseconds of cold and warm reads of some clients."""
    read(few, 0)  # imports
    taken = []
    for id_ in map(int, ids):
        forget(Path(out))
        taken.append([read(out, id_), read(out, id_)])
    print(json.dumps(taken))


def main(clients):
    taken = []
    with TemporaryDirectory(dir=os.environ.get("FEDRES_SCRATCH")) as name:
        folder, out = Path(name), Path(name) / "model"
        began = perf_counter()
        write(folder, clients)
        size = sum(path.stat().st_size for path in out.iterdir())
        print(f"{clients:,} clients written in {perf_counter() - began:.0f} s: {size / 1e9:.2f} GB")
        for ids in np.random.default_rng(1).integers(0, clients, (PROCESSES, READS)):
            command = [sys.executable, __file__, "--read", folder / "few", out, *map(str, ids)]
            printed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
            taken += json.loads(printed)
    title = f"One client of {clients:,}: milliseconds, {len(taken)} reads"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for column in ("", "median", "95th in 100", "worst"):
        table.add_column(column, justify="right" if column else "left")
    for what, found in zip(("cold", "warm"), np.transpose(taken), strict=True):
        table.add_row(what, *(f"{one:.1f}" for one in np.quantile(found, (0.5, 0.95, 1))))
    Console(width=100).print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read_some(*sys.argv[2:])
    else:
        main(int(float(sys.argv[1])) if sys.argv[1:] else 10_000_000)

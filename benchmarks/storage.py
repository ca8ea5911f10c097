"""A stored model of a million clients, beside peers that hold the same arrays.

Every client has some ten weights, as many sums of squares and the numbers of their columns. The
peers: one .npz file, which must be read whole, and a table of SQLite with a row a client.
"cold" is a new process, with the files no longer in the memory of the system, imports not counted,
the best of five.
Run with `make bench`, or `python benchmarks/storage.py 100000` for fewer clients.
"""

import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from fedres.tables import storage

CLIENTS = 1_000_000
READS = 1000


def federation(clients):
    rng = np.random.default_rng(0)
    start = np.concatenate([[0], np.cumsum(rng.integers(1, 21, clients))])
    arrays = {
        "start": start,
        "columns": rng.integers(0, 2000, start[-1], np.int32),
        "weights": rng.random(start[-1], np.float32),
        "squares": rng.random(start[-1], np.float32),
    }
    return [f"user{i}" for i in rng.permutation(clients)], arrays


class Fedres:
    """The library's own folder of safetensors and JSON."""

    name = "fedres"

    def write(self, path, ids, arrays):
        """Write all clients."""
        storage.write(path, {}, {"clients": {**storage.pack_ids(ids), **arrays}})

    def open(self, path):
        """Make ready to read."""
        self.stored = storage.open_folder(path)

    def read(self, id_):
        """Read one client's weights and squares."""
        row = self.stored.find("clients", id_)
        a, b = self.stored.slice("clients", "start", row, row + 2)
        return [self.stored.slice("clients", name, a, b) for name in ("weights", "squares")]


class Npz:
    """One numpy file."""

    name = "numpy.savez"

    def write(self, path, ids, arrays):
        """Write all clients."""
        path.mkdir()
        np.savez(path / "model.npz", ids=np.array(ids), **arrays)

    def open(self, path):
        """Make ready to read."""
        with np.load(path / "model.npz") as file:
            self.arrays = dict(file)
        self.row = {id_: i for i, id_ in enumerate(self.arrays["ids"].tolist())}

    def read(self, id_):
        """Read one client's weights and squares."""
        a, b = self.arrays["start"][self.row[id_] :][:2]
        return [self.arrays[name][a:b].copy() for name in ("weights", "squares")]


class Sqlite:
    """A row a client."""

    name = "SQLite"

    def write(self, path, ids, arrays):
        """Write all clients."""
        path.mkdir()
        start = arrays["start"].tolist()
        names = ("columns", "weights", "squares")
        rows = (
            (id_, *(arrays[name][a:b].tobytes() for name in names))
            for id_, a, b in zip(ids, start, start[1:], strict=False)
        )
        with sqlite3.connect(path / "model.db") as base:
            base.execute(
                "CREATE TABLE c (id TEXT PRIMARY KEY, n BLOB, w BLOB, s BLOB) WITHOUT ROWID"
            )
            base.executemany("INSERT INTO c VALUES (?, ?, ?, ?)", sorted(rows))
        base.close()

    def open(self, path):
        """Make ready to read."""
        self.base = sqlite3.connect(path / "model.db")

    def read(self, id_):
        """Read one client's weights and squares."""
        row = self.base.execute("SELECT w, s FROM c WHERE id = ?", (id_,)).fetchone()
        return [np.frombuffer(blob, np.float32) for blob in row]


STORES = {store.name: store for store in (Fedres, Npz, Sqlite)}


def timed(call, *args):
    began = perf_counter()
    call(*args)
    return perf_counter() - began


def forget(path):
    """Drop a folder's files from the system's memory, where it lets us."""
    for file in path.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cold(name, path, id_):
    """Milliseconds from nothing to one client's model, in a new process."""
    forget(path)
    command = [sys.executable, __file__, "--cold", name, str(path), id_]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def cold_here(name, path, id_):
    store = STORES[name]()
    if name == "fedres":
        import safetensors  # noqa: F401
    opened = timed(store.open, Path(path))
    print(1000 * (opened + timed(store.read, id_)))


def main(clients):
    ids, arrays = federation(clients)
    wanted = np.random.default_rng(1).choice(ids, READS).tolist()
    table = Table(box=box.SIMPLE, title=f"{clients:,} clients, {len(arrays['weights']):,} weights")
    for heading in ("", "write s", "open ms", "bytes a client", "one client: cold ms", "warm ms"):
        table.add_column(heading, justify="right" if heading else "left")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in STORES.items():
            path, store = Path(folder) / name, kind()
            written = timed(store.write, path, ids, arrays)
            size = sum(file.stat().st_size for file in path.iterdir()) / clients
            first = min(cold(name, path, id_) for id_ in wanted[:5])
            opened = timed(store.open, path)
            found[name] = [store.read(id_) for id_ in wanted]
            warm = timed(lambda read: [read(id_) for id_ in wanted], store.read) / READS
            columns = (written, 1000 * opened, size, first, 1000 * warm)
            formats = ("{:.1f}", "{:.1f}", "{:.0f}", "{:.2f}", "{:.3f}")
            table.add_row(name, *(f.format(c) for f, c in zip(formats, columns, strict=True)))
            if name == "fedres":
                table.add_row(
                    "  verify", "", f"{1000 * timed(store.stored.verify):.0f}", "", "", ""
                )
    np.testing.assert_equal(found["numpy.savez"], found["fedres"])
    np.testing.assert_equal(found["SQLite"], found["fedres"])
    Console(width=100).print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cold"]:
        cold_here(*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else CLIENTS)

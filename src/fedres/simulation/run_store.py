"""Finished runs on disk, so that a sweep that was stopped goes on where it was."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fedres.core.source import digest, digest_of_code
from fedres.simulation.parallel import map_in_processes

ROOMS = ("core", "simulation")  # on whose code a run depends, and on no other

A = TypeVar("A")
T = TypeVar("T")


class RunStore:
    """Results by key, in one SQLite file, made if absent; without a path, in memory only.

    Each batch of results is a transaction: after a kill at any moment it is there or it is not.
    Several processes may share a file.

    Examples
    --------
    >>> store = RunStore(None)
    >>> store.put({"a": {"accuracy": 0.9}})
    >>> store.get(["a", "b"])
    {'a': {'accuracy': 0.9}}
    """

    def __init__(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Sweeps write from one thread, though not always from the one that opened the file.
            self._base = sqlite3.connect(path or ":memory:", timeout=60, check_same_thread=False)
            with self._base:
                self._base.execute(
                    "CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, row TEXT)"
                )
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{path} is not a store of runs ({error}): delete it or name another"
            ) from None

    def get(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Those of the results that are there."""
        found = {}
        for key in keys:
            row = self._base.execute("SELECT row FROM runs WHERE key = ?", (key,)).fetchone()
            if row is not None:
                found[key] = json.loads(row[0])
        return found

    def put(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep results, all or none of them."""
        with self._base:
            self._base.executemany(
                "INSERT OR REPLACE INTO runs VALUES (?, ?)",
                [(key, json.dumps(row)) for key, row in rows.items()],
            )

    def map(
        self,
        function: Callable[[A], T],
        arguments: Sequence[A],
        n_jobs: int | None = None,
        progress: str | None = None,
    ) -> list[T]:
        """Call an importable function on each argument and return all results, in order.

        Each result, which JSON must be able to hold, is kept as soon as it is there; what the
        store holds already is not computed again. An argument is known by its `repr`, a function
        by its name and the code of its room and of those below: not by how results are shown.

        Examples
        --------
        >>> store = RunStore(None)
        >>> store.map(abs, [-1, 2]), store.map(abs, [2, -3])
        ([1, 2], [2, 3])
        """
        name = f"{function.__module__}.{function.__qualname__}".encode()
        code = digest_of_code(*ROOMS, *function.__module__.split(".")[1:2]).encode()
        keys = [digest(name, repr(one).encode(), code) for one in arguments]
        found = {key: row["value"] for key, row in self.get(set(keys)).items()}
        todo = {key: one for key, one in zip(keys, arguments, strict=True) if key not in found}
        calls = partial(_with_key, function)
        for key, value in map_in_processes(calls, list(todo.items()), n_jobs, progress):
            self.put({key: {"value": value}})
            found[key] = value
        return [found[key] for key in keys]

    def close(self) -> None:
        """Close the file."""
        self._base.close()


def _with_key(function: Callable[[A], T], keyed: tuple[str, A]) -> tuple[str, T]:
    key, argument = keyed
    return key, function(argument)

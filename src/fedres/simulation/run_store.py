"""Finished runs on disk, so that a sweep that was stopped goes on where it was."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


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

    def close(self) -> None:
        """Close the file."""
        self._base.close()

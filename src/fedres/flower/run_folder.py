"""A run's folder on the server: all that it knows in one SQLite file.

A reply changes the model, one client's counters and the log; they come to the disk in one
transaction, or not at all. What that costs does not depend on how many clients there are.
"""

import json
import sqlite3
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedres.core.types import F32

CHECKPOINT = "checkpoint.sqlite"
SYNCHRONOUS = "FULL"  # a transaction is on the disk when it is said to be
TABLES = """
CREATE TABLE IF NOT EXISTS run (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members (name TEXT PRIMARY KEY, facts TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS applied (made INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL, client TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS jury (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE NOT NULL, rows BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS old (version INTEGER PRIMARY KEY, weights BLOB NOT NULL);
"""
Line = dict[str, Any]
Facts = dict[str, Any]


class Order(NamedTuple):
    """What an operator wants the server to do about a client: forgive, or remove."""

    id: int
    what: str
    client: str


class Checkpoint:
    """The file, held open by the server.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(Path(folder))
    ...     checkpoint.save({"version": 1}, {"w": np.float32([2])}, {"a": {"rows": 5}})
    ...     checkpoint.close()
    ...     read_run(Path(folder))
    {'version': 1, 'members': {'a': {'rows': 5}}}
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / CHECKPOINT
        with _sound(self.path):
            self._connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self.close = weakref.finalize(self, self._connection.close)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
            self._connection.executescript(TABLES)

    def save(
        self,
        facts: Mapping[str, Any],
        arrays: Mapping[str, F32],
        members: Mapping[str, Facts],
        lines: Mapping[int, Line] | None = None,
        jury: Mapping[str, bytes] | None = None,
        old: Mapping[int, F32] | None = None,
        oldest: int = 0,
        obeyed: int = 0,
    ) -> None:
        """Bring all of it to the disk; of members, lines, rows and old models those that are new.

        Old models before `oldest` are dropped, and orders up to the one that was obeyed.
        """
        values = {name: array.tobytes() for name, array in arrays.items()}
        sums = {name: zlib.crc32(value) for name, value in values.items()}
        rows = [("facts", json.dumps({**facts, "sums": sums})), *values.items()]
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany("REPLACE INTO run VALUES (?, ?)", rows)
            connection.executemany(
                "REPLACE INTO members VALUES (?, ?)",
                [(name, json.dumps(member)) for name, member in members.items()],
            )
            connection.executemany(
                "INSERT INTO applied VALUES (?, ?)",
                [(made, json.dumps(line)) for made, line in (lines or {}).items()],
            )
            connection.executemany(
                "REPLACE INTO jury (name, rows) VALUES (?, ?)", (jury or {}).items()
            )
            connection.executemany(
                "REPLACE INTO old VALUES (?, ?)",
                [(version, weights.tobytes()) for version, weights in (old or {}).items()],
            )
            connection.execute("DELETE FROM old WHERE version < ?", (oldest,))
            connection.execute("DELETE FROM orders WHERE id <= ?", (obeyed,))
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def describe(self, settings: Mapping[str, Any]) -> None:
        """Note the settings of the run, once: they are long."""
        text = json.dumps(settings)
        self._connection.execute("REPLACE INTO run VALUES ('settings', ?)", (text,))

    def orders(self) -> list[Order]:
        """What operators have asked for and is not yet done."""
        found = self._connection.execute("SELECT id, what, client FROM orders ORDER BY id")
        return [Order(*row) for row in found.fetchall()]

    def load(self) -> tuple[Facts, dict[str, F32], dict[int, F32], dict[str, bytes]]:
        """Facts, members included, arrays, old models, and judges' rows in the order they came."""
        with _sound(self.path):
            (state,) = self._connection.execute("PRAGMA quick_check").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(state)
            facts = _facts(self._connection)
            if facts is None:
                raise sqlite3.DatabaseError("it holds no run")
            arrays = _arrays(self._connection, facts)
            facts["members"] = _members(self._connection)
            old = dict(self._connection.execute("SELECT * FROM old ORDER BY version"))
            jury = dict(
                self._connection.execute(
                    "SELECT name, rows FROM jury WHERE length(rows) > 0 ORDER BY id"
                )
            )
        return facts, arrays, {version: _floats(weights) for version, weights in old.items()}, jury


def _arrays(connection: sqlite3.Connection, facts: Facts) -> dict[str, F32]:
    values = dict(connection.execute("SELECT * FROM run"))
    if any(zlib.crc32(values[name]) != known for name, known in facts["sums"].items()):
        raise sqlite3.DatabaseError("a checksum differs")
    return {name: _floats(values[name]) for name in facts["sums"]}


def _floats(value: bytes) -> F32:
    return np.frombuffer(value, np.float32).copy()


def holds_run(folder: Path) -> bool:
    """Whether there is a run in a folder."""
    if not (folder / CHECKPOINT).exists():
        return False
    with _reading(folder) as connection:
        return _facts(connection) is not None


def read_run(folder: Path, most: int = -1) -> Facts:
    """What the server knew last, with so many members at most, in the order of their names."""
    with _reading(folder) as connection:
        connection.execute("BEGIN")  # one moment of the run
        facts = _facts(connection)
        if facts is None:
            raise ValueError(f"there is no run in {folder}")
        del facts["sums"]
        return {**facts, "members": _members(connection, most)}


def read_model(folder: Path) -> tuple[Facts, int, F32]:
    """The settings of a run, and the newest global model: how many uploads it knows, its weights.

    The run may be under way.
    """
    with _reading(folder) as connection:
        connection.execute("BEGIN")  # one moment of the run
        facts = _facts(connection)
        settings = connection.execute("SELECT value FROM run WHERE name = 'settings'").fetchone()
        if facts is None or settings is None:
            raise ValueError(f"there is no run in {folder}, or it is of an earlier fedres")
        return json.loads(settings[0]), facts["version"], _arrays(connection, facts)["weights"]


def give_order(folder: Path, what: str, client: str) -> None:
    """Ask the server for something; it does so at once, or when the run is resumed."""
    with _reading(folder) as connection:
        if not connection.execute("SELECT 1 FROM members WHERE name = ?", (client,)).fetchone():
            known = [name for (name,) in connection.execute("SELECT name FROM members LIMIT 10")]
            raise ValueError(
                f"the run in {folder} knows no client {client!r}, but {', '.join(known) or 'none'}"
            )
        connection.execute("INSERT INTO orders (what, client) VALUES (?, ?)", (what, client))


def read_log(folder: Path) -> list[Line]:
    """A line for every upload that was applied, in that order."""
    with _reading(folder) as connection:
        found = connection.execute("SELECT line FROM applied ORDER BY made")
        return [json.loads(line) for (line,) in found]


@contextmanager
def _reading(folder: Path) -> Iterator[sqlite3.Connection]:
    path = folder / CHECKPOINT
    if not path.exists():
        raise ValueError(f"there is no run in {folder}")
    with _sound(path), closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as found:
        yield found


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is damaged ({error}): put a backup in its place") from None


def _facts(connection: sqlite3.Connection) -> Facts | None:
    try:
        row = connection.execute("SELECT value FROM run WHERE name = 'facts'").fetchone()
    except sqlite3.OperationalError:  # killed before it had tables
        return None
    return json.loads(row[0]) if row else None


def _members(connection: sqlite3.Connection, most: int = -1) -> dict[str, Facts]:
    rows = connection.execute("SELECT * FROM members ORDER BY name LIMIT ?", (most,))
    return {name: json.loads(facts) for name, facts in rows}

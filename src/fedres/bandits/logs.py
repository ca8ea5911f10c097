"""Logged decisions: one JSON line each, with the probabilities that make logs re-usable.

    {"client": "anna", "id": "anna:019e3c5f2a1b4c5d", "turn": 3, "action": 1,
     "probabilities": [0.1, 0.9], "reward": 1.0, "expired": false,
     "global": [[0.5, 1.0], [2.0, 0.0]],
     "local": {"width": 1000, "rows": [{"17": 1.0}, {}]}}

Contexts have a row an action: dense as lists, CSR as a width and index-to-value mappings, null
for no features. The reward of an expired decision is the default it counted as, null if it was
dropped.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from scipy import sparse

from fedres.bandits.decisions import as_contexts
from fedres.core.types import F32, F64, Matrix


@dataclass(frozen=True, eq=False)
class Event:
    """A decision and what came of it.

    Attributes
    ----------
    client, id
        Whose decision, and what it is known by.
    contexts_global, contexts_local
        A row an action.
    action
        The one chosen.
    probabilities
        With which each action could have been chosen.
    reward
        What it brought; None if that is not known.
    expired
        Whether no reward came in time.
    turn
        The client's own count of decisions, from 1; need not be given if that is the id.

    Examples
    --------
    >>> event = Event(0, 1, np.float32([[0.1], [2]]), np.empty((2, 0), np.float32), 1,
    ...               np.array([0.25, 0.75]), 1.0)
    >>> Event.from_json(event.to_json()).probability
    0.75
    """

    client: int | str
    id: int | str
    contexts_global: Matrix
    contexts_local: Matrix
    action: int
    probabilities: F64
    reward: float | None
    expired: bool = False
    turn: int = 0

    def __post_init__(self) -> None:
        if not self.turn:
            object.__setattr__(self, "turn", self.id)
        if type(self.turn) is not int or self.turn < 1:
            raise ValueError(f"its turn is {self.turn!r}, not a whole number from 1")

    @property
    def probability(self) -> float:
        """With which its action was chosen."""
        return float(self.probabilities[self.action])

    def to_json(self) -> str:
        """The event as one line."""
        return json.dumps(
            {
                "client": self.client,
                "id": self.id,
                "turn": self.turn,
                "action": self.action,
                "probabilities": self.probabilities.tolist(),
                "reward": self.reward,
                "expired": self.expired,
                "global": _encode(self.contexts_global),
                "local": _encode(self.contexts_local),
            }
        )

    @classmethod
    def from_json(cls, line: str | bytes) -> "Event":
        """Read one line, and check it."""
        try:
            fields = json.loads(line)
        except ValueError:
            raise ValueError("it is not JSON") from None
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        needed = {"client", "id", "action", "probabilities", "reward", "global", "local"}
        if missing := needed - {*fields}:
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        views = as_contexts(_decode(fields["global"]), _decode(fields["local"]))
        probabilities = np.asarray(fields["probabilities"], np.float64)
        action, reward = fields["action"], fields["reward"]
        if probabilities.shape != (views[0].shape[0],):
            raise ValueError(
                f"it has {probabilities.size} probabilities for {views[0].shape[0]} actions"
            )
        if not (probabilities >= 0).all() or abs(probabilities.sum() - 1) > 1e-6:
            raise ValueError(f"its probabilities are {probabilities.tolist()}, and must sum to 1")
        last = len(probabilities) - 1
        if type(action) is not int or not 0 <= action <= last:
            raise ValueError(f"its action is {action!r}, not a whole number from 0 to {last}")
        for name in ("client", "id"):
            if type(value := fields[name]) not in (int, str):
                raise ValueError(f"its {name} is {value!r}, neither a whole number nor a name")
        if probabilities[action] == 0:
            raise ValueError(f"its action {action} was chosen with probability 0")
        if reward is not None and not (type(reward) in (int, float) and np.isfinite(reward)):
            raise ValueError(f"its reward is {reward!r}, neither a number nor null")
        earned = None if reward is None else float(reward)
        expired = bool(fields.get("expired", False))
        whose = fields["client"], fields["id"]
        return cls(*whose, *views, action, probabilities, earned, expired, fields.get("turn", 0))


class EventLog:
    """A file that events are appended to, whole lines at a time.

    Several clients may share one. A last line without its end, left by a writer that was killed,
    is removed when the log is opened again.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from fedres.bandits import BanditClient, Softmax
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "events.jsonl"
    ...     with EventLog(path) as log:
    ...         client = BanditClient(Softmax(), features_local=1, seed=1, log=log)
    ...         client.reward(client.choose(None, [[1.0], [2.0]]).id, 1.0)
    ...     [(event.turn, event.reward) for event in read_events(path)]
    [(1, 1.0)]
    """

    def __init__(self, path: str | Path) -> None:
        # Unbuffered: a line is one write, so that readers and crashes meet whole lines.
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115
        self._file.truncate(_end_of_last_line(self._file))

    def __call__(self, event: Event) -> None:
        """Append an event."""
        self._file.write(event.to_json().encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_events(path: str | Path) -> Iterator[Event]:
    """Read events one by one; a broken line is a ValueError with its number."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                event = Event.from_json(line)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                cut = "it is cut short, as by a writer that was killed: remove it"
                why = str(error) if line.endswith(b"\n") else cut
                raise ValueError(f"{path}, line {number} is no event: {why}") from None
            yield event


def _end_of_last_line(file: BinaryIO) -> int:
    end = file.seek(0, os.SEEK_END)
    while end:
        start = file.seek(max(0, end - 65536))
        if (newline := file.read(end - start).rfind(b"\n")) >= 0:
            return start + newline + 1
        end = start
    return 0


def _encode(x: Matrix) -> Any:
    if x.shape[1] == 0:
        return None
    if isinstance(x, np.ndarray):
        return [_short(row) for row in x]
    x = x.copy()
    x.sum_duplicates()
    parts = np.split(x.indices, x.indptr[1:-1]), np.split(x.data, x.indptr[1:-1])
    rows = [
        dict(zip(indices.tolist(), _short(values), strict=True))
        for indices, values in zip(*parts, strict=True)
    ]
    return {"width": x.shape[1], "rows": rows}


def _decode(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if not {"width", "rows"} <= {*part}:
        raise ValueError("it has sparse contexts with no width or no rows")
    rows = [{int(index): value for index, value in row.items()} for row in part["rows"]]
    indices = [index for row in rows for index in row]
    if indices and not 0 <= min(indices) <= max(indices) < part["width"]:
        raise ValueError(f"it has features beyond its width of {part['width']}")
    return sparse.csr_array(
        (
            np.array([value for row in rows for value in row.values()], np.float32),
            np.array(indices, np.int32),
            np.cumsum([0, *map(len, rows)]),
        ),
        shape=(len(rows), part["width"]),
    )


def _short(values: F32) -> list[float]:
    # The shortest decimals that give the same float32: half the length of those of a float64.
    return [float(text) for text in values.astype(str)]

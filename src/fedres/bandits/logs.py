"""Logged decisions: one JSON line each, with the probabilities that make logs re-usable.

    {"client": "anna", "id": "anna:019e3c5f2a1b4c5d", "turn": 3, "action": 1,
     "probabilities": "mpmZmZmZuT/NzMzMzMzsPw==", "reward": 1.0,
     "global": {"shape": [2, 2], "f4": "AAAAPwAAgD8AAABAAAAAAA=="},
     "local": {"shape": [2, 1000], "csr": true, "u2": "EQA="},
     "time": 1763294400.25, "model": [1849031235934208, 12]}

Probabilities are float64 and contexts float32, little-endian, in base64. Contexts have a row an
action; `null` stands for no features. Where many values are zero only the others are written, with
their places row * width + column (``u2`` or ``u4``), and no values if all are 1.

Logs may be written by hand: probabilities as ``[0.1, 0.9]``, dense contexts as lists of rows,
``[[0.5, 1.0], [2.0, 0.0]]``, sparse ones as ``{"width": 1000, "rows": [{"17": 1.0}, {}]}``.

The reward of a decision that is ``"expired": true`` is the default it counted as, `null` if it was
dropped.
"""

import json
import os
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from scipy import sparse

from fedres.bandits.decisions import as_contexts
from fedres.core.types import F64, Matrix

_F4, _F8 = np.dtype("<f4"), np.dtype("<f8")


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
    time
        When it was made, in seconds since 1970; None if that is not known.
    model
        The epoch and the version of the global model it was made with; None likewise.

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
    time: float | None = None
    model: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not self.turn:
            object.__setattr__(self, "turn", self.id)
        if type(self.turn) is not int or self.turn < 1:
            raise ValueError(f"its turn is {self.turn!r}, not a whole number from 1")
        if self.reward is not None and not isfinite(self.reward):
            raise ValueError(f"its reward is {self.reward!r}, which is no number to learn from")

    @property
    def probability(self) -> float:
        """With which its action was chosen."""
        return float(self.probabilities[self.action])

    def to_json(self) -> str:
        """The event as one line."""
        # Most of a line is base64, in which there is nothing to escape: to put it together is
        # twice as fast as to have an encoder look through it.
        reward = "null" if self.reward is None else repr(float(self.reward))
        more = "" if self.time is None else f',"time":{float(self.time)!r}'
        if self.model is not None:
            more += f',"model":[{self.model[0]},{self.model[1]}]'
        if self.expired:
            more += ',"expired":true'
        return (
            f'{{"client":{_name(self.client)},"id":{_name(self.id)},"turn":{self.turn}'
            f',"action":{self.action},"probabilities":"{_text(self.probabilities, _F8)}"'
            f',"reward":{reward},"global":{_encode(self.contexts_global)}'
            f',"local":{_encode(self.contexts_local)}{more}}}'
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
        return cls.from_fields(fields)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Event":
        """Check what a line says."""
        needed = {"client", "id", "action", "probabilities", "reward", "global", "local"}
        if missing := needed - {*fields}:
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        views = as_contexts(_decode(fields["global"]), _decode(fields["local"]))
        odds = fields["probabilities"]
        probabilities = (
            _numbers(odds, "f8") if isinstance(odds, str) else np.asarray(odds, np.float64)
        )
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
        if reward is not None and type(reward) not in (int, float):
            raise ValueError(f"its reward is {reward!r}, neither a number nor null")
        earned = None if reward is None else float(reward)
        expired = bool(fields.get("expired", False))
        time, model = fields.get("time"), fields.get("model")
        if time is not None and not (type(time) in (int, float) and np.isfinite(time)):
            raise ValueError(f"its time is {time!r}, neither a number of seconds nor null")
        if model is not None:
            epoch, version = map(int, model)
            model = epoch, version
        return cls(
            fields["client"], fields["id"], *views, action, probabilities, earned, expired,
            fields.get("turn", 0), time, model,
        )  # fmt: skip


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
    """Read events one by one; a broken line is a ValueError with its number.

    An event that was logged twice is read once: a client that was killed before it saved a
    reward will log it again.
    """
    return events_in(path, Event.from_json)


def events_in(path: str | Path, read: Callable[[bytes], Event]) -> Iterator[Event]:
    """The events of a file of lines, each once, with a way to read a line."""
    known = set()
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                event = read(line)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                missing = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                cut = "it is cut short, as by a writer that was killed: remove it"
                why = missing if line.endswith(b"\n") else cut
                raise ValueError(f"{path}, line {number} is no event: {why}") from None
            if (event.client, event.id) not in known:
                known.add((event.client, event.id))
                yield event


def _end_of_last_line(file: BinaryIO) -> int:
    end = file.seek(0, os.SEEK_END)
    while end:
        start = file.seek(max(0, end - 65536))
        if (newline := file.read(end - start).rfind(b"\n")) >= 0:
            return start + newline + 1
        end = start
    return 0


def _encode(x: Matrix) -> str:
    """Contexts as JSON; see the top."""
    rows, width = x.shape
    if width == 0:
        return "null"
    shape = f'{{"shape":[{rows},{width}]'
    if isinstance(x, np.ndarray):
        if 3 * np.count_nonzero(x) > 2 * x.size:
            return f'{shape},"f4":"{_text(x, _F4)}"}}'
        places = np.flatnonzero(x)
        values = x.ravel()[places]
    else:
        if not x.has_canonical_format:
            x = x.copy()
            x.sum_duplicates()
        values, places = x.data, x.indices + width * np.repeat(np.arange(rows), np.diff(x.indptr))
        shape += ',"csr":true'
    kind = "u2" if rows * width <= 2**16 else "u4"
    numbers = f',"f4":"{_text(values, _F4)}"' if (values != 1).any() else ""
    return f'{shape},"{kind}":"{_text(places, f"<{kind}")}"{numbers}}}'


def _text(values: Any, kind: Any) -> str:
    return b2a_base64(np.ascontiguousarray(values, kind).data, newline=False).decode("ascii")


def _name(value: int | str) -> str:
    return _quoted(value) if isinstance(value, str) else str(int(value))


def _numbers(text: str, kind: str) -> Any:
    try:
        return np.frombuffer(a2b_base64(text), f"<{kind}").astype(kind)
    except ValueError:
        raise ValueError(f"it has {text[:20]!r} where numbers ({kind}) in base64 belong") from None


def _decode_packed(fields: dict[str, Any]) -> Any:
    rows, width = fields["shape"]
    kind = next((kind for kind in ("u2", "u4") if kind in fields), None)
    if kind is None:
        return _numbers(fields["f4"], "f4").reshape(rows, width)
    places = _numbers(fields[kind], kind).astype(np.int64)
    values = _numbers(fields["f4"], "f4") if "f4" in fields else np.ones(len(places), np.float32)
    if len(places) and not places.max() < rows * width:
        raise ValueError(f"it has features beyond its shape of {rows} by {width}")
    if "csr" in fields:
        at = places // width, places % width
        return sparse.csr_array((values, at), shape=(rows, width))
    x = np.zeros((rows, width), np.float32)
    x.ravel()[places] = values
    return x


def _decode(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if "shape" in part:
        return _decode_packed(part)
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

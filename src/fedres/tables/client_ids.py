"""Clients by their ids: all whole numbers, or all strings."""

import re
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from fedres.core.types import I64
from fedres.core.warn import warn

WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")  # 007 is a name
UUID_BYTES = 16
NAMELESS = ""  # the id of the one client there is where rows have none


class ClientWarning(UserWarning):
    """Rows whose client is unknown to the model, or missing."""


class Clients:
    """Numbers for client ids, from 0, in the order in which they come.

    Parameters
    ----------
    ids
        Those known to begin with.

    Examples
    --------
    >>> clients = Clients()
    >>> clients.learn(["bob", "ann", "bob"], rows=3)
    array([0, 1, 0])
    >>> clients.find(["ann", "cyd"], rows=2)
    array([ 1, -1])
    >>> clients.ids
    ['bob', 'ann']
    """

    def __init__(self, ids: Iterable[Any] = ()) -> None:
        self._number = {id_: i for i, id_ in enumerate(ids)}

    @property
    def ids(self) -> list[Any]:
        """All ids, by their numbers."""
        return list(self._number)

    def __len__(self) -> int:
        return len(self._number)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._number

    def find(self, client: Any, rows: int, *, how: str | None = None) -> I64:
        """The number of each row's client, -1 where it is unknown or missing; False for no ids.

        If `how` they are predicted is given, rows of unknown clients and rows without a client
        raise a warning each.
        """
        if client is False:
            return np.full(rows, self.find_one(NAMELESS))
        codes, ids = _factorise(client, rows, self._are_texts)
        numbers = np.array([*map(self.find_one, ids), -1], np.int64)
        found = numbers[codes]
        if how is not None:
            new = next((id_ for id_, number in zip(ids, numbers, strict=False) if number < 0), None)
            missing = int((codes < 0).sum())
            warn_unknown(rows, int((found < 0).sum()) - missing, missing, new, how)
        return found

    def find_one(self, id_: Any) -> int:
        """The number of one client, -1 if it is unknown."""
        number = self._number.get(id_, -1)
        if number < 0 and (same := _other_kind(id_)) in self._number:
            raise ValueError(
                f"client {id_!r} is unknown, and {same!r} is known: give ids as they were when the "
                "model was trained"
            )
        return number

    def learn(self, client: Any, rows: int) -> I64:
        """The number of each row's client; the unknown get one. False for no ids."""
        if client is False:
            return np.full(rows, self.learn_one(NAMELESS))
        codes, ids = _factorise(client, rows, self._are_texts)
        if (lost := np.flatnonzero(codes < 0)).size:
            raise ValueError(f"client is missing in row {lost[0]}: give every row one")
        return np.array(self._add(ids), np.int64)[codes]

    def learn_one(self, id_: Any) -> int:
        """The number of one client, a new one if it is unknown."""
        return self._add([id_])[0]

    @property
    def _are_texts(self) -> bool:
        return isinstance(next(iter(self._number), None), str)

    def _add(self, ids: Sequence[Any]) -> list[int]:
        known = next(iter(self._number), ids[0])
        for id_ in ids:
            if isinstance(id_, str) != isinstance(known, str):
                raise ValueError(
                    f"clients are known by ids such as {known!r}, and {id_!r} is of another kind: "
                    "give all ids as strings, or all as whole numbers"
                )
        return [self._number.setdefault(id_, len(self._number)) for id_ in ids]


def predicted_by(method: str) -> str:
    """Return how rows of unknown clients are predicted."""
    return "a constant" if method == "independent" else "the shared model alone"


def warn_unknown(rows: int, unknown: int, missing: int, example: Any, how: str) -> None:
    """Warn of rows that are predicted without a local model.

    Parameters
    ----------
    rows
        Number of all rows.
    unknown, missing
        Number of rows whose client the model does not know, and of rows without a client.
    example
        An unknown client.
    how
        How they are predicted.
    """
    how = f"these rows are predicted by {how}"
    if unknown:
        warn(
            f"{unknown:,} of {rows:,} rows name clients that the model does not know, such as "
            f"{example!r}: {how}",
            ClientWarning,
        )
    if missing:
        warn(f"{missing:,} of {rows:,} rows name no client: {how}", ClientWarning)


def _factorise(client: Any, rows: int, are_texts: bool) -> tuple[I64, list[Any]]:
    """The different ids, and which of them each row has, -1 for none."""
    import pandas as pd

    if isinstance(client, str):
        raise ValueError(
            f"client is {client!r} for {rows} rows of X: give one client id a row; a column that "
            "has them is named when the estimator is made"
        )
    if not hasattr(client, "__len__"):
        raise ValueError(
            f"client is {client!r}, and must have one id per row: if all rows are of one client, "
            f"use [{client!r}] * len(X)"
        )
    values = client if isinstance(client, pd.Series | pd.Index | np.ndarray) else _objects(client)
    if values.ndim != 1 or len(values) != rows:
        raise ValueError(
            f"client has shape {values.shape} for {rows} rows of X: give one client id a row"
        )
    codes, uniques = pd.factorize(values)
    ids = [plain_id(id_) for id_ in uniques.tolist()]
    if uniques.dtype.kind == "u" and (are_texts or any(isinstance(id_, str) for id_ in ids)):
        return codes, [str(id_) for id_ in ids]  # beyond 64 bits with a sign
    return codes, ids


def id_texts(ids: Iterable[Any]) -> list[str]:
    """Return ids as texts; whole numbers become floats as soon as one is missing.

    Examples
    --------
    >>> id_texts([7.0, 1.5, "b"])
    ['7', '1.5', 'b']
    """
    return [
        str(int(id_)) if isinstance(id_, float | np.floating) and id_.is_integer() else str(id_)
        for id_ in ids
    ]


def _objects(client: Sequence[Any]) -> Any:
    # Not asarray of a list: it would make [1, "a"] strings.
    values = np.empty(len(client), object)
    values[:] = client
    return values


def _other_kind(id_: Any) -> int | str | None:
    """An id as a string if it is a number, and the other way round if it can be."""
    if not isinstance(id_, str):
        return str(id_)
    return int(id_) if WHOLE.fullmatch(id_) else None


def plain_id(id_: Any) -> int | str:
    """An id as a Python number or string; UUIDs and numbers beyond 64 bits are strings.

    Examples
    --------
    >>> plain_id(np.int32(7)), plain_id(7.0), plain_id("7"), plain_id(2**63)
    (7, 7, '7', '9223372036854775808')
    """
    if isinstance(id_, bytes) and len(id_) == UUID_BYTES:
        id_ = UUID(bytes=id_)
    if isinstance(id_, str | UUID):
        return str(id_)
    try:
        whole = int(id_)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != id_:
        raise ValueError(f"a client id is a string or a whole number, not {id_!r}")
    return whole if -(2**63) <= whole < 2**63 else str(whole)

"""Client ids as arrays in which one is found without reading the others.

Keys are sorted: the ids themselves where they are numbers, hashes where they are strings. Of every
thousandth there is a copy, so that a search reads two short stretches, wherever they lie on disk.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from itertools import pairwise
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedres.core.types import I64

Array = NDArray[Any]
Part = Callable[[str, int, int | None], Array]
BLOCK = 1024


def pack_ids(ids: Iterable[Any]) -> dict[str, Array]:
    """Client ids, all numbers or all strings, as arrays that go into a group of a model.

    Examples
    --------
    >>> packed = pack_ids([7, 3, 5])
    >>> packed["ids_key"], packed["ids_row"]
    (array([3, 5, 7]), array([1, 2, 0], dtype=int32))
    >>> unpack_ids(pack_ids(["bob", "ann"]))
    array(['bob', 'ann'], dtype=object)
    """
    values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    texts: dict[str, Array] = {}
    if values and all(isinstance(value, str) for value in values):
        keys, texts = hashes(values), _pack_texts(values)
    else:
        keys = _numbers(values, ids)
    for id_, times in Counter(values).items():
        if times > 1:
            raise ValueError(f"client id {id_!r} occurs {times} times: ids must differ")
    return {**pack_keys(keys), **texts}


def pack_keys(keys: Array) -> dict[str, Array]:
    """Keys of ids that differ, sorted, with the row that each came from."""
    row = np.argsort(keys, kind="stable").astype(np.int32)
    keys = keys[row]
    return {"ids_key": keys, "ids_row": row, "ids_top": keys[::BLOCK].copy()}


def hashes(texts: list[str]) -> Array:
    """The keys of texts."""
    digests = [blake2b(text.encode(), digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), "<u8")


def _pack_texts(texts: list[str]) -> dict[str, Array]:
    parts = [text.encode() for text in texts]
    start = np.cumsum([0, *map(len, parts)])
    return {
        "ids_text": np.frombuffer(b"".join(parts), np.uint8),
        "ids_start": start.astype(np.min_scalar_type(start[-1])),
    }


def _numbers(values: list[Any], ids: Iterable[Any]) -> Array:
    if not all(isinstance(value, Number) for value in values):
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ValueError(f"client ids must be all numbers or all strings, not {kinds}")
    numbers = ids if isinstance(ids, np.ndarray) and ids.dtype.kind != "O" else np.asarray(values)
    if numbers.dtype.kind not in "biuf" or (numbers != numbers).any():  # noqa: PLR0124
        raise ValueError("client ids must be numbers of at most 64 bits, none of them NaN")
    return numbers


def unpack_ids(arrays: Mapping[str, Array]) -> Array:
    """The ids given to `pack_ids`, in their order; strings in an array of objects."""
    row = arrays["ids_row"]
    if row.dtype.kind not in "iu" or not np.array_equal(np.sort(row), np.arange(len(row))):
        raise ValueError("ids of clients are not in one row each: the model is damaged")
    if "ids_text" in arrays:
        text, start = arrays["ids_text"].tobytes(), arrays["ids_start"].astype(np.int64)
        rises = len(start) == len(row) + 1 and not start[0] and (np.diff(start) >= 0).all()
        if not rises or start[-1] != len(text):
            raise ValueError("ids of clients are not one after the other: the model is damaged")
        ids = np.empty(len(start) - 1, object)
        ids[:] = [text[a:b].decode() for a, b in pairwise(start.tolist())]
    else:
        ids = np.empty_like(arrays["ids_key"])
        ids[row] = arrays["ids_key"]
    return ids


def find_id(wanted: Any, are_texts: bool, part: Part) -> int | None:
    """The row of an id, or None; `part` reads a stretch of an array."""
    if not isinstance(wanted, str if are_texts else Number | np.bool_):
        return None
    key: Any = hashes([str(wanted)])[0] if are_texts else wanted
    block = max(0, int(np.searchsorted(part("ids_top", 0, None), key)) - 1)
    first = block * BLOCK
    i = first + int(np.searchsorted(part("ids_key", first, first + BLOCK), key))
    # Two texts may have the same hash, though it is not to be expected.
    while part("ids_key", i, i + 1).tolist() == [key]:
        row = int(part("ids_row", i, i + 1)[0])
        if not are_texts or _text(row, part) == wanted:
            return row
        i += 1
    return None


def find_ids(wanted: Array, are_texts: bool, view: Callable[[str], Array]) -> I64:
    """The rows of many ids, -1 for those that are not there; `view` maps an array into memory.

    Examples
    --------
    >>> packed = pack_ids(["bob", "ann"])
    >>> find_ids(np.array(["ann", "cyd"], object), True, packed.__getitem__)
    array([ 1, -1])
    """
    keys, rows = view("ids_key"), np.full(len(wanted), -1)
    if not len(keys) or not len(wanted):
        return rows
    sought = hashes(wanted.tolist()) if are_texts else wanted
    place = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
    found = np.flatnonzero(keys[place] == sought)
    rows[found] = view("ids_row")[place[found]]
    if are_texts:

        def part(name: str, a: int, b: int | None) -> Array:
            return view(name)[a:b]

        # Of two texts with the same hash, the second is looked for with care.
        for i in found.tolist():
            if _text(int(rows[i]), part) != wanted[i]:
                row = find_id(wanted[i], True, part)
                rows[i] = -1 if row is None else row
    return rows


def _text(row: int, part: Part) -> str:
    a, b = part("ids_start", row, row + 2).tolist()
    return part("ids_text", a, b).tobytes().decode()

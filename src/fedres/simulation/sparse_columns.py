"""Sparse columns numbered anew for each client, so that models hold only what was seen."""

import numpy as np

from fedres.core.primitives import View
from fedres.core.types import I32, I64


def own_columns(view: View, row_start: I64) -> tuple[View, I32]:
    """The view with each client's columns numbered anew, and which they are.

    So a client's model is as large as what it has seen, not as wide as the view: smaller, and
    close together in memory.
    """
    from fedres.core.compiled import compiled

    width = np.zeros_like(view.width)
    indices, columns = np.empty_like(view.indices), np.empty_like(view.indices)
    stamp = np.full(int(view.width.max()), -1, np.int32)
    compiled(number_columns)(view, row_start, width, stamp, np.empty_like(stamp), indices, columns)
    return view._replace(indices=indices, width=width), columns[: int(width.sum())].copy()


def known_columns(view: View, row_start: I64, columns: I32, width: I64) -> View:
    """The view numbered as `columns` are, without entries that the client has no weight for."""
    wide = int(view.width.max()) + 1
    client = np.arange(len(width))
    entries = np.diff(view.indptr[row_start])
    wanted = np.repeat(client, entries) * wide + view.indices
    known = np.repeat(client, width) * wide + columns
    order = np.argsort(known)
    place = np.append(order, -1)[np.searchsorted(known, wanted, sorter=order)]
    found = np.append(known, -1)[place] == wanted
    first = np.repeat(np.concatenate([[0], np.cumsum(width)[:-1]]), entries)
    return view._replace(
        values=view.values[found],
        indices=(place - first)[found].astype(np.int32),
        indptr=np.concatenate([[0], np.cumsum(found)])[view.indptr],
        width=width,
    )


def number_columns(
    view: View, row_start: I64, width: I64, stamp: I32, number: I32, indices: I32, columns: I32
) -> None:
    """Number each client's columns anew, 0, 1, ... as they come: models need only those.

    `stamp` (all -1) and `number` are scratch as wide as the view. On return `width` holds how
    many columns each client has, `columns` which, client after client.
    """
    total = 0
    for i in range(len(row_start) - 1):
        count = 0
        for e in range(view.indptr[row_start[i]], view.indptr[row_start[i + 1]]):
            j = view.indices[e]
            if stamp[j] != i:
                stamp[j] = i
                number[j] = count
                columns[total + count] = j
                count += 1
            indices[e] = number[j]
        width[i] = count
        total += count

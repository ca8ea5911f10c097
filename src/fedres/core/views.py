"""One side's features of all clients, laid out for compiled loops."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy  # loads its parts when they are first used

from fedres.core.primitives import View, view_of
from fedres.core.types import F32, I64, Matrix


def is_sparse(x: Any) -> bool:
    """Whether it is a sparse matrix; scipy.sparse, slow to load, need not be there to tell."""
    return hasattr(x, "tocsr")


def block_view(blocks: Sequence[Matrix]) -> View:
    """A view of one matrix a client; one CSR block makes all of them CSR."""
    width = np.array([block.shape[1] for block in blocks], np.int64)
    if any(is_sparse(block) for block in blocks):
        csr = [scipy.sparse.csr_array(block) for block in blocks]
        return View(
            np.concatenate([block.data for block in csr]),
            np.concatenate([block.indices for block in csr]).astype(np.int32),
            _starts(np.concatenate([np.diff(block.indptr) for block in csr])),
            np.zeros_like(width),
            width,
            True,
        )
    rows = np.array([block.shape[0] for block in blocks])
    start = _starts(rows * width)[:-1] - _starts(rows)[:-1] * width
    values = np.concatenate([np.ravel(block) for block in blocks])
    return View(values, np.empty(0, np.int32), np.empty(0, np.int64), start, width, False)


def _starts(lengths: I64) -> I64:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def matrix_view(x: Matrix, row_start: I64) -> View:
    """A view of one matrix whose rows are sorted by client."""
    view, clients = view_of(x), len(row_start) - 1
    return view._replace(start=np.repeat(view.start, clients), width=np.repeat(view.width, clients))


def client_rows(view: View, row_start: I64, i: int) -> Matrix:
    """The rows of one client as a matrix, without copying dense ones."""
    rows = int(row_start[i + 1] - row_start[i])
    width = int(view.width[i])
    if view.sparse:
        indptr = view.indptr[row_start[i] : row_start[i + 1] + 1]
        part = slice(indptr[0], indptr[-1])
        return scipy.sparse.csr_array(
            (view.values[part], view.indices[part], indptr - indptr[0]), shape=(rows, width)
        )
    first = view.start[i] + row_start[i] * width
    return view.values[first : first + rows * width].reshape(rows, width)


def whole(view: View) -> Matrix | None:
    """All rows as one matrix, without copying, or None where clients differ in width."""
    width = int(view.width[0])
    if (view.width != width).any():
        return None
    if view.sparse:
        shape = (len(view.indptr) - 1, width)
        return scipy.sparse.csr_array((view.values, view.indices, view.indptr), shape=shape)
    return view.values.reshape(-1, width) if width else None


def side_by_side(left: View, right: View, columns: I64 | None, row_start: I64) -> View:
    """Both views as one; of the right one only these columns, if given."""
    a, b = whole(left), whole(right)
    if a is not None and b is not None:
        return matrix_view(beside(a, b, columns), row_start)
    return block_view(
        [
            beside(client_rows(left, row_start, i), client_rows(right, row_start, i), columns)
            for i in range(len(row_start) - 1)
        ]
    )


def beside(a: Matrix, b: Matrix, columns: I64 | None = None) -> Matrix:
    """Two matrices side by side; of the right one only these columns, if given."""
    b = b if columns is None else b[:, columns]
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.hstack([a, b])
    return scipy.sparse.csr_array(scipy.sparse.hstack([a, b], format="csr"))


def no_view(clients: int, rows: int) -> View:
    """A view of width zero: no model on that side."""
    return matrix_view(np.empty((rows, 0), np.float32), np.zeros(clients + 1, np.int64))


def as_matrix(x: Any, name: str, rows: int) -> Matrix:
    """A float32 matrix of finite numbers with that many rows; None for width zero."""
    if x is None:
        return np.empty((rows, 0), np.float32)
    if is_sparse(x):
        matrix = scipy.sparse.csr_array(x, dtype=np.float32)
        values = matrix.data
    else:
        try:
            # read-only arrays are another type to the compiler, and would be compiled for anew
            matrix = values = np.require(x, np.float32, ["C", "W"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must be a table of numbers: {error}") from None
        if matrix.ndim != 2:
            raise ValueError(
                f"{name} must have two dimensions, rows and features, not {matrix.ndim}"
            )
    if matrix.shape[0] != rows:
        raise ValueError(f"{name} has {matrix.shape[0]} rows, y has {rows}: give one row a label")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has {bad_value(values)}: remove or fill such values")
    return matrix


def bad_value(values: F32) -> str:
    """The first value that is not finite, and where."""
    where = np.argwhere(~np.isfinite(values))[0]
    place = f"row {where[0]}, column {where[1]}" if len(where) == 2 else f"position {where[0]}"
    return f"{values[tuple(where)]} at {place}"


def as_blocks(x: Mapping[Any, Any], clients: Sequence[Any], row_start: I64) -> View:
    """A view of one matrix a client, given by client; widths may differ."""
    for client in clients:
        if client not in x:
            raise ValueError(f"x_local has no rows for client {client!r}: give every client some")
    rows = np.diff(row_start)
    return block_view(
        [as_matrix(x[c], f"x_local of client {c!r}", int(rows[i])) for i, c in enumerate(clients)]
    )

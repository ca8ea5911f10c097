"""One side of rows as the batch solver takes it: CSR, some columns, a constant at the end."""

import numpy as np
from scipy import sparse

from fedres.core.types import I64, Matrix
from fedres.tables.weight_groups import group_sums


def varying(x: Matrix, client: I64, group: I64) -> I64:
    """Those columns of groups that vary within some client: others are of no use to local models.

    Examples
    --------
    >>> x = np.float32([[1, 5], [2, 5], [3, 6], [3, 6]])
    >>> varying(x, np.array([0, 0, 1, 1]), np.array([0, 1, 2]))
    array([0])
    """
    if not len(group):
        return np.zeros(0, np.int64)
    counts = np.bincount(client)
    if sparse.issparse(x):
        member = sparse.csr_array((1 / np.sqrt(counts)[client], (client, range(len(client)))))
        values = x.data.astype(np.float64)
        sums = member @ sparse.csr_array((values, x.indices, x.indptr), x.shape)
        between = sums.power(2).sum(axis=0)
        values *= values
        squares = group_sums(x.indices, values, x.shape[1])
    else:
        between, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for j in range(x.shape[1]):
            column = x[:, j].astype(np.float64)
            sums = group_sums(client, column, len(counts))
            between[j] = (sums**2 / np.maximum(counts, 1)).sum()
            squares[j] = (column**2).sum()
    within = squares - between > 1e-6 * squares
    return np.flatnonzero(np.isin(group[:-1], group[:-1][within]))


def only(x: Matrix, columns: I64, order: I64 | slice = slice(None)) -> Matrix:
    """These columns of x, all others empty, and its rows in this order."""
    if sparse.issparse(x):
        x = x[order]
        wanted = np.zeros(x.shape[1], bool)
        wanted[columns] = True
        keep = wanted[x.indices] & (x.data != 0)
        begin = np.append(0, np.cumsum(keep))[x.indptr]
        return sparse.csr_array((x.data[keep], x.indices[keep], begin), x.shape)
    n, width = len(x), len(columns)
    values = np.empty((n, width), x.dtype)
    for j, column in enumerate(columns):
        values[:, j] = x[order, column]
    numbers = np.tile(columns.astype(np.int32), n)
    return sparse.csr_array((values.ravel(), numbers, np.arange(n + 1) * width), x.shape)


def as_csr(x: Matrix) -> sparse.csr_array:
    """The same, without the detour over 64-bit numbers of rows and columns that scipy takes."""
    if sparse.issparse(x):
        return sparse.csr_array(x)
    there = x != 0
    columns = np.broadcast_to(np.arange(x.shape[1], dtype=np.int32), x.shape)[there]
    begin = np.append(0, np.cumsum(there.sum(axis=1)))
    return sparse.csr_array((x[there], columns, begin), x.shape)


def with_constant(x: Matrix, size: int) -> sparse.csr_array:
    """Rows with their constant, so many features; none where there is no model."""
    if not size:
        return sparse.csr_array((x.shape[0], 0), dtype=np.float32)
    x = as_csr(x)
    begin = x.indptr + np.arange(len(x.indptr), dtype=np.int64)
    is_feature = np.ones(begin[-1], bool)
    is_feature[begin[1:] - 1] = False
    values = np.ones(begin[-1], np.float32)
    columns = np.full(begin[-1], size - 1, np.int32)
    values[is_feature], columns[is_feature] = x.data, x.indices
    return sparse.csr_array((values, columns, begin), (x.shape[0], size))

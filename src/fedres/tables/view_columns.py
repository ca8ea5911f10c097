"""The columns of one view, global or local, and their features side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from fedres.core.types import I64, Matrix
from fedres.tables.columns import Column, Features, Number, Scaled, Tastes, ragged

WIDEST_DENSE = 16


@dataclass(frozen=True)
class ViewColumns:
    """The columns of a view.

    Attributes
    ----------
    columns
        The columns.
    begin
        The first feature of each column, and last the number of all features.
    sparse
        Whether its matrices are CSR: where a column of categories is wide, or came from CSR.
    """

    columns: Sequence[Column | Tastes]
    begin: I64
    sparse: bool

    @classmethod
    def of(cls, columns: Sequence[Column | Tastes]) -> "ViewColumns":
        """Lay out columns one after the other."""
        begin = np.cumsum([0, *(column.width for column in columns)])
        is_sparse = any(
            isinstance(column, Scaled)
            or (not isinstance(column, Number | Tastes) and column.width > WIDEST_DENSE)
            for column in columns
        )
        return cls(columns, begin, is_sparse)

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.begin[-1])

    @property
    def names(self) -> list[str]:
        """A name for every feature."""
        return [name for column in self.columns for name in column.names]

    def matrix(self, features: Sequence[Features], rows: int) -> Matrix:
        """The features of all columns in one matrix."""
        return self._csr(features, rows) if self.sparse else self._array(features, rows)

    def _array(self, features: Sequence[Features], rows: int) -> Matrix:
        x = np.zeros((rows, self.width), np.float32)
        for first, column, one in zip(self.begin, self.columns, features, strict=False):
            if column.width == 1 and len(one.values) == rows:
                x[:, first] = one.values
            else:
                x[np.repeat(np.arange(rows), one.counts), first + one.indices] = one.values
        return x

    def _csr(self, features: Sequence[Features], rows: int) -> Matrix:
        indptr = np.zeros(rows + 1, np.int64)
        for counts, _, _ in features:
            indptr[1:] += counts
        np.cumsum(indptr, out=indptr)
        data, columns = np.empty(indptr[-1], np.float32), np.empty(indptr[-1], np.int32)
        place = indptr[:-1].copy()
        for first, (counts, indices, values) in zip(self.begin, features, strict=False):
            where = ragged(place, counts)
            data[where], columns[where] = values, first + indices
            place += counts
        if indptr[-1] <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)
        return sparse.csr_array((data, columns, indptr), shape=(rows, self.width))

    def row(self, features: Sequence[tuple[list[int], list[float]]]) -> Matrix:
        """The features of all columns in a matrix of one row."""
        starts = self.begin.tolist()
        columns = [
            a + i for a, (indices, _) in zip(starts, features, strict=False) for i in indices
        ]
        values = [value for _, of_column in features for value in of_column]
        if self.sparse:
            entries = np.array(values, np.float32), np.array(columns, np.int32)
            return sparse.csr_array(
                (*entries, np.array([0, len(values)], np.int32)), shape=(1, self.width)
            )
        x = np.zeros((1, self.width), np.float32)
        x[0, columns] = values
        return x

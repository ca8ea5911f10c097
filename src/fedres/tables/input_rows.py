"""Rows as users give them, a DataFrame, an array or a sparse matrix, by the names of columns."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np
from scipy import sparse

from fedres.core.warn import warn
from fedres.reading.files import listed
from fedres.reading.schema import expand_nested
from fedres.tables.cell_values import Values, unfit

InputKind = Literal["table", "array", "csr"]


class IndexWarning(UserWarning):
    """Tables or columns of pandas that are used side by side and have different indexes."""


class Input:
    """Rows with named columns.

    Parameters
    ----------
    X
        A DataFrame, a 2-D array of numbers, or a sparse matrix of numbers.
    like
        If not None, arrays and sparse matrices are made what it says.

    Attributes
    ----------
    source
        Which of the three it is.
    names
        The columns; of arrays and matrices they are ``x0``, ``x1``, ...
    """

    def __init__(self, X: Any, like: InputKind | None = None) -> None:
        import pandas as pd

        self.source: InputKind
        if isinstance(X, pd.DataFrame):
            self.source, self.x = "table", expand_nested(X)
            self.names = [str(name) for name in self.x.columns]
        else:
            if (like or ("csr" if sparse.issparse(X) else "array")) == "csr":
                self.source, self.x = "csr", _csr(X)
            else:
                self.source, self.x = "array", _array(X)
            self.names = [f"x{i}" for i in range(self.x.shape[1])]
        self._number = {name: i for i, name in enumerate(self.names)}
        if len(self._number) < len(self.names):
            twice = next(name for i, name in enumerate(self.names) if self._number[name] != i)
            raise ValueError(f"two columns are called {twice!r}: rename one")

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def __getitem__(self, name: str) -> Values:
        if name not in self._number:
            raise ValueError(f"there is no column {name!r}: the columns are {listed(self.names)}")
        i = self._number[name]
        column: Values = self.x.iloc[:, i] if self.source == "table" else self.x[:, i]
        return column

    def matching(self, patterns: Sequence[str] | str, what: str) -> list[str]:
        """The columns that are named, also by wildcards, in their order."""
        found = set()
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            # A name may hold brackets, which mean something else in a wildcard.
            # A vector of numbers is named as a whole: its columns are name[0], name[1], ...
            matches = {
                name for name in self.names if pattern in ("*", name, name.rpartition("[")[0])
            } or {name for name in self.names if fnmatchcase(name, pattern)}
            if not matches:
                raise ValueError(
                    f"{what} names {pattern!r}, but the columns are {listed(self.names)}"
                )
            found |= matches
        return [name for name in self.names if name in found]


def as_pandas(data: Any) -> Any:
    """Tables and columns of polars, pyarrow and the like as pandas has them; all else as it is.

    Examples
    --------
    >>> import pyarrow as pa
    >>> as_pandas(pa.table({"year": [1994, 2004]}))
       year
    0  1994
    1  2004
    """
    import narwhals.stable.v2 as nw
    import pandas as pd

    if isinstance(data, pd.DataFrame | pd.Series | np.ndarray):
        return data
    table = nw.from_native(data, pass_through=True, allow_series=True)
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    return table.to_pandas() if isinstance(table, nw.DataFrame | nw.Series) else data


def check_aligned(**inputs: Any) -> None:
    """Raise if inputs of pandas have the same index in another order; warn if indexes differ.

    Rows are matched by position. The first input of pandas is compared with each of the others.
    """
    import pandas as pd

    kinds = pd.DataFrame | pd.Series
    indexes = {name: data.index for name, data in inputs.items() if isinstance(data, kinds)}
    first = next(iter(indexes), "")
    for name, other in indexes.items():
        index = indexes[first]
        if len(index) != len(other) or index.equals(other):
            continue  # other checks refuse different lengths
        codes = pd.factorize(index.append(other))[0]
        here, there = np.sort(codes[: len(index)]), np.sort(codes[len(index) :])
        if (here == there).all():
            raise ValueError(
                f"{first} and {name} have the same index in another order, and rows are matched "
                f"by position: align them by {name}.loc[{first}.index], or pass "
                f"{name}.to_numpy() if their order is right"
            )
        row = int((codes[: len(index)] != codes[len(index) :]).argmax())
        warn(
            f"{first} and {name} have different indexes, such as {_plain(index[row])!r} and "
            f"{_plain(other[row])!r} in row {row}: rows are matched by position; pass "
            f"{name}.to_numpy() if their order is right",
            IndexWarning,
        )


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, which is shorter to read."""
    return value.item() if isinstance(value, np.generic) else value


def _array(X: Any) -> Any:
    x = X.toarray() if sparse.issparse(X) else np.asarray(X)
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise ValueError(
            f"rows must be a DataFrame or a 2-D array of numbers, not {x.dtype} in "
            f"{x.ndim} dimensions"
        )
    return x


def _csr(X: Any) -> sparse.csr_array:
    x = sparse.csr_array(X if sparse.issparse(X) else _array(X), dtype=np.float32)
    if not x.has_canonical_format:
        x = x.copy()  # the user's own is left alone
        x.sum_duplicates()
    if (bad := np.flatnonzero(~np.isfinite(x.data))).size:
        row = int(np.searchsorted(x.indptr, bad[0], side="right")) - 1
        raise unfit(f"x{x.indices[bad[0]]}", x.data[bad[0]], "not a finite number", f"row {row}")
    return x

"""From rows of a table to the two views of a federation; learned once, kept as JSON."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy import sparse

from fedres.core.feature_limit import clipped
from fedres.core.types import F32, I64, Matrix
from fedres.tables.cell_values import are_numbers
from fedres.tables.column_notes import ColumnWarning, doubt
from fedres.tables.columns import (
    Category,
    Column,
    Features,
    Number,
    Scaled,
    describe,
    learn_categories,
    recall,
)
from fedres.tables.input_rows import Input, InputKind
from fedres.tables.view_columns import ViewColumns

LOCAL_FEATURES = 32
TINY = float(np.finfo(np.float32).tiny)
Names = Sequence[str] | str
EstimatorMethod = Literal["fedres", "independent", "central", "mixture"]


class EncodedTable(NamedTuple):
    """Rows whose columns became features, which every method lays out in its own two views."""

    rows: int
    features: Mapping[int, Features]  # by column
    csr: sparse.csr_array | None = None  # instead, what a sparse matrix became


@dataclass(frozen=True)
class Encoder:
    """What turns rows of a table into the two views.

    Numbers are standardised; dates are seconds. Texts are categories: a feature each, or hashed
    where they are many. A text with | in it is several categories, and so is a list. A missing
    number is the mean, a missing text no category; if any was missing when the encoder was
    learned, a feature of its own says so. The columns of a sparse matrix are divided by their
    largest absolute value.

    Attributes
    ----------
    source
        What it was learned from: a ``table`` (DataFrame), an ``array``, or a sparse matrix
        (``csr``).
    columns
        How each column is encoded.
    global_, local
        Which of the columns are in each view, by number.
    limit_global
        Global features are clipped to this size; None to leave them as they are.

    Examples
    --------
    >>> import pandas as pd
    >>> films = pd.DataFrame({"year": [1994, 2004], "genres": ["Action|Comedy", "Drama"]})
    >>> encoder = Encoder.fit(films, local=["genre*"])
    >>> encoder.names_global
    ['year', 'genres=Action', 'genres=Comedy', 'genres=Drama']
    >>> x_global, x_local = encoder.transform(films)
    >>> x_global
    array([[-1.,  1.,  1.,  0.],
           [ 1.,  0.,  0.,  1.]], dtype=float32)
    >>> encoder.transform_one({"genres": "Drama"})[1]
    array([[0., 0., 1.]], dtype=float32)
    """

    source: InputKind
    columns: tuple[Column, ...]
    global_: tuple[int, ...]
    local: tuple[int, ...]
    limit_global: float | None = None

    @classmethod
    def fit(
        cls,
        X: Any,
        *,
        categorical: Names | None = None,
        local: Names | None = None,
        global_: Names | None = None,
    ) -> "Encoder":
        """Learn from rows how to encode them.

        Parameters
        ----------
        X
            A DataFrame, a 2-D array, or a sparse matrix; columns of the latter two are called
            ``x0``, ``x1``, ...
        categorical
            Columns that hold categories though they are numeric. This and the next two name
            columns, also by wildcards such as ``genre*``.
        local
            Columns of the local view; if None the narrowest ones, 32 features at most, and of a
            sparse matrix the 32 columns used most.
        global_
            Columns of the global view; all if None.
        """
        rows = Input(X)
        if not (len(rows) and rows.names):
            raise ValueError(
                f"there are {len(rows)} rows of {len(rows.names)} columns to learn from: "
                "give at least one of each"
            )
        as_category = set(rows.matching(categorical or (), "categorical"))
        in_global = rows.matching("*" if global_ is None else global_, "global")
        in_local = None if local is None else rows.matching(local, "local")
        columns: list[Column]
        if rows.source == "csr":
            columns, usual = _learn_scales(rows, as_category), _most_used(rows)
        else:
            named = {*in_global, *in_local} if in_local is not None else set(rows.names)
            columns = [
                Number.learn(name, rows[name])
                if name not in as_category and are_numbers(rows[name])
                else learn_categories(name, rows[name])
                for name in rows.names
                # An array is known by its width, so all of its columns stay.
                if rows.source == "array" or name in named
            ]
            usual = _narrowest(columns)
            for column in columns:
                if why := doubt(column, rows[column.name], column.name in as_category):
                    message = f"column {column.name!r}: {why}"
                    warnings.warn(message, ColumnWarning, stacklevel=2)
        number = {column.name: i for i, column in enumerate(columns)}
        global_numbers, local_numbers = (
            tuple(sorted(number[name] for name in side))
            for side in (in_global, usual if in_local is None else in_local)
        )
        return cls(rows.source, tuple(columns), global_numbers, local_numbers)

    @property
    def width_global(self) -> int:
        """The number of global features."""
        return self._global.width

    @property
    def width_local(self) -> int:
        """The number of local features."""
        return self._local.width

    @property
    def names_global(self) -> list[str]:
        """A name for every global feature."""
        return self._global.names

    @property
    def names_local(self) -> list[str]:
        """A name for every local feature."""
        return self._local.names

    @property
    def categorical(self) -> list[str]:
        """The columns that hold categories."""
        return [column.name for column in self.columns if isinstance(column, Category)]

    def of_method(self, method: EstimatorMethod) -> "Encoder":
        """The same columns, in the views of one half of FedRes if `method` is one."""
        if method == "central":
            return replace(self, local=())
        if method == "independent":
            return replace(self, global_=(), local=tuple(sorted({*self.global_, *self.local})))
        return self

    @property
    def only_local(self) -> I64:
        """The features of the local view, by number, that the global one lacks."""
        shared = set(self.names_global)
        return np.array([i for i, name in enumerate(self.names_local) if name not in shared], int)

    def transform(self, X: Any) -> tuple[Matrix, Matrix]:
        """Global and local features of rows: arrays, or CSR matrices where they are wide."""
        return self.views(self.encode(X))

    def encode(self, X: Any) -> EncodedTable:
        """What the columns of rows become, for `views` to lay out."""
        rows = Input(X, like=self.source)
        if (rows.source == "table") != (self.source == "table"):
            raise ValueError(
                f"rows came as {self.source} when the encoder was learned, now as {rows.source}: "
                "give a DataFrame where it learned from one, and only there"
            )
        if self.source != "table" and len(rows.names) != len(self.columns):
            raise ValueError(
                f"rows have {len(rows.names)} columns, those learned from had "
                f"{len(self.columns)}: give the same columns"
            )
        if self.source == "csr":
            x = rows.x
            x = sparse.csr_array((x.data * self._scales[x.indices], x.indices, x.indptr), x.shape)
            return EncodedTable(len(rows), {}, x)
        used = {*self.global_, *self.local}
        features = {
            i: column.features(rows[column.name])
            for i, column in enumerate(self.columns)
            if not isinstance(column, Scaled) and i in used
        }
        return EncodedTable(len(rows), features)

    def views(self, table: EncodedTable) -> tuple[Matrix, Matrix]:
        """Global and local features of rows that this encoder, or one of its halves, encoded."""
        if (x := table.csr) is not None:
            return self._limited(x[:, list(self.global_)]), x[:, list(self.local)]
        rows, features, _ = table
        return (
            self._limited(self._global.matrix([features[i] for i in self.global_], rows)),
            self._local.matrix([features[i] for i in self.local], rows),
        )

    def transform_one(self, row: Mapping[str, Any]) -> tuple[Matrix, Matrix]:
        """Global and local features of one row, values by column; what it lacks is missing."""
        features = {
            i: self.columns[i].features_of(row.get(self.columns[i].name))
            for i in {*self.global_, *self.local}
        }
        return (
            self._limited(self._global.row([features[i] for i in self.global_])),
            self._local.row([features[i] for i in self.local]),
        )

    def _limited(self, x: Matrix) -> Matrix:
        return x if self.limit_global is None else clipped(x, self.limit_global)

    @cached_property
    def _global(self) -> ViewColumns:
        return ViewColumns.of([self.columns[i] for i in self.global_])

    @cached_property
    def _local(self) -> ViewColumns:
        return ViewColumns.of([self.columns[i] for i in self.local])

    @cached_property
    def _scales(self) -> F32:
        return np.array([c.scale for c in self.columns if isinstance(c, Scaled)], np.float32)

    def to_dict(self) -> dict[str, Any]:
        """The encoder as plain JSON."""
        limit = {} if self.limit_global is None else {"limit_global": self.limit_global}
        return {
            "source": self.source,
            "columns": [describe(column) for column in self.columns],
            "global": list(self.global_),
            "local": list(self.local),
            **limit,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Encoder":
        """The encoder that `to_dict` described."""
        try:
            columns = tuple(map(recall, stored["columns"]))
            in_global, in_local = (tuple(map(int, stored[side])) for side in ("global", "local"))
            limit = stored.get("limit_global")
            encoder = cls(stored["source"], columns, in_global, in_local, limit)
            known = stored["source"] in get_args(InputKind) and encoder.to_dict() == stored
            known &= limit is None or limit > 0
            if not known or not {*in_global, *in_local} <= set(range(len(columns))):
                raise ValueError("it was not written so")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not a stored encoder: {error!r}") from None
        return encoder


def _learn_scales(rows: Input, as_category: set[str]) -> list[Column]:
    if as_category:
        raise ValueError("a sparse matrix has no categorical columns: give a DataFrame")
    largest = abs(rows.x).max(axis=0).toarray().ravel().tolist()
    return [
        Scaled(name, 1 / top if top >= TINY else 1.0)
        for name, top in zip(rows.names, largest, strict=True)
    ]


def _most_used(rows: Input) -> list[str]:
    used = np.bincount(rows.x.indices, minlength=len(rows.names))
    return [rows.names[i] for i in np.argsort(-used, kind="stable")[:LOCAL_FEATURES]]


def _narrowest(columns: Sequence[Column]) -> list[str]:
    """The columns that are local by default: numbers first, then those of few categories."""
    by_width = sorted(columns, key=lambda column: (not isinstance(column, Number), column.width))
    widths = np.cumsum([column.width for column in by_width])
    return [column.name for column in by_width[: np.searchsorted(widths, LOCAL_FEATURES, "right")]]

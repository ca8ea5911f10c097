"""From rows of a table to the two views of a federation; learned once, kept as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import escape
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy import sparse

from fedres.core.feature_limit import clipped
from fedres.core.types import F32, F64, I64, Matrix
from fedres.core.warn import warn
from fedres.reading.schema import expand_row
from fedres.tables.cell_values import are_numbers
from fedres.tables.column_notes import ColumnWarning, doubt
from fedres.tables.columns import (
    Category,
    Column,
    Features,
    Number,
    Scaled,
    Tastes,
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
    from_zero
        Which of the local columns of numbers local models count from 0, and not from the mean.
    item
        Which of the columns names the items that clients have tastes for; None if there are none.
    tastes
        Factors of these items, which are local features then; None before they are learned.

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
    item: int | None = None
    from_zero: tuple[int, ...] = ()
    tastes: Tastes | None = field(default=None, compare=False)

    @classmethod
    def fit(
        cls,
        X: Any,
        *,
        categorical: Names | None = None,
        local: Names | None = None,
        global_: Names | None = None,
        item: str | None = None,
        learned: Mapping[str, Column] | None = None,
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
        item
            The column of items that clients have tastes for; None if there is none.
        learned
            Columns of a DataFrame that have been learned already, by name: then `X` need not hold
            more than some of the rows, and says which columns there are.
        """
        rows = Input(X)
        if not len(rows):
            raise ValueError("there are 0 rows to learn from: give at least one")
        if not rows.names:
            raise ValueError(
                "there is no column left to learn from besides client and label: give at least one"
            )
        items = [] if item is None else rows.matching([escape(item)], "item")
        as_category = {*rows.matching(categorical or (), "categorical"), *items}
        in_global = rows.matching("*" if global_ is None else global_, "global")
        in_local = None if local is None else rows.matching(local, "local")
        columns: list[Column]
        if rows.source == "csr":
            columns, usual = _learn_scales(rows, as_category), _most_used(rows)
        else:
            named = {*in_global, *in_local} if in_local is not None else set(rows.names)
            named.update(items)
            columns = [
                learned[name]
                if learned is not None
                else Number.learn(name, rows[name])
                if name not in as_category and are_numbers(rows[name])
                else learn_categories(name, rows[name])
                for name in rows.names
                # An array is known by its width, so all of its columns stay.
                if rows.source == "array" or name in named
            ]
            usual = _narrowest(columns)
            for column in columns if learned is None else ():
                if why := doubt(column, rows[column.name], column.name in as_category):
                    warn(f"column {column.name!r}: {why}", ColumnWarning)
        number = {column.name: i for i, column in enumerate(columns)}
        global_numbers, local_numbers = (
            tuple(sorted(number[name] for name in side))
            for side in (in_global, usual if in_local is None else in_local)
        )
        of_item = number[items[0]] if items else None
        return cls(rows.source, tuple(columns), global_numbers, local_numbers, item=of_item)

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

    @property
    def global_columns(self) -> list[Column]:
        """The columns of the global view."""
        return [self.columns[i] for i in self.global_]

    @property
    def local_columns(self) -> list[Column | Tastes]:
        """The columns of the local view."""
        own: list[Column | Tastes] = [self.columns[i] for i in self.local]
        return own if self.tastes is None else [*own, self.tastes]

    @property
    def units_global(self) -> tuple[F64, F64]:
        """Scale and origin of every global feature, in units of its column.

        A value x of the column becomes the feature ``(x - origin) * scale``. Features of
        categories and of missing values are 0 or 1: scale 1 and origin 0.

        Examples
        --------
        >>> age, film = Number("age", 40.0, 0.1, missing=True), Scaled("film", 0.5)
        >>> Encoder("table", (age, film), (0, 1), ()).units_global
        (array([0.1, 1. , 0.5]), array([40.,  0.,  0.]))
        """
        columns, begin = self.global_columns, self._global.begin
        scale, origin = np.ones(self.width_global), np.zeros(self.width_global)
        for first, column in zip(begin, columns, strict=False):
            if isinstance(column, Number | Scaled):
                scale[first] = column.scale
            if isinstance(column, Number):
                origin[first] = column.mean
        return scale, origin

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
        features = {
            i: column.features(rows[column.name])
            for i, column in enumerate(self.columns)
            if not isinstance(column, Scaled) and i in self._used
        }
        return EncodedTable(len(rows), features)

    def views(self, table: EncodedTable) -> tuple[Matrix, Matrix]:
        """Global and local features of rows that this encoder, or one of its halves, encoded."""
        if (x := table.csr) is not None:
            return self._limited(x[:, list(self.global_)]), x[:, list(self.local)]
        rows, features, _ = table
        own = [
            column.from_zero(features[i])
            if i in self.from_zero and isinstance(column := self.columns[i], Number)
            else features[i]
            for i in self.local
        ]
        return (
            self._limited(self._global.matrix([features[i] for i in self.global_], rows)),
            self._local.matrix([*own, self.tastes.of(features[self.item])], rows)
            if self.tastes is not None and self.item is not None
            else self._local.matrix(own, rows),
        )

    def transform_one(self, row: Mapping[str, Any]) -> tuple[Matrix, Matrix]:
        """Global and local features of one row, values by column; what it lacks is missing."""
        row = expand_row(row)
        features = {
            i: self.columns[i].features_of(row.get(self.columns[i].name)) for i in self._used
        }
        own = [self._own_of_one(i, features[i]) for i in self.local]
        if self.tastes is not None and self.item is not None:
            own.append(self.tastes.of_one(features[self.item]))
        return (
            self._limited(self._global.row([features[i] for i in self.global_])),
            self._local.row(own),
        )

    def _own_of_one(
        self, i: int, features: tuple[list[int], list[float]]
    ) -> tuple[list[int], list[float]]:
        column = self.columns[i]
        if i not in self.from_zero or not isinstance(column, Number):
            return features
        (first, *rest), indices = features[1], features[0]
        return indices, [first - column.zero, *rest]

    def _limited(self, x: Matrix) -> Matrix:
        return x if self.limit_global is None else clipped(x, self.limit_global)

    @cached_property
    def _global(self) -> ViewColumns:
        return ViewColumns.of(self.global_columns)

    @cached_property
    def _local(self) -> ViewColumns:
        return ViewColumns.of(self.local_columns)

    @cached_property
    def _used(self) -> set[int]:
        return {*self.global_, *self.local, *(() if self.item is None else (self.item,))}

    @cached_property
    def _scales(self) -> F32:
        return np.array([c.scale for c in self.columns if isinstance(c, Scaled)], np.float32)

    def to_dict(self) -> dict[str, Any]:
        """The encoder as plain JSON."""
        limit = {} if self.limit_global is None else {"limit_global": self.limit_global}
        item = {} if self.item is None else {"item": self.item}
        from_zero = {"from_zero": list(self.from_zero)} if self.from_zero else {}
        return {
            "source": self.source,
            "columns": [describe(column) for column in self.columns],
            "global": list(self.global_),
            "local": list(self.local),
            **limit,
            **item,
            **from_zero,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Encoder":
        """The encoder that `to_dict` described."""
        try:
            columns = tuple(map(recall, stored["columns"]))
            in_global, in_local = (tuple(map(int, stored[side])) for side in ("global", "local"))
            limit = stored.get("limit_global")
            item, from_zero = stored.get("item"), tuple(map(int, stored.get("from_zero", ())))
            encoder = cls(stored["source"], columns, in_global, in_local, limit, item, from_zero)
            known = stored["source"] in get_args(InputKind) and encoder.to_dict() == stored
            known &= limit is None or limit > 0
            known &= all(len(set(side)) == len(side) for side in (in_global, in_local))
            if not known or not encoder._used <= set(range(len(columns))):
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

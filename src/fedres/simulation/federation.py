"""Clients, each with its own rows, in two views."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedres.core.display import Displayed, Grid
from fedres.core.primitives import View
from fedres.core.types import F32, I64, Matrix
from fedres.core.views import (
    as_blocks,
    as_matrix,
    bad_value,
    matrix_view,
    no_view,
    side_by_side,
)


@dataclass(frozen=True)
class Rows:
    """Samples sorted by client; those of client i are `row_start[i]:row_start[i + 1]`."""

    x_global: View
    x_local: View
    y: F32
    row_start: I64

    @property
    def counts(self) -> I64:
        """Rows a client."""
        return np.diff(self.row_start)


@dataclass(frozen=True, repr=False)
class Federation(Displayed):
    """Clients with their samples, as `simulate` takes them.

    Attributes
    ----------
    clients
        Their ids, sorted.
    train, test
        Their samples; test samples may be absent.
    local_only
        Columns of the local view that the global view does not hold; None for all of them.
        Independent learns on the global view and these.
    name
        What tables and figures call it.
    facts
        How it was made, for reports.
    """

    clients: tuple[Any, ...]
    train: Rows
    test: Rows | None = None
    local_only: I64 | None = None
    name: str = "own data"
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls,
        x_global: Matrix | ArrayLike | None,
        x_local: Matrix | ArrayLike | Mapping[Any, Any] | None,
        y: ArrayLike,
        client: ArrayLike,
        *,
        test: tuple[Any, Any, Any, Any] | None = None,
        local_only: Sequence[int] | None = None,
        name: str = "own data",
    ) -> "Federation":
        """Make a federation of rows.

        Parameters
        ----------
        x_global, x_local
            A row of features a sample, dense or CSR; None for no model on that side. `x_local`
            may also be a mapping of client to that client's rows: then clients may differ in
            their number of local features.
        y
            A label a sample.
        client
            Whose sample it is: any ids that sort.
        test
            The same four of samples to test on.
        local_only
            Columns of `x_local` that `x_global` does not hold, where the two overlap. Where
            `x_local is x_global` they are known to.
        name
            What tables and figures call it.

        Examples
        --------
        >>> x, y = np.eye(4), [1.0, -1.0, 1.0, -1.0]
        >>> Federation.from_arrays(x, x, y, client=["ann", "bob", "ann", "bob"]).clients
        ('ann', 'bob')
        """
        labels, ids = _labels(y), np.asarray(client)
        if ids.shape != labels.shape:
            raise ValueError(f"client has {ids.size} ids, y has {labels.size} labels")
        clients = np.unique(ids)
        same = x_local is x_global and x_local is not None
        if same and local_only is None:
            local_only = []
        train = _rows(x_global, x_local, labels, ids, clients)
        tested = None
        if test is not None:
            test_labels, test_ids = _labels(test[2]), np.asarray(test[3])
            if (unknown := ~np.isin(test_ids, clients)).any():
                raise ValueError(
                    f"client {test_ids[unknown].tolist()[0]!r} has test rows but no training rows"
                )
            tested = _rows(test[0], test[1], test_labels, test_ids, clients)
            _check_widths(train, tested)
        return cls(
            tuple(clients.tolist()),
            train,
            tested,
            None if local_only is None else np.asarray(local_only, np.int64),
            name,
        )

    def _display(self) -> Iterator[str | Grid]:
        yield f"Federation of {len(self.clients):,} clients: {self.name}"
        parts = {"train": self.train, **({} if self.test is None else {"test": self.test})}
        rows = [
            [name, f"{len(part.y):,}", _span(part.counts), *map(_span, _widths(part))]
            for name, part in parts.items()
        ]
        heads = ["", "rows", "per client", "global features", "local features"]
        yield Grid(heads, rows)
        yield f"Labels: {_span(self.label_values)}, {len(self.label_values):,} different"

    @cached_property
    def label_values(self) -> F32:
        """The labels that occur in training rows, sorted."""
        return np.unique(self.train.y)

    @property
    def width_global(self) -> int:
        """Number of global features."""
        return int(self.train.x_global.width[0])

    @cached_property
    def all_features(self) -> tuple[View, View | None]:
        """Both views as one, of the training and of the test rows: what Independent sees."""

        def joined(rows: Rows) -> View:
            return side_by_side(rows.x_global, rows.x_local, self.local_only, rows.row_start)

        return joined(self.train), None if self.test is None else joined(self.test)


def _widths(rows: Rows) -> tuple[I64, I64]:
    return np.maximum(rows.x_global.width, 0), np.maximum(rows.x_local.width, 0)


def _span(values: Any) -> str:
    low, high = f"{values.min():,g}", f"{values.max():,g}"
    return low if low == high else f"{low} to {high}"


def _labels(y: ArrayLike) -> F32:
    try:
        labels = np.asarray(y, np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"labels must be numbers: {error}") from None
    if labels.ndim != 1:
        raise ValueError(f"y must be one label a row, not an array of shape {labels.shape}")
    if labels.size == 0:
        raise ValueError("there are no rows: a federation needs at least one sample")
    if not np.isfinite(labels).all():
        raise ValueError(f"y has {bad_value(labels)}: remove such rows")
    return labels


def _rows(x_global: Any, x_local: Any, y: F32, ids: Any, clients: Any) -> Rows:
    owner = np.searchsorted(clients, ids)
    row_start = np.searchsorted(np.sort(owner), np.arange(len(clients) + 1)).astype(np.int64)
    in_order = bool((np.diff(owner) >= 0).all())
    order = slice(None) if in_order else np.argsort(owner, kind="stable")

    def view(x: Any, name: str) -> View:
        if isinstance(x, Mapping):
            return as_blocks(x, clients.tolist(), row_start)
        return matrix_view(as_matrix(x, name, len(y))[order], row_start)

    return Rows(view(x_global, "x_global"), view(x_local, "x_local"), y[order], row_start)


def _check_widths(train: Rows, test: Rows) -> None:
    for name in ("x_global", "x_local"):
        learned, tested = getattr(train, name), getattr(test, name)
        if (learned.width != tested.width).any():
            raise ValueError(
                f"{name} has {learned.width.max()} features in the training rows and "
                f"{tested.width.max()} in the test rows: they must be the same"
            )


def sides(federation: Federation, rows: Rows, method: str) -> tuple[View, View]:
    """The views that the server and the clients learn on under a method."""
    clients, n = len(federation.clients), len(rows.y)
    if method == "central":
        return rows.x_global, no_view(clients, n)
    if method == "independent":
        train, test = federation.all_features
        joined = train if rows is federation.train else test
        assert joined is not None
        return no_view(clients, n), joined
    return rows.x_global, rows.x_local

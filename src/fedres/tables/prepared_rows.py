"""Rows on their way from a table to the models."""

from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedres.core.types import F32, F64, I64, Matrix
from fedres.tables.encoder import EncodedTable
from fedres.tables.labels import FARTHEST
from fedres.tables.online_models import SparseRow

Views = TypeVar("Views", bound=tuple[Matrix | SparseRow, Matrix | SparseRow])


class Begun(NamedTuple):
    """Rows as given, checked."""

    table: Any
    y: Any
    client: Any
    offset: F64 | None
    weight: F64 | None

    def where(self, keep: Any) -> "Begun":
        """Those rows that count."""
        if keep.all():
            return self
        table, y, client, offset, weight = self
        return Begun(
            table[keep],
            y[keep],
            client if client is False else np.asarray(client)[keep],
            None if offset is None else offset[keep],
            None if weight is None else weight[keep],
        )


class Prepared(NamedTuple):
    """Rows to train on, of which every method takes its own views."""

    table: EncodedTable
    targets: F32
    client: I64
    weight: F64 | None
    offset: F64 | None


def in_range(views: Views) -> Views:
    """Refuse encoded features that are so large that learning from them would overflow."""
    for x in views:
        values = x if isinstance(x, np.ndarray) else x.data
        if values.size and (largest := np.abs(values).max()) > FARTHEST:
            raise ValueError(
                f"a feature is {largest:.0e} times its spread in the rows seen first: correct it, "
                "or fit anew"
            )
    return views

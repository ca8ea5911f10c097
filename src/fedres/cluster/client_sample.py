"""Some clients with all their rows, drawn by chance: as they were read, or as they are encoded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedres.cluster.shards import Shard
from fedres.core.types import F64, Matrix
from fedres.tables.encoder import Encoder
from fedres.tables.sgd_tuning import Encoded

if TYPE_CHECKING:
    import pandas as pd


class ClientSample:
    """All rows of some clients, about so many of so many rows.

    A client is in the sample or not by a number of its own. Should a few clients have so many rows
    that the sample grows too large, it is thinned out.

    Examples
    --------
    >>> import pandas as pd
    >>> sample = ClientSample(most=4, rows=10)
    >>> numbers = np.repeat([0.1, 0.3, 0.5], [2, 7, 1])  # three clients, one with most rows
    >>> sample.add(numbers, pd.DataFrame({"row": range(10)}))
    >>> pd.concat(sample.frames())["row"].tolist()
    [0, 1]
    """

    def __init__(self, most: int, rows: int) -> None:
        self._most, self._share = most, min(1.0, most / rows)
        self._parts: list[tuple[F64, pd.DataFrame]] = []

    def add(self, numbers: F64, frame: "pd.DataFrame") -> None:
        """Take in rows, given the number of each one's client."""
        self._parts.append((numbers, frame))
        self._parts[-1:] = self._thinned(self._parts[-1:])
        while sum(len(part) for _, part in self._parts) > 2 * self._most:
            self._share /= 2
            self._parts = self._thinned(self._parts)

    def frames(self) -> "list[pd.DataFrame]":
        """The rows."""
        return [frame for _, frame in self._parts]

    def _thinned(self, parts: Any) -> "list[tuple[F64, pd.DataFrame]]":
        kept = ((numbers < self._share, numbers, frame) for numbers, frame in parts)
        return [(numbers[here], frame[here]) for here, numbers, frame in kept if here.any()]


def some_rows(shards: Sequence[Shard], encoder: Encoder, enough: int) -> Encoded:
    """The rows of the first shards, so many or more: clients are in them by chance."""
    from scipy import sparse

    some, rows = [], 0
    for shard in shards:
        some.append(shard.encoded(encoder))
        rows += shard.rows
        if rows >= enough:
            break
    if len(some) == 1:
        return some[0]

    def together(side: str) -> Matrix:
        each = [getattr(one, side) for one in some]
        if sparse.issparse(each[0]):
            return sparse.csr_array(sparse.vstack(each, format="csr"))
        return np.concatenate(each)

    clients = [int(one.client.max()) + 1 for one in some]
    first = np.cumsum([0, *clients[:-1]])
    return Encoded(
        together("x_global"),
        together("x_local"),
        np.concatenate([one.y for one in some], axis=1),
        np.concatenate([one.client + a for one, a in zip(some, first, strict=True)]),
        some[0].limits,
    )

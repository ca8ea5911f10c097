"""A number of 64 bits for every client, and a hash that deals clients to shards.

Ids that are whole numbers are their own keys. Texts are hashed, and kept beside: should two of them
ever have the same hash, that is an error and no silent mixture of two clients.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedres.core.types import F64, I64
from fedres.tables.client_ids import WHOLE, id_texts

if TYPE_CHECKING:
    import pandas as pd

U64 = NDArray[np.uint64]
LARGEST = 10**18  # of ids that are numbers: `WHOLE` has as many digits
MOST_KEPT = 2**12  # hashes that tell how many different ones there are


class RowKeys(NamedTuple):
    """The client of every row of a batch.

    Attributes
    ----------
    keys
        One a row.
    distinct, texts
        Every key of the batch once and the id behind it, in the order in which they come; none
        where ids are numbers.
    """

    keys: I64
    distinct: I64
    texts: NDArray[Any]


def are_whole(column: "pd.Series[Any]", in_csv: bool) -> bool:
    """Whether ids are whole numbers: also texts of CSV files, but 007 is a name."""
    if column.dtype.kind in "iuf":
        return bool((column % 1 == 0).all() and (column.abs() < LARGEST).all())
    return in_csv and bool(column.astype(str).str.fullmatch(WHOLE).all())


def keys_of(column: "pd.Series[Any]", are_numbers: bool) -> RowKeys:
    """The key of every row's client.

    Examples
    --------
    >>> import pandas as pd
    >>> keys_of(pd.Series([7, 5, 7]), are_numbers=True).keys
    array([7, 5, 7])
    >>> keys, distinct, texts = keys_of(pd.Series(["bob", "ann", "bob"]), are_numbers=False)
    >>> (keys == distinct[[0, 1, 0]]).all(), texts
    (np.True_, array(['bob', 'ann'], dtype=object))
    """
    import pandas as pd

    if are_numbers:
        nothing = np.empty(0, np.int64)
        return RowKeys(column.to_numpy().astype(np.int64), nothing, np.empty(0, object))
    codes, uniques = pd.factorize(column)
    texts = np.array(id_texts(uniques), object)
    distinct = pd.util.hash_array(texts, categorize=False).view(np.int64)
    return RowKeys(distinct[codes], distinct, texts)


def hashes(keys: I64) -> U64:
    """Numbers that look random, one a key, the same in every process."""
    import pandas as pd

    return np.asarray(pd.util.hash_array(keys), np.uint64)


class Distinct:
    """About how many different keys there are: by the smallest of their hashes.

    Examples
    --------
    >>> some, others = Distinct(), Distinct()
    >>> some.see(np.arange(100_000))
    >>> others.see(np.arange(50_000, 200_000))
    >>> some.merge(others)
    >>> bool(abs(some.count / 200_000 - 1) < 0.05)
    True
    """

    def __init__(self) -> None:
        self._least = np.empty(0, np.uint64)

    def see(self, keys: I64) -> None:
        """Take in the keys of some rows."""
        self._take(hashes(np.unique(keys)))

    def merge(self, other: "Distinct") -> None:
        """Take in what another has seen."""
        self._take(other._least)

    def _take(self, found: U64) -> None:
        self._least = np.unique(np.concatenate([self._least, found]))[:MOST_KEPT]

    @property
    def count(self) -> int:
        """The number, exact where there are few."""
        if len(self._least) < MOST_KEPT:
            return len(self._least)
        return round((MOST_KEPT - 1) / (float(self._least[-1]) / 2.0**64))


def shard_numbers(keys: I64, shards: int) -> I64:
    """Which of so many shards each client belongs to."""
    return np.asarray((hashes(keys) >> np.uint64(32)) % np.uint64(shards), np.int64)


def uniform(keys: I64) -> F64:
    """A number from 0 to 1 for every client, and no other than that of its shard."""
    low = hashes(keys) & np.uint64(2**32 - 1)  # the shard is told by the other half
    return np.asarray(low / 2.0**32, np.float64)

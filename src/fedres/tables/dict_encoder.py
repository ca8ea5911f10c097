"""Rows that come one by one as dicts, with no table beforehand to learn their columns from."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from fedres.tables.cell_values import as_float, categories_in, is_missing
from fedres.tables.columns import HASH_BITS, Hashed
from fedres.tables.labels import Running
from fedres.tables.online_models import SparseRow

PLACES = Hashed("", HASH_BITS, missing=False)
NUMBERS = (int, float, np.number, np.bool, date, timedelta)


@dataclass(frozen=True)
class DictEncoder:
    """Features by the hash of their names, so that new ones may come at any time.

    Numbers are standardised by what was seen of them so far. Texts and lists are categories, with
    a feature each. What is missing has none.

    Attributes
    ----------
    categorical
        Names of numbers that are categories. All names may be wildcards.
    local
        Names of local features; None for all that are numbers.
    global_
        Names of global features; None for all.
    seen
        Mean and spread so far of each number.

    Examples
    --------
    >>> encoder = DictEncoder()
    >>> for age in (20, 40):
    ...     encoder.see(encoder.numbers_in({"age": age, "genre": "Action|Comedy"}))
    >>> x_global, x_local = encoder.transform_one({"age": 50, "genre": "Action|Comedy"})
    >>> sorted(x_global.data.tolist()), x_local.data.tolist()
    ([1.0, 1.0, 2.0], [2.0])
    """

    categorical: Sequence[str] = ()
    local: Sequence[str] | None = None
    global_: Sequence[str] | None = None
    seen: dict[str, Running] = field(default_factory=dict)

    width_global = width_local = PLACES.size

    @property
    def names_global(self) -> list[str]:
        """Names of the places that features are hashed to."""
        return [f"#{i}" for i in range(PLACES.size)]

    names_local = names_global

    def numbers_in(self, row: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of a row, without those missing."""
        numbers = {
            name: as_float(name, value)
            for name, value in row.items()
            if isinstance(value, NUMBERS) and not _matches(name, self.categorical)
        }
        return {name: x for name, x in numbers.items() if not is_missing(x)}

    def see(self, numbers: Mapping[str, float]) -> None:
        """Take numbers into their means and spreads."""
        for name, x in numbers.items():
            self.seen.setdefault(name, Running()).see(x)

    def transform_one(self, row: Mapping[str, Any]) -> tuple[SparseRow, SparseRow]:
        """Global and local features of one row."""
        numbers = self.numbers_in(row)
        shared: dict[int, float] = defaultdict(float)
        own: dict[int, float] = defaultdict(float)
        for name, value in row.items():
            if name in numbers:
                seen = self.seen.get(name, Running())
                features = {name: (numbers[name] - seen.mean) / seen.spread}
            else:
                features = {f"{name}={category}": 1.0 for category in categories_in(value)}
            in_global = self.global_ is None or _matches(name, self.global_)
            in_local = name in numbers if self.local is None else _matches(name, self.local)
            for feature, x in features.items():
                place = PLACES.find(feature)
                if in_global:
                    shared[place] += x
                if in_local:
                    own[place] += x
        return _one_row(shared), _one_row(own)

    def to_dict(self) -> dict[str, Any]:
        """The encoder as plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "DictEncoder":
        """The encoder that `to_dict` gave."""
        seen = {name: Running(**sums) for name, sums in stored["seen"].items()}
        return cls(**{**stored, "seen": seen})


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _one_row(features: Mapping[int, float]) -> SparseRow:
    places = sorted(features)
    return SparseRow(
        np.array([features[place] for place in places], np.float32),
        np.array(places, np.int32),
        np.array([0, len(places)]),
        (1, PLACES.size),
    )

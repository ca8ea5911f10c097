"""Kinds of columns, and the features that their values become."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from hashlib import blake2b
from math import isfinite, isnan
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedres.core.types import F32, I64
from fedres.tables.cell_values import (
    Values,
    as_float,
    as_floats,
    categories_in,
    factorise,
    meaning_of,
    place_of,
    unfit,
)

LARGEST = float(np.finfo(np.float32).max)
MAX_CATEGORIES = 2**16  # a column of more is hashed
HASH_BITS = 18


class Features(NamedTuple):
    """The features of a column, row after row: how many, which in rising order, their values."""

    counts: I64
    indices: I64
    values: F32


@dataclass(frozen=True)
class Number:
    """A numeric column, standardised; what is missing is the mean.

    Attributes
    ----------
    mean, scale
        A value x becomes ``(x - mean) * scale``; a column that does not vary has scale 0.
    missing
        Whether a second feature is 1 where the value is missing.
    meaning
        What the numbers are: plain ``numbers``, or seconds of ``times`` or ``durations``; None if
        the model was stored by a version that did not know.
    """

    name: str
    mean: float
    scale: float
    missing: bool
    meaning: str | None = field(default=None, repr=False)
    kind: ClassVar[str] = "number"

    @classmethod
    def learn(cls, name: str, values: Values) -> "Number":
        """Learn mean and scale from the values that are there."""
        x = as_floats(name, values)
        known = x[~np.isnan(x)]
        missing = len(known) < len(x)
        largest = float(np.abs(known).max(initial=0.0))
        # In units of the largest value no square is too large; a tiny one cannot be a unit.
        if largest < np.finfo(np.float64).tiny:
            return cls(name, 0.0, 0.0, missing, meaning_of(values))
        units = known / largest
        moments = float(units.mean()), float(units.std())
        return cls.of_moments(name, largest, *moments, missing, meaning_of(values))

    @classmethod
    def of_moments(
        cls,
        name: str,
        largest: float,
        mean: float,
        deviation: float,
        missing: bool,
        meaning: str | None = None,
    ) -> "Number":
        """From mean and standard deviation, both in units of the largest absolute value."""
        varies = deviation > 4 * np.finfo(np.float64).eps
        scale = 1 / deviation / largest if varies else 0.0
        return cls(name, mean * largest, scale, missing, meaning)

    @property
    def width(self) -> int:
        """The number of features."""
        return 1 + self.missing

    @property
    def names(self) -> Iterator[str]:
        """The names of the features."""
        yield self.name
        if self.missing:
            yield f"{self.name}=missing"

    def features(self, values: Values) -> Features:
        """The features of every row."""
        x = as_floats(self.name, values)
        absent = np.isnan(x)
        if self.meaning not in (None, now := meaning_of(values)) and not absent.all():
            raise ValueError(
                f"column {self.name!r} holds {now}, and held {self.meaning} when the model was "
                "trained: give it as it was then"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.where(absent, 0, (x - self.mean) * self.scale).astype(np.float32)
        if (bad := np.flatnonzero(~np.isfinite(z))).size:
            raise unfit(self.name, x[bad[0]], "too large", place_of(values, int(bad[0])))
        return self.features_of_encoded(z, absent)

    def features_of_encoded(self, z: F32, absent: NDArray[np.bool_]) -> Features:
        """The features of values that are standardised already; of those absent, z is 0."""
        if not self.missing:
            return Features(np.broadcast_to(1, len(z)), np.broadcast_to(0, len(z)), z)
        counts = 1 + absent
        indices = np.zeros(counts.sum(), np.int64)
        indices[np.cumsum(counts)[absent] - 1] = 1
        filled = np.ones(len(indices), np.float32)
        filled[indices == 0] = z
        return Features(counts, indices, filled)

    @property
    def zero(self) -> float:
        """What the value 0 becomes."""
        return -self.mean * self.scale

    def from_zero(self, features: Features) -> Features:
        """The same features, counted from the value 0 and not from the mean."""
        return features._replace(
            values=features.values - np.where(features.indices == 0, np.float32(self.zero), 0)
        )

    def features_of(self, value: Any) -> tuple[list[int], list[float]]:
        """The features of one value: which, and their values."""
        x = as_float(self.name, value)
        if isnan(x):
            return ([0, 1], [0.0, 1.0]) if self.missing else ([0], [0.0])
        z = (x - self.mean) * self.scale
        if not abs(z) <= LARGEST:
            raise unfit(self.name, value, "too large")
        return [0], [z]


class Category(ABC):
    """A column of categories, none, one or several in a row: each is a feature that is 1."""

    name: str
    missing: bool

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of features that stand for categories."""

    @abstractmethod
    def find(self, category: str) -> int | None:
        """The feature of a category, or None if it has none."""

    @property
    def width(self) -> int:
        """The number of features; where values may be missing, the last says so."""
        return self.size + self.missing

    def features(self, values: Values) -> Features:
        """The features of every row."""
        codes, uniques = factorise(values)
        # Missing values have code -1, the last.
        rows = [self.features_of(value)[0] for value in (*uniques, None)]
        lengths = np.array([len(row) for row in rows])
        found = np.array([index for row in rows for index in row], np.int64)
        counts = lengths[codes]
        begin = (np.cumsum(lengths) - lengths)[codes]
        indices = found[ragged(begin, counts)]
        return Features(counts, indices, np.ones(len(indices), np.float32))

    def features_of(self, value: Any) -> tuple[list[int], list[float]]:
        """The features of one value: which, and their values."""
        categories = list(categories_in(value))
        if self.missing and not categories:
            return [self.size], [1.0]
        found = {i for category in categories if (i := self.find(category)) is not None}
        return sorted(found), [1.0] * len(found)


@dataclass(frozen=True)
class OneHot(Category):
    """A column of a limited number of categories, a feature each. Unknown ones have none."""

    name: str
    categories: tuple[str, ...]
    missing: bool
    kind: ClassVar[str] = "one-hot"

    @property
    def size(self) -> int:
        """The number of categories."""
        return len(self.categories)

    @property
    def names(self) -> Iterator[str]:
        """The names of the features."""
        yield from (f"{self.name}={category}" for category in self.categories)
        if self.missing:
            yield f"{self.name}=missing"

    @cached_property
    def _number(self) -> dict[str, int]:
        return {category: i for i, category in enumerate(self.categories)}

    def find(self, category: str) -> int | None:
        """The feature of a category, or None if it is unknown."""
        return self._number.get(category)


@dataclass(frozen=True)
class Hashed(Category):
    """A column of many categories: each, known or not, has one of 2**bits features."""

    name: str
    bits: int
    missing: bool
    kind: ClassVar[str] = "hashed"

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= HASH_BITS:
            raise ValueError(f"bits must be from 1 to {HASH_BITS}, not {self.bits}")

    @property
    def size(self) -> int:
        """The number of features that stand for categories."""
        return 1 << self.bits

    @property
    def names(self) -> Iterator[str]:
        """The names of the features."""
        yield from (f"{self.name}#{i}" for i in range(self.size))
        if self.missing:
            yield f"{self.name}=missing"

    def find(self, category: str) -> int:
        """The feature of a category.

        Examples
        --------
        >>> Hashed("item", bits=18, missing=False).find("Comedy")
        218106
        """
        # Not Python's hash, which is another one in every process.
        digest = blake2b(category.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self.size


@dataclass(frozen=True)
class Scaled:
    """A column of a sparse matrix, multiplied by a number; what is missing is zero."""

    name: str
    scale: float
    kind: ClassVar[str] = "scaled"
    width: ClassVar[int] = 1

    @property
    def names(self) -> Iterator[str]:
        """The name of the feature."""
        yield self.name

    def features_of(self, value: Any) -> tuple[list[int], list[float]]:
        """The feature of one value: which, and its value."""
        x = as_float(self.name, value)
        return ([0], [x * self.scale]) if abs(x) > 0 else ([], [])


@dataclass(frozen=True, eq=False)
class Tastes:
    """What clients' factors are multiplied with: those of the item of a row.

    Attributes
    ----------
    item
        The name of the column of items.
    factors
        (features of that column, factors).

    Examples
    --------
    >>> films = OneHot("film", ("Alien", "Brazil"), missing=False)
    >>> tastes = Tastes("film", np.float32([[1, 2], [3, 4]]))
    >>> tastes.of(films.features(np.array(["Brazil", "Clue"])))
    Features(counts=array([2, 0]), indices=array([0, 1]), values=array([3., 4.], dtype=float32))
    """

    item: str
    factors: F32

    @property
    def name(self) -> str:
        """What these features are called together."""
        return f"taste for {self.item}"

    @property
    def width(self) -> int:
        """The number of factors."""
        return int(self.factors.shape[1])

    @property
    def names(self) -> Iterator[str]:
        """The names of the features."""
        yield from (f"{self.name} {k}" for k in range(1, self.width + 1))

    def of(self, items: Features) -> Features:
        """The factors of every row, given the features of its item."""
        counts = np.minimum(items.counts, 1)
        first = (np.cumsum(items.counts) - items.counts)[counts > 0]
        values = self.factors[items.indices[first]]
        return Features(
            self.width * counts, np.tile(np.arange(self.width), len(first)), values.ravel()
        )

    def of_one(self, items: tuple[list[int], list[float]]) -> tuple[list[int], list[float]]:
        """The factors of one row, given the features of its item."""
        if not items[0]:
            return [], []
        return list(range(self.width)), self.factors[items[0][0]].tolist()


Column = Number | OneHot | Hashed | Scaled
KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Number, OneHot, Hashed, Scaled)}
READ: dict[Any, Callable[[Any], Any]] = {
    **{kind: kind for kind in (str, int, bool)},
    str | None: str,
    float: lambda value: float(value) if isfinite(value) else None,
    tuple[str, ...]: lambda values: tuple(map(str, values)),
}


def learn_categories(name: str, values: Values) -> OneHot | Hashed:
    """Learn which categories a column has; hash them if they are many."""
    codes, uniques = factorise(values)
    rows = [list(categories_in(value)) for value in uniques]
    missing = bool((codes < 0).any()) or not all(rows)
    return of_categories(name, {category for row in rows for category in row}, missing)


def of_categories(name: str, categories: Collection[str], missing: bool) -> OneHot | Hashed:
    """A column of these categories; hashed if they are many."""
    if len(categories) <= MAX_CATEGORIES:
        return OneHot(name, tuple(sorted(categories)), missing)
    return Hashed(name, HASH_BITS, missing)


def ragged(begin: I64, counts: I64) -> I64:
    """The numbers from begin[i] on, counts[i] of them, for one i after the other.

    Examples
    --------
    >>> ragged(np.array([7, 0, 3]), np.array([2, 0, 3]))
    array([7, 8, 3, 4, 5])
    """
    ends = np.cumsum(counts)
    return np.repeat(begin - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)


def describe(column: Column) -> dict[str, Any]:
    """The column as plain JSON."""
    values = {field.name: getattr(column, field.name) for field in fields(column)}
    return {"kind": column.kind} | {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }


def recall(described: Mapping[str, Any]) -> Column:
    """The column that was described.

    Examples
    --------
    >>> recall(describe(Number("year", 1999.0, 0.2, missing=False)))
    Number(name='year', mean=1999.0, scale=0.2, missing=False)
    """
    kind = KINDS[described["kind"]]
    column = kind(
        **{
            field.name: READ[field.type](described[field.name])
            for field in fields(kind)
            if field.name in described or field.default is MISSING
        }
    )
    if describe(column) != described:
        raise ValueError(f"{described} is not a column")
    return column

"""What one stream of rows tells of every column, in little memory: sketches that merge.

They give the very encoder that `Encoder.fit` learns from all rows at once, up to rounding: means
and spreads are merged as Chan, Golub and LeVeque do, and categories are counted until they are so
many that the encoder hashes them anyway.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedres.cluster.client_keys import Distinct, are_whole, keys_of
from fedres.tables.cell_values import (
    are_numbers,
    as_floats,
    categories_in,
    factorise,
    meaning_of,
    refuse_labels,
)
from fedres.tables.columns import MAX_CATEGORIES, Column, Number, of_categories
from fedres.tables.labels import NumberLabels
from fedres.tables.read_table import refuse_missing, times

if TYPE_CHECKING:
    import pandas as pd

MOST_VALUES = 2**18  # different values of a column that are remembered, so as not to split again
MOST_CLASSES = 1000
NOTHING = np.longdouble(0)  # of a range that squares of 64-bit numbers do not leave


@dataclass
class NumberSketch:
    """A column of numbers.

    Examples
    --------
    >>> first, second = NumberSketch("age"), NumberSketch("age")
    >>> first.see(np.array([20.0, np.nan]))
    >>> second.see(np.array([40.0]))
    >>> first.merge(second)
    >>> first.column()
    Number(name='age', mean=30.0, scale=0.1, missing=True)
    """

    name: str
    count: int = 0
    mean: Any = NOTHING
    squares: Any = NOTHING  # of differences from the mean
    low: float = np.inf
    high: float = -np.inf
    missing: bool = False
    meaning: str | None = field(default=None, repr=False)

    def see(self, values: Any) -> None:
        """Take in some rows."""
        self.meaning = meaning_of(values)
        x = as_floats(self.name, values)
        known = x[~np.isnan(x)]
        self.missing |= len(known) < len(x)
        if not len(known):
            return
        low, high = float(known.min()), float(known.max())
        largest = max(-low, high) or 1.0
        units = known / largest  # whose squares do not overflow
        self.merge(
            NumberSketch(
                self.name,
                len(known),
                np.longdouble(units.mean()) * largest,
                np.longdouble(units.var()) * len(known) * np.longdouble(largest) ** 2,
                low,
                high,
            )
        )

    def merge(self, other: "NumberSketch") -> None:
        """Take in what another has seen."""
        self.missing |= other.missing
        self.meaning = self.meaning or other.meaning
        if not other.count:
            return
        count, apart = self.count + other.count, other.mean - self.mean
        self.mean += apart * other.count / count
        self.squares += other.squares + apart**2 * self.count * other.count / count
        self.count, self.low, self.high = (
            count,
            min(self.low, other.low),
            max(self.high, other.high),
        )

    def in_units(self) -> tuple[float, float, float]:
        """The largest absolute value; mean and standard deviation in units of it."""
        largest = max(-self.low, self.high, 0.0) if self.count else 0.0
        if largest < np.finfo(np.float64).tiny:
            return 1.0, 0.0, 0.0
        deviation = np.sqrt(self.squares / self.count)
        return largest, float(self.mean / largest), float(deviation / largest)

    def column(self) -> Number:
        """How the column is encoded."""
        return Number.of_moments(self.name, *self.in_units(), self.missing, self.meaning)


@dataclass
class CategorySketch:
    """A column of categories.

    Attributes
    ----------
    categories
        Those found, until they are so many that they are hashed.
    most
        How many there are in one row at most.
    missing
        Whether some row has none.

    Examples
    --------
    >>> sketch = CategorySketch("genres")
    >>> sketch.see(np.array(["Drama", "Action|Drama"]))
    >>> sketch.column(), sketch.most
    (OneHot(name='genres', categories=('Action', 'Drama'), missing=False), 2)
    """

    name: str
    categories: set[str] = field(default_factory=set)
    most: int = 1
    missing: bool = False
    _split: set[Any] = field(default_factory=set, repr=False)

    def see(self, values: Any) -> None:
        """Take in some rows."""
        codes, uniques = factorise(values)
        self.missing |= bool((codes < 0).any())
        if len(self._split) > MOST_VALUES:
            self._split.clear()
        for value in uniques:
            if value in self._split:
                continue
            self._split.add(value)
            parts = set(categories_in(value))
            self.missing |= not parts
            self.most = max(self.most, len(parts))
            self._add(parts)

    def merge(self, other: "CategorySketch") -> None:
        """Take in what another has seen."""
        self.most, self.missing = max(self.most, other.most), self.missing or other.missing
        self._add(other.categories)

    def _add(self, parts: set[str]) -> None:
        if len(self.categories) <= MAX_CATEGORIES:
            self.categories |= parts

    def column(self) -> Column:
        """How the column is encoded."""
        return of_categories(self.name, self.categories, self.missing)


@dataclass
class LabelSketch:
    """The labels: moments of numbers, and different values, until these are too many for classes.

    Attributes
    ----------
    different
        Different labels; None where they are too many.
    numbers
        Mean and spread, where labels are numbers.
    """

    name: str
    different: Any = None
    numbers: NumberSketch | None = None
    _too_many: bool = False

    def see(self, column: "pd.Series[Any]") -> None:
        """Take in the labels of some rows."""
        import pandas as pd

        refuse_labels(column.to_numpy())
        if are_numbers(column):
            self.numbers = self.numbers or NumberSketch(self.name)
            self.numbers.see(column)
        if not self._too_many:
            self._add(np.asarray(pd.unique(column.to_numpy())))

    def merge(self, other: "LabelSketch") -> None:
        """Take in what another has seen."""
        if other.numbers is not None:
            self.numbers = self.numbers or NumberSketch(self.name)
            self.numbers.merge(other.numbers)
        self._too_many |= other._too_many
        if other.different is not None and not self._too_many:
            self._add(other.different)

    def _add(self, found: Any) -> None:
        known = found if self.different is None else np.concatenate([self.different, found])
        self.different = np.unique(known)
        self._too_many = len(self.different) > MOST_CLASSES

    def classes(self) -> Any:
        """The different labels, which have to be few where they are classes."""
        if self._too_many and self.numbers is None:
            raise ValueError(
                f"column {self.name!r} holds more than {MOST_CLASSES} different texts, such as "
                f"{self.different[0]!r}, and a label is a number or one of few classes: name "
                "another column by --label"
            )
        return self.different

    def scaled(self) -> NumberLabels:
        """Labels that are numbers, as models see them."""
        assert self.numbers is not None
        largest, mean, deviation = self.numbers.in_units()
        return NumberLabels.of_moments(
            largest, mean, deviation, self.numbers.low, self.numbers.high
        )


class TableSketch:
    """All columns of a table.

    Parameters
    ----------
    client, label, time
        The columns that are no features; None for a time there is not.
    features
        The others.
    categorical
        Those of them that hold categories even if they are numeric.
    in_csv
        Whether ids that are texts may have been written as numbers.
    """

    def __init__(
        self,
        client: str,
        label: str,
        time: str | None,
        features: Sequence[str],
        categorical: Collection[str] = (),
        in_csv: bool = False,
    ) -> None:
        self.in_csv = in_csv
        self.client, self.label, self.time = client, label, time
        self.features, self.categorical = list(features), set(categorical)
        self.rows, self.clients, self.labels = 0, Distinct(), LabelSketch(label)
        self.whole_ids = True
        self._columns: dict[str, NumberSketch | CategorySketch] = {}

    def see(self, path: str, frame: "pd.DataFrame") -> None:
        """Take in some rows of a file."""
        for role, name in (("client", self.client), ("label", self.label), ("time", self.time)):
            if name is not None:
                refuse_missing(path, role, frame[name])
        try:
            if self.time is not None:
                times(frame[self.time])
            self._see(frame)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def _see(self, frame: "pd.DataFrame") -> None:
        ids = frame[self.client]
        self.whole_ids = self.whole_ids and are_whole(ids, self.in_csv)
        # Which kind ids are is known at the end; that one is counted by either.
        self.clients.see(keys_of(ids, ids.dtype.kind in "iu").keys)
        self.labels.see(frame[self.label])
        for name in self.features:
            if name not in self._columns:
                numbers = name not in self.categorical and are_numbers(frame[name])
                self._columns[name] = (NumberSketch if numbers else CategorySketch)(name)
            self._columns[name].see(frame[name])
        self.rows += len(frame)

    def merge(self, other: "TableSketch") -> None:
        """Take in what another has seen."""
        self.rows += other.rows
        self.whole_ids &= other.whole_ids
        self.clients.merge(other.clients)
        self.labels.merge(other.labels)
        for name, sketch in other._columns.items():
            if name in self._columns:
                self._columns[name].merge(sketch)  # type: ignore[arg-type]
            else:
                self._columns[name] = sketch

    def columns(self) -> dict[str, Column]:
        """How each column is encoded."""
        return {name: sketch.column() for name, sketch in self._columns.items()}

    def most_in_a_row(self) -> dict[str, int]:
        """How many categories a row has at most in each column of them."""
        return {
            name: sketch.most
            for name, sketch in self._columns.items()
            if isinstance(sketch, CategorySketch)
        }

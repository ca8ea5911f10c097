"""Values of new rows that training never saw: categories, and missing values where none was."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedres.core.warn import warn
from fedres.reading.files import shortened
from fedres.tables.cell_values import Values, categories_in, factorise, place_of
from fedres.tables.columns import Column, Number, OneHot
from fedres.tables.encoder import Encoder
from fedres.tables.input_rows import Input


class UnseenWarning(UserWarning):
    """New rows have values that training never saw."""


@dataclass
class Unseen:
    """How many rows have such values, with an example of each kind.

    Attributes
    ----------
    rows
        Number of all rows.
    new, example
        Number of rows with a category that training did not have, and one of these.
    absent, column
        Number of rows that lack a value where none was missing in training, and where one does.

    Examples
    --------
    >>> import pandas as pd
    >>> films = pd.DataFrame({"genre": ["War", "Drama"], "year": [1994, 2004]})
    >>> films_seen = Encoder.fit(films)
    >>> Unseen.of(films_seen, films.assign(genre=["War", "Noir"], year=[None, 1941]))
    Unseen(rows=2, new=1, example="genre='Noir' in row 1", absent=1, column='year in row 0')
    """

    rows: int = 0
    new: int = 0
    example: str = ""
    absent: int = 0
    column: str = ""

    @classmethod
    def of(cls, encoder: Any, X: Any) -> "Unseen":
        """Look at rows; those of sparse matrices and of hashed features have no such values."""
        found = cls()
        if not isinstance(encoder, Encoder) or encoder.source == "csr":
            return found
        rows = Input(X, like=encoder.source)
        found.rows = len(rows)
        is_new, is_absent = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        used = {*encoder.global_, *encoder.local, *([] if encoder.item is None else [encoder.item])}
        for column in (encoder.columns[i] for i in sorted(used)):
            values = rows[column.name]
            new, absent = _looked_up(column, values)
            if new.any() and not found.example:
                at = int(new.argmax())
                value = values[at] if isinstance(values, np.ndarray) else values.iloc[at]
                shown = shortened(repr(value))
                found.example = f"{column.name}={shown} in {place_of(values, at)}"
            if absent.any() and not found.column:
                found.column = f"{column.name} in {place_of(values, int(absent.argmax()))}"
            is_new |= new
            is_absent |= absent
        found.new, found.absent = int(is_new.sum()), int(is_absent.sum())
        return found

    def add(self, other: "Unseen") -> None:
        """Count the rows of another batch, too."""
        self.rows += other.rows
        self.new, self.absent = self.new + other.new, self.absent + other.absent
        self.example, self.column = self.example or other.example, self.column or other.column

    def warn(self) -> None:
        """Warn of each kind."""
        if self.new:
            warn(
                f"{self.new:,} of {self.rows:,} rows have a category that training did not have, "
                f"such as {self.example}: it adds nothing to their predictions",
                UnseenWarning,
            )
        if self.absent:
            warn(
                f"{self.absent:,} of {self.rows:,} rows lack a value where none was missing in "
                f"training, such as {self.column}: they are predicted as with the mean of a "
                "number, or without the category",
                UnseenWarning,
            )


def _looked_up(column: Column, values: Values) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which values are new categories, and which are missing as none was in training."""
    none = np.zeros(len(values), bool)
    if isinstance(column, Number):
        if column.missing:
            return none, none
        is_array = isinstance(values, np.ndarray)
        return none, np.isnan(values) if is_array else values.isna().to_numpy()  # type: ignore[union-attr]
    if not isinstance(column, OneHot):
        return none, none
    codes, uniques = factorise(values)
    parts = [list(categories_in(value)) for value in uniques]
    known = [all(column.find(part) is not None for part in one) for one in parts]
    new = np.array([*(not one for one in known), False])[codes]
    absent = np.array([*(not one for one in parts), True])[codes]
    return new, none if column.missing else absent

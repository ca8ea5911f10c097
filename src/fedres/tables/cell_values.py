"""The values of a table's columns, all at once or one by one: as numbers, or as categories."""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedres.core.types import F64, I64
from fedres.reading.files import shortened

if TYPE_CHECKING:
    import pandas as pd

Values: TypeAlias = "pd.Series[Any] | NDArray[Any]"
# What pandas calls the objects in a column that are numbers, and those that are dates.
NUMBERS = {"boolean", "integer", "floating", "mixed-integer-float", "decimal"}
TIMES = {"date", "datetime", "datetime64"}


def are_numbers(values: Values) -> bool:
    """Whether the values of a column are numbers, truth values, dates or durations."""
    if isinstance(values, np.ndarray):
        return True
    import pandas as pd

    is_duration = pd.api.types.is_timedelta64_dtype(values.dtype)
    return pd.api.types.is_numeric_dtype(values.dtype) or is_duration or are_times(values, NUMBERS)


def are_times(values: "pd.Series[Any]", or_objects: Iterable[str] = ()) -> bool:
    """Whether the values of a column are dates or times."""
    import pandas as pd

    if values.dtype == object:
        return pd.api.types.infer_dtype(values) in TIMES.union(or_objects)
    return pd.api.types.is_datetime64_any_dtype(values.dtype)


def refuse_labels(y: Any) -> None:
    """Raise if labels are times or lists: they are numbers, or one of few classes."""
    first = next((one for one in y if not is_missing(one)), None) if y.dtype == object else y.dtype
    kind = getattr(first, "kind", "")
    is_time = kind in ("M", "m") or isinstance(first, date | time | timedelta)
    if is_time or (y.dtype == object and isinstance(first, list | tuple | dict | np.ndarray)):
        raise ValueError(
            f"labels such as {shortened(str(y[0]))} are {'times' if is_time else 'lists'}, and a "
            "label is a number or a class: write it as one, such as a number of days"
        )


def meaning_of(values: Values) -> str:
    """Return whether the numbers of a column are ``times``, ``durations`` or plain ``numbers``.

    Examples
    --------
    >>> import pandas as pd
    >>> meaning_of(pd.Series(pd.to_datetime(["2020-01-01"]))), meaning_of(pd.Series([1.5]))
    ('times', 'numbers')
    """
    import pandas as pd

    if isinstance(values, pd.Series):
        if are_times(values):
            return "times"
        if pd.api.types.is_timedelta64_dtype(values.dtype):
            return "durations"
    return "numbers"


def as_floats(name: str, values: Values) -> F64:
    """A numeric column as floats, NaN where missing; dates and durations are seconds."""
    x: F64
    if isinstance(values, np.ndarray):
        x = np.asarray(values, np.float64)
    else:
        x = _series_as_floats(name, values)
    if (infinite := np.flatnonzero(np.isinf(x))).size:
        place = place_of(values, int(infinite[0]))
        raise unfit(name, x[infinite[0]], "not a finite number", place)
    return x


def _series_as_floats(name: str, values: "pd.Series[Any]") -> F64:
    import pandas as pd

    if are_times(values):
        # Nanoseconds end in the year 2262.
        moments = pd.to_datetime(values, utc=True).dt.as_unit("us")
        values = moments - pd.Timestamp(0, tz="UTC").as_unit("us")
    if pd.api.types.is_timedelta64_dtype(values.dtype):
        values = values.dt.total_seconds()
    if pd.api.types.is_complex_dtype(values.dtype):
        raise unfit(name, values.iloc[0], "complex", place_of(values, 0))
    if not pd.api.types.is_numeric_dtype(values.dtype):
        # Texts that are numbers will do, and so will a column where all is missing.
        numbers = pd.to_numeric(values.astype(object), errors="coerce")
        if (bad := np.flatnonzero(numbers.isna() & values.notna())).size:
            place = place_of(values, int(bad[0]))
            raise unfit(name, values.iloc[bad[0]], "not a number", place)
        values = numbers
    x: F64 = values.to_numpy(np.float64, na_value=np.nan)
    return x


def as_float(name: str, value: Any) -> float:
    """One value of a numeric column as a float, NaN where missing."""
    if is_missing(value):
        return float("nan")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    try:
        x = float(value)
    except (TypeError, ValueError):
        raise unfit(name, value, "not a number") from None
    if abs(x) == float("inf"):
        raise unfit(name, value, "not a finite number")
    return x


def place_of(values: Values, row: int) -> str:
    """Where a value is, as whoever looks for it would say: files name their lines.

    Examples
    --------
    >>> place_of(np.zeros(9), 4)
    'row 4'
    """
    if isinstance(values, np.ndarray):
        return f"row {row}"
    return f"{values.index.name or 'row'} {values.index[row]}"


def unfit(name: str, value: Any, why: str, place: str = "") -> ValueError:
    """The error that a numeric column has a value that cannot be used."""
    where = place and f" in {place}"
    shown = value.item() if isinstance(value, np.generic) else value
    return ValueError(
        f"column {name!r} has {shortened(repr(shown))}{where}, which is {why}: correct or remove it"
    )


def factorise(values: Values) -> tuple[I64, Iterable[Any]]:
    """Number the different values of a column; missing ones have number -1."""
    import pandas as pd

    try:
        return pd.factorize(values)
    except TypeError:  # lists cannot be told apart, tuples can
        tuples = pd.Series(values).map(lambda v: tuple(v) if pd.api.types.is_list_like(v) else v)
        return pd.factorize(tuples)


def categories_in(value: Any) -> Iterator[str]:
    """The categories in one value: the parts of a list, and of a text those between |.

    Examples
    --------
    >>> list(categories_in("Action|Comedy")), list(categories_in([3, 4.0])), list(categories_in(""))
    (['Action', 'Comedy'], ['3', '4'], [])
    """
    if isinstance(value, str):
        yield from filter(None, map(str.strip, value.split("|")))
    elif isinstance(value, Iterable):
        for part in value:
            yield from categories_in(part)
    elif not is_missing(value):
        # A column of whole numbers becomes one of floats as soon as one is missing.
        whole = isinstance(value, float | np.floating) and value.is_integer()
        yield str(int(value) if whole else value)


def is_missing(value: Any) -> bool:
    """Whether a single value is None, NaN or one of pandas' marks for what is missing."""
    try:
        return value is None or not value == value  # noqa: PLR0124, SIM201
    except TypeError:  # pandas.NA is neither equal to itself nor not
        return True

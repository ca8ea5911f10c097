"""What each column of a table is, decided once from its Arrow type.

A column is a number, a time, a category, a list of categories, or a vector of numbers, which
becomes one column per number: ``embedding[0]``, ``embedding[1]``, ... Any other type is refused.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import numpy as np

from fedres.reading.files import shortened

if TYPE_CHECKING:
    import pandas as pd


class ReadAs(NamedTuple):
    """How a column is read.

    Attributes
    ----------
    type
        The Arrow type that its values are cast to; of a vector, that of its numbers; of what is
        refused, its own.
    is_vector
        Whether it is one column per number.
    length
        Numbers in a vector; None if only its rows tell.
    is_refused
        Whether no model can learn from such values.
    """

    type: Any
    is_vector: bool = False
    length: int | None = None
    is_refused: bool = False

    @property
    def is_text(self) -> bool:
        """Whether values are texts."""
        return not (self.is_vector or self.is_refused) and _is_text(self.type)

    @property
    def is_nested(self) -> bool:
        """Whether a value is no single one."""
        return self.is_vector or self.is_refused or hasattr(self.type, "value_type")


def read_as(kind: Any) -> ReadAs:  # noqa: PLR0911
    """Return how values of an Arrow type are read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> read_as(pa.decimal128(10, 2)).type, read_as(pa.list_(pa.float32(), 3)).length
    (DataType(double), 3)
    >>> read_as(pa.struct([("a", pa.int64())])).is_refused
    True
    """
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(kind):
        return read_as(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and not _is_uuid(kind):
        return read_as(kind.storage_type)
    if types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind):
        return ReadAs(kind)
    if types.is_float32(kind) or types.is_float64(kind) or types.is_duration(kind):
        return ReadAs(kind)
    if types.is_float16(kind) or types.is_decimal(kind):
        return ReadAs(pa.float64())
    if types.is_date(kind):
        return ReadAs(pa.timestamp("ms"))
    if types.is_timestamp(kind):
        return ReadAs(kind)
    if types.is_time(kind):
        return ReadAs(pa.duration(kind.unit))
    if _is_text(kind) or _is_uuid(kind):
        return ReadAs(pa.string())
    if types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        return ReadAs(pa.float64(), True, kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        if types.is_floating(kind.value_type):
            return ReadAs(pa.float64(), True)
        if _is_text(kind.value_type):
            return ReadAs(pa.list_(pa.string()))
        if types.is_integer(kind.value_type) or types.is_null(kind.value_type):
            return ReadAs(pa.list_(kind.value_type))
    return ReadAs(kind, is_refused=True)


def join(first: ReadAs, second: ReadAs, exact: bool = False) -> ReadAs | None:  # noqa: PLR0911
    """Return how the values of two files are read as one column; None if they differ in kind.

    Parameters
    ----------
    first, second
        How each is read by itself.
    exact
        Whether numbers are names, which no rounding may make alike.

    Examples
    --------
    >>> import pyarrow as pa
    >>> day, moment = read_as(pa.date32()), read_as(pa.timestamp("ns", "Europe/Berlin"))
    >>> join(day, moment).type, join(read_as(pa.bool_()), read_as(pa.int8())).type
    (TimestampType(timestamp[us, tz=UTC]), DataType(int8))
    """
    import pyarrow as pa
    from pyarrow import types

    if first == second:
        return first
    for one, other in ((first, second), (second, first)):
        if types.is_null(one.type):
            return other
        if one.is_vector and other.is_vector and one.length is None:
            return other
        if one.is_vector and types.is_list(other.type) and _is_number(other.type.value_type):
            return one
    one, other = first.type, second.type
    if first.is_vector or second.is_vector or first.is_refused or second.is_refused:
        return None
    units = {getattr(kind, "unit", None) for kind in (one, other)}
    # Not nanoseconds unless both are: they end in the year 2262.
    unit = units.pop() if len(units) == 1 else "ms" if units == {"s", "ms"} else "us"
    if types.is_timestamp(one) and types.is_timestamp(other):
        zones = {one.tz, other.tz}
        return ReadAs(pa.timestamp(unit, zones.pop() if len(zones) == 1 else "UTC"))
    if types.is_duration(one) and types.is_duration(other):
        return ReadAs(pa.duration(unit))
    if types.is_list(one) and types.is_list(other):
        return second if types.is_null(one.value_type) else ReadAs(pa.list_(pa.string()))
    if all(types.is_boolean(kind) or _is_number(kind) for kind in (one, other)):
        same = _wider(one, other)
        return ReadAs(same if same is not None else pa.string() if exact else pa.float64())
    return None


def _wider(one: Any, other: Any) -> Any:
    """Return the type of numbers that holds two types without rounding; None if there is none."""
    from pyarrow import types

    if types.is_boolean(one):
        return other
    if types.is_boolean(other):
        return one
    small, large = sorted((one, other), key=lambda kind: int(kind.bit_width))
    if small.bit_width < large.bit_width and types.is_signed_integer(large):
        return None if types.is_floating(small) else large
    same_kind = any(
        fits(small) and fits(large)
        for fits in (types.is_signed_integer, types.is_unsigned_integer, types.is_floating)
    )
    return large if same_kind else None


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_uuid(kind: Any) -> bool:
    import pyarrow as pa

    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return bool(pa.types.is_fixed_size_binary(storage) and storage.byte_width == 16)


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_floating(kind) or types.is_integer(kind))


def refused(name: str, kind: Any) -> ValueError:
    """Return the error that a column is of a type that is not read."""
    return ValueError(
        f"column {shortened(name)!r} is of the type {shortened(str(kind))}, which is no number, "
        "time, text, list of texts or vector of numbers: leave it out, or write what it holds as "
        "columns"
    )


def plain(column: Any) -> Any:
    """Return a column of Arrow without a dictionary or an extension around its type."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(column.type):
        return plain(compute.cast(column, column.type.value_type))
    if isinstance(column.type, pa.BaseExtensionType):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return pa.chunked_array([one.storage for one in chunks], column.type.storage_type)
    return column


def cast(column: Any, wanted: Any) -> Any:
    """Return a column of Arrow in the type that it is read as."""
    import pyarrow as pa
    from pyarrow import compute

    if column.type == wanted:
        return column
    column = plain(column)
    if _is_uuid(column.type):
        texts = [None if one is None else str(UUID(bytes=one)) for one in column.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_time(column.type):
        whole = pa.int32() if pa.types.is_time32(column.type) else pa.int64()
        unit = column.type.unit
        column = compute.cast(column.cast(whole), pa.int64()).cast(pa.duration(unit))
    if column.type == wanted:
        return column
    if pa.types.is_string(wanted) and _is_number(column.type):
        return _number_texts(column)
    return compute.cast(column, wanted, safe=False)


def _number_texts(column: Any) -> Any:
    """Return numbers as texts, whole ones without a point: they are floats if one is missing."""
    import pyarrow as pa
    from pyarrow import compute

    texts = compute.cast(column, pa.string())
    if not pa.types.is_floating(column.type):
        return texts
    is_whole = compute.and_(
        compute.equal(column, compute.round(column)), compute.less(compute.abs(column), 2.0**63)
    )
    whole = compute.cast(compute.if_else(is_whole, column, None), pa.int64(), safe=False)
    return compute.coalesce(compute.cast(whole, pa.string()), texts)


def vector_columns(name: str, length: int) -> list[str]:
    """Return the names of the columns that a vector of numbers becomes."""
    return [f"{name}[{i}]" for i in range(length)]


def as_matrix(name: str, column: Any, length: int) -> Any:
    """Return a column of vectors as an array of floats, (rows, length); NaN for what is missing."""
    import pyarrow as pa
    from pyarrow import compute

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    lengths = compute.list_value_length(column)
    wrong = compute.not_equal(lengths, length)
    if compute.any(wrong).as_py():
        odd = lengths.filter(wrong)[0].as_py()
        raise ValueError(
            f"column {name!r} holds lists of {length} numbers and one of {odd}: write vectors of "
            "one length"
        )
    found = np.full((len(column), length), np.nan)
    there = compute.is_valid(column).to_numpy(zero_copy_only=False)
    numbers = compute.cast(compute.list_flatten(column), pa.float64(), safe=False)
    found[there] = numbers.to_numpy(zero_copy_only=False).reshape(-1, length)
    return found


def expand_nested(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a user's frame with one column per number of a vector; raise for what is refused.

    Examples
    --------
    >>> import pandas as pd
    >>> expand_nested(pd.DataFrame({"place": [[0.5, 1.5], None]}))
       place[0]  place[1]
    0       0.5       1.5
    1       NaN       NaN
    """
    import pandas as pd
    import pyarrow as pa

    nested: dict[Any, Any] = {}
    for number, dtype in enumerate(frame.dtypes):
        if not pd.api.types.is_object_dtype(dtype) and not isinstance(dtype, pd.ArrowDtype):
            continue
        values = frame.iloc[:, number]
        first = int(values.notna().to_numpy().argmax()) if len(values) else 0
        first_value = values.iloc[first] if len(values) else None
        if not isinstance(first_value, list | tuple | np.ndarray | dict | bytes):
            continue
        try:
            array = pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            continue  # lists of mixed kinds are categories, each by its text
        wanted = read_as(array.type)
        if wanted.is_refused or isinstance(first_value, bytes):
            raise refused(str(frame.columns[number]), array.type)
        if wanted.is_vector:
            nested[number] = array
    if not nested:
        return frame
    parts = []
    for number, name in enumerate(map(str, frame.columns)):
        if number not in nested:
            parts.append(frame.iloc[:, [number]])
            continue
        length = len(next(one for one in nested[number] if one.is_valid))
        matrix = as_matrix(name, nested[number], length)
        parts.append(pd.DataFrame(matrix, frame.index, vector_columns(name, length)))
    return pd.concat(parts, axis=1)


def expand_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return one row with a value per number of a vector.

    Examples
    --------
    >>> expand_row({"age": 3, "place": [0.5, 1.5]})
    {'age': 3, 'place[0]': 0.5, 'place[1]': 1.5}
    """
    vectors = {
        name: value
        for name, value in row.items()
        if isinstance(value, list | tuple | np.ndarray)
        and len(value)
        and all(isinstance(one, float | np.floating) for one in value)
    }
    if not vectors:
        return row
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name in vectors:
            flat |= dict(zip(vector_columns(name, len(value)), value, strict=True))
        else:
            flat[name] = value
    return flat

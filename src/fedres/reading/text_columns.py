"""What the texts of a column in a CSV file are: numbers, truth values, times, or names.

A column is what all of its values can be read as, whatever their order and however large the file.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

DECIMAL_COMMA = r"^[+-]?\d*,?\d+([eE][+-]?\d+)?$"
PADDED = r"^0\d+$"
ZONED = r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
BLANKS = " \t"


class TextKind(NamedTuple):
    """A kind of values that texts may be.

    Attributes
    ----------
    type
        The Arrow type of the values.
    parse
        Turns an Arrow array of texts into values; raises ``ArrowInvalid`` if one does not fit.
    as_arrow
        Whether Arrow's reader of CSV parses them so, too.
    """

    type: Any
    parse: Callable[[Any], Any]
    as_arrow: bool = False


class TextColumn:
    """A column of texts, of which rows come block by block.

    Parameters
    ----------
    kinds
        What texts may be: ``any`` kind of value, ``times`` and nothing else, as in JSON, where
        numbers have no quotes, or ``names``.
    decimal_comma
        Whether 3,5 is a number.

    Examples
    --------
    >>> import pyarrow as pa
    >>> column = TextColumn()
    >>> column.see(pa.array(["1", None, "007"]))
    >>> str(column.kind.type), column.padded
    ('int64', '007')
    >>> column.see(pa.array(["2.5"]))
    >>> str(column.kind.type)
    'double'
    """

    def __init__(
        self, kinds: Literal["any", "times", "names"] = "any", decimal_comma: bool = False
    ) -> None:
        self._chains = _chains(kinds, decimal_comma)
        self._is_empty = True
        self.padded: str | None = None

    def see(self, texts: Any) -> None:
        """Take in some rows."""
        import pyarrow as pa

        if texts.null_count == len(texts):
            return
        self._is_empty = False
        for chain in self._chains:
            # A few rows first: Arrow does not stop at the first value that does not fit.
            for some in (texts[:16], texts):
                while chain and _parsed(some, chain[0]) is None:
                    del chain[0]
        if not self.padded and pa.types.is_integer(self.kind.type):
            self.padded = _first_padded(texts)

    @property
    def kind(self) -> TextKind:
        """What the values are so far."""
        import pyarrow as pa

        text = TextKind(pa.string(), lambda texts: texts, as_arrow=True)
        if self._is_empty and self._chains:
            return TextKind(pa.null(), lambda texts: pa.nulls(len(texts)))
        return next((chain[0] for chain in self._chains if chain), text)

    def values(self, texts: Any) -> Any:
        """Return the values of texts that have been seen, in an Arrow array."""
        found = _parsed(texts, self.kind)
        if found is None:
            raise ValueError("a column has other values than before")
        return found


def _chains(kinds: str, decimal_comma: bool) -> list[list[TextKind]]:
    """Return kinds of values, from tight to loose; values of one are values of the next."""
    import pyarrow as pa

    numbers = [_cast(kind)._replace(as_arrow=True) for kind in (pa.int64(), pa.float64())]
    if decimal_comma:
        numbers.append(TextKind(pa.float64(), _with_decimal_commas))
    times = [_cast(pa.date32()), *(_cast(pa.timestamp(unit)) for unit in ("s", "us", "ns"))]
    zoned = TextKind(pa.timestamp("us", "UTC"), _zoned)
    of_day = [TextKind(pa.duration("us"), _time_of_day)]
    chains = {"times": [[*times, zoned], of_day], "names": []}
    return chains.get(kinds, [numbers, [_cast(pa.bool_())], [*times, zoned], of_day])


def _parsed(texts: Any, kind: TextKind) -> Any:
    """Return the values of texts; None if one does not fit, even without blanks around it."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        return kind.parse(texts)
    except pa.ArrowInvalid:
        try:
            return kind.parse(compute.utf8_trim(texts, BLANKS))
        except pa.ArrowInvalid:
            return None


def _cast(kind: Any) -> TextKind:
    from pyarrow import compute

    return TextKind(kind, lambda texts: compute.cast(texts, kind))


def _require(fits: Any) -> None:
    import pyarrow as pa
    from pyarrow import compute

    if not compute.all(fits).as_py():
        raise pa.ArrowInvalid("not of this kind")


def _with_decimal_commas(texts: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    _require(compute.match_substring_regex(texts, DECIMAL_COMMA))
    return compute.cast(compute.replace_substring(texts, ",", "."), pa.float64())


def _zoned(texts: Any) -> Any:
    """Parse times of which some have a zone; those without are of UTC, as everywhere."""
    import pyarrow as pa
    from pyarrow import compute

    has_zone = compute.match_substring_regex(texts, ZONED)
    nothing = pa.scalar(None, pa.string())
    kind = pa.timestamp("us", "UTC")
    return compute.coalesce(
        compute.cast(compute.if_else(has_zone, texts, nothing), kind),
        compute.cast(compute.if_else(has_zone, nothing, texts), pa.timestamp("us")).cast(kind),
    )


def _time_of_day(texts: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    _require(compute.match_substring_regex(texts, r"^\d\d:\d\d"))
    moments = compute.cast(
        compute.binary_join_element_wise("1970-01-01 ", texts, ""), pa.timestamp("us")
    )
    return moments.cast(pa.int64()).cast(pa.duration("us"))


def _first_padded(texts: Any) -> str | None:
    """Return a value that begins with a zero and yet is no fraction."""
    from pyarrow import compute

    zeros = texts.filter(compute.starts_with(texts, "0"))
    found = zeros.filter(compute.match_substring_regex(zeros, PADDED))
    return str(found[0]) if len(found) else None

"""Files of tables as frames: CSV, TSV, JSON lines and Parquet."""

import sys
import warnings
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fedres.simulation.data_files import (
    DAMAGE,
    damaged,
    kind_of,
    refuse_numbers_as_names,
    unpacked,
)

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson")
KINDS = (*SEPARATORS, *LINES, ".parquet")
STANDARD_INPUT = Path("-")

Open = Callable[[], IO[bytes]]


class NoRowsError(ValueError):
    """A table that has columns and no rows."""


def table_kind(path: Path) -> str:
    """The ending that says how to read a file, ``.svm`` for all that are no tables."""
    return ".csv" if path == STANDARD_INPUT else kind_of(path, KINDS)


def shown(path: Path) -> Path:
    """What to call a file when speaking of it."""
    return Path("standard input") if path == STANDARD_INPUT else path


def read_frame(path: Path, categorical: Collection[str] = ()) -> "pd.DataFrame":
    r"""Read a file; the index of the frame says where in the file each row is.

    Parameters
    ----------
    path
        The file, also compressed; ``-`` is CSV from standard input.
    categorical
        Columns that name things, also by wildcards: zeros that their values begin with are kept.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "shops.tsv"
    ...     _ = path.write_text("shop\tsales\n007\t3\n7\t4\n")
    ...     read_frame(path, categorical=["shop"])
         shop  sales
    line
    2     007      3
    3       7      4
    """
    import pandas as pd

    kind, open_, path = table_kind(path), _opener(path), shown(path)
    try:
        if kind in SEPARATORS:
            frame = _read_text(path, open_, separator_of(kind, open_), categorical)
        else:
            with open_() as stream:
                frame = _read_lines(stream) if kind in LINES else pd.read_parquet(stream)
    except DAMAGE as error:
        raise damaged(path, error) from None
    if len(frame) == 0:
        raise NoRowsError(str(damaged(path, "it holds no rows")))
    # The first line of a CSV file holds the names of columns.
    first, word = 1 + (kind in SEPARATORS), "row" if kind == ".parquet" else "line"
    frame.index = pd.RangeIndex(first, first + len(frame), name=word)
    return frame


def _opener(path: Path) -> Open:
    if path != STANDARD_INPUT:
        return lambda: unpacked(path)
    content = sys.stdin.buffer.read()
    return lambda: BytesIO(content)


def _read_lines(stream: IO[bytes]) -> "pd.DataFrame":
    from pyarrow import json

    frame: pd.DataFrame = json.read_json(stream).to_pandas()
    return frame


def _read_text(
    path: Path, open_: Open, separator: str, categorical: Collection[str]
) -> "pd.DataFrame":
    import pandas as pd

    def read(encoding: str) -> "pd.DataFrame":
        with open_() as stream:
            frame = pd.read_csv(stream, sep=separator, engine="pyarrow", encoding=encoding)
        if separator == ";" and any(map(_has_decimal_commas, map(frame.get, frame))):
            with open_() as stream:
                frame = pd.read_csv(
                    stream, sep=";", decimal=",", engine="pyarrow", encoding=encoding
                )
        return frame

    encoding = "utf-8"
    try:
        frame = read(encoding)
        is_text = not any(_holds_bytes(column) for _, column in frame.items())
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        encoding = "latin-1"
        frame = read(encoding)
        warnings.warn(
            f"{path} is not UTF-8 and was read as Latin-1: see that its texts are right, or save "
            "it as UTF-8",
            stacklevel=2,
        )
    refuse_numbers_as_names(frame)
    _keep_zeros(path, frame, open_, separator, encoding, categorical)
    return frame


def separator_of(kind: str, open_: Open) -> str:
    """What stands between columns: where commas are decimal, CSV files have semicolons."""
    with open_() as stream:
        names = stream.readline()
    return ";" if kind == ".csv" and b";" in names and b"," not in names else SEPARATORS[kind]


def _has_decimal_commas(column: Any) -> bool:
    """Whether all values are numbers such as 3,5."""
    if column.dtype.kind in "biufM":
        return False
    texts = column.dropna().astype(str)
    return len(texts) > 0 and bool(texts.str.fullmatch(r"[+-]?\d+,\d+|[+-]?\d+").all())


def _holds_bytes(column: "pd.Series[Any]") -> bool:
    """Whether some text was not UTF-8: pyarrow leaves the column as it is in the file."""
    if column.dtype != object:
        return False
    first = column.first_valid_index()
    return first is not None and isinstance(column[first], bytes)


def _keep_zeros(
    path: Path,
    frame: "pd.DataFrame",
    open_: Open,
    separator: str,
    encoding: str,
    categorical: Collection[str],
) -> None:
    """Let names such as 007 be texts, and tell of numbers that began with a zero."""
    import pyarrow as pa
    from pyarrow import csv

    def texts(names: list[str], stream: IO[bytes]) -> Any:
        return csv.open_csv(
            stream,
            csv.ReadOptions(encoding=encoding),
            csv.ParseOptions(delimiter=separator),
            csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
            ),
        )

    # Missing values make floats of whole numbers.
    whole = [
        str(name)
        for name, column in frame.items()
        if column.dtype.kind == "i" or (column.dtype.kind == "f" and not (column % 1 > 0).any())
    ]
    padded: dict[str, str] = {}
    if not whole:
        return
    with open_() as stream:
        for batch in texts(whole, stream):
            for name in set(whole) - set(padded):
                if first := _first_padded(batch[name]):
                    padded[name] = first
    names = [name for name in padded if is_named(name, categorical)]
    for name in set(padded) - set(names):
        warnings.warn(
            f"{path}: column {name!r} has {padded[name]!r}, which is read as the number "
            f"{float(padded[name]):g}: if it names something, let the column be categorical",
            stacklevel=2,
        )
    if names:
        with open_() as stream:
            frame[names] = texts(names, stream).read_all().to_pandas()[names]


def _first_padded(column: Any) -> str | None:
    """A value that begins with a zero and yet is no fraction."""
    from pyarrow import compute

    found = column.filter(compute.match_substring_regex(column, r"^[+-]?0\d+$"))
    return str(found[0]) if len(found) else None


def is_named(name: str, patterns: Collection[str]) -> bool:
    """Whether a column is named, also by wildcards."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)

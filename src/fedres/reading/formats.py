"""The schema and the rows of one file, for every kind of file.

`schema_of` reads as much of a file as its kind needs to name its columns and their types;
`batches_of` reads rows in pieces whose size is counted in bytes. Types of CSV columns are those of
the first block until a later block contradicts: then `LoosenError` names the column, and the caller
reads again with the next looser type, in the order that Arrow itself tries them.
"""

import csv
import io
import json
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from fnmatch import fnmatchcase
from functools import cache
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedres.core.types import F64, I64
from fedres.reading.files import UNREADABLE, UTF_16, TableFile, shortened

if TYPE_CHECKING:
    from scipy import sparse

BLOCK = 2**22  # bytes of text that are parsed at once
BATCH_BYTES, BATCH_ROWS = 2**24, 2**17  # of a batch at most
LARGEST_DICTIONARY, DICTIONARIES = 2**20, 2**26  # bytes, of a column and at once
BUFFER = 2**16  # bytes of each column of Parquet that are read ahead
DELIMITERS = {".tsv": "\t", ".psv": "|"}
LINES = 20  # by which the delimiter is found
CONVERSION = re.compile(r"In CSV column #(\d+): CSV conversion error to (.+?): invalid (.*)", re.S)
DECIMAL_COMMA = r"[+-]?\d+,\d+|[+-]?\d+"
PADDED = r"^[+-]?0\d+$"


class LoosenError(Exception):
    """A column has a value that its type, found in the first rows, does not hold."""

    def __init__(self, column: str, to: Any) -> None:
        super().__init__(column)
        self.column, self.to = column, to


class Dialect(NamedTuple):
    """How a CSV file is written.

    Attributes
    ----------
    names
        The columns.
    delimiter, encoding, decimal
        What separates columns, how texts are encoded, and what separates decimals.
    padded
        A value such as 007 of each column that has one.
    types
        Types of the columns, by the first block.
    """

    names: Sequence[str]
    delimiter: str
    encoding: str
    decimal: str
    padded: dict[str, str]
    types: Any


def schema_of(file: TableFile, as_texts: Collection[str]) -> Any:
    """Return the Arrow schema of a file; CSV columns matching `as_texts` are texts."""
    import pyarrow as pa

    if file.kind == "csv":
        found = dialect_of(file)
        for name, value in found.padded.items():
            if not is_named(name, as_texts):
                warnings.warn(
                    f"{file.name}: column {name!r} has {shortened(value)!r}, which is read as the "
                    f"number {float(value):g}: if it names something, let the column be "
                    "categorical",
                    stacklevel=2,
                )
        types = (
            field.with_type(pa.string()) if is_named(field.name, as_texts) else field
            for field in found.types
        )
        return pa.schema(types)
    if file.kind.startswith("json"):
        every = (table.schema for table in _json_tables(file, None))
        return unify(every, to_text=True)
    with closing(_opened(file)) as opened:
        return opened.schema_arrow if file.kind == "parquet" else opened.schema


def count_rows(file: TableFile) -> int | None:
    """Return the number of rows if the file tells it without being read."""
    if file.kind not in ("parquet", "orc"):
        return None
    with closing(_opened(file)) as opened:
        return int(opened.metadata.num_rows if file.kind == "parquet" else opened.nrows)


def batches_of(file: TableFile, columns: Sequence[str], types: Any, rows: int) -> Iterator[Any]:
    """Read tables of Arrow with some columns of a file, one after the other.

    Parameters
    ----------
    file
        Which file.
    columns
        Which of its columns.
    types
        An Arrow schema with the type of each column of text files.
    rows
        How many rows a table has at most.
    """
    import pyarrow as pa

    reader: Callable[..., Iterator[Any]] = {
        "csv": _csv_batches,
        "json lines": _json_batches,
        "json records": _json_batches,
        "parquet": _parquet_batches,
        "orc": _orc_batches,
    }.get(file.kind, _arrow_batches)
    for batch in reader(file, [*columns], types, rows):
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        for first in range(0, len(table), rows):
            yield table.slice(first, rows)


def unify(schemas: Any, to_text: bool = False) -> Any:
    """Return one schema for all; columns of text files that differ in type are texts."""
    import pyarrow as pa

    together = pa.schema([])
    for schema in schemas:
        fields = []
        for new in schema:
            place = together.get_field_index(new.name)
            both = [new] if place < 0 else [together.field(place), new]
            try:
                (same,) = pa.unify_schemas(
                    [pa.schema([one]) for one in both], promote_options="permissive"
                )
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                if not to_text:
                    raise ValueError(
                        f"column {new.name!r} is of the type {shortened(str(both[0].type))} in one "
                        f"file and {shortened(str(new.type))} in another: write it alike in all"
                    ) from None
                same = new.with_type(pa.string())
            fields.append(same)
        known = {field.name: field for field in fields}
        together = pa.schema(
            [known.pop(field.name, field) for field in together] + list(known.values())
        )
    return together


def is_named(name: str, patterns: Collection[str]) -> bool:
    """Return whether a column is named, also by wildcards."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


# CSV


@cache
def dialect_of(file: TableFile) -> Dialect:
    """Return how a CSV file is written, by its first block."""
    with file.open() as stream:
        start = stream.read(BLOCK)
        is_whole = not stream.read(1)
    encoding = "utf-16" if start.startswith(UTF_16) else "utf-8"
    if not is_whole:
        # The last line may be cut, also within a character.
        start = start[: start.rfind(b"\n" if encoding == "utf-8" else "\n".encode("utf-16")[2:])]
    try:
        text = start.decode(encoding)
    except UnicodeDecodeError:
        encoding, text = "latin-1", start.decode("latin-1")
    if encoding == "latin-1":
        _warn_latin_1(file)
    delimiter = _delimiter(file, text.removeprefix("\ufeff"))
    dialect = Dialect([], delimiter, encoding, ".", {}, None)
    content = text.encode()
    texts, found = _first_block(content, dialect, True), _first_block(content, dialect, False)
    _refuse_numbers_as_names(found.schema.names)
    if delimiter == ";" and any(map(_has_decimal_commas, found.columns)):
        dialect = dialect._replace(decimal=",")
        found = _first_block(content, dialect, False)
    numbers = {field.name for field in found.schema if str(field.type) == "int64"}
    padded = {
        name: value
        for name, column in zip(texts.schema.names, texts.columns, strict=True)
        if name in numbers and (value := _first_padded(column))
    }
    return dialect._replace(names=found.schema.names, padded=padded, types=found.schema)


def _warn_latin_1(file: TableFile) -> None:
    warnings.warn(
        f"{file.name} is not UTF-8 and was read as Latin-1: see that its texts are right, or save "
        "it as UTF-8",
        stacklevel=2,
    )


def _delimiter(file: TableFile, text: str) -> str:
    """Return what separates columns: what parts the first lines into equally many fields."""
    lines = [line for line in text.splitlines()[:LINES] if line]
    usual = next((one for end, one in DELIMITERS.items() if end in file.path.lower()), ",")
    best, fields = usual, 1
    for delimiter in dict.fromkeys([usual, ",", "\t", ";", "|"]):
        counts = {len(row) for row in csv.reader(lines, delimiter=delimiter)}
        if len(counts) == 1 and max(counts) > fields:
            best, fields = delimiter, max(counts)
            if delimiter == usual:
                break
    if fields == 1 and lines and usual not in lines[0]:
        best = max(";\t|,", key=lines[0].count)
    return best if lines and best in lines[0] else usual


def _first_block(content: bytes, dialect: Dialect, as_texts: bool) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    options = _convert_options(dialect, None, None)
    if as_texts:
        head = arrow.open_csv(io.BytesIO(content), parse_options=_parse_options(dialect))
        options.column_types = dict.fromkeys(head.schema.names, pa.string())
    return arrow.read_csv(
        io.BytesIO(content),
        arrow.ReadOptions(block_size=len(content) + 1),
        _parse_options(dialect),
        options,
    )


def _parse_options(dialect: Dialect) -> Any:
    from pyarrow import csv as arrow

    return arrow.ParseOptions(delimiter=dialect.delimiter)


def _convert_options(dialect: Dialect, columns: Sequence[str] | None, types: Any) -> Any:
    from pyarrow import csv as arrow

    return arrow.ConvertOptions(
        include_columns=columns,
        column_types=types,
        strings_can_be_null=True,
        decimal_point=dialect.decimal,
    )


def _csv_batches(file: TableFile, columns: Sequence[str], types: Any, _rows: int) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    dialect = dialect_of(file)
    read = arrow.ReadOptions(block_size=BLOCK, encoding=dialect.encoding)
    try:
        with (
            file.open() as stream,
            arrow.open_csv(
                stream, read, _parse_options(dialect), _convert_options(dialect, columns, types)
            ) as batches,
        ):
            yield from batches
    except pa.ArrowInvalid as error:
        found = CONVERSION.search(str(error))
        if found is None:
            raise
        name = dialect.names[int(found[1])]
        if "UTF8" in found[3]:
            raise ValueError(
                f"column {name!r} has text that is not UTF-8 far down: save the file as UTF-8"
            ) from None
        raise LoosenError(name, _looser(types.field(name).type)) from None


def _looser(kind: Any) -> Any:
    """Return the type that Arrow tries next."""
    import pyarrow as pa

    order = [
        pa.null(),
        pa.int64(),
        pa.bool_(),
        pa.date32(),
        pa.time32("s"),
        pa.timestamp("s"),
        pa.timestamp("ns"),
        pa.float64(),
        pa.string(),
    ]
    return order[order.index(kind) + 1] if kind in order[:-1] else pa.string()


def _has_decimal_commas(column: Any) -> bool:
    """Return whether all values are numbers such as 3,5."""
    import pyarrow as pa
    from pyarrow import compute

    if not pa.types.is_string(column.type) or column.null_count == len(column):
        return False
    fits = compute.match_substring_regex(column.drop_null(), f"^({DECIMAL_COMMA})$")
    return bool(compute.all(fits).as_py())


def _first_padded(column: Any) -> str | None:
    """Return a value that begins with a zero and yet is no fraction."""
    from pyarrow import compute

    found = column.filter(compute.match_substring_regex(column, PADDED))
    return str(found[0]) if len(found) else None


def _refuse_numbers_as_names(names: Sequence[str]) -> None:
    """Raise if the first line of a CSV file holds numbers instead of names."""
    numbers = [name for name in names if re.fullmatch(r"[-+]?\d+([.]\d*)?([eE][-+]?\d+)?", name)]
    if any("." in name for name in numbers) or len({*numbers}) < len(numbers):
        raise ValueError("its first line holds numbers, not the names of columns")


# JSON


def _json_tables(file: TableFile, types: Any) -> Iterator[Any]:
    """Parse JSON block by block; without types each block tells its own."""
    from pyarrow import json as arrow

    unknown = "infer" if types is None else "ignore"
    parse = arrow.ParseOptions(explicit_schema=types, unexpected_field_behavior=unknown)
    for block in _json_blocks(file):
        read = arrow.ReadOptions(use_threads=False, block_size=len(block) + 1)
        yield arrow.read_json(io.BytesIO(block), read, parse)


def _json_blocks(file: TableFile) -> Iterator[bytes]:
    """Read whole lines, each of them a record."""
    if file.kind == "json records":
        with file.open() as stream:
            records = json.loads(stream.read())
        if not records:
            raise ValueError("it holds no records")
        yield "\n".join(map(json.dumps, records)).encode()
        return
    rest = b""
    with file.open() as stream:
        while block := stream.read(BLOCK):
            lines, newline, rest = (rest + block).rpartition(b"\n")
            if newline:
                yield lines + newline
            # A line longer than a block goes on in the next.
    if rest.strip():
        yield rest


def _json_batches(file: TableFile, columns: Sequence[str], types: Any, _rows: int) -> Iterator[Any]:
    for table in _json_tables(file, types):
        yield table.select(columns)


# Columnar files


def _opened(file: TableFile) -> Any:
    from pyarrow import ipc

    source = file.seekable()
    if file.kind == "parquet":
        from pyarrow.parquet import ParquetFile

        # Not all of a row group at once, which may be most of a table.
        return ParquetFile(source, buffer_size=BUFFER, pre_buffer=False)
    if file.kind == "orc":
        from pyarrow.orc import ORCFile

        opened = ORCFile(source)
        return closing_too(opened, source)
    if file.kind == "arrow stream":
        return ipc.open_stream(source)
    return closing_too(ipc.open_file(source), source)


def closing_too(reader: Any, source: Any) -> Any:
    """Return a reader whose ``close`` closes its file: some readers of Arrow have none."""

    class Reader:
        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

        def close(self) -> None:
            source.close()

    return Reader()


def _parquet_batches(file: TableFile, columns: Sequence[str], _t: Any, rows: int) -> Iterator[Any]:
    import pyarrow as pa

    with closing(_opened(file)) as opened:
        # Texts as numbers of a dictionary are read several times faster.
        texts = [
            field.name
            for field in opened.schema_arrow
            if field.name in columns
            and (pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
        ]
        groups = _column_groups(opened, columns)
    if len(groups) == 1:
        yield from _read_parquet(file, columns, texts, rows)
    else:
        yield from _read_by_groups(file, groups, texts, rows)


def _read_parquet(
    file: TableFile, columns: Sequence[str], texts: Sequence[str], rows: int
) -> Iterator[Any]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(
        file.seekable(), buffer_size=BUFFER, pre_buffer=False, read_dictionary=texts
    ) as opened:
        yield from opened.iter_batches(rows, columns=columns)


def _column_groups(opened: Any, columns: Sequence[str]) -> list[list[str]]:
    """Split columns so that the dictionaries of one group fit into memory at once."""
    metadata = opened.metadata
    if not metadata.num_row_groups:
        return [[*columns]]
    bytes_: dict[str, int] = dict.fromkeys(columns, 0)
    first = metadata.row_group(0)
    for number in range(metadata.num_columns):
        chunk = first.column(number)
        name = chunk.path_in_schema.split(".")[0]
        if name in bytes_ and chunk.dictionary_page_offset is not None:
            # Read from the file, and decoded.
            bytes_[name] += 2 * min(chunk.total_uncompressed_size, LARGEST_DICTIONARY)
    groups: list[list[str]] = [[]]
    filled = 0
    for name, size in bytes_.items():
        if groups[-1] and filled + size > DICTIONARIES:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups


def _read_by_groups(
    file: TableFile, groups: Sequence[Sequence[str]], texts: Sequence[str], rows: int
) -> Iterator[Any]:
    """Read groups of columns one after the other into temporary files, then these side by side."""
    import pyarrow as pa

    with TemporaryDirectory(prefix="fedres-columns-") as folder, ExitStack() as stack:
        readers = []
        for number, group in enumerate(groups):
            path = f"{folder}/{number}"
            writer = None
            for batch in _read_parquet(file, group, texts, rows):
                writer = writer or pa.ipc.new_stream(path, batch.schema)
                writer.write_batch(batch)
            if writer is None:
                return
            writer.close()
            readers.append(
                stack.enter_context(pa.ipc.open_stream(stack.enter_context(open(path, "rb"))))
            )
        for batches in zip(*readers, strict=True):
            names = [name for batch in batches for name in batch.schema.names]
            arrays = [array for batch in batches for array in batch.columns]
            yield pa.RecordBatch.from_arrays(arrays, names)


def _orc_batches(file: TableFile, columns: Sequence[str], _types: Any, _rows: int) -> Iterator[Any]:
    with closing(_opened(file)) as opened:
        for stripe in range(opened.nstripes):
            yield opened.read_stripe(stripe, columns).select(columns)


def _arrow_batches(
    file: TableFile, columns: Sequence[str], _types: Any, _rows: int
) -> Iterator[Any]:
    with closing(_opened(file)) as opened:
        if file.kind == "arrow stream":
            for batch in opened:
                yield batch.select(columns)
            return
        for number in range(opened.num_record_batches):
            yield opened.get_batch(number).select(columns)


# svmlight


def read_svmlight(file: TableFile, zero_based: bool | str) -> "tuple[sparse.csr_array, F64, I64]":
    """Return features, targets and, where given, ``qid:`` of svmlight text."""
    from scipy import sparse
    from sklearn.datasets import load_svmlight_file

    try:
        with file.open() as stream:
            x, y, qid = load_svmlight_file(
                io.BytesIO(stream.read()), dtype=np.float32, zero_based=zero_based, query_id=True
            )
    except UNREADABLE as error:
        raise ValueError(f"{file.damaged(error)} (read as svmlight text)") from None
    if x.nnz == 0:
        raise file.damaged("it holds no rows of features")
    if not np.isfinite(x.data).all():
        row = np.searchsorted(x.indptr, np.flatnonzero(~np.isfinite(x.data))[0], side="right")
        raise file.damaged(f"row {row} has a feature that is not finite")
    return sparse.csr_array(x), y, qid

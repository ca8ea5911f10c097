"""Files of every kind, each by an object with its columns, its number of rows, and its batches.

CSV and JSON are in `csv_files` and `json_files`; here are the columnar kinds, and svmlight text.
"""

import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedres.core.types import F64, I64
from fedres.reading.csv_files import CsvFile
from fedres.reading.files import SVMLIGHT_LINE, TABLES, UNREADABLE, TableFile
from fedres.reading.json_files import JsonFile
from fedres.reading.schema import ReadAs, read_as

if TYPE_CHECKING:
    from scipy import sparse

BATCH_BYTES, BATCH_ROWS = 2**24, 2**17  # of a batch at most
LARGEST_DICTIONARY, DICTIONARIES = 2**20, 2**26  # bytes, of a column and at once
BUFFER = 2**16  # bytes of each column of Parquet that are read ahead


class OpenFile(Protocol):
    """A file of a table whose columns are known.

    Attributes
    ----------
    file
        Which file.
    columns
        How each column is read.
    rows
        The number of rows; None if only reading them tells.
    first
        The number of the first row, and what rows are called in messages.
    """

    file: TableFile
    first: tuple[int, str]

    @property
    def rows(self) -> int | None:
        """The number of rows."""

    @property
    def columns(self) -> dict[str, ReadAs]:
        """How each column is read."""

    def batches(self, columns: Sequence[str], texts: Collection[str], rows: int) -> Iterator[Any]:
        """Read Arrow batches of some columns, one after the other.

        Parameters
        ----------
        columns
            Which columns.
        texts
            Which of them are wanted as texts: as they are written, if the file is text.
        rows
            How many rows a batch should have at most.
        """


def open_file(file: TableFile, as_texts: Collection[str]) -> OpenFile:
    """Return a file with its columns; those of CSV that match `as_texts` are texts."""
    if file.kind == "csv":
        return CsvFile(file, as_texts)
    return JsonFile(file) if file.kind.startswith("json") else ColumnarFile(file)


class ColumnarFile:
    """A file of Parquet, Arrow or ORC."""

    first = (1, "row")

    def __init__(self, file: TableFile) -> None:
        self.file, self.rows = file, None
        with ExitStack() as stack:
            opened = self._opened(stack)
            if file.kind == "parquet":
                self.rows = int(opened.metadata.num_rows)
            elif file.kind == "orc":
                self.rows = int(opened.nrows)
            schema = opened.schema_arrow if file.kind == "parquet" else opened.schema
        if len({*schema.names}) < len(schema.names):
            twice = min(name for name in schema.names if schema.names.count(name) > 1)
            raise ValueError(f"{file.name} has two columns {twice!r}: rename one")
        self.columns = {field.name: read_as(field.type) for field in schema}

    def batches(self, columns: Sequence[str], _texts: Collection[str], rows: int) -> Iterator[Any]:
        """Read Arrow batches of some columns, one after the other."""
        if self.file.kind == "parquet":
            yield from self._parquet_batches([*columns], rows)
            return
        with ExitStack() as stack:
            opened = self._opened(stack)
            if self.file.kind == "orc":
                for stripe in range(opened.nstripes):
                    yield opened.read_stripe(stripe, [*columns]).select(columns)
            elif self.file.kind == "arrow stream":
                for batch in opened:
                    yield batch.select(columns)
            else:
                for number in range(opened.num_record_batches):
                    yield opened.get_batch(number).select(columns)

    def _opened(self, stack: ExitStack, read_dictionary: Sequence[str] = ()) -> Any:
        from pyarrow import ipc

        source = stack.enter_context(self.file.seekable())
        if self.file.kind == "parquet":
            from pyarrow.parquet import ParquetFile

            # Not all of a row group at once, which may be most of a table.
            return ParquetFile(
                source, buffer_size=BUFFER, pre_buffer=False, read_dictionary=[*read_dictionary]
            )
        if self.file.kind == "orc":
            from pyarrow.orc import ORCFile

            return ORCFile(source)
        opener = ipc.open_stream if self.file.kind == "arrow stream" else ipc.open_file
        return opener(source)

    def _parquet_batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        import pyarrow as pa

        with ExitStack() as stack:
            opened = self._opened(stack)
            # Texts as numbers of a dictionary are read several times faster.
            texts = [
                field.name
                for field in opened.schema_arrow
                if field.name in columns
                and (pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
            ]
            groups = _column_groups(opened, columns)
        if len(groups) == 1:
            yield from self._read_parquet(columns, texts, rows)
        else:
            yield from self._read_by_groups(groups, texts, rows)

    def _read_parquet(
        self, columns: Sequence[str], texts: Sequence[str], rows: int
    ) -> Iterator[Any]:
        with ExitStack() as stack:
            yield from self._opened(stack, texts).iter_batches(rows, columns=columns)

    def _read_by_groups(
        self, groups: Sequence[Sequence[str]], texts: Sequence[str], rows: int
    ) -> Iterator[Any]:
        """Read groups of columns one after the other into temporary files, then side by side."""
        import pyarrow as pa

        with TemporaryDirectory(prefix="fedres-columns-") as folder, ExitStack() as stack:
            readers = []
            for number, group in enumerate(groups):
                path = f"{folder}/{number}"
                writer = None
                for batch in self._read_parquet(group, texts, rows):
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


# svmlight


def read_svmlight(file: TableFile, zero_based: bool | str) -> "tuple[sparse.csr_array, F64, I64]":
    """Return features, targets and, where given, ``qid:`` of svmlight text."""
    from scipy import sparse
    from sklearn.datasets import load_svmlight_file

    try:
        with file.open() as stream:
            text = stream.read()
    except UNREADABLE as error:
        raise file.damaged(error) from None
    try:
        x, y, qid = load_svmlight_file(
            io.BytesIO(text), dtype=np.float32, zero_based=zero_based, query_id=True
        )
    except (ValueError, OverflowError) as error:
        lines = enumerate(text.splitlines(), 1)
        odd = (n for n, line in lines if line.strip() and not SVMLIGHT_LINE.fullmatch(line.strip()))
        if number := next(odd, None):
            raise ValueError(
                f"{file.name}: line {number} is not svmlight text, such as 1 3:0.5: correct it, "
                f"or name the file by what it is, such as {', '.join(TABLES)}"
            ) from None
        raise file.damaged(error) from None
    if x.nnz == 0:
        raise file.damaged("it holds no rows of features")
    if not np.isfinite(x.data).all():
        row = np.searchsorted(x.indptr, np.flatnonzero(~np.isfinite(x.data))[0], side="right")
        raise file.damaged(f"row {row} has a feature that is not finite")
    return sparse.csr_array(x), y, qid

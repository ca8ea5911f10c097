"""Files of JSON lines, or of one list of records, which are read as JSON lines."""

import io
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from fedres.reading.files import TableFile, shortened
from fedres.reading.schema import ReadAs, join, read_as
from fedres.reading.text_columns import TextColumn

BLOCK = 2**22  # bytes that are parsed at once
RECORDS = "write one record per line, or a list of records, as by pandas' to_json(orient='records')"


class JsonFile:
    """A file of JSON.

    A column of numbers in some lines and texts in others is one of texts. Texts that all are times
    are times, as in CSV.

    Parameters
    ----------
    file
        Which file.

    Attributes
    ----------
    columns
        How each column is read.
    rows
        The number of rows.
    first
        The number of the first row, and what rows are called in messages.
    """

    def __init__(self, file: TableFile) -> None:
        self.file, self.rows = file, 0
        self.first = (1, "line" if file.kind == "json lines" else "row")
        self.columns: dict[str, ReadAs] = {}
        self._texts: dict[str, TextColumn] = {}
        for table in self._tables(self._texts):
            self.rows += len(table)
            for name, column in zip(table.column_names, table.columns, strict=True):
                self._see(name, column.combine_chunks())
        for name, texts in self._texts.items():
            self.columns[name] = read_as(texts.kind.type)

    def _see(self, name: str, column: Any) -> None:
        import pyarrow as pa

        known, kind = self.columns.get(name, ReadAs(pa.null())), read_as(column.type)
        if pa.types.is_string(kind.type):
            kinds: Any = "times" if pa.types.is_null(known.type) else "names"
            self._texts.setdefault(name, TextColumn(kinds)).see(column)
        both = join(known, kind)
        if both is None and known.is_refused and kind.is_refused:
            both = known
        if both is None and (known.is_nested or kind.is_nested):
            raise self._mixed(name)
        self.columns[name] = both or ReadAs(pa.string())

    def _mixed(self, name: str) -> ValueError:
        return ValueError(
            f"{self.file.name}: column {shortened(name)!r} has lists or objects in some "
            f"{self.first[1]}s and other values in others: write it alike in all"
        )

    def _refuse_one_object(self, records: Sequence[dict[str, Any]]) -> None:
        """Raise if the file is one object of columns, such as pandas' to_json writes."""
        if len(records) == 1 and all(isinstance(one, list | dict) for one in records[0].values()):
            raise ValueError(f"{self.file.name} is one JSON object: {RECORDS}")

    def batches(self, columns: Sequence[str], texts: Collection[str], _rows: int) -> Iterator[Any]:
        """Read batches of some columns; some of them as the texts that are written."""
        import pyarrow as pa

        for table in self._tables({*texts, *self._texts}):
            arrays = []
            for name in columns:
                if name not in table.column_names:
                    arrays.append(pa.nulls(len(table)))
                    continue
                column = table[name].combine_chunks()
                times = None if name in texts else self._texts.get(name)
                arrays.append(column if times is None else times.values(column))
            yield pa.table(arrays, [*columns])

    def _tables(self, texts: Collection[str]) -> Iterator[Any]:
        """Parse JSON block by block; some columns are texts even if they hold numbers."""
        first = 1
        for block in _blocks(self.file):
            yield self._table(block, first, texts)
            first += block.count(b"\n")

    def _table(self, block: bytes, first: int, texts: Collection[str]) -> Any:
        import pyarrow as pa
        from pyarrow import json as arrow

        try:
            block.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{self.file.name} is not UTF-8: save it as UTF-8") from None
        read = arrow.ReadOptions(use_threads=False, block_size=len(block) + 1)
        known = pa.schema([(name, pa.string()) for name in texts])
        try:
            table = arrow.read_json(
                io.BytesIO(block), read, arrow.ParseOptions(explicit_schema=known)
            )
        except pa.ArrowInvalid:
            table = self._from_lines(block, first, texts)
        if first == 1 and len(table) == 1:
            self._refuse_one_object(table.to_pylist())
        times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        # Arrow knows fewer ways to write a time than `TextColumn`.
        return self._table(block, first, {*texts, *times}) if times else table

    def _from_lines(self, block: bytes, first: int, texts: Collection[str]) -> Any:
        """Parse line by line, which is slow: columns may hold numbers and texts."""
        import pyarrow as pa

        records = []
        for number, line in enumerate(block.split(b"\n"), first):
            if line.strip():
                place = f"{self.file.name}: {self.first[1]} {number}"
                try:
                    record = json.loads(line)
                except ValueError as error:
                    reason = str(error).partition(":")[0]
                    raise ValueError(f"{place} is no JSON ({reason}): {RECORDS}") from None
                if not isinstance(record, dict):
                    raise ValueError(f"{place} is no record: {RECORDS}")
                records.append(record)
        if first == 1:
            self._refuse_one_object(records)
        arrays = {}
        for name in dict.fromkeys(name for record in records for name in record):
            values = [record.get(name) for record in records]
            kinds = {type(value) for value in values if value is not None}
            if name in texts or (str in kinds and len(kinds) > 1) or {bool} < kinds:
                if kinds & {list, dict}:
                    raise self._mixed(name)
                values = [_written(value) for value in values]
            try:
                arrays[name] = pa.array(values, from_pandas=True)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                raise self._mixed(name) from None
            except OverflowError:
                arrays[name] = pa.array([_written(value) for value in values])
        return pa.table(arrays)


def _written(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _blocks(file: TableFile) -> Iterator[bytes]:
    """Read whole lines, each of them a record."""
    if file.kind == "json records":
        with file.open() as stream:
            try:
                records = json.loads(stream.read())
            except ValueError as error:
                reason = str(error).partition(":")[0]
                raise ValueError(f"{file.name} is no JSON ({reason}): {RECORDS}") from None
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

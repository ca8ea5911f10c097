"""CSV files: how one is written, what its columns are, and its rows batch by batch.

A file is read twice: first as texts, which tells what each column is and whether the file is whole;
then with these types.
"""

import codecs
import csv
import io
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import IO, Any

from fedres.reading.files import UTF_16, TableFile, listed, shortened
from fedres.reading.schema import ReadAs, read_as
from fedres.reading.text_columns import TextColumn

BLOCK = 2**22  # bytes that are parsed at once
LARGEST_BLOCK = 2**26  # for longer lines
DELIMITERS = {".tsv": "\t", ".psv": "|"}
LINES = 20  # by which the delimiter is found
END = "\x03 end of the file"


class CsvFile:
    """A CSV file.

    Parameters
    ----------
    file
        Which file.
    as_texts
        Columns that are texts, also by wildcards: they keep the zeros that values begin with.

    Attributes
    ----------
    columns
        How each column is read.
    rows
        The number of rows.
    first
        The number of the first row, and what rows are called in messages.
    """

    def __init__(self, file: TableFile, as_texts: Collection[str]) -> None:
        self.file = file
        start = _start(file)
        self._encoding = "utf-16" if start.startswith(UTF_16) else "utf-8"
        try:
            self._learn(start, as_texts)
        except UnicodeDecodeError:
            if self._encoding == "utf-16":
                raise
            self._encoding = "latin-1"
            self._learn(start, as_texts)
            warnings.warn(
                f"{file.name} is not UTF-8 and was read as Latin-1: see that its texts are right, "
                "or save it as UTF-8",
                stacklevel=2,
            )

    def _learn(self, start: bytes, as_texts: Collection[str]) -> None:
        text = codecs.getincrementaldecoder(self._encoding)().decode(start).removeprefix("\ufeff")
        self._delimiter = _delimiter(self.file, text)
        self._names = self._header(text)
        self._texts = {
            name: TextColumn("names" if is_named(name, as_texts) else "any", self._delimiter == ";")
            for name in self._names
            if name
        }
        if len(self._texts) < len(self._names):
            self._refuse_twice()
        self.rows = 0
        for batch in self._blocks([*self._texts], {}):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                self._texts[name].see(column)
            self.rows += len(batch)
        # The first line has names, the last two are those of `_Utf8`.
        self.first = (2, "line") if self._lines <= self.rows + 3 else (1, "row")
        for name, kind in self._texts.items():
            if kind.padded is not None and str(kind.kind.type) == "int64":
                warnings.warn(
                    f"{self.file.name}: column {name!r} has {shortened(kind.padded)!r}, which is "
                    f"read as the number {float(kind.padded):g}: if it names something, let the "
                    "column be categorical",
                    stacklevel=3,
                )

    def _refuse_twice(self) -> None:
        """Raise if two columns have one name; leave out those without, such as pandas' index."""
        named = [name for name in self._names if name]
        if twice := {name for name in named if named.count(name) > 1}:
            raise ValueError(f"{self.file.name} has two columns {min(twice)!r}: rename one")
        warnings.warn(
            f"{self.file.name} has a column without a name, such as the index of pandas: it is "
            "left out",
            stacklevel=5,
        )

    @property
    def columns(self) -> dict[str, ReadAs]:
        """How each column is read."""
        return {name: read_as(texts.kind.type) for name, texts in self._texts.items()}

    def batches(self, columns: Sequence[str], texts: Collection[str], _rows: int) -> Iterator[Any]:
        """Read batches of some columns; some of them as the texts that are written."""
        import pyarrow as pa

        kinds = {name: self._texts[name] for name in columns if name not in texts}
        # What Arrow reads as `TextColumn` does, it reads faster.
        types = {name: kind.kind.type for name, kind in kinds.items() if kind.kind.as_arrow}
        for batch in self._blocks(columns, types):
            arrays = [
                kinds[name].values(column) if name in kinds and name not in types else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, batch.schema.names)

    def _blocks(self, columns: Sequence[str], types: dict[str, Any]) -> Iterator[Any]:
        """Parse the file, and count its lines."""
        import pyarrow as pa
        from pyarrow import csv as arrow

        options = arrow.ConvertOptions(
            include_columns=columns,
            column_types={name: types.get(name, pa.string()) for name in columns},
            strings_can_be_null=True,
            check_utf8=False,
        )
        end = END + self._delimiter * len(self._names)
        done, block = 0, BLOCK
        while True:
            odd: list[Any] = []
            parse = arrow.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                invalid_row_handler=lambda row, odd=odd: (
                    odd.append(row) or ("skip" if row.text == end else "error")
                ),
            )
            skip = done
            with self.file.open() as raw:
                stream = _Utf8(self.file, raw, self._encoding, f"\n{end}\n")
                try:
                    read = arrow.ReadOptions(use_threads=False, block_size=block)
                    with arrow.open_csv(stream, read, parse, options) as batches:
                        for batch in batches:
                            if skip < len(batch):
                                done += len(batch) - skip
                                yield batch.slice(skip)
                            skip = max(0, skip - len(batch))
                except pa.ArrowInvalid:
                    if not odd and block < LARGEST_BLOCK:
                        block *= 4  # a line may be longer than a block
                        continue
                    raise self._refused(odd, done) from None
            if not odd:
                raise self._refused(odd, done)
            self._lines = stream.lines
            return

    def _refused(self, odd: Sequence[Any], done: int) -> ValueError:
        """Return the error of a row that does not have as many values as there are columns."""
        if odd and END not in odd[0].text:
            text, place = odd[0].text, "" if odd[0].number is None else f" {odd[0].number}"
            return ValueError(
                f"{self.file.name}: line{place} has {odd[0].actual_columns} values for "
                f"{odd[0].expected_columns} columns: {shortened(text)}"
            )
        return ValueError(
            f"{self.file.name} has a quote that is not closed, in row {done} or later: close it, "
            "or write it twice"
        )

    def _header(self, text: str) -> list[str]:
        import pyarrow as pa
        from pyarrow import csv as arrow

        parse = arrow.ParseOptions(
            delimiter=self._delimiter,
            newlines_in_values=True,
            invalid_row_handler=lambda _: "skip",
        )
        try:
            with arrow.open_csv(io.BytesIO(f"{text}\n".encode()), parse_options=parse) as opened:
                names = opened.schema.names
        except pa.ArrowInvalid:
            content = text.strip()
            why = (
                "has a quote that is not closed in its first line: close it, or write it twice"
                if content
                else "is empty: give a file with rows"
            )
            raise ValueError(f"{self.file.name} {why}") from None
        first = text.lstrip()[:5].lower()
        if first.startswith(("#", "sep=")):
            raise ValueError(
                f"{self.file.name} begins with a line that is not the names of columns, "
                f"{shortened(text.lstrip().splitlines()[0])!r}: remove it"
            )
        _refuse_numbers_as_names(self.file, names)
        return [str(name) for name in names]


class _Utf8(io.RawIOBase):
    """A file in UTF-8 with a line at its end that shows whether a quote is open there."""

    def __init__(self, file: TableFile, raw: IO[bytes], encoding: str, end: str) -> None:
        self._file, self._raw, self._end = file, raw, end.encode()
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._is_utf8 = encoding == "utf-8"
        self.lines = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block = self._raw.read(size)
        while len(block) < size and (more := self._raw.read(size - len(block))):
            block += more
        is_end = len(block) < size
        text = self._decoder.decode(block, final=is_end)
        found = block if self._is_utf8 else text.encode()
        if is_end:
            found, self._end = found + self._end, b""
        if b"\x00" in found:
            raise self._file.binary()
        self.lines += found.count(b"\n")
        return found


def is_named(name: str, patterns: Collection[str]) -> bool:
    """Return whether a column is named, also by wildcards."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _start(file: TableFile) -> bytes:
    """Return the beginning of a file, whole lines."""
    with file.open() as stream:
        start = stream.read(BLOCK)
        while b"\n" not in start and b"\r" not in start and (more := stream.read(BLOCK)):
            start += more
        if not stream.read(1):
            return start
    width = 2 if start.startswith(UTF_16) else 1
    newline = max(start.rfind(b"\n"), start.rfind(b"\r"))
    return start[: newline - newline % width]


def _delimiter(file: TableFile, text: str) -> str:
    """Return what separates columns: what parts the first lines into equally many fields."""
    lines = [line for line in text[: 2**20].splitlines()[:LINES] if line]
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


def _refuse_numbers_as_names(file: TableFile, names: Sequence[str]) -> None:
    """Raise if the first line of a CSV file holds numbers instead of names."""
    numbers = [name for name in names if re.fullmatch(r"[-+]?\d+([.]\d*)?([eE][-+]?\d+)?", name)]
    if any("." in name for name in numbers) or len({*numbers}) < len(numbers):
        raise ValueError(
            f"{file.name}: its first line holds numbers, not the names of columns: add a line of "
            f"names ({listed(names)})"
        )

"""A table in one file or many, read batch by batch or at once: the same rows either way."""

import io
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedres.reading import formats
from fedres.reading.files import UNREADABLE, NoRowsError, TableFile, find_files
from fedres.reading.formats import BATCH_BYTES, BATCH_ROWS
from fedres.reading.schema import ReadAs, as_matrix, cast, read_as, refused, vector_columns

if TYPE_CHECKING:
    import pandas as pd

TEXT_BYTES = 80  # of memory for a text or a list of them


class TableFiles:
    """The files of one table, which may differ in the order and the width of their columns.

    Attributes
    ----------
    files
        The files, in the order of their paths.
    names
        The columns; a vector of numbers is one column per number.

    Examples
    --------
    >>> import pandas as pd
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for day in (1, 2):
    ...         frame = pd.DataFrame({"user": [day, 7], "page": "home", "clicks": [0, day]})
    ...         frame.to_parquet(f"{folder}/day-{day}.parquet")
    ...     table = TableFiles.find(f"{folder}/*.parquet")
    ...     print(table.names, table.count())
    ...     for file, frame in table.batches(["user", "clicks"]):
    ...         print(frame.to_numpy().tolist())
    ['user', 'page', 'clicks'] 4
    [[1, 0], [7, 1]]
    [[2, 0], [7, 2]]
    """

    def __init__(
        self, files: Sequence[TableFile], schemas: Sequence[Any], as_texts: Collection[str]
    ) -> None:
        self.files, self._as_texts = files, as_texts
        self._own = [schema.names for schema in schemas]
        in_text = any(file.kind == "csv" or file.kind.startswith("json") for file in files)
        self._types = formats.unify(
            [*schemas, *_partition_schemas(files, as_texts)], to_text=in_text
        )
        self._rows: dict[str, int] = {}
        self._columns: dict[str, tuple[str, ReadAs | None]] = {}
        self._lengths: dict[str, int] = {}
        self._decide()

    @classmethod
    def find(cls, name: str, as_texts: Collection[str] = ()) -> "TableFiles":
        """Find the files of a table, and decide what its columns are.

        Parameters
        ----------
        name
            A file, a folder, a pattern, a URL, or ``-`` for standard input.
        as_texts
            Columns of CSV files, also by wildcards, that keep the zeros that values begin with.
        """
        return cls.of(find_files(name), as_texts)

    @classmethod
    def of(cls, files: Sequence[TableFile], as_texts: Collection[str] = ()) -> "TableFiles":
        """Decide what the columns of some files are."""
        schemas = []
        for file in files:
            if file.kind == "svmlight":
                raise ValueError(
                    f"{file.name} is svmlight text, which is read by itself and in memory: give "
                    "CSV or Parquet"
                )
            try:
                schema = formats.schema_of(file, as_texts)
            except UNREADABLE as error:
                raise file.damaged(error) from None
            if twice := {name for name in schema.names if schema.names.count(name) > 1}:
                raise ValueError(f"{file.name} has two columns {min(twice)!r}: rename one")
            schemas.append(schema)
        table = cls(files, schemas, as_texts)
        table._note_absent()
        return table

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self._columns)

    @property
    def has_csv(self) -> bool:
        """Whether ids that are texts may have been written as numbers."""
        return any(file.kind == "csv" for file in self.files)

    def count(self) -> int | None:
        """Return the number of rows; None where only reading them would tell."""
        total = 0
        for file in self.files:
            rows = self._rows.get(file.path)
            rows = formats.count_rows(file) if rows is None else rows
            if rows is None:
                return None
            total += rows
        return total

    def settle(self) -> "TableFiles":
        """Read all of long text files once, so that later batches are of the final types."""
        while True:
            try:
                for file in self.files:
                    if file.kind == "csv" and (file.packed or file.size > formats.BLOCK):
                        for _ in self._tables(file, self._own[self.files.index(file)]):
                            pass
            except formats.LoosenError as loose:
                self.loosen(loose)
                continue
            return self

    def read(self, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """Return all rows; the index is the line or row of the file, or of all files together.

        Columns of types that are refused may be read by leaving `columns` out: they are as they
        are.
        """
        import pandas as pd

        while True:
            try:
                frames = [frame for _, frame in self.batches(columns)]
                break
            except formats.LoosenError as loose:
                self.loosen(loose)
        if not frames:
            raise NoRowsError(str(self.files[0].damaged("it holds no rows")))
        place = _first_place(self.files[0])
        frame = frames[0] if len(frames) == 1 else pd.concat(frames)
        start, word = place if len(self.files) == 1 else (1, "row")
        return frame.set_axis(pd.RangeIndex(start, start + len(frame), name=word))

    def batches(
        self, columns: Sequence[str] | None = None, rows: int = BATCH_ROWS, categories: bool = False
    ) -> Iterator[tuple[TableFile, "pd.DataFrame"]]:
        """Read some rows after the other: their file, and a frame.

        The index of a frame says where in the file its rows are. After each file it is checked
        that the file is what it was, and has as many rows as in an earlier pass.

        Parameters
        ----------
        columns
            Which; None for all, those of refused types as they are.
        rows
            How many rows a frame has at most; it has fewer if they are long.
        categories
            Whether texts may come as pandas' categories, which is faster.
        """
        import pandas as pd

        wanted = self.names if columns is None else [*columns]
        for column in wanted:
            source, kind = self._columns[column]
            if kind is None and columns is not None:
                raise refused(source, self._types.field(source).type)
        sources = list(dict.fromkeys(self._columns[column][0] for column in wanted))
        for file in self.files:
            place, word = _first_place(file)
            done = 0
            for table in self._tables(file, sources, rows):
                frame = self._frame(file, table, sources, wanted, categories)
                index = pd.RangeIndex(place + done, place + done + len(frame), name=word)
                done += len(frame)
                if len(frame):
                    yield file, frame.set_axis(index)
            file.refuse_changed()
            if self._rows.setdefault(file.path, done) != done:
                raise file.changed()

    def _tables(
        self, file: TableFile, sources: Sequence[str], most: int = BATCH_ROWS
    ) -> Iterator[Any]:
        """Read Arrow tables of those columns that a file has."""
        import pyarrow as pa

        here = self._own[self.files.index(file)]
        columns = [name for name in sources if name in here] or here[:1]
        types = pa.schema([self._types.field(name) for name in here])
        a_row = sum(self._bytes(name) for name in columns)
        batches = formats.batches_of(file, columns, types, max(1, min(most, BATCH_BYTES // a_row)))
        while True:
            try:
                table = next(batches)
            except StopIteration:
                return
            except UNREADABLE as error:
                file.refuse_changed()
                raise file.damaged(error) from None
            yield table

    def _bytes(self, source: str) -> int:
        """Return about how much memory a value takes."""
        kind = read_as(self._types.field(source).type)
        if kind is None:
            return TEXT_BYTES
        if kind.is_vector:
            return 8 * (self._lengths[source] or 1)
        try:
            return max(8, int(kind.type.bit_width) // 8)
        except ValueError:
            return TEXT_BYTES

    def _frame(
        self,
        file: TableFile,
        table: Any,
        sources: Sequence[str],
        wanted: Sequence[str],
        categories: bool,
    ) -> "pd.DataFrame":
        import pandas as pd
        import pyarrow as pa
        from pyarrow import compute

        plain: dict[str, Any] = {}
        vectors: dict[str, Any] = {}
        for name in sources:
            wanted_type = self._types.field(name).type
            kind = read_as(wanted_type)
            if name in table.column_names:
                column = table[name]
            else:
                value = file.partition.get(name)
                texts = pa.array([value] * len(table), pa.string())
                column = pa.chunked_array([texts if value is not None else texts.cast(wanted_type)])
            if kind is None or (kind.is_vector and not self._lengths[name]):
                plain[name] = column
            elif kind.is_vector:
                matrix = as_matrix(name, column, self._lengths[name])
                columns = vector_columns(name, self._lengths[name])
                vectors |= dict(zip(columns, matrix.T, strict=True))
            elif categories and pa.types.is_dictionary(column.type) and kind.type == pa.string():
                plain[name] = column
            else:
                plain[name] = cast(column, kind)
                if file.kind == "csv" and formats.is_named(name, self._as_texts):
                    # Whole numbers are written as floats as soon as one is missing.
                    plain[name] = compute.replace_substring_regex(
                        plain[name], r"^([+-]?\d+)\.0+$", r"\1"
                    )
        frame = pa.table(plain).to_pandas() if plain else pd.DataFrame(index=range(len(table)))
        if vectors:
            frame = pd.concat([frame, pd.DataFrame(vectors)], axis=1)
        return frame[[*wanted]]

    def _decide(self) -> None:
        """Decide what each column is; of a list of numbers the first rows tell its length."""
        self._columns = {}
        for field in self._types:
            kind = read_as(field.type)
            if kind is None or not kind.is_vector:
                self._columns[field.name] = (field.name, kind)
                continue
            length = kind.length or self._length(field.name)
            if not length:
                self._columns[field.name] = (field.name, None)
                continue
            self._lengths[field.name] = length
            for column in vector_columns(field.name, length):
                self._columns[column] = (field.name, kind)

    def _length(self, source: str) -> int:
        from pyarrow import compute

        self._lengths[source] = 0
        for file, names in zip(self.files, self._own, strict=True):
            if source in names:
                for table in self._tables(file, [source]):
                    if longest := compute.max(compute.list_value_length(table[source])).as_py():
                        return int(longest)
        return 0

    def loosen(self, loose: formats.LoosenError) -> None:
        """Give a column of CSV files the next looser type, before reading again."""
        place = self._types.get_field_index(loose.column)
        self._types = self._types.set(place, self._types.field(place).with_type(loose.to))
        self._rows.clear()
        self._decide()

    def _note_absent(self) -> None:
        absent: dict[str, list[str]] = {}
        for file, names in zip(self.files, self._own, strict=True):
            for name in self._types.names:
                if name not in names and name not in file.partition:
                    absent.setdefault(name, []).append(file.name)
        for name, files in absent.items():
            warnings.warn(
                f"column {name!r} is not in {len(files)} of {len(self.files)} files of the table, "
                f"such as {files[0]}: it is missing in their rows",
                stacklevel=3,
            )


def _first_place(file: TableFile) -> tuple[int, str]:
    """Return the number of the first row, and what rows are called: lines of text have names."""
    if file.kind == "csv":
        return 2, "line"
    return 1, "line" if file.kind == "json lines" else "row"


def _partition_schemas(files: Sequence[TableFile], as_texts: Collection[str]) -> Iterator[Any]:
    """Return a schema of each column that is in paths, its type found as in a CSV file."""
    import pyarrow as pa
    from pyarrow import csv

    for name in dict.fromkeys(name for file in files for name in file.partition):
        values = {value for file in files if (value := file.partition.get(name)) is not None}
        kind = pa.string()
        if values and not formats.is_named(name, as_texts):
            text = "\n".join(["value", *sorted(values)]).encode()
            kind = csv.read_csv(io.BytesIO(text)).schema.field("value").type
        yield pa.schema([(name, kind)])

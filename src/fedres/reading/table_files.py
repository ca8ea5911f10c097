"""A table in one file or many, read batch by batch or at once: the same rows either way."""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fedres.reading import formats
from fedres.reading.csv_files import is_named
from fedres.reading.files import UNREADABLE, NoRowsError, TableFile, find_files, shortened
from fedres.reading.formats import BATCH_BYTES, BATCH_ROWS, OpenFile
from fedres.reading.schema import (
    ReadAs,
    as_matrix,
    cast,
    join,
    plain,
    read_as,
    refused,
    vector_columns,
)
from fedres.reading.text_columns import TextColumn

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

    def __init__(self, opened: Sequence[OpenFile], as_texts: Collection[str]) -> None:
        self._opened, self.files = opened, [one.file for one in opened]
        self._as_texts = as_texts
        self._paths = _partition_columns(self.files, as_texts)
        self._types: dict[str, ReadAs] = {}
        origins: dict[str, str] = {}
        in_text = any(not isinstance(one, formats.ColumnarFile) for one in opened)
        in_paths = {name: read_as(texts.kind.type) for name, texts in self._paths.items()}
        of_files = [(one.file.name, one.columns) for one in opened]
        for file, columns in [*of_files, ("the names of folders", in_paths)]:
            for name, kind in columns.items():
                known = self._types.get(name, kind)
                self._types[name] = self._joined(name, known, kind, in_text, origins, file)
                origins.setdefault(name, file)
        self._rows = {one.file.path: one.rows for one in opened if one.rows is not None}
        self._columns: dict[str, tuple[str, ReadAs]] = {}
        self._lengths: dict[str, int] = {}
        self._decide()

    def _joined(
        self,
        name: str,
        known: ReadAs,
        kind: ReadAs,
        in_text: bool,
        origins: Mapping[str, str],
        file: str,
    ) -> ReadAs:
        """Return how a column of several files is read."""
        import pyarrow as pa

        is_id = is_named(name, self._as_texts)
        both = join(known, kind, exact=is_id)
        if both is None and (known.is_refused or kind.is_refused):
            both = known if known.is_refused else kind
        if both is None and (is_id or in_text) and not (known.is_nested or kind.is_nested):
            both = ReadAs(pa.string())
        if both is None:
            raise ValueError(
                f"column {shortened(name)!r} is of the type {shortened(str(known.type))} in "
                f"{origins[name]} and {shortened(str(kind.type))} in {file}: write it alike in all"
            )
        return both

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
        opened = []
        for file in files:
            if file.kind == "svmlight":
                raise ValueError(
                    f"{file.name} is svmlight text, which is read by itself and in memory: give "
                    "CSV or Parquet"
                )
            with reading(file):
                opened.append(formats.open_file(file, as_texts))
        if all(one.rows == 0 for one in opened):
            raise _no_rows(opened)
        table = cls(opened, as_texts)
        table._note_absent()
        return table

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self._columns)

    def may_be_numbers(self, column: str) -> bool:
        """Return whether ids that are texts here may have been written as numbers."""
        kinds = [one.columns[column] for one in self._opened if column in one.columns]
        has_csv = any(file.kind == "csv" for file in self.files)
        return has_csv or column in self._paths or any(not kind.is_text for kind in kinds)

    def count(self) -> int | None:
        """Return the number of rows; None if only reading them tells."""
        known = len(self._rows) == len({file.path for file in self.files})
        return sum(self._rows.values()) if known else None

    def read(self, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """Return all rows; the index is the line or row of the file, or of all files together.

        Columns of types that are refused may be read by leaving `columns` out: they are as they
        are.
        """
        import pandas as pd

        frames = [frame for _, frame in self.batches(columns)]
        frame = frames[0] if len(frames) == 1 else pd.concat(frames)
        start, word = self._opened[0].first if len(self.files) == 1 else (1, "row")
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
        sources = list(dict.fromkeys(self._columns[column][0] for column in wanted))
        for source in sources:
            kind = self._columns.get(source, (source, None))[1]
            if kind is not None and kind.is_refused and columns is not None:
                raise refused(source, kind.type)
        total = 0
        for one in self._opened:
            place, word = one.first
            done = 0
            with reading(one.file):
                for table in self._tables(one, sources, rows):
                    frame = self._frame(one.file, table, sources, wanted, categories)
                    index = pd.RangeIndex(place + done, place + done + len(frame), name=word)
                    done += len(frame)
                    if len(frame):
                        yield one.file, frame.set_axis(index)
                one.file.refuse_changed()
            if self._rows.setdefault(one.file.path, done) != done:
                raise one.file.changed()
            total += done
        if not total:
            raise _no_rows(self._opened)

    def _tables(
        self, one: OpenFile, sources: Sequence[str], most: int = BATCH_ROWS
    ) -> Iterator[Any]:
        """Read Arrow tables of those columns that a file has."""
        import pyarrow as pa

        columns = [name for name in sources if name in one.columns] or [*one.columns][:1]
        texts = {
            name for name in columns if self._types[name].is_text and not one.columns[name].is_text
        }
        rows = max(1, min(most, BATCH_BYTES // sum(self._bytes(name) for name in columns)))
        for batch in one.batches(columns, texts, rows):
            table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
            for first in range(0, len(table), rows):
                yield table.slice(first, rows)

    def _bytes(self, source: str) -> int:
        """Return about how much memory a value takes."""
        kind = self._types[source]
        if kind.is_refused:
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

        values: dict[str, Any] = {}
        vectors: dict[str, Any] = {}
        for name in sources:
            kind, column = self._types[name], self._values(file, table, name)
            if kind.is_vector and self._lengths[name]:
                matrix = as_matrix(name, plain(column), self._lengths[name])
                columns = vector_columns(name, self._lengths[name])
                vectors |= dict(zip(columns, matrix.T, strict=True))
            elif (
                kind.is_refused
                or kind.is_vector
                or (categories and kind.is_text and is_categories(column))
            ):
                values[name] = column
            else:
                values[name] = self._cast(file, name, column)
        frame = to_pandas(values, len(table))
        if vectors:
            frame = pd.concat([frame, pd.DataFrame(vectors)], axis=1)
        return frame[[*wanted]]

    def _values(self, file: TableFile, table: Any, name: str) -> Any:
        """Return a column as a file, or its path, has it."""
        import pyarrow as pa

        kind = self._types[name]
        column = table[name] if name in table.column_names else None
        if column is None and name not in file.partition:
            absent = pa.list_(pa.float64()) if kind.is_vector else kind.type
            return pa.chunked_array([pa.nulls(len(table), absent)])
        if name not in file.partition:
            return column
        value = pa.array([file.partition[name]], pa.string())
        value = value if kind.is_text else cast(self._paths[name].values(value), kind.type)
        if column is not None and {*cast(column, kind.type).unique().to_pylist()} - {
            value[0].as_py()
        }:
            raise ValueError(
                f"{file.name} has a column {name!r} whose values differ from that in its path, "
                f"{shortened(str(file.partition[name]))}: rename one of the two"
            )
        return pa.chunked_array([value.take(pa.array(np.zeros(len(table), np.int64)))])

    def _cast(self, file: TableFile, name: str, column: Any) -> Any:
        from pyarrow import compute

        found = cast(column, self._types[name].type)
        if file.kind == "csv" and is_named(name, self._as_texts):
            # Whole numbers are written as floats as soon as one is missing.
            return compute.replace_substring_regex(found, r"^([+-]?\d+)\.0+$", r"\1")
        return found

    def _decide(self) -> None:
        """Decide what each column is; of a list of numbers the first rows tell its length."""
        import pyarrow as pa

        for name, kind in self._types.items():
            if not kind.is_vector:
                self._add(name, name, kind)
                continue
            length = kind.length or self._length(name)
            self._lengths[name] = length
            if not length:
                lists = pa.list_(pa.field("element", pa.float64()))
                self._add(name, name, ReadAs(lists, is_refused=True))
            for column in vector_columns(name, length):
                self._add(column, name, kind)

    def _add(self, column: str, source: str, kind: ReadAs) -> None:
        if column in self._columns:
            raise ValueError(
                f"{self.files[0].name} has a column {column!r} beside a vector of numbers whose "
                "columns are called so: rename one"
            )
        self._columns[column] = (source, kind)

    def _length(self, source: str) -> int:
        from pyarrow import compute

        self._lengths[source] = 0
        for one in self._opened:
            if source in one.columns:
                for table in self._tables(one, [source]):
                    lengths = compute.list_value_length(plain(table[source]))
                    if longest := compute.max(lengths).as_py():
                        return int(longest)
        return 0

    def _note_absent(self) -> None:
        absent: dict[str, list[str]] = {}
        for one in self._opened:
            for name in self._types:
                if name not in one.columns and name not in one.file.partition:
                    absent.setdefault(name, []).append(one.file.name)
        for name, files in absent.items():
            warnings.warn(
                f"column {name!r} is not in {len(files)} of {len(self.files)} files of the table, "
                f"such as {files[0]}: it is missing in their rows",
                stacklevel=3,
            )


@contextmanager
def reading(file: TableFile) -> Iterator[None]:
    """Name the file in all errors of reading it, each in one sentence."""
    import pyarrow as pa

    try:
        yield
    except NoRowsError:
        raise
    except (*UNREADABLE, pa.ArrowException) as error:
        file.refuse_changed()
        if str(error).startswith(file.name):
            raise
        own = type(error) is ValueError
        raise (ValueError(f"{file.name}: {error}") if own else file.damaged(error)) from None


def _no_rows(opened: Sequence[OpenFile]) -> NoRowsError:
    others = "" if len(opened) == 1 else " and all other files of the table"
    have = "have" if others else "has column names and" if opened[0].columns else "has"
    return NoRowsError(f"{opened[0].file.name}{others} {have} no rows: give a table with rows")


def is_categories(column: Any) -> bool:
    """Return whether pandas can have a column of Arrow as texts that are categories."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type) or not read_as(column.type).is_text:
        return False
    # Such as a null among them.
    return not any(chunk.dictionary.null_count for chunk in column.chunks)


def to_pandas(columns: Mapping[str, Any], rows: int) -> "pd.DataFrame":
    """Return a frame of columns of Arrow; whole numbers stay whole even if some are missing."""
    import pandas as pd
    import pyarrow as pa

    nullable = {
        name for name, one in columns.items() if pa.types.is_integer(one.type) and one.null_count
    }
    frames: list[pd.DataFrame] = []
    for some, mapper in (({*columns} - nullable, {}), (nullable, _nullable_types())):
        if some:
            table = pa.table({name: one for name, one in columns.items() if name in some})
            frames.append(table.to_pandas(types_mapper=mapper.get))
    if len(frames) == 1:
        return frames[0]
    return pd.concat(frames, axis=1) if frames else pd.DataFrame(index=range(rows))


def _nullable_types() -> dict[Any, Any]:
    import pandas as pd
    import pyarrow as pa

    return {
        getattr(pa, f"{sign.lower()}int{bits}")(): getattr(pd, f"{sign}Int{bits}Dtype")()
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    }


def _partition_columns(
    files: Sequence[TableFile], as_texts: Collection[str]
) -> dict[str, TextColumn]:
    """Return each column that is in paths, its type found as in a CSV file."""
    import pyarrow as pa

    columns = {}
    for name in dict.fromkeys(name for file in files for name in file.partition):
        columns[name] = TextColumn(kinds="names" if is_named(name, as_texts) else "any")
        columns[name].see(pa.array([file.partition.get(name) for file in files], pa.string()))
    return columns

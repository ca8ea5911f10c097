"""One table in one file or many, read batch by batch: Parquet, or CSV and TSV."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedres.simulation.data_files import DAMAGE, damaged, unpacked
from fedres.tables.table_files import SEPARATORS, is_named, separator_of, table_kind

if TYPE_CHECKING:
    import pandas as pd

BATCH = 2**17  # rows
KINDS = (".parquet", *SEPARATORS)


@dataclass(frozen=True)
class TableParts:
    """The files of one table, which all have the same columns.

    Attributes
    ----------
    paths
        The files, in the order of their names.
    schema
        Columns and their types, as Arrow has them: such as hold the values of all files.

    Examples
    --------
    >>> import pandas as pd
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for day in (1, 2):
    ...         frame = pd.DataFrame({"user": [day, 7], "page": "home", "clicks": [0, day]})
    ...         frame.to_parquet(f"{folder}/day-{day}.parquet")
    ...     parts = TableParts.find(f"{folder}/*.parquet")
    ...     print(parts.names, parts.count())
    ...     for path, frame in parts.batches(["user", "clicks"]):
    ...         print(path.name, frame.to_numpy().tolist())
    ['user', 'page', 'clicks'] 4
    day-1.parquet [[1, 0], [7, 1]]
    day-2.parquet [[2, 0], [7, 2]]
    """

    paths: Sequence[Path]
    schema: Any

    @classmethod
    def find(cls, name: str, as_texts: Collection[str] = ()) -> "TableParts":
        """The files that a name stands for: a file, a folder, or a pattern such as ``day-*.csv``.

        Columns of CSV files that are named by `as_texts`, also by wildcards, keep the zeros that
        their values begin with.
        """
        import pyarrow as pa

        paths = _paths(name)
        kinds = {table_kind(path) for path in paths}
        if len(kinds) > 1 or not kinds <= {*KINDS}:
            raise ValueError(
                f"{name} stands for files that end in {', '.join(sorted(kinds))}: tables of many "
                f"files are read from one kind of {', '.join(KINDS)}"
            )
        schemas = [_schema(path, as_texts) for path in paths]
        for path, schema in zip(paths, schemas, strict=True):
            for here, there, holder in (
                (schemas[0].names, schema.names, path),
                (schema.names, schemas[0].names, paths[0]),
            ):
                if lacks := [column for column in here if column not in there]:
                    raise ValueError(
                        f"{holder} has no column {lacks[0]!r}, which other files of the table "
                        "have: write all files with the same columns"
                    )
        try:
            together = pa.unify_schemas(schemas, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(
                f"{name}: a column is of different kinds in different files ({error}): write it "
                "alike in all"
            ) from None
        return cls(paths, together.remove_metadata())

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.schema.names)

    def count(self) -> int | None:
        """How many rows there are; None where only reading them would tell."""
        from pyarrow.parquet import read_metadata

        if table_kind(self.paths[0]) != ".parquet":
            return None
        return sum(int(read_metadata(path).num_rows) for path in self.paths)

    def batches(
        self, columns: Sequence[str], rows: int = BATCH
    ) -> Iterator[tuple[Path, "pd.DataFrame"]]:
        """Some rows after the other, of these columns: the file, and a frame of at most so many.

        The index of a frame says where in the file its rows are.
        """
        import pandas as pd

        for path in self.paths:
            is_text = table_kind(path) != ".parquet"
            place, word = 1 + is_text, "line" if is_text else "row"
            try:
                for batch in self._read(path, [*columns], rows):
                    frame = batch.to_pandas()
                    index = pd.RangeIndex(place, place + len(frame), name=word)
                    place += len(frame)
                    if len(frame):
                        yield path, frame.set_axis(index)
            except DAMAGE as error:
                if isinstance(error, ValueError) and not _is_arrows(error):
                    raise  # by whoever works on the batches
                raise damaged(path, error) from None

    def _read(self, path: Path, columns: list[str], rows: int) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile

        wanted = pa.schema([self.schema.field(name) for name in columns])
        if table_kind(path) == ".parquet":
            with ParquetFile(path, read_dictionary=_texts(self.schema)) as file:
                for batch in file.iter_batches(rows, columns=columns):
                    table = pa.Table.from_batches([batch]).select(columns)
                    yield table if table.schema.equals(wanted) else table.cast(wanted)
            return
        with _open_csv(path, self.schema, columns) as batches:
            for batch in batches:
                for first in range(0, len(batch), rows):
                    yield pa.Table.from_batches([batch.slice(first, rows)])


def stands_for_several(name: str) -> bool:
    """Whether a name stands for a table of several files."""
    return has_magic(name) or Path(name).is_dir()


def _is_arrows(error: ValueError) -> bool:
    import pyarrow as pa

    return isinstance(error, pa.ArrowInvalid)


def _paths(name: str) -> list[Path]:
    if has_magic(name) and not Path(name).exists():
        found = [Path(path) for path in glob(name, recursive=True)]
    else:
        found = [Path(name)]
    paths = [path for one in found for path in ([one] if one.is_file() else _inside(one))]
    if not paths:
        raise ValueError(
            f"there are no files {name}: give a Parquet or CSV file, a folder of them, or a "
            "pattern in quotes such as 'events/*.parquet'"
        )
    return sorted(paths)


def _inside(folder: Path) -> list[Path]:
    """The tables in a folder; others' marks, such as _SUCCESS, are none."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith((".", "_")) and table_kind(path) in KINDS
    ]


def _schema(path: Path, as_texts: Collection[str]) -> Any:
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    try:
        if table_kind(path) == ".parquet":
            schema = read_schema(path)
        else:
            with _open_csv(path, None, None) as batches:
                schema = batches.schema
    except DAMAGE as error:
        raise damaged(path, error) from None
    return pa.schema(
        [
            field.with_type(pa.string())
            if table_kind(path) != ".parquet" and is_named(field.name, as_texts)
            else field.with_type(pa.dictionary(pa.int32(), pa.string()))
            if table_kind(path) == ".parquet" and _is_text(field.type)
            else field
            for field in schema
        ]
    )


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _texts(schema: Any) -> list[str]:
    """The columns that are read as numbers of texts, which is several times faster."""
    import pyarrow as pa

    return [field.name for field in schema if pa.types.is_dictionary(field.type)]


@contextmanager
def _open_csv(path: Path, schema: Any, columns: list[str] | None) -> Iterator[Any]:
    from pyarrow import csv

    separator = separator_of(table_kind(path), lambda: unpacked(path))
    with (
        unpacked(path) as file,
        csv.open_csv(
            file,
            csv.ReadOptions(block_size=2**24),
            csv.ParseOptions(delimiter=separator),
            csv.ConvertOptions(
                include_columns=columns,
                column_types=schema,
                strings_can_be_null=True,
            ),
        ) as batches,
    ):
        yield batches

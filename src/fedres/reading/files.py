"""Files of a table: which a name stands for, what kind each is, and how it is opened.

The kind of a file is told by its first bytes, and by its suffix only if these leave a choice.
"""

import lzma
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote

STANDARD_INPUT = "-"
PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".lz4": "lz4"}
TEXT_TABLES = (".csv", ".tsv", ".psv", ".jsonl", ".ndjson", ".json")
TABLES = (*TEXT_TABLES, ".parquet", ".pq", ".feather", ".arrow", ".ipc", ".orc")
MOST_QUOTED = 60  # characters of a user's data in an error
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
PACKED_BYTES = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
KINDS = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow stream", b"ORC": "orc"}
EXCEL = "an Excel workbook or a zip archive: save its sheet as CSV"
REFUSED = {
    b"PK\x03\x04": EXCEL,
    b"\xd0\xcf\x11\xe0": EXCEL,
    b"SQLite format 3\x00": "an SQLite database: export a table, as by "
    "sqlite3 -header -csv FILE 'select * from TABLE'",
    b"FEA1": "a Feather file of the old version 1: write it again by pyarrow.feather",
    b"Obj\x01": "an Avro file: convert it to Parquet",
    b"\x89HDF": "an HDF5 file: convert it to Parquet, as by pandas.read_hdf(...).to_parquet(...)",
}
SVMLIGHT_LINE = re.compile(rb"[-+.\deE]+(\s+qid:\d+)?(\s+\d+:[-+.\deEnaif]+)+\s*(#.*)?")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# What the libraries raise when a file is not what it should be.
UNREADABLE = (ValueError, EOFError, OSError, OverflowError, lzma.LZMAError)


class NoRowsError(ValueError):
    """A table that has columns and no rows."""


@dataclass(frozen=True, eq=False)
class TableFile:
    """One file of a table.

    Attributes
    ----------
    path, filesystem
        Where it is, as pyarrow has it.
    name
        What to call it in messages.
    size, modified
        Bytes, and the time of the last change in nanoseconds; None if that is not known.
    partition
        Columns whose value is in the path, such as ``date=2020-01-01/``.
    content
        The bytes themselves if they came from standard input.
    packed
        How it is compressed, as pyarrow calls it; empty if it is not.
    kind
        ``csv``, ``json lines``, ``json records``, ``parquet``, ``arrow``, ``arrow stream``,
        ``orc`` or ``svmlight``.
    """

    path: str
    filesystem: Any
    name: str
    size: int
    modified: int | None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    content: bytes | None = None
    packed: str = ""
    kind: str = ""

    def open(self) -> IO[bytes]:
        """Open it as a stream of unpacked bytes."""
        import pyarrow as pa

        if self.content is not None:
            raw: Any = pa.BufferReader(self.content)
        else:
            raw = self.filesystem.open_input_file(self.path)
        if self.packed == "xz":
            return lzma.open(raw)
        stream: IO[bytes] = pa.CompressedInputStream(raw, self.packed) if self.packed else raw
        return stream

    def seekable(self) -> Any:
        """Open it for readers that jump about; what is compressed is unpacked into memory."""
        import pyarrow as pa

        opened = self.open()
        if not self.packed:
            return opened
        with opened:
            return pa.BufferReader(opened.read())

    def refuse_changed(self) -> None:
        """Raise if the file is not what it was when it was found."""
        if self.content is None:
            now = self.filesystem.get_file_info(self.path)
            if (now.size, now.mtime_ns) != (self.size, self.modified):
                raise self.changed()

    def changed(self) -> ValueError:
        """Return the error that the file changed while it was read."""
        return ValueError(
            f"{self.name} changed while it was read: run the command again when nothing writes it"
        )

    def damaged(self, why: Exception | str) -> ValueError:
        """Return the error that the file cannot be read, with little of its content."""
        lines = str(why).strip().splitlines() or [type(why).__name__]
        reason = shortened(lines[0].rstrip("."), MOST_QUOTED + 50)
        return ValueError(f"{self.name} is cut short or damaged: {reason}")


def shortened(text: str, most: int = MOST_QUOTED) -> str:
    """Return the beginning of a text.

    Examples
    --------
    >>> shortened("abcdef", 5)
    'ab...'
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def is_several(name: str) -> bool:
    """Return whether a name stands for a folder, a pattern or a URL, and not for one local file."""
    return "://" in name or (not Path(name).is_file() and (has_magic(name) or Path(name).is_dir()))


def find_files(name: str) -> list[TableFile]:
    """Return the files that a name stands for, in the order of their paths.

    Parameters
    ----------
    name
        A file, a folder, a pattern such as ``events/*.parquet``, a URL such as ``s3://...``, or
        ``-`` for CSV from standard input.
    """
    if name == STANDARD_INPUT:
        content = sys.stdin.buffer.read()
        found = [TableFile(name, None, "standard input", len(content), None, content=content)]
    else:
        filesystem, base, infos = _listed(name)
        found = [
            TableFile(
                info.path,
                filesystem,
                _shown(name, info.path),
                info.size,
                info.mtime_ns,
                _partition(info.path, base),
            )
            for info in infos
        ]
    return [_with_kind(file) for file in found]


def _listed(name: str) -> tuple[Any, str, list[Any]]:
    """Return the file system, the folder that partitions begin in, and the files."""
    from pyarrow import fs

    if "://" in name:
        try:
            filesystem, path = fs.FileSystem.from_uri(name)
        except (ValueError, OSError) as error:
            raise ValueError(f"cannot open {name}: {shortened(str(error), 200)}") from None
    else:
        filesystem, path = fs.LocalFileSystem(), str(Path(name).expanduser())
    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.File:
        return filesystem, str(PurePosixPath(path).parent), [info]
    pattern = None
    if info.type == fs.FileType.NotFound and has_magic(path):
        pattern, path = path, _fixed_part(path)
    if pattern is None or "://" in name:
        selector = fs.FileSelector(path, allow_not_found=True, recursive=True)
        inside = [one for one in filesystem.get_file_info(selector) if one.is_file]
        if pattern is not None:
            inside = [one for one in inside if fnmatchcase(one.path, pattern)]
    else:
        named = filesystem.get_file_info(sorted(glob(pattern, recursive=True)))
        inside = [one for one in named if one.is_file]
        for folder in (one.path for one in named if not one.is_file):
            selector = fs.FileSelector(folder, recursive=True)
            inside += [one for one in filesystem.get_file_info(selector) if one.is_file]
    inside = sorted(_tables(path, inside), key=lambda one: str(one.path))
    if not inside:
        raise ValueError(
            f"there is no file {name}: give a table such as CSV or Parquet, a folder of them, a "
            "pattern in quotes such as 'events/*.parquet', or svmlight text"
        )
    return filesystem, path, inside


def _fixed_part(pattern: str) -> str:
    parts = PurePosixPath(pattern).parts
    fixed = next(i for i, part in enumerate(parts) if has_magic(part))
    return str(PurePosixPath(*parts[:fixed])) if fixed else "."


def _tables(base: str, infos: Sequence[Any]) -> Iterator[Any]:
    """Pass on the files of a folder that are tables; those such as _SUCCESS are not."""
    visible = [
        info
        for info in infos
        if not any(part.startswith((".", "_")) for part in _relative(info.path, base).parts)
    ]
    named = [info for info in visible if _suffixes(info.path)[0] in TABLES]
    if named and (others := len(visible) - len(named)):
        other = next(info for info in visible if info not in named)
        warnings.warn(
            f"{others} file{'s' * (others > 1)} in {base} without the name of a table, such as "
            f"{PurePosixPath(other.path).name}, {'are' if others > 1 else 'is'} left out",
            stacklevel=2,
        )
    yield from named or visible


def _relative(path: str, base: str) -> PurePosixPath:
    if base == ".":
        return PurePosixPath(path)
    try:
        return PurePosixPath(path).relative_to(base)
    except ValueError:
        return PurePosixPath(PurePosixPath(path).name)


def _shown(name: str, path: str) -> str:
    return f"{name.split('://', maxsplit=1)[0]}://{path}" if "://" in name else str(Path(path))


def _partition(path: str, base: str) -> dict[str, str | None]:
    pairs = (part.split("=", 1) for part in _relative(path, base).parts[:-1] if "=" in part)
    return {unquote(key): None if value == NO_PARTITION else unquote(value) for key, value in pairs}


def _suffixes(path: str) -> tuple[str, str]:
    """Return the suffix of what is inside, and that of how it is compressed."""
    name = PurePosixPath(path.lower())
    packed = name.suffix if name.suffix in PACKED else ""
    return (PurePosixPath(name.stem).suffix if packed else name.suffix), packed


def _with_kind(file: TableFile) -> TableFile:
    if file.size == 0:
        raise ValueError(f"{file.name} is empty: give a file with rows")
    try:
        with file.open() as stream:
            start = stream.read(8)
        for magic, packed in PACKED_BYTES.items():
            if start.startswith(magic):
                file = replace(file, packed=packed)
        if not file.packed and (ending := _suffixes(file.path)[1]):
            raise ValueError(f"its name ends in {ending}, and it is not compressed so")
        with file.open() as stream:
            start = stream.read(2**16)
    except UNREADABLE as error:
        raise file.damaged(error) from None
    return replace(file, kind=_kind(file, start))


def _kind(file: TableFile, start: bytes) -> str:
    for magic, kind in KINDS.items():
        if start.startswith(magic):
            return kind
    for magic, why in REFUSED.items():
        if start.startswith(magic):
            raise ValueError(f"{file.name} is {why}")
    suffix = _suffixes(file.path)[0]
    if suffix in TABLES and suffix not in TEXT_TABLES:
        raise file.damaged(f"its name ends in {suffix}, and its first bytes are not such a file's")
    if start.startswith(UTF_16):
        return "csv"
    if b"\x00" in start:
        raise ValueError(
            f"{file.name} is a binary file of a kind that is not read: convert it to Parquet or CSV"
        )
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return "json lines"
    if re.match(rb"\[\s*[{\]]", text):
        return "json records"
    first = text.splitlines()[0] if text else b""
    if suffix in TEXT_TABLES:
        return "csv"
    has_columns = re.search(rb"[,;\t|]", first) and not SVMLIGHT_LINE.fullmatch(first)
    return "csv" if has_columns or file.content is not None else "svmlight"

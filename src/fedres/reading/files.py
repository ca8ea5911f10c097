"""Files of a table: which a name stands for, what kind each is, and how it is opened.

The kind of a file is told by its first bytes, and by its suffix only if these leave a choice.
"""

import lzma
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import IO, Any
from urllib.parse import unquote

STANDARD_INPUT = "-"
PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".lz4": "lz4"}
LINES_OF_JSON = (".jsonl", ".ndjson")
JSON = (*LINES_OF_JSON, ".json")
TEXT_TABLES = (".csv", ".tsv", ".psv", *JSON)
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
UNREADABLE = (ValueError, TypeError, EOFError, OSError, OverflowError, lzma.LZMAError)
MOST_LISTED = 200  # characters of the names of columns in an error
STORES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
PATIENCE = 10  # seconds for a first answer of a store


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

    def binary(self) -> ValueError:
        """Return the error that the file holds bytes that no text has."""
        return ValueError(
            f"{self.name} is a binary file of a kind that is not read: convert it to Parquet or CSV"
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


def listed(names: Sequence[str]) -> str:
    """Return the names of columns for an error, not too many and none too long.

    Examples
    --------
    >>> listed(["age", " size"])
    "age, ' size'"
    """
    found: list[str] = []
    for name in names:
        shown = name if name == name.strip() != "" else repr(name)
        if len(", ".join(found)) + len(shown) > MOST_LISTED:
            return ", ".join([*found, "..."])
        found.append(shortened(shown))
    return ", ".join(found)


def without_password(name: str) -> str:
    """Return the name of a table without the user and password that a URL may hold.

    Examples
    --------
    >>> without_password("s3://ann:secret@bucket/a.csv")
    's3://...@bucket/a.csv'
    """
    return re.sub(r"://[^/]*@", "://...@", name)


def is_several(name: str) -> bool:
    """Return whether a name stands for a folder, a pattern or a URL, and not for one local file."""
    return "://" in name or Path(name).is_dir() or (has_magic(name) and not Path(name).exists())


def refuse_absent_table(name: str) -> None:
    """Raise if a table does not exist, as far as can be told without reaching over a network."""
    scheme, _, rest = name.partition("://")
    if name == STANDARD_INPUT:
        return
    if rest and scheme != "file":
        if scheme in ("http", "https", "ftp"):
            remedy = "download it, and name the file"
        else:
            remedy = "export the table as CSV or Parquet, and name the file"
        if scheme not in STORES:
            raise ValueError(f"{without_password(name)} is not read from {scheme}://: {remedy}")
        return
    path = Path(_local(name)).expanduser()
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{name} is a link to a file that does not exist: name a file")
    if not path.exists() and not (has_magic(str(path)) and glob(str(path), recursive=True)):
        raise _absent(name)
    if path.exists() and not (path.is_file() or path.is_dir() or path.is_fifo()):
        raise ValueError(f"{name} is a device: name a file")


def _absent(name: str) -> ValueError:
    return ValueError(
        f"there is no file {without_password(name)}: give a table such as CSV or Parquet, a folder "
        "of them, a pattern in quotes such as 'events/*.parquet', or svmlight text"
    )


def _local(name: str) -> str:
    """Return the path of a local file, also of a URL, in which blanks may be %20 or not."""
    path = name.removeprefix("file://")
    is_url = path != name and not Path(path).exists()
    return unquote(path.removeprefix("localhost")) if is_url else path


def find_files(name: str) -> list[TableFile]:
    """Return the files that a name stands for, in the order of their paths.

    Parameters
    ----------
    name
        A file, a folder, a pattern such as ``events/*.parquet``, a URL such as ``s3://...``, a
        named pipe, or ``-`` for standard input.
    """
    refuse_absent_table(name)
    if name == STANDARD_INPUT or Path(name).is_fifo():
        content = sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
        shown = "standard input" if name == STANDARD_INPUT else name
        return [_with_kind(TableFile(name, None, shown, len(content), None, content=content))]
    if "://" in name and not name.startswith("file://"):
        filesystem, infos = _in_store(name)
    else:
        filesystem, infos = _in_folders(name)
    return [
        _with_kind(
            TableFile(
                info.path,
                filesystem,
                _shown(name, info.path),
                info.size,
                info.mtime_ns,
                _partition(info.path),
            )
        )
        for info in infos
    ]


def _in_folders(name: str) -> tuple[Any, list[Any]]:
    """Return the local file system, and the files that a path or a pattern stands for."""
    from pyarrow import fs

    filesystem, path = fs.LocalFileSystem(), str(Path(_local(name)).expanduser())
    if Path(path).is_file():
        return filesystem, [filesystem.get_file_info(path)]
    base = path if Path(path).exists() else _fixed_part(path)
    named = [path] if Path(path).exists() else sorted(glob(path, recursive=True))
    inside: list[Any] = []
    for info in filesystem.get_file_info(named):
        selector = fs.FileSelector(info.path, recursive=True)
        inside += [info] if info.is_file else filesystem.get_file_info(selector)
    return filesystem, _tables(name, base, inside)


def _in_store(name: str) -> tuple[Any, list[Any]]:
    """Return the file system of a store, and the files that a URL stands for."""
    from pyarrow import fs

    def look() -> tuple[Any, str, Any]:
        # Google's client tries for minutes.
        is_limited = name.startswith(("gs://", "gcs://")) and "retry_limit_seconds" not in name
        limit = f"{'&' if '?' in name else '?'}retry_limit_seconds=2" if is_limited else ""
        filesystem, path = fs.FileSystem.from_uri(name + limit)
        info = filesystem.get_file_info(path)
        return fs.FileSystem.from_uri(name)[0] if limit else filesystem, path, info

    filesystem, path, info = _bounded(look, name)
    if info.type == fs.FileType.File:
        return filesystem, [info]
    is_pattern = info.type == fs.FileType.NotFound and has_magic(path)
    base = _fixed_part(path) if is_pattern else path
    selector = fs.FileSelector(base, allow_not_found=True, recursive=True)
    inside = [
        one
        for one in filesystem.get_file_info(selector)
        if not is_pattern or fnmatchcase(one.path, path)
    ]
    return filesystem, _tables(name, base, inside)


def _bounded(look: Callable[[], Any], name: str) -> Any:
    """Look into a store, and do not wait for long."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(look())
        except Exception as error:
            found.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if not found or isinstance(found[0], Exception):
        scheme = name.partition("://")[0]
        raise ValueError(
            f"{without_password(name)} cannot be opened: check the name, the network and the "
            f"credentials for {scheme}://, or copy the file here"
        ) from None
    return found[0]


def _fixed_part(pattern: str) -> str:
    parts = PurePosixPath(pattern).parts
    fixed = next(i for i, part in enumerate(parts) if has_magic(part))
    return str(PurePosixPath(*parts[:fixed])) if fixed else "."


def _tables(name: str, base: str, inside: Sequence[Any]) -> list[Any]:
    """Return the files of a folder that are tables, sorted; those such as _SUCCESS are not."""
    visible = [
        info
        for info in inside
        if info.is_file
        and not any(part.startswith((".", "_")) for part in _relative(info.path, base).parts)
    ]
    named = [info for info in visible if _suffixes(info.path)[0] in TABLES]
    if named and (others := len(visible) - len(named)):
        other = next(info for info in visible if info not in named)
        warnings.warn(
            f"{others} file{'s' * (others > 1)} in {base} without the name of a table, such as "
            f"{PurePosixPath(other.path).name}, {'are' if others > 1 else 'is'} left out",
            stacklevel=2,
        )
    readable = named or [info for info in visible if not _is_document(info.path)]
    if not readable and Path(_local(name)).is_dir():
        raise ValueError(f"{name} holds no files to read: give a folder with tables")
    if not readable:
        raise _absent(name)
    return [one for _, one in sorted({str(one.path): one for one in readable}.items())]


def _is_document(path: str) -> bool:
    name = PurePosixPath(path.lower())
    return name.stem == "readme" or name.suffix in (".md", ".html", ".pdf")


def _relative(path: str, base: str) -> PurePosixPath:
    if base == ".":
        return PurePosixPath(path)
    try:
        return PurePosixPath(path).relative_to(base)
    except ValueError:
        return PurePosixPath(PurePosixPath(path).name)


def _shown(name: str, path: str) -> str:
    return f"{name.split('://', maxsplit=1)[0]}://{path}" if "://" in name else str(Path(path))


def _partition(path: str) -> dict[str, str | None]:
    pairs = (part.split("=", 1) for part in PurePosixPath(path).parts[:-1] if "=" in part)
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
        with file.open() as stream:
            start = stream.read(2**16)
    except UNREADABLE as error:
        raise file.damaged(error) from None
    suffix, ending = _suffixes(file.path)
    if ending and not file.packed:
        raise ValueError(f"{file.name}: its name ends in {ending}, and it is not compressed so")
    return replace(file, kind=_kind(file, start, suffix))


def _kind(file: TableFile, start: bytes, suffix: str) -> str:
    for magic, kind in KINDS.items():
        if start.startswith(magic):
            return kind
    for magic, why in REFUSED.items():
        if start.startswith(magic):
            raise ValueError(f"{file.name} is {why}")
    if suffix in TABLES and suffix not in TEXT_TABLES:
        raise ValueError(
            f"{file.name}: its name ends in {suffix}, and its first bytes are not such a file's: "
            "name it as what it is, or write it again"
        )
    is_utf_16 = start.startswith(UTF_16)
    text = start.decode("utf-16", "ignore").encode() if is_utf_16 else start
    text = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    is_json = re.match(rb"{|\[\s*[{\[\]]", text) or suffix in JSON
    half = len(start) // 2
    if (is_utf_16 and is_json) or (start[:8] and start.count(b"\x00") == half > 2):
        raise ValueError(f"{file.name} is text in UTF-16: save it as UTF-8")
    if is_utf_16:
        return "csv"
    if b"\x00" in start:
        raise file.binary()
    if is_json:
        is_list = text.startswith(b"[") and suffix not in LINES_OF_JSON
        return "json records" if is_list else "json lines"
    first = text.splitlines()[0] if text else b""
    if suffix in TEXT_TABLES:
        return "csv"
    has_columns = re.search(rb"[,;\t|]", first) and not SVMLIGHT_LINE.fullmatch(first)
    return "csv" if has_columns or file.content is not None else "svmlight"

"""Files of labelled rows: found, unpacked, parsed once, then read from a cache."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import warnings
import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import scipy

from fedres.core.files import whole_file
from fedres.core.types import F32, F64, I64
from fedres.simulation.known_sets import KnownSet, SetFiles

if TYPE_CHECKING:
    import pandas as pd
    from scipy import sparse

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
TABLES = (".csv", ".parquet")
LABELS = ("label", "class", "target", "y")
LARGEST = 16 * 2**30
DAMAGE = (ValueError, EOFError, OSError, OverflowError, lzma.LZMAError, zlib.error)


def data_folder() -> Path | None:
    """The user's folder of data sets, FEDRES_DATA, or None where it is not set."""
    folder = os.environ.get("FEDRES_DATA")
    return Path(folder).expanduser() if folder else None


def cache_folder() -> Path:
    """Where downloads and parsed files go: FEDRES_CACHE, or the user's cache folder."""
    if folder := os.environ.get("FEDRES_CACHE"):
        return Path(folder).expanduser()
    import pooch

    return Path(pooch.os_cache("fedres"))


def downloads_folder() -> Path:
    """Where downloads go."""
    return cache_folder() / "downloads"


def find(
    known: KnownSet, sources: Sequence[SetFiles] | None = None
) -> tuple[SetFiles, list[Path]] | None:
    """The files of a set, in FEDRES_DATA or among the downloads, or None where some are absent."""
    for folder in filter(None, (data_folder(), downloads_folder())):
        for source in known.sources if sources is None else sources:
            named = [
                [path for end in ("", *OPENERS) if (path := folder / (file + end)).is_file()]
                for file in source.files
            ]
            if all(named):
                return source, [paths[0] for paths in named]
    return None


def read(path: Path, shape: tuple[int, int] | None = None) -> tuple[F32, I64]:
    """Features and labels of a file; a file that has not changed is parsed once.

    It must have as many rows as `shape` says, and at most as many features.
    """
    stat = path.stat()
    x, y = _read(path.resolve(), stat.st_mtime_ns, stat.st_size, shape)
    # Callers may change what they get. Read-only arrays would be no way out: for them numba
    # compiles every kernel again.
    return x.copy(), y.copy()


# Training and test rows of two sets stay in memory, not more: some are large.
@lru_cache(maxsize=4)
def _read(path: Path, _modified: int, _size: int, shape: tuple[int, int] | None) -> tuple[F32, I64]:
    kind = kind_of(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    # The number is that of this format: a new way of parsing must not meet old entries.
    entry = cache_folder() / "parsed-1" / f"{digest}{kind}.npz"
    cached = _recall(entry)
    x, y = cached or _parse(path, kind)
    if shape and (len(y) != shape[0] or x.shape[1] > shape[1]):
        raise ValueError(
            f"{path} is cut short or damaged: it has {len(y)} rows of {x.shape[1]} features, "
            f"the set has {shape[0]} of {shape[1]} (rows of your own load by path)"
        )
    if cached is None:
        _keep(entry, x, y)
    return x, y


def kind_of(path: Path, tables: Collection[str] = TABLES) -> str:
    """The ending of a table's name, or `.svm` for all other names: LIBSVM's own have many."""
    suffix = Path(path.stem).suffix if path.suffix in OPENERS else path.suffix
    return suffix.lower() if suffix.lower() in tables else ".svm"


def _recall(entry: Path) -> tuple[F32, I64] | None:
    # Whatever is wrong with an entry (zip sums tell), it can be made again.
    with (
        suppress(Exception),
        entry.open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        x, y = arrays["x"], arrays["y"]
        if (x.dtype, y.dtype, x.ndim, y.shape) == (np.float32, np.int64, 2, x.shape[:1]):
            return x, y
    return None


def _keep(entry: Path, x: F32, y: I64) -> None:
    """Write a cache entry, whole or not at all; without room for it, life goes on."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(entry) as file:
            np.savez(file, x=x, y=y)
    except OSError as error:
        warnings.warn(f"not cached, FEDRES_CACHE may name another folder: {error}", stacklevel=2)


def _parse(path: Path, kind: str) -> tuple[F32, I64]:
    parse = _parse_svmlight if kind == ".svm" else _parse_table
    with unpacked(path) as stream:
        return parse(path, stream)


def unpacked(path: Path) -> IO[bytes]:
    """The file opened for reading, unpacked as its ending says."""
    stream: IO[bytes] = OPENERS.get(path.suffix, open)(path, "rb")
    return stream


def damaged(path: Path, why: Exception | str) -> ValueError:
    """The error that a file cannot be read."""
    reason = str(why).strip().rstrip(".") or type(why).__name__
    return ValueError(f"{path} is cut short or damaged: {reason}")


def _parse_svmlight(path: Path, stream: IO[bytes]) -> tuple[F32, I64]:
    # "auto" counts from 1 as LIBSVM does, unless the index 0 occurs.
    x, y, _ = read_svmlight(path, stream, zero_based="auto")
    if 4 * x.shape[0] * x.shape[1] > LARGEST:
        raise ValueError(f"{path} has {x.shape[1]} features, too many to hold as a dense table")
    is_class = (np.abs(y) < 2**53) & (y == np.rint(y))
    if (wrong := np.flatnonzero(~is_class)).size:
        raise ValueError(f"{path}: label {y[wrong[0]]} in row {wrong[0] + 1} is not a class number")
    return x.toarray(), y.astype(np.int64)


def read_svmlight(
    path: Path, stream: IO[bytes], zero_based: bool | str
) -> "tuple[sparse.csr_array, F64, I64]":
    """Features, targets and, where given, ``qid:`` of svmlight text."""
    from sklearn.datasets import load_svmlight_file

    try:
        x, y, qid = load_svmlight_file(
            stream, dtype=np.float32, zero_based=zero_based, query_id=True
        )
    except DAMAGE as error:
        raise ValueError(f"{damaged(path, error)} (read as svmlight text)") from None
    if x.nnz == 0:
        raise damaged(path, "it holds no rows of features")
    if not np.isfinite(x.data).all():
        row = np.searchsorted(x.indptr, np.flatnonzero(~np.isfinite(x.data))[0], side="right")
        raise damaged(path, f"row {row} has a feature that is not finite")
    return scipy.sparse.csr_array(x), y, qid


def _parse_table(path: Path, stream: IO[bytes]) -> tuple[F32, I64]:
    import pandas as pd

    try:
        is_csv = kind_of(path) == ".csv"
        frame = _read_csv(stream) if is_csv else pd.read_parquet(io.BytesIO(stream.read()))
    except DAMAGE as error:
        raise damaged(path, error) from None
    if len(frame) == 0 or len(frame.columns) < 2:
        raise damaged(path, "it holds no rows of features")
    names = [str(name).lower() for name in frame.columns]
    label = next((names.index(name) for name in LABELS if name in names), len(names) - 1)
    features = frame.iloc[:, [i for i in range(len(names)) if i != label]]
    for name, column in features.items():
        if not pd.api.types.is_numeric_dtype(column):
            raise ValueError(
                f"{path}: column {name!r} is not numeric ({column.iloc[0]!r}): encode it as numbers"
            )
    with np.errstate(over="ignore"):
        x = features.to_numpy(np.float32, na_value=np.nan)
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        where = f"row {row + 1}, column {features.columns[column]!r}"
        raise damaged(path, f"{x[row, column]} in {where} (remove or fill such values)")
    y, _ = pd.factorize(frame.iloc[:, label], sort=True)
    if (missing := np.flatnonzero(y < 0)).size:
        raise damaged(path, f"row {missing[0] + 1} has no label")
    return np.ascontiguousarray(x), y.astype(np.int64)


def _read_csv(stream: IO[bytes]) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.read_csv(stream, low_memory=False)
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError("its lines have more fields than its first line has names")
    refuse_numbers_as_names(frame)
    return frame


def refuse_numbers_as_names(frame: "pd.DataFrame") -> None:
    """Refuse a CSV file without a line of names."""
    import pandas as pd

    # pandas makes 8, 8 in the first line 8, 8.1: so repeated whole numbers are seen as well.
    numbers = pd.to_numeric(frame.columns.to_series(), errors="coerce")
    if (numbers % 1 > 0).any():
        raise ValueError("its first line holds numbers, not the names of columns")

"""Files of labelled rows: found, parsed once, then read from a cache."""

import hashlib
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedres.core.files import whole_file
from fedres.core.types import F32, I64
from fedres.reading.files import PACKED, TableFile, find_files, shortened
from fedres.reading.formats import read_svmlight
from fedres.reading.table_files import TableFiles
from fedres.simulation.known_sets import KnownSet, SetFiles

LABELS = ("label", "class", "target", "y")
LARGEST = 16 * 2**30


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
                [path for end in ("", *PACKED) if (path := folder / (file + end)).is_file()]
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
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    # The number is that of this format: a new way of parsing must not meet old entries.
    entry = cache_folder() / "parsed-2" / f"{digest}.npz"
    cached = _recall(entry)
    x, y = cached or _parse(find_files(str(path))[0])
    if shape and (len(y) != shape[0] or x.shape[1] > shape[1]):
        raise ValueError(
            f"{path} is cut short or damaged: it has {len(y)} rows of {x.shape[1]} features, "
            f"the set has {shape[0]} of {shape[1]} (rows of your own load by path)"
        )
    if cached is None:
        _keep(entry, x, y)
    return x, y


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
    except (OSError, ValueError) as error:
        warnings.warn(f"not cached, FEDRES_CACHE may name another folder: {error}", stacklevel=2)


def _parse(file: TableFile) -> tuple[F32, I64]:
    return _parse_svmlight(file) if file.kind == "svmlight" else _parse_table(file)


def _parse_svmlight(file: TableFile) -> tuple[F32, I64]:
    # "auto" counts from 1 as LIBSVM does, unless the index 0 occurs.
    x, y, _ = read_svmlight(file, zero_based="auto")
    if 4 * x.shape[0] * x.shape[1] > LARGEST:
        raise ValueError(
            f"{file.name} has {x.shape[1]} features, too many to hold as a dense table"
        )
    is_class = (np.abs(y) < 2**53) & (y == np.rint(y))
    if (wrong := np.flatnonzero(~is_class)).size:
        raise ValueError(
            f"{file.name}: label {y[wrong[0]]} in row {wrong[0] + 1} is not a class number"
        )
    return x.toarray(), y.astype(np.int64)


def _parse_table(file: TableFile) -> tuple[F32, I64]:
    import pandas as pd

    frame = TableFiles.of([file]).read()
    if len(frame.columns) < 2:
        raise file.damaged("it holds no rows of features")
    names = [str(name).lower() for name in frame.columns]
    label = next((names.index(name) for name in LABELS if name in names), len(names) - 1)
    features = frame.iloc[:, [i for i in range(len(names)) if i != label]]
    for name, column in features.items():
        if not pd.api.types.is_numeric_dtype(column):
            raise ValueError(
                f"{file.name}: column {name!r} is not numeric "
                f"({shortened(repr(column.iloc[0]))}): encode it as numbers"
            )
    with np.errstate(over="ignore"):
        x = features.to_numpy(np.float32, na_value=np.nan)
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        where = f"row {row + 1}, column {features.columns[column]!r}"
        raise file.damaged(f"{x[row, column]} in {where} (remove or fill such values)")
    y, _ = pd.factorize(frame.iloc[:, label], sort=True)
    if (missing := np.flatnonzero(y < 0)).size:
        raise file.damaged(f"row {missing[0] + 1} has no label")
    return np.ascontiguousarray(x), y.astype(np.int64)

"""Multiclass data sets, by name or by path."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from fedres.core.display import Displayed, Grid
from fedres.core.types import F32, F64, I64
from fedres.simulation.data_files import data_folder, find, read
from fedres.simulation.federation import Federation
from fedres.simulation.known_sets import SETS, KnownSet, SetFiles
from fedres.simulation.shops import generate_shops


@dataclass(frozen=True, repr=False)
class Dataset(Displayed):
    """A multiclass data set.

    Attributes
    ----------
    name
        How it is called in tables and figures.
    x, y
        Rows of features and their classes.
    x_test, y_test
        Its own test rows, or None: then a third of the rows is held out when it is federated.
    note
        What a figure must say of it, such as that it is a sample.
    deal
        How it is dealt to so many clients by a seed, where that is not the paper's split.
    """

    name: str
    x: F32
    y: I64
    x_test: F32 | None = None
    y_test: I64 | None = None
    note: str = ""
    deal: Callable[[int, int], Federation] | None = None

    def _display(self) -> Iterator[str | Grid]:
        yield f"Data set {self.name}{f', {self.note}' if self.note else ''}"
        tests = 0 if self.y_test is None else len(self.y_test)
        cells = [len(self.y), tests, self.x.shape[1], len(np.unique(self.y))]
        heads = ["rows", "test rows", "features", "classes"]
        yield Grid(heads, [[f"{cell:,}" for cell in cells]], 0)

    @cached_property
    def rows_by_class(self) -> tuple[dict[int, I64], dict[int, I64]]:
        """Which training rows and which test rows each class of the training rows has."""
        classes = np.unique(self.y).tolist()
        tests = np.empty(0, np.int64) if self.y_test is None else self.y_test
        train, test = (
            {c: np.flatnonzero(labels == c) for c in classes} for labels in (self.y, tests)
        )
        return train, test


def load_data(name: str | PathLike[str]) -> Dataset:
    """Return the data set of that name, or the one in that file.

    Named sets are looked for in the folder FEDRES_DATA and among the downloads of
    ``fedres data get``; `fedres.simulation.known_sets.SETS` holds what is known of them. Where
    sensorless is absent its sample sensorless2200 is returned, whose name and note say so.

    Parameters
    ----------
    name
        The name of a set; ``shops``, which is generated; or the path of any other svmlight, CSV
        (``.csv``) or Parquet (``.parquet``) file, plain or compressed (``.gz``, ``.bz2``,
        ``.xz``). In a CSV or Parquet file the label is the column `label`, `class`, `target` or
        `y`, otherwise the last one; its
        values are numbered in their order, from 0. All other columns must be numeric.

    Examples
    --------
    >>> load_data("digits").x.shape
    (1797, 64)
    """
    name = fspath(name)
    if name == "shops":
        return Dataset(
            name, np.empty((0, 0), np.float32), np.empty(0, np.int64), deal=generate_shops
        )
    if name == "digits":
        rows = _rows_of_digits()
        return Dataset(name, (rows[:, :-1] / 16).astype(np.float32), rows[:, -1].astype(np.int64))
    if name in SETS:
        return _named(SETS[name])
    path = Path(name).expanduser()
    if path.is_dir():
        raise ValueError(f"{name} is a folder: give a file, or read a model in it by load_model")
    if not path.is_file():
        raise ValueError(
            f"there is neither a data set nor a file {name!r}: choose one of "
            f"{', '.join(SETS)}, or give the path of an svmlight, CSV or Parquet file"
        )
    return Dataset(path.name.split(".")[0] or path.name, *read(path))


def _rows_of_digits() -> F64:
    # Straight from scikit-learn's file: to import it takes longer than to compare on the digits.
    found = find_spec("sklearn")
    for folder in (found and found.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            with gzip.open(file, "rt") as lines:
                return np.loadtxt(lines, delimiter=",")
    from sklearn.datasets import load_digits

    return np.column_stack(load_digits(return_X_y=True))


def _named(known: KnownSet) -> Dataset:
    data = read_files(known, known.sources)
    if data is None:
        if known.sample and find(SETS[known.sample]):
            return _named(SETS[known.sample])
        command = f"run `fedres data get {known.name}`, or " if known.downloads else ""
        raise ValueError(f"{known.name} is not here: {command}{where_to_put(known)}")
    return data


def read_files(known: KnownSet, sources: Sequence[SetFiles]) -> Dataset | None:
    """A set from the first of these sources that is here, or None."""
    found = find(known, sources)
    if found is None:
        return None
    source, paths = found
    parts = [
        read(path, (rows, known.features)) for path, rows in zip(paths, known.rows, strict=True)
    ]
    width = max(x.shape[1] for x, _ in parts)
    arrays = [array for x, y in parts for array in (_scaled(x, width, source.divide), y)]
    rows: dict[str, Any] = dict(zip(("x", "y", "x_test", "y_test"), arrays, strict=False))
    return Dataset(known.name, **rows, note=source.note or known.note)


def _scaled(x: F32, width: int, divide: float) -> F32:
    # svmlight leaves out zeros, so a part that lacks the last features is narrower.
    if x.shape[1] < width:
        x = np.pad(x, ((0, 0), (0, width - x.shape[1])))
    return x if divide == 1 else x / np.float32(divide)


def where_to_put(known: KnownSet) -> str:
    """Say in words which files of a set to put where."""
    files = ", or ".join(" and ".join(source.files) for source in known.sources)
    folder = data_folder()
    if folder is None:
        where = "a folder and set FEDRES_DATA to it"
    else:
        where = f"{folder} (FEDRES_DATA{'' if folder.is_dir() else ': no such folder yet'})"
    return f"put {files} (plain, .gz, .bz2 or .xz) into {where}"

"""Tables of users: files of rows, each with a client, a label and perhaps a time."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedres.core.types import F64, I64
from fedres.simulation.data_files import read_svmlight, unpacked
from fedres.tables.cell_values import as_floats, factorise, place_of
from fedres.tables.client_ids import WHOLE
from fedres.tables.table_files import KINDS, STANDARD_INPUT, read_frame, shown, table_kind

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]


@dataclass(frozen=True)
class Table:
    """Rows of a table.

    Attributes
    ----------
    frame
        The columns that are features: a DataFrame, an array, or a CSR matrix.
    y
        The label of every row, as it was given.
    client
        The client of every row, a whole number or a string; None where there is none.
    time
        The time of every row; dates are seconds.
    """

    frame: "pd.DataFrame | Array | sparse.csr_array"
    y: Array | None = None
    client: Array | None = None
    time: F64 | None = None

    def __len__(self) -> int:
        return int(self.frame.shape[0])

    def take(self, rows: I64) -> "Table":
        """Those rows, in that order."""
        frame = self.frame.iloc[rows] if hasattr(self.frame, "iloc") else self.frame[rows]
        return Table(
            frame, *(None if a is None else a[rows] for a in (self.y, self.client, self.time))
        )

    def without(self, columns: Collection[str]) -> "Table":
        """The same without some columns, also by wildcards."""
        from fedres.tables.input_rows import Input

        frame: Any = self.frame
        if not hasattr(frame, "columns"):
            raise ValueError(f"there are no names of columns, such as {', '.join(columns)}")
        unwanted = Input(frame).matching([*columns], "ignore")
        return replace(self, frame=frame.drop(columns=unwanted))


def read_table(
    path: str | PathLike[str],
    *,
    client: str | None,
    label: str | None,
    time: str | None = None,
    categorical: Collection[str] = (),
    optional: Collection[str] = (),
    known_clients: Array | None = None,
    width: int = 0,
) -> Table:
    r"""Read a file of rows, and sort them by time.

    It is a table if its name ends in ``.csv``, ``.tsv``, ``.jsonl`` (or ``.ndjson``) or
    ``.parquet``, and otherwise svmlight text.

    In svmlight text the target is the label, ``qid:`` the client, and feature 7 is column x7.

    Parameters
    ----------
    path
        The file, also compressed (``.gz``, ``.bz2``, ``.xz``); ``-`` is CSV from standard input.
    client, label, time
        The columns that are no features, None for what there is not.
    categorical
        Columns of categories, also by wildcards: like those of clients, their values keep the
        zeros that they begin with.
    optional
        Which of ``client``, ``label`` and ``time`` need not be there. Single rows may then lack
        their client, too.
    known_clients
        Ids of a model: those read become numbers or strings, as these are.
    width
        How many columns svmlight text is known to have: it does not say.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "films.csv"
    ...     _ = path.write_text("user,genre,stars,day\nann,Drama,4,2020-05-02\nbob,,5,2020-05-01")
    ...     table = read_table(path, client="user", label="stars", time="day")
    >>> table.client, table.y, list(table.frame)
    (array(['bob', 'ann'], dtype=object), array([5, 4]), ['genre'])
    """
    path = Path(path)
    if not (path == STANDARD_INPUT or path.is_file()):
        raise ValueError(f"there is no file {path}: give a CSV, Parquet or svmlight file")
    refuse_two_roles({"client": client, "label": label, "time": time})
    if table_kind(path) == ".svm":
        return _read_svmlight(path, client, time, optional, width)
    frame = read_frame(path, [*categorical, *([] if client is None else [client])])
    path = shown(path)
    there = ", ".join(map(str, frame.columns))
    columns = {}
    for role, name in (("client", client), ("label", label), ("time", time)):
        if name is None:
            continue
        if name in frame:
            columns[role] = frame.pop(name)
            if role != "client" or role not in optional:
                refuse_missing(path, role, columns[role])
        elif role not in optional:
            raise ValueError(f"{path} has no column {name!r} for the {role}: it has {there}")
    try:
        table = Table(
            frame,
            columns["label"].to_numpy(copy=True) if "label" in columns else None,
            client_ids(columns["client"], known_clients) if "client" in columns else None,
            _times(columns["time"]) if "time" in columns else None,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return table if table.time is None else table.take(np.argsort(table.time, kind="stable"))


def refuse_two_roles(columns: Mapping[str, Any]) -> None:
    """Refuse a column that is to be two of client, label and time."""
    for (role, name), (other, same) in combinations(columns.items(), 2):
        if isinstance(name, str) and isinstance(same, str) and name == same:
            raise ValueError(f"{role} and {other} are both column {name!r}: name two columns")


def _times(column: "pd.Series[Any]") -> F64:
    try:
        return as_floats(str(column.name), column)
    except ValueError as error:
        raise ValueError(f"{error}; times are numbers, or dates as yyyy-mm-dd") from None


def refuse_missing(path: Path, role: str, column: "pd.Series[Any]") -> None:
    """Refuse rows without a client, a label or a time."""
    missing = column.isna().to_numpy()
    if column.dtype.kind == "f":
        missing = missing | np.isinf(column.to_numpy(np.float64, na_value=np.nan))
    if missing.any():
        row = int(missing.argmax())
        raise ValueError(
            f"{path}: {place_of(column, row)} has {column.iloc[row]} for its {role}, in column "
            f"{column.name!r}: fill or remove such rows, {missing.sum()} in all"
        )


def client_ids(column: "pd.Series[Any]", known: Array | None) -> Array:
    """Client ids: whole numbers or strings, and None for those that are missing."""
    codes, uniques = factorise(column)
    # Whole numbers become floats as soon as one is missing.
    texts = [
        str(int(value))
        if isinstance(value, float | np.floating) and value.is_integer()
        else str(value)
        for value in uniques
    ]
    whole = [WHOLE.fullmatch(text) is not None for text in texts]
    if known is None:
        numbers = column.dtype.kind in "iuf" and all(whole)
    else:
        numbers = known.dtype.kind in "iu"
    ids = np.array([*texts, None], object)
    if numbers:
        ids[:-1][whole] = [
            int(text) for text, is_whole in zip(texts, whole, strict=True) if is_whole
        ]
    found: Array = ids[codes]
    return found.astype(np.int64) if numbers and all(whole) and (codes >= 0).all() else found


def _read_svmlight(
    path: Path, client: str | None, time: str | None, optional: Collection[str], width: int
) -> Table:
    if time is not None and "time" not in optional:
        raise ValueError(f"{path} is read as svmlight text, which has no times: give a CSV file")
    try:
        with unpacked(path) as stream:
            # Of two files only one may use feature 0: column numbers must not depend on that.
            x, y, qid = read_svmlight(path, stream, zero_based=True)
    except ValueError as error:
        raise ValueError(f"{error}; tables end in {', '.join(KINDS)}") from None
    x.resize(x.shape[0], max(width, x.shape[1]))
    if not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise ValueError(f"{path}: row {row + 1} has {y[row]} for its label: remove such rows")
    if len(qid) == len(y):
        return Table(x, y, qid)
    if len(qid) or (client is not None and "client" not in optional):
        raise ValueError(f"{path} has a client (qid:) in {len(qid)} of {len(y)} rows: give all one")
    return Table(x, y)

"""Tables of users: files of rows, each with a client, a label and perhaps a time."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedres.core.types import F64, I64
from fedres.reading.files import (
    NoRowsError,
    TableFile,
    find_files,
    listed,
    shortened,
    without_password,
)
from fedres.reading.formats import read_svmlight
from fedres.reading.table_files import TableFiles
from fedres.tables.cell_values import as_floats, factorise, place_of
from fedres.tables.client_ids import WHOLE, id_texts
from fedres.tables.input_rows import Input

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


def read_table(
    path: str | PathLike[str],
    *,
    client: str | None,
    label: str | None,
    time: str | None = None,
    categorical: Collection[str] = (),
    ignore: Collection[str] = (),
    optional: Collection[str] = (),
    known_clients: Array | None = None,
    width: int = 0,
    as_is: bool = False,
) -> Table:
    r"""Read a table into memory, and sort its rows by time.

    `fedres.reading` tells which files are read. In svmlight text the target is the label, ``qid:``
    the client, and feature 7 is column x7.

    Parameters
    ----------
    path
        A file, also compressed, a folder, a pattern, a URL, or ``-`` for CSV from standard input.
    client, label, time
        The columns that are no features, None for what there is not.
    categorical
        Columns of categories, also by wildcards: like those of clients, their values keep the
        zeros that they begin with.
    ignore
        Columns to leave out, also by wildcards.
    optional
        Which of ``client``, ``label`` and ``time`` need not be there. Single rows may then lack
        their client, too.
    known_clients
        Ids of a model: those read become numbers or strings, as these are.
    width
        How many columns svmlight text is known to have: it does not say.
    as_is
        Whether columns of types that no model can learn from are kept as they are.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "films.csv"
    ...     _ = path.write_text("user,genre,stars,day\nann,Drama,4,2020-05-02\nbob,,5,2020-05-01")
    ...     table = read_table(path, client="user", label="stars", time="day")
    >>> table.client, table.y, list(table.frame)
    (array(['bob', 'ann'], dtype=object), array([5, 4]), ['genre'])
    """
    roles = {"client": client, "label": label, "time": time}
    refuse_two_roles(roles)
    files = find_files(fspath(path))
    if [file.kind for file in files] == ["svmlight"]:
        if ignore:
            raise ValueError(f"{path} has no names of columns, such as {', '.join(ignore)}")
        return _read_svmlight(files[0], client, time, optional, width)
    table = TableFiles.of(files, [*categorical, *([] if client is None else [client])])
    name = files[0].name if len(files) == 1 else without_password(fspath(path))
    required = {role: column for role, column in roles.items() if role not in optional}
    refuse_absent(name, table.names, required)
    features = without(table.names, roles.values(), ignore)
    there = {role: column for role, column in roles.items() if column in table.names}
    try:
        frame = table.read(None if as_is else [*there.values(), *features])
        columns = {role: frame.pop(column) for role, column in there.items()}
        for role, column in columns.items():
            if role != "client" or role not in optional:
                refuse_missing(name, role, column)
        found = Table(
            frame[features],
            columns["label"].to_numpy(copy=True) if "label" in columns else None,
            client_ids(columns["client"], known_clients, table.may_be_numbers(str(client)))
            if "client" in columns
            else None,
            times(columns["time"]) if "time" in columns else None,
        )
    except NoRowsError:
        raise
    except ValueError as error:
        told = str(error).startswith((name, *(file.name for file in files)))
        raise ValueError(str(error) if told else f"{name}: {error}") from None
    return found if found.time is None else found.take(np.argsort(found.time, kind="stable"))


def refuse_absent(name: str, columns: Sequence[str], roles: Mapping[str, str | None]) -> None:
    """Raise if a table lacks the column of a client, a label or a time."""
    for role, column in roles.items():
        if column is not None and column not in columns:
            raise ValueError(
                f"{name} has no column {column!r} for the {role}: it has {listed(columns)}"
            )


def without(
    columns: Sequence[str], roles: Collection[str | None], ignore: Collection[str]
) -> list[str]:
    """Return the columns that are features."""
    import pandas as pd

    others = [name for name in columns if name not in roles]
    unwanted = Input(pd.DataFrame(columns=others)).matching([*ignore], "ignore")
    return [name for name in others if name not in unwanted]


def refuse_two_roles(columns: Mapping[str, Any]) -> None:
    """Refuse a column that is to be two of client, label and time."""
    for (role, name), (other, same) in combinations(columns.items(), 2):
        if isinstance(name, str) and isinstance(same, str) and name == same:
            raise ValueError(f"{role} and {other} are both column {name!r}: name two columns")


def times(column: "pd.Series[Any]") -> F64:
    """Return times as seconds; raise if they are none."""
    try:
        return as_floats(str(column.name), column)
    except ValueError as error:
        raise ValueError(f"{error}; times are numbers, or dates as yyyy-mm-dd") from None


def refuse_missing(path: str, role: str, column: "pd.Series[Any]") -> None:
    """Refuse rows without a client, a label or a time."""
    if any(isinstance(value, list | tuple | dict | np.ndarray) for value in column[:1]):
        raise ValueError(
            f"{path}: column {column.name!r} holds lists, and a {role} is one value: name another "
            "column"
        )
    missing = column.isna().to_numpy()
    if column.dtype.kind == "f":
        missing = missing | np.isinf(column.to_numpy(np.float64, na_value=np.nan))
    if missing.any():
        row = int(missing.argmax())
        value = "no value" if column.isna().iloc[row] else shortened(str(column.iloc[row]))
        raise ValueError(
            f"{path}: {place_of(column, row)} has {value} for its {role}, in column "
            f"{column.name!r}: fill or remove such rows, {missing.sum()} in all"
        )


def client_ids(column: "pd.Series[Any]", known: Array | None, in_csv: bool = False) -> Array:
    """Return client ids: whole numbers or strings, and None for those that are missing.

    Texts of CSV files are numbers if all of them are whole; 007 is a name.
    """
    codes, uniques = factorise(column)
    texts = id_texts(uniques)
    whole = [WHOLE.fullmatch(text) is not None for text in texts]
    if known is None:
        numbers = (in_csv or column.dtype.kind in "iuf") and all(whole)
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
    file: TableFile, client: str | None, time: str | None, optional: Collection[str], width: int
) -> Table:
    if time is not None and "time" not in optional:
        raise ValueError(
            f"{file.name} is read as svmlight text, which has no times: give a CSV file"
        )
    # Of two files only one may use feature 0: column numbers must not depend on that.
    x, y, qid = read_svmlight(file, zero_based=True)
    x.resize(x.shape[0], max(width, x.shape[1]))
    if not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise ValueError(f"{file.name}: row {row + 1} has {y[row]} for its label: remove such rows")
    if len(qid) == len(y):
        return Table(x, y, qid)
    if len(qid) or (client is not None and "client" not in optional):
        raise ValueError(
            f"{file.name} has a client (qid:) in {len(qid)} of {len(y)} rows: give all one"
        )
    return Table(x, y)

"""How the columns of a table were read, and which look otherwise than they were read."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedres.core.types import F64
from fedres.tables.cell_values import Values, are_times, as_floats, factorise, place_of
from fedres.tables.columns import Category, Column, Hashed, Number
from fedres.tables.input_rows import Input

FEWEST = 10  # different texts, to tell what they are
SAMPLE = 1000
MOST = 0.9  # of the texts in a sample
NARROW = 0.1  # standard deviations
EXACT = 1 - 1e-9  # correlation of a column that predicts the label
FEWEST_CORRELATED, ROWS_CORRELATED = 30, 100_000
FEWEST_COMPARED, ROWS_COMPARED = 30, 20_000
REPEATED = 0.05  # of rows that repeat another one
DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T].*)?")
ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)")


class ColumnWarning(UserWarning):
    """A column that looks otherwise than it was read."""


class LabelWarning(UserWarning):
    """Labels that are far from all others, that a column predicts exactly, or repeated rows."""


class LabelColumn(NamedTuple):
    """Name and values of the label, whether it is a class, and the client of each row."""

    name: str
    y: Any
    are_classes: bool
    client: Any = False


class ColumnReading(NamedTuple):
    """How a column was read: what it is, how many features it has, which models see it."""

    name: str
    kind: str
    features: int
    seen_by: str
    note: str


def readings(
    encoder: Any,
    X: Any,
    categorical: Sequence[str] | str | None = None,
    label: LabelColumn | None = None,
) -> list[ColumnReading]:
    """How an encoder reads the columns of a table.

    Parameters
    ----------
    encoder
        What was learned from these rows, or from most of them.
    X
        The rows.
    categorical
        Columns that were said to be categories, also by wildcards.
    label
        The label of the rows. It is listed only if it has a note.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedres.tables.encoder import Encoder
    >>> films = pd.DataFrame({"year": [1994, None, 2004], "genres": "Drama|War"})
    >>> for reading in readings(Encoder.fit(films, local=["genres"]), films):
    ...     print(*reading, sep=", ")
    year, number, 2, global, 1 missing
    genres, categories, 2, both,
    """
    rows = Input(X, like=encoder.source)
    meant = rows.matching(categorical or (), "categorical")
    known = {column.name: i for i, column in enumerate(encoder.columns)}
    of_label = {} if label is None else label_doubts(encoder, X, label)
    found = []
    for name in rows.names:
        if name not in known or (i := known[name]) not in {*encoder.global_, *encoder.local}:
            found.append(ColumnReading(name, "-", 0, "none", ""))
            continue
        column, sides = encoder.columns[i], {"global": encoder.global_, "local": encoder.local}
        seen_by = [side for side, numbers in sides.items() if i in numbers]
        kind, note = "scaled", ""
        if rows.source != "csr":
            values = rows[name]
            kind = _kind(column, values)
            facts = _facts(column, values, name in meant)
            note = "; ".join(filter(None, [of_label.get(i), facts]))
        in_words = seen_by[0] if len(seen_by) == 1 else "both"
        found.append(ColumnReading(name, kind, column.width, in_words, note))
    if label is not None and (why := of_label.get(None)):
        found.append(ColumnReading(label.name, "label", 0, "none", why))
    return found


def label_doubts(encoder: Any, X: Any, label: LabelColumn) -> dict[int | None, str]:
    """Return doubts about a label: by number of the column that predicts it, or None for itself."""
    import pandas as pd

    y = pd.Series(label.y, getattr(X, "index", None))
    doubts: dict[int | None, str] = {}
    if why := None if encoder.source == "csr" else _repeated(Input(X), label):
        doubts[None] = why
    if y.dtype.kind not in "biuf":
        return doubts
    column = Number.learn(label.name, y)
    if not label.are_classes and (why := _outlier(column, y, "leave out the row")):
        doubts[None] = "; ".join(filter(None, [why, doubts.get(None)]))
    if encoder.source == "csr":
        return doubts
    step = -(-len(y) // ROWS_CORRELATED)
    rows, z = Input(X[::step]), _standardised(column, y[::step])
    for i in sorted({*encoder.global_, *encoder.local}):
        other = encoder.columns[i]
        if isinstance(other, Number) and _are_one_line(z, _standardised(other, rows[other.name])):
            doubts[i] = (
                "predicts the label exactly: leave it out unless it is known before the label is"
            )
    return doubts


def _repeated(rows: Input, label: LabelColumn) -> str | None:
    """Return a doubt if rows are repeated that would hardly be equal by chance.

    Either all are repeated equally often, or numbers are labels that otherwise hardly ever repeat
    within a client.
    """
    import pandas as pd

    client = np.zeros(len(rows), np.int64)
    if label.client is not False:
        client = np.asarray(factorise(label.client)[0], np.int64)
    some = np.flatnonzero(client % -(-len(rows) // ROWS_COMPARED) == 0)[:ROWS_COMPARED]
    taken = Input(rows.x.iloc[some] if rows.source == "table" else rows.x[some])
    frame = pd.DataFrame({i: factorise(taken[name])[0] for i, name in enumerate(taken.names)})
    frame = frame.assign(client=client[some], y=factorise(np.asarray(label.y)[some])[0])
    counts = pd.util.hash_pandas_object(frame, index=False).value_counts().to_numpy()
    different = len(counts) - frame["client"].nunique()
    if different < FEWEST_COMPARED:
        return None
    labels = len(frame[["client", "y"]].drop_duplicates()) - frame["client"].nunique()
    share = 1 - len(counts) / len(frame)
    if np.gcd.reduce(counts) > 1 or (share >= REPEATED and labels > different / 2):
        return (
            f"{share:.0%} of rows repeat another one of the same client, label included: leave "
            "them out if they are copies, for held-out rows and intervals would tell nothing"
        )
    return None


def _standardised(column: Number, values: Values) -> F64:
    return (as_floats(column.name, values) - column.mean) * column.scale


def _are_one_line(x: F64, y: F64) -> bool:
    there = ~(np.isnan(x) | np.isnan(y))
    if there.sum() < FEWEST_CORRELATED:
        return False
    x, y = x[there] - x[there].mean(), y[there] - y[there].mean()
    return bool(abs(x @ y) > EXACT * np.sqrt((x @ x) * (y @ y)) > 0)


def doubt(column: Column, values: Values, is_meant: bool) -> str | None:
    """Why a column may not be what it was read as; `is_meant` if it was said to be categories."""
    if isinstance(column, Number):
        return _outlier(column, values, "leave it empty")
    if isinstance(column, Hashed):
        many = len(set(factorise(values)[1]))
        return f"{many:,} categories share {column.size:,} features"
    if is_meant or isinstance(values, np.ndarray):
        return None
    texts = [value for value in factorise(values)[1] if isinstance(value, str)]
    if len(texts) < FEWEST:
        return None
    return _nearly_numbers(texts) or _dates(texts) or _lists(texts)


def _kind(column: Column, values: Values) -> str:
    if isinstance(column, Category):
        return "hashed" if isinstance(column, Hashed) else "categories"
    return "time" if not isinstance(values, np.ndarray) and are_times(values) else "number"


def _facts(column: Column, values: Values, is_meant: bool) -> str:
    import pandas as pd

    missing = int(pd.isna(values).sum())
    constant = isinstance(column, Number) and column.scale == 0
    facts = [
        doubt(column, values, is_meant),
        f"{missing:,} missing" if missing else None,
        "does not vary" if constant else None,
        None if is_meant else _names_rows(column, values),
    ]
    return "; ".join(filter(None, facts))


def _outlier(column: Number, values: Values, remedy: str) -> str | None:
    x = as_floats(column.name, values)
    if column.scale == 0 or np.isnan(x).all():
        return None
    low, middle, high = np.nanquantile(x, [0.02, 0.5, 0.98])
    if not 0 < (high - low) * column.scale < NARROW:
        return None
    row = int(np.nanargmax(np.abs(x - middle)))
    return (
        f"{x[row]:g} in {place_of(values, row)} is so far out that the others look alike: correct "
        f"it or {remedy}"
    )


def _nearly_numbers(texts: Sequence[str]) -> str | None:
    import pandas as pd

    def are_texts(some: Sequence[str]) -> Any:
        return pd.to_numeric(pd.Series(some, dtype=object), errors="coerce").isna()

    if are_texts(texts[:SAMPLE]).mean() > 1 - MOST:
        return None
    odd = np.flatnonzero(are_texts(texts))
    if not len(odd):
        return None  # numbers as texts: so one says that they are categories
    return (
        f"read as categories for {texts[odd[0]]!r}, while {len(texts) - len(odd):,} of "
        f"{len(texts):,} different values are numbers: correct it or leave it empty"
    )


def _dates(texts: Sequence[str]) -> str | None:
    sample = texts[:SAMPLE]
    if sum(DATE.fullmatch(text) is not None for text in sample) < MOST * len(sample):
        return None
    in_python = "pass pandas.to_datetime(column)"
    remedy = in_python if ISO.match(texts[0]) else f"write yyyy-mm-dd, or {in_python} in Python"
    return f"dates such as {texts[0]!r} are read as categories: {remedy}"


def _names_rows(column: Column, values: Values) -> str | None:
    if isinstance(column, Number) or not FEWEST <= column.width == len(values):
        return None
    return "every row has another value: leave out what only names rows"


def _lists(texts: Sequence[str]) -> str | None:
    sample = texts[:SAMPLE]
    for separator in (",", ";", " "):
        lists = [text.split(separator) for text in sample]
        parts = {part for parts in lists for part in parts}
        several = sum(len(parts) > 1 for parts in lists)
        # Of a list the parts come again and again, of a name they do not.
        if several >= len(lists) / 2 and len(parts) <= len(lists) / 2:
            example = next(text for text in sample if separator in text)
            if "|" in example:
                return None
            return f"{example[:30]!r} is read as one category: separate the parts of lists by |"
    return None

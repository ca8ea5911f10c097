"""How the columns of a table were read, and which look otherwise than they were read."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedres.core.types import I64
from fedres.tables.cell_values import Values, are_times, as_floats, factorise, place_of
from fedres.tables.columns import Category, Column, Hashed, Number
from fedres.tables.input_rows import Input
from fedres.tables.leaks import LEAVE_OUT, same_class, same_number
from fedres.tables.outliers import FAR, far_out

FEWEST = 10  # different texts, to tell what they are
SAMPLE = 1000
MOST = 0.9  # of the texts in a sample
FIRST_ROWS, MOST_ROWS = 5_000, 100_000  # that are searched for columns that tell the label
FEWEST_COMPARED, ROWS_COMPARED = 30, 20_000
REPEATED = 0.05  # of rows that repeat another one
DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T].*)?")
ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)")


class ColumnWarning(UserWarning):
    """A column that looks otherwise than it was read."""


class LabelWarning(UserWarning):
    """Labels that are far from all others, that a column tells exactly, or repeated rows."""


class LabelColumn(NamedTuple):
    """The label of some rows.

    Attributes
    ----------
    name, y
        The column.
    are_classes
        Whether it names classes.
    client
        The client of each row; False if there are none.
    range
        The least and the largest label of all rows, if these are some of them.
    """

    name: str
    y: Any
    are_classes: bool
    client: Any = False
    range: tuple[float, float] | None = None


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
    """Return doubts about a label: by number of the column that tells it, or None for itself."""
    import pandas as pd

    y = pd.Series(label.y, getattr(X, "index", None))
    doubts: dict[int | None, str] = {}
    notes = [
        label_outliers(X, label),
        None if encoder.source == "csr" else _repeated(Input(X), label),
    ]
    if why := "; ".join(filter(None, notes)):
        doubts[None] = why
    are_numbers = y.dtype.kind in "biuf" and not label.are_classes
    if encoder.source == "csr":
        return doubts
    for i in sorted({*encoder.global_, *encoder.local}):
        column = encoder.columns[i]
        # Few columns pass the first, quick look.
        for most in (FIRST_ROWS, MOST_ROWS):
            step = -(-len(y) // most)
            client = label.client if label.client is False else np.asarray(label.client)[::step]
            some = label._replace(y=y[::step], client=client)
            if (told := _told(column, Input(X[::step])[column.name], some, are_numbers)) is None:
                break
        if told:
            doubts[i] = f"{told}: {LEAVE_OUT}"
    return doubts


def label_outliers(X: Any, label: LabelColumn) -> str | None:
    """Return which labels are far away from all others, if they are numbers."""
    import pandas as pd

    y = pd.Series(label.y, getattr(X, "index", None))
    if label.are_classes or y.dtype.kind not in "biuf":
        return None
    if why := _outliers(label.name, y, "labels", "leave out the rows"):
        return why
    x = as_floats(label.name, y)
    for end in label.range or ():
        if not x.min() <= end <= x.max() and len(far_out(np.append(x, end))):
            return (
                f"some label is {end:g}, over {FAR} times the usual spread away: correct it or "
                "leave out the row"
            )
    return None


def _told(column: Column, values: Values, label: LabelColumn, are_numbers: bool) -> str | None:
    """Return how the values of a column tell the label, if they do."""
    if isinstance(column, Number):
        x = as_floats(column.name, values)
        if are_numbers and (same := same_number(x, as_floats(label.name, label.y))):
            return same
        codes = np.where(np.isnan(x), -1, np.unique(x, return_inverse=True)[1])
    else:
        codes = _codes(values)
    client = np.zeros(len(codes), np.int64) if label.client is False else _codes(label.client)
    in_order = isinstance(column, Number) and label.are_classes
    return same_class(codes, _codes(label.y), client, in_order=in_order)


def _codes(values: Values) -> I64:
    return np.asarray(factorise(values)[0], np.int64)


def _repeated(rows: Input, label: LabelColumn) -> str | None:
    """Return a doubt if rows are repeated that would hardly be equal by chance.

    Either all are repeated equally often, or rows whose labels are numbers that otherwise hardly
    ever repeat within a client, the most frequent one aside.
    """
    import pandas as pd

    client = np.zeros(len(rows), np.int64)
    if label.client is not False:
        client = _codes(label.client)
    some = np.flatnonzero(client % -(-len(rows) // ROWS_COMPARED) == 0)[:ROWS_COMPARED]
    taken = Input(rows.x.iloc[some] if rows.source == "table" else rows.x[some])
    frame = pd.DataFrame({i: factorise(taken[name])[0] for i, name in enumerate(taken.names)})
    frame = frame.assign(client=client[some], y=factorise(np.asarray(label.y)[some])[0])
    hashes = pd.util.hash_pandas_object(frame, index=False)
    counts = hashes.value_counts().to_numpy()
    different = len(counts) - frame["client"].nunique()
    if different < FEWEST_COMPARED:
        return None
    labels = len(frame[["client", "y"]].drop_duplicates()) - frame["client"].nunique()
    # Many rows may be alike where nothing happened, such as those of an amount of 0.
    unusual = hashes[frame["y"] != frame["y"].mode()[0]]
    share = 1 - unusual.nunique() / max(1, len(unusual))
    # So are they where a few different features tell the label without noise.
    features = frame.drop(columns="y")
    is_told = len(features.drop_duplicates()) == len(counts) and (
        len(features.drop(columns="client").drop_duplicates()) < len(frame) / 2
    )
    is_by_chance = is_told or share < REPEATED or labels <= different / 2
    if np.gcd.reduce(counts) > 1 or not is_by_chance:
        return (
            f"{1 - len(counts) / len(frame):.0%} of rows repeat another one of the same client, "
            "label included: leave them out if they are copies, for held-out rows and intervals "
            "would tell nothing"
        )
    return None


def doubt(column: Column, values: Values, is_meant: bool) -> str | None:
    """Why a column may not be what it was read as; `is_meant` if it was said to be categories."""
    if isinstance(column, Number):
        return _outliers(column.name, values, "values", "leave them empty")
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


def _outliers(name: str, values: Values, what: str, remedy: str) -> str | None:
    x = as_floats(name, values)
    far = far_out(x)
    if not len(far):
        return None
    row, is_time = int(far[0]), not isinstance(values, np.ndarray) and are_times(values)
    shown = str(values.iloc[row]) if is_time else f"{x[row]:g}"  # type: ignore[union-attr]
    each = f"{len(far):,} of {(~np.isnan(x)).sum():,} {what}, {shown} in {place_of(values, row)},"
    if len(far) == 1:
        remedy = remedy.replace("them", "it").replace("rows", "row")
        return f"{each} is over {FAR} times the usual spread away: correct it or {remedy}"
    each = each.replace(f", {shown}", f", such as {shown}")
    return f"{each} are over {FAR} times the usual spread away: correct them or {remedy}"


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

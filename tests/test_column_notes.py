"""Columns that look otherwise than they are read are told of, and no others."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from fedres import FedResClassifier, FedResRegressor, compare
from fedres.report.columns_table import SHOWN, columns_in_words, print_columns
from fedres.tables.column_notes import (
    ColumnReading,
    ColumnWarning,
    LabelColumn,
    LabelWarning,
    label_doubts,
    readings,
)
from fedres.tables.encoder import Encoder
from fedres.tables.read_table import Table
from test_table_commands import run

RNG = np.random.default_rng(0)
ROWS = 300
NUMBERS = RNG.normal(size=ROWS)
TEXTS = [f"{x:.3f}" for x in NUMBERS]
DAYS = pd.date_range("2020-01-01", periods=ROWS)
LEAK = "predicts the label exactly: leave it out unless it is known before the label is"
LISTS = [[*RNG.choice(list("abcdefgh"), 3, replace=False)] for _ in range(ROWS)]


def fitted(values, **options):
    frame = pd.DataFrame({"a": values}, pd.RangeIndex(2, 2 + len(values), name="line"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)
        encoder = Encoder.fit(frame, **options)
    return encoder, frame


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (["n/a?", *TEXTS[1:]], r"read as categories for 'n/a\?', while 2.. of 2.. different val"),
        ([*NUMBERS[:-1], 1e30], r"1e\+30 in line 301 is so far out that the others look alike"),
        ([-1e9, np.nan, *NUMBERS[2:]], r"-1e\+09 in line 2 is so far out"),
        ([" ".join(three) for three in LISTS], "'. . .' is read as one category: separate the"),
        ([", ".join(three) for three in LISTS], "'., ., .' is read as one category"),
        (
            DAYS.strftime("%d.%m.%Y"),
            "dates such as '01.01.2020' are read as categories: write yyyy-mm-dd, or pass",
        ),
        (
            DAYS.strftime("%Y-%m-%d"),
            r"dates such as '2020-01-01' are read as categories: pass pandas.to_datetime\(col",
        ),
        (
            DAYS.strftime("%Y-%m-%dT%H:%M"),
            "dates such as '2020-01-01T00:00' are read as categories: pass pandas.to_datetime",
        ),
        (DAYS.strftime("%m/%d/%Y %H:%M"), "dates such as '01/01/2020 00:00' are read as cat"),
    ],
)
def test_doubtful_columns(values, note):
    encoder, frame = fitted(values)
    (reading,) = readings(encoder, frame)
    assert re.match(note, reading.note), reading.note
    # In Python it is a warning.
    with pytest.warns(ColumnWarning, match=f"column 'a': {note}"):
        FedResRegressor(passes=1, eta=0.1, shrinkage=1.0).fit(
            frame, NUMBERS, client=np.arange(ROWS) % 7
        )


@pytest.mark.parametrize(
    "values",
    [
        NUMBERS,
        np.exp(3 * NUMBERS),  # a long tail is no outlier
        [*([0, 1] * 149), 0, 30],
        (np.arange(ROWS) == 7).astype(int),
        TEXTS,  # numbers that are meant to be categories
        DAYS,
        ["|".join(three) for three in LISTS],
        LISTS,
        [f"{a}{b} Street {b}{a}" for a, b in enumerate(RNG.permutation(ROWS // 2))] * 2,
        ["New York", "San Francisco", "Rome"] * 100,
        [*["1", "2", "x"] * 100],  # too few to tell
    ],
)
def test_columns_beyond_doubt(values):
    frame = pd.DataFrame({"a": values})
    (reading,) = readings(Encoder.fit(frame), frame)  # warnings are errors here
    assert reading.note == ""


def test_what_only_names_rows():
    """A fact to be seen, and no warning: it does no harm."""
    frame = pd.DataFrame({"a": [f"sku{a}" for a in range(ROWS)]})
    (reading,) = readings(Encoder.fit(frame), frame)
    assert reading.note == "every row has another value: leave out what only names rows"


def test_what_is_said_to_be_categories_is_not_doubted():
    values = ["A", *(str(i) for i in range(ROWS - 1))]
    frame = pd.DataFrame({"code": values})
    encoder = Encoder.fit(frame, categorical=["c*"])
    assert readings(encoder, frame, ["c*"])[0].note == ""
    assert readings(encoder, frame)[0].note.startswith("read as categories for 'A'")


def test_hashed_categories(monkeypatch):
    monkeypatch.setattr("fedres.tables.columns.MAX_CATEGORIES", 200)
    frame = pd.DataFrame({"a": [f"i{i}" for i in range(ROWS)]})
    with pytest.warns(ColumnWarning, match="column 'a': 300 categories share 262,144 features"):
        encoder = Encoder.fit(frame)
    assert readings(encoder, frame) == [
        ColumnReading("a", "hashed", 2**18, "global", "300 categories share 262,144 features")
    ]


def test_every_column_is_read_somehow():
    frame = pd.DataFrame(
        {"n": [1.0, None, 3.0], "day": DAYS[:3], "t": list("aba"), "same": 1, "left": 1, "o": 2}
    )
    encoder = Encoder.fit(frame, local=["t", "o"], global_=["n", "day", "t", "same"])
    assert [tuple(reading) for reading in readings(encoder, frame)] == [
        ("n", "number", 2, "global", "1 missing"),
        ("day", "time", 1, "global", ""),
        ("t", "categories", 2, "both", ""),
        ("same", "number", 1, "global", "does not vary"),
        ("left", "-", 0, "none", ""),
        ("o", "number", 1, "local", "does not vary"),
    ]
    x = csr_array(np.eye(3))
    assert readings(Encoder.fit(x), x)[0] == ("x0", "scaled", 1, "both", "")
    x = np.eye(3)
    assert readings(Encoder.fit(x), x)[0] == ("x0", "number", 1, "both", "")


def test_of_many_columns_those_with_notes_are_shown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    columns = [ColumnReading(f"column_{'x' * 30}_{i}", "number", 1, "both", "") for i in range(90)]
    columns[77] = ColumnReading("odd[/]", "hashed", 2**18, "global", "so many categories " * 9)
    rows = columns_in_words(columns)
    assert len(rows) == SHOWN + 1
    assert rows[-2][0] == "odd[/]"
    assert rows[-1][-1] == "and 70 more columns: 70 number"
    assert len(columns_in_words(columns[:SHOWN])) == SHOWN
    print_columns(columns)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "odd[/]" in "".join(lines)


def bad_labels():
    y = RNG.normal(size=1000)
    far = y.copy()
    far[:10] = [1001, -1000] * 5
    one = y.copy()
    one[17] = 1e9
    more = y.copy()
    more[:30] = [1001, -1000] * 15
    return [(far, "1001 in line 2"), (more, "1001 in line 2"), (one, r"1e\+09 in line 19")]


@pytest.mark.parametrize(("y", "where"), bad_labels())
def test_outliers_of_columns_and_labels(y, where):
    note = f"{where} is so far out that the others look alike: correct it or leave"
    line = pd.RangeIndex(2, 1002, name="line")
    frame = pd.DataFrame({"a": RNG.normal(size=1000)}, line)
    client = np.arange(1000) % 7
    with pytest.warns(LabelWarning, match=f"label: {note} out the row") as found:
        FedResRegressor(shared="linear").fit(frame, y, client=client)
    assert len(found) == 1
    assert found[0].filename == __file__
    with pytest.warns(LabelWarning) as found:
        compare(Table(frame, y, client))
    assert len(found) == 1  # though several models are fitted
    encoder = Encoder.fit(frame)
    *_, reading = readings(encoder, frame, label=LabelColumn("stars", y, False))
    assert reading[:4] == ("stars", "label", 0, "none")
    assert re.match(note, reading.note)
    with pytest.warns(ColumnWarning, match=f"column 'a': {note} it empty"):
        Encoder.fit(pd.DataFrame({"a": y}, line))


@pytest.mark.parametrize("rows", [300, 10_000])
@pytest.mark.parametrize(
    "draw",
    [
        RNG.standard_normal,
        RNG.standard_exponential,
        lambda rows: RNG.lognormal(size=rows),
        lambda rows: RNG.poisson(1.0, rows),
        lambda rows: RNG.standard_t(3, rows),
    ],
)
def test_long_tails_are_no_outliers(draw, rows):
    frame = pd.DataFrame({"a": draw(rows)})
    label = LabelColumn("y", draw(rows), are_classes=False)
    assert len(readings(Encoder.fit(frame), frame, label=label)) == 1
    assert readings(Encoder.fit(frame), frame)[0].note == ""


def test_numbers_of_classes_are_no_outliers():
    y = np.where(np.arange(1000) < 5, 10**6, np.arange(1000) % 2)
    FedResClassifier(shared="linear").fit(RNG.normal(size=(1000, 2)), y, client=y % 7)


@pytest.mark.parametrize("options", [["--shared", "linear"], ["--memory", "1GB"]])
def test_notes_of_labels_at_the_command_line(options, tmp_path):
    frame = pd.DataFrame({"user": np.arange(ROWS) % 7, "a": NUMBERS, "stars": NUMBERS**2})
    frame.loc[5, "stars"] = 1e9
    frame["paid"] = 3 - frame.stars / 7
    frame.to_csv(tmp_path / "t.csv", index=False)
    names = ["--client", "user", "--label", "stars", "--out", tmp_path / "model", "--json"]
    printed = run("fit", tmp_path / "t.csv", *names, *options)
    notes = {column["name"]: column["note"] for column in json.loads(printed)["columns"]}
    assert notes["a"] == ""
    assert notes["stars"].startswith("1e+09 in ")
    assert notes["paid"].startswith(LEAK)


@pytest.mark.parametrize("y", [NUMBERS, np.arange(ROWS) % 2])
def test_columns_that_predict_the_label(y):
    client, nearly = np.arange(ROWS) % 7, y + 1e-3 * RNG.normal(size=ROWS)
    leak = np.where(np.arange(ROWS) < 9, np.nan, 5e8 - 3 * y)
    frame = pd.DataFrame({"nearly": nearly, "leak": leak, "same": 1, "text": "a"})
    model = (FedResRegressor if y is NUMBERS else FedResClassifier)(shared="linear")
    with pytest.warns(LabelWarning, match=f"column 'leak': {LEAK}") as found:
        model.fit(frame, y, client=client)
    assert len(found) == 1
    label = LabelColumn("y", y, are_classes=False)
    notes = [reading.note for reading in readings(model.encoder_, frame, label=label)]
    assert notes == ["", f"{LEAK}; 9 missing", "does not vary", ""]
    model.fit(frame[["nearly"]], y, client=client)
    model.fit(frame[["leak"]][:38], y[:38], client=client[:38])  # too few rows to tell
    model.set_params(global_features=["nearly"], local_features=["nearly"])
    model.fit(frame, y, client=client)  # unused
    with pytest.warns(LabelWarning, match="column 'x1'"):
        FedResRegressor(shared="linear").fit(frame[["nearly", "leak"]].to_numpy(), y, client)


def drawn(rows=400, clients=20):
    """Rows with numbers, categories and lists, without a copy."""
    frame = pd.DataFrame(
        {
            "age": RNG.integers(18, 30, rows),
            "genre": RNG.choice(["a", "b"], rows),
            "tags": [["x"], ["x", "y"]] * (rows // 2),
        }
    )
    return frame, RNG.normal(size=rows), RNG.integers(0, clients, rows)


@pytest.mark.parametrize("classes", [False, True])
def test_repeated_rows_are_noted(classes):
    frame, y, client = drawn()
    frame["age"] += np.arange(len(y)) % 7 * 100 if classes else 0
    y = (y > 0).astype(int) if classes else y
    again = np.tile(np.arange(len(y)), 4)
    frame, y, client = frame.iloc[again].reset_index(drop=True), y[again], client[again]
    model = (FedResClassifier if classes else FedResRegressor)(shared="linear")
    with pytest.warns(LabelWarning, match="label: .* of rows repeat another one of the same"):
        model.fit(frame, y, client=client)


def test_some_repeated_rows_are_noted():
    frame, y, client = drawn()
    label = LabelColumn("y", y, False, client)
    assert label_doubts(Encoder.fit(frame), frame, label) == {}
    again = np.concatenate([np.arange(len(y)), RNG.permutation(len(y))[:100]])
    frame = frame.iloc[again].reset_index(drop=True)
    label = LabelColumn("y", y[again], False, client[again])
    assert label_doubts(Encoder.fit(frame), frame, label)[None].startswith("20% of rows repeat")
    numbers = RNG.normal(size=(400, 2))[again]
    assert label_doubts(Encoder.fit(numbers), numbers, label)[None].startswith("20% of rows repeat")


@pytest.mark.parametrize("labels", ["ratings", "clicks"])
def test_rows_that_are_equal_by_chance_are_not_noted(labels):
    """Few different values, and users who see one thing again and again."""
    clients, items = RNG.integers(0, 30, 3000), RNG.zipf(1.5, 3000) % 50
    frame = pd.DataFrame({"item": items, "price": RNG.normal(size=50)[items]})
    y = RNG.integers(1, 6, 3000) if labels == "ratings" else RNG.random(3000) < 0.1
    for x in (frame, frame[["item"]] % 3):
        label = LabelColumn("y", y.astype(int), labels == "clicks", clients)
        assert label_doubts(Encoder.fit(x), x, label) == {}

"""Columns that look otherwise than they are read are told of, and no others."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from fedres import FedResClassifier, FedResRegressor, compare
from fedres.cli import app
from fedres.report.columns_table import SHOWN, columns_in_words, print_columns
from fedres.tables.column_notes import (
    ColumnReading,
    ColumnWarning,
    LabelColumn,
    LabelWarning,
    doubt,
    label_doubts,
    label_outliers,
    readings,
)
from fedres.tables.columns import Number
from fedres.tables.encoder import Encoder
from fedres.tables.outliers import far_out
from fedres.tables.read_table import Table
from test_table_commands import run

pytestmark = pytest.mark.filterwarnings("error")
RNG = np.random.default_rng(0)
ROWS = 300
NUMBERS = RNG.normal(size=ROWS)
TEXTS = [f"{x:.3f}" for x in NUMBERS]
DAYS = pd.date_range("2020-01-01", periods=ROWS)
LEAVE_OUT = "leave it out, unless you will know it before you know the label"
LEAK = f"equals the label up to a factor and a constant: {LEAVE_OUT}"
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
        ([*NUMBERS[:-1], 1e30], r"1 of 300 values, 1e\+30 in line 301, is over 20 times the usual"),
        ([-1e9, np.nan, *NUMBERS[2:]], r"1 of 299 values, -1e\+09 in line 2, is over 20 times the"),
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
        [*([0, 1] * 149), 0, 15],
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


def drawn_with(share, *marks, of=None):
    """Numbers of which a share is replaced by marks in turn, and where these are."""
    y = RNG.normal(size=1000) if of is None else of
    planted = np.sort(RNG.permutation(len(y))[: max(1, round(share * len(y)))])
    y[planted] = np.resize(marks, len(planted))
    return y, planted


@pytest.mark.parametrize(
    ("y", "planted"),
    [
        drawn_with(0.01, 1001, -1000),
        drawn_with(0.02, 1000),
        drawn_with(0.05, -999),
        drawn_with(0.01, 100),
        drawn_with(0, 1e9),
        drawn_with(0, 1e9, of=RNG.normal(size=1000) * (np.arange(1000) % 25 == 0)),
        drawn_with(0.02, -999, of=RNG.poisson(1.0, 1000).astype(float)),
        drawn_with(0.02, -999, of=RNG.integers(1, 6, 1000).astype(float)),
        drawn_with(0.01, 1e6, of=RNG.lognormal(size=1000)),
    ],
)
def test_outliers_of_columns_and_labels(y, planted):
    np.testing.assert_array_equal(far_out(y), planted)
    many, first = len(planted), f"{y[planted[0]]:g} in line {planted[0] + 2}"
    first = first if many == 1 else f"such as {first}"
    note = f"{many} of 1,000 {{}}, {first}, {'is' if many == 1 else 'are'} over 20 times the"
    line = pd.RangeIndex(2, 1002, name="line")
    frame = pd.DataFrame({"a": RNG.normal(size=1000)}, line)
    client = np.arange(1000) % 7
    of_label = re.escape(note.format("labels"))
    with pytest.warns(LabelWarning, match=f"label: {of_label} .* leave out the row") as found:
        FedResRegressor(shared="linear").fit(frame, y, client=client)
    assert len(found) == 1
    assert found[0].filename == __file__
    with pytest.warns(LabelWarning) as found:
        compare(Table(frame, y, client))
    assert len(found) == 1  # though several models are fitted
    encoder = Encoder.fit(frame)
    *_, reading = readings(encoder, frame, label=LabelColumn("stars", y, False))
    assert reading[:4] == ("stars", "label", 0, "none")
    assert re.match(of_label, reading.note)
    of_values = re.escape(note.format("values"))
    with pytest.warns(ColumnWarning, match=f"column 'a': {of_values} .* leave (it|them) empty"):
        Encoder.fit(pd.DataFrame({"a": y}, line))


@pytest.mark.parametrize("rows", [300, 10_000])
@pytest.mark.parametrize(
    "draw",
    [
        RNG.standard_normal,
        RNG.standard_exponential,
        lambda rows: RNG.lognormal(size=rows),
        lambda rows: RNG.lognormal(0, 2.3, rows),
        lambda rows: RNG.pareto(2.0, rows),
        lambda rows: RNG.poisson(1.0, rows),
        lambda rows: RNG.poisson(0.1, rows),
        lambda rows: RNG.standard_t(3, rows),
        lambda rows: RNG.zipf(2.0, rows).astype(float),
        lambda rows: (RNG.random(rows) < 0.02).astype(int),
        lambda rows: RNG.integers(1, 6, rows),
        lambda rows: RNG.exponential(500, rows) * (RNG.random(rows) < 0.1),
        lambda rows: RNG.lognormal(5, 1.5, rows) * (RNG.random(rows) < 0.4),
    ],
)
def test_long_tails_are_no_outliers(draw, rows):
    for _ in range(10):
        frame = pd.DataFrame({"a": draw(rows)})
        assert doubt(Encoder.fit(frame).columns[0], frame["a"], False) is None
    label = LabelColumn("y", draw(rows), are_classes=False)
    assert len(readings(Encoder.fit(frame), frame, label=label)) == 1
    assert readings(Encoder.fit(frame), frame)[0].note == ""


def test_a_time_far_out_is_shown_as_a_time():
    days = pd.Series(pd.date_range("2020-01-01", periods=300)).where(NUMBERS < 2, pd.Timestamp(0))
    assert "values, such as 1970-01-01 00:00:00 in row" in doubt(
        Number.learn("day", days), days, False
    )


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
    assert notes["stars"].startswith("1 of 300 labels, 1e+09 in line 7, is over 20 times ")
    assert notes["paid"].startswith(LEAK)


def test_notes_of_a_table_in_shards_come_before_training(tmp_path, monkeypatch):
    rows = pd.DataFrame({"user": np.arange(ROWS) % 7, "a": NUMBERS, "stars": NUMBERS**2})
    damaged = rows.assign(stars=rows.stars.where(rows.index != 5, 1e9))
    rows.to_csv(tmp_path / "a.csv", index=False)
    damaged.to_csv(tmp_path / "b.csv", index=False)
    named = ["--client", "user", "--label", "stars", "--out", tmp_path / "model"]

    def full(*_, **__):
        raise ValueError("nothing is trained")

    monkeypatch.setattr("fedres.cluster.fit_parts.compare_on_table", full)
    command = ["fit", tmp_path / "*.csv", *named]
    said = " ".join(CliRunner().invoke(app, [str(one) for one in command]).stdout.split())
    assert "1 of 600 labels, 1e+09 in line 7 of b.csv, is over 20 times" in said
    assert said.startswith("Shared model: linear; trees need all rows in memory.")


def test_a_label_far_out_beyond_the_rows_at_hand():
    frame = pd.DataFrame({"a": NUMBERS})
    for high, note in [(1e6, "some label is 1e+06, over 20 times the usual"), (5.0, None)]:
        label = LabelColumn("y", NUMBERS, False, range=(-5.0, high))
        found = label_outliers(frame, label)
        assert found is None if note is None else found.startswith(note)


def told(z, y, client=None, *, numbers=True):
    """Return what is noted of a column, given a label."""
    frame = pd.DataFrame({"z": z})
    client = np.arange(len(y)) % 7 if client is None else client
    label = LabelColumn("y", np.asarray(y), not numbers, client)
    return label_doubts(Encoder.fit(frame), frame, label).get(0, "").removesuffix(f": {LEAVE_OUT}")


def test_columns_that_tell_the_label():
    y, client = NUMBERS, np.arange(ROWS) % 7
    leak = np.where(np.arange(ROWS) < 9, np.nan, 5e8 - 3 * y)
    nearly = y + 0.05 * RNG.normal(size=ROWS)
    frame = pd.DataFrame({"nearly": nearly, "leak": leak, "same": 1, "text": "a"})
    model = FedResRegressor(shared="linear")
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


@pytest.mark.parametrize(
    "leak",
    [
        lambda y: y.round(2),
        lambda y: y + 1e-3 * RNG.normal(size=len(y)),
        lambda y: (y * 100).astype(int),
        np.exp,
        lambda y: y**3,
        lambda y: pd.Series(y).rank().to_numpy(),
    ],
)
def test_columns_that_nearly_equal_a_number(leak):
    y = RNG.normal(scale=2.4, size=3000)
    assert told(leak(y), y) in ("equals the label up to a factor and a constant",
                                "has the order of the label")  # fmt: skip
    assert told(leak(y) + 0.05 * np.std(leak(y)) * RNG.normal(size=3000), y) == ""


RATINGS = np.clip(np.round(3 + NUMBERS), 1, 5).astype(int)


@pytest.mark.parametrize(
    ("z", "y", "numbers"),
    [
        (np.where(NUMBERS > 0, "a", "b"), np.where(NUMBERS > 0, "yes", "no"), False),
        (NUMBERS > 0, np.where(NUMBERS > 0, "yes", "no"), False),
        (np.where(NUMBERS > 0, 200, 100), (NUMBERS > 0).astype(int), False),
        (np.digitize(NUMBERS, [-1, 0]).astype(str), (NUMBERS > 0).astype(int), False),
        (NUMBERS, np.where(NUMBERS > 0, "yes", "no"), False),
        (NUMBERS, np.digitize(NUMBERS, [-1, 1]), False),
        (np.array([2, 0, 1])[np.digitize(NUMBERS, [-1, 1])], np.digitize(NUMBERS, [-1, 1]), False),
        (RATINGS.astype(str), RATINGS, True),
        (pd.Categorical(RATINGS), RATINGS, True),
    ],
)
def test_columns_that_tell_the_class(z, y, numbers):
    assert told(z, y, numbers=numbers) in (
        f"goes with one label in each of its {pd.Series(z).nunique()} values",
        "separates the classes without a mistake",
    )
    one_mistake = np.append(np.asarray(y)[:-1], y[0] if y[-1] != y[0] else y[y != y[0]][0])
    assert told(z, one_mistake, numbers=numbers) == ""


def test_strong_features_are_no_leaks():
    iris = load_iris(as_frame=True)
    for name in iris.data:
        assert told(iris.data[name], iris.target, numbers=False) == ""
    y = np.where(NUMBERS > 0, "yes", "no")
    rows = np.arange(ROWS)
    assert told([f"sku{i}" for i in rows], y, numbers=False) == ""
    assert told([f"sku{i // 2}" for i in rows], y[rows // 2 * 2], numbers=False) == ""
    assert told(["a", "b"] * 12, [0, 1] * 12, numbers=False) == ""
    assert told(RNG.choice(["a", "b"], ROWS), np.arange(ROWS) == 7, numbers=False) == ""
    # A fact of each of forty clients, such as its town, and a label that is one, too.
    client = rows % 40
    town = client % 25
    of_client = (np.arange(40) % 25 * 7 % 5 > 2)[client].astype(int)
    assert told(town.astype(str), of_client, client, numbers=False) == ""


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

import bz2
import gzip
import lzma
from io import BytesIO, TextIOWrapper

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedres.tables.cell_values import categories_in
from fedres.tables.encoder import Encoder
from fedres.tables.holdout import hold_out
from fedres.tables.ratings import generate
from fedres.tables.read_table import Table, read_table

PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
TEXT = """user,genre,stars,day
ann,Action|Comedy,4,2020-01-03
bob,,5,2020-01-01
ann,Drama,1,2020-01-02
"""
ROLES = {"client": "user", "label": "stars", "time": "day"}


def put(path, text):
    path.write_bytes(PACK.get(path.suffix, bytes)(text.encode()))
    return path


# Reading


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_a_table_sorted_by_time(tmp_path, kind, pack):
    path = put(tmp_path / "films.csv", TEXT)
    if kind == ".parquet":
        path = tmp_path / "films.parquet"
        pd.read_csv(tmp_path / "films.csv", parse_dates=["day"]).to_parquet(path)
    packed = tmp_path / f"packed{kind}{pack}"
    packed.write_bytes(PACK[pack](path.read_bytes()))
    table = read_table(packed, **ROLES)
    assert table.client.tolist() == ["bob", "ann", "ann"]
    assert_array_equal(table.y, [5, 1, 4])
    assert_array_equal(np.diff(table.time), [86400, 86400])
    assert list(table.frame.columns) == ["genre"]
    assert table.frame["genre"].iloc[1:].tolist() == ["Drama", "Action|Comedy"]
    assert len(table) == 3


def test_rows_keep_their_order_without_time_and_within_one_time(tmp_path):
    path = put(tmp_path / "a.csv", "user,t,n\n1,5,0\n2,5,1\n3,4,2\n4,5,3\n")
    assert_array_equal(read_table(path, client="user", label=None).frame["n"], [0, 1, 2, 3])
    table = read_table(path, client="user", label=None, time="t")
    assert_array_equal(table.frame["n"], [2, 0, 1, 3])
    assert table.y is None


FILMS = """{"user": "ann", "genre": ["Action", "Comedy"], "stars": 4, "day": "2020-01-03"}
{"user": "bob", "stars": 5, "day": "2020-01-01"}
{"user": "ann", "genre": ["Drama"], "stars": 1, "day": "2020-01-02"}
"""


@pytest.mark.parametrize("pack", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [("a.tsv", TEXT.replace(",", "\t")), ("a.jsonl", FILMS), ("a.ndjson", FILMS)],
)
def test_other_files_hold_the_same_table(tmp_path, name, text, pack):
    table = read_table(put(tmp_path / (name + pack), text), **ROLES)
    expected = read_table(put(tmp_path / "a.csv", TEXT), **ROLES)
    assert table.client.tolist() == expected.client.tolist()
    assert_array_equal(table.y, expected.y)
    assert_array_equal(table.time, expected.time)
    listed = [list(categories_in(value)) for value in table.frame["genre"]]
    assert listed == [[], ["Drama"], ["Action", "Comedy"]]


def test_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(TEXT.replace("ann", "07").encode())))
    table = read_table("-", **ROLES)
    assert table.client.tolist() == ["bob", "07", "07"]
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"user,stars\n1,2\n")))
    with pytest.raises(ValueError, match=r"^standard input has no column 'day' for the time"):
        read_table("-", **ROLES)


def test_zeros_that_ids_begin_with_are_kept(tmp_path):
    path = put(tmp_path / "a.csv", "user,shop,zip\n007,01,1\n7,1,2\n0,,3\n")
    table = read_table(path, client="user", label=None, categorical=["sh*"])
    assert table.client.tolist() == ["007", "7", "0"]
    assert table.frame["shop"].fillna("-").tolist() == ["01", "1", "-"]
    assert table.frame["zip"].tolist() == [1, 2, 3]
    numbers = read_table(path, client="zip", label=None, categorical=["shop", "user"])
    assert numbers.client.dtype == np.int64


def test_zeros_that_numbers_begin_with_are_not_dropped_in_silence(tmp_path):
    path = put(tmp_path / "a.csv", "user,zip,share\na,7,0.5\nb,01234,00\n")
    with pytest.warns(UserWarning, match="'zip' has '01234', which is read as the number 1234:"):
        table = read_table(path, client="user", label=None)
    assert table.frame["zip"].tolist() == [7, 1234]


@pytest.mark.parametrize("text", ["user,stadt\nann,Köln\nbob,\n", "user,größe\nann,3\n"])
def test_latin_1_is_read_and_said(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.warns(UserWarning, match="is not UTF-8 and was read as Latin-1"):
        frame = read_table(path, client="user", label=None).frame
    path.write_text(text, encoding="utf-8")
    pd.testing.assert_frame_equal(frame, read_table(path, client="user", label=None).frame)


def test_semicolons_and_decimal_commas(tmp_path):
    wanted = put(tmp_path / "a.csv", 'user,price,note,zip\nann,3.5,"x,y",007\nbob,4,z,8\n')
    german = put(tmp_path / "b.csv", "user;price;note;zip\nann;3,5;x,y;007\nbob;4;z;8\n")
    plain = put(tmp_path / "c.csv", "user;price;note;zip\nann;3.5;x,y;007\nbob;4;z;8\n")
    frames = [
        read_table(path, client="user", label=None, categorical=["zip"]).frame
        for path in (wanted, german, plain)
    ]
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frame, frames[0])


def test_a_semicolon_among_commas_is_text(tmp_path):
    path = put(tmp_path / "a.csv", "user,tags;more\nann,x;y\n")
    assert list(read_table(path, client="user", label=None).frame) == ["tags;more"]


def test_no_column_has_two_roles(tmp_path):
    path = put(tmp_path / "a.csv", TEXT)
    with pytest.raises(ValueError, match="client and label are both column 'user': name two"):
        read_table(path, client="user", label="user")


def test_errors_name_the_line_of_the_file_though_rows_are_sorted(tmp_path):
    path = put(tmp_path / "a.csv", "user,t,n\na,3,1\nb,2,inf\nc,1,2\n")
    table = read_table(path, client="user", label=None, time="t")
    with pytest.raises(ValueError, match="column 'n' has inf in line 3, which is not a finite"):
        Encoder.fit(table.frame)


SVMLIGHT = "1.5 qid:7 1:2 3:1\n-1 qid:9 2:3\n"


def test_svmlight(tmp_path):
    table = read_table(put(tmp_path / "a.svm.gz", SVMLIGHT), client="qid", label="y", width=6)
    # feature 3 is column 3, whether or not some feature is 0
    assert_array_equal(table.frame.toarray(), [[0, 2, 0, 1, 0, 0], [0, 0, 3, 0, 0, 0]])
    assert_array_equal(table.y, [1.5, -1])
    assert_array_equal(table.client, [7, 9])
    assert_array_equal(table.take(np.array([1])).frame.toarray(), [[0, 0, 3, 0, 0, 0]])
    assert (
        read_table(put(tmp_path / "a.svm", SVMLIGHT), client=None, label=None).frame.shape[1] == 4
    )
    plain = put(tmp_path / "b.svm", SVMLIGHT.replace("qid:7 ", "").replace("qid:9 ", ""))
    assert read_table(plain, client=None, label=None).client is None
    assert read_table(plain, client="qid", label=None, optional=["client"]).client is None


def test_what_may_be_absent(tmp_path):
    path = put(tmp_path / "new.csv", "genre\nDrama\n")
    table = read_table(path, **ROLES, optional=["client", "label", "time"])
    assert (table.y, table.client, table.time) == (None, None, None)
    path = put(tmp_path / "some.csv", "user,genre\n17,Drama\n,Drama\n")
    table = read_table(path, client="user", label=None, optional=["client"])
    assert table.client.tolist() == [17, None]


@pytest.mark.parametrize(
    ("ids", "known", "expected"),
    [
        ([17, 4], None, [17, 4]),
        ([17.0, 4.0], None, [17, 4]),
        (["17", "007"], None, ["17", "007"]),
        ([1.5, 2.0], None, ["1.5", "2"]),
        ([True, False], None, ["True", "False"]),
        ([2**63 + 1, 1], None, [str(2**63 + 1), "1"]),
        (pd.Categorical(["b", "a"]), None, ["b", "a"]),
        (pd.array([17, 4], dtype="Int64"), None, [17, 4]),
        ([17, 4], np.array(["17", "x"], object), ["17", "4"]),
        (["17", "x"], np.array([17, 4]), [17, "x"]),
        (["17", "4"], np.array([17, 4]), [17, 4]),
        (["017", "4"], np.array([17, 4]), ["017", 4]),
    ],
)
def test_client_ids_are_whole_numbers_or_strings(tmp_path, ids, known, expected):
    pd.DataFrame({"user": ids, "a": 1}).to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", client="user", label=None, known_clients=known)
    assert table.client.tolist() == expected
    if all(isinstance(id_, int) for id_ in expected):
        assert table.client.dtype == np.int64


@pytest.mark.parametrize("labels", [[1, 0], [0.5, 2.0], [True, False], ["yes", "no"]])
def test_labels_are_as_given(tmp_path, labels):
    pd.DataFrame({"user": 1, "y": labels}).to_parquet(tmp_path / "a.parquet")
    y = read_table(tmp_path / "a.parquet", client="user", label="y").y
    assert y.tolist() == labels
    assert [type(label) for label in y.tolist()] == [type(label) for label in labels]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "is empty: give a file with rows"),
        ("a.csv", "user,stars,day\n", "has column names and no rows"),
        ("a.csv", "user,stars,day\n1,2\n", "line 2 has 2 values for 3 columns"),
        ("a.csv", "0.5,2,3\n1,2,4\n", "its first line holds numbers, not the names"),
        (
            "a.csv",
            "user,stars,when\n1,2,3\n",
            "no column 'day' for the time: it has user, stars, when",
        ),
        (
            "a.csv",
            "user,rating,day\n1,2,3\n",
            "no column 'stars' for the label: it has user, rating, day",
        ),
        ("a.csv", "user:stars:day\n1:2:3\n", "no column 'user' for the client: it has user:stars"),
        (
            "a.csv",
            "user,stars,day\n1,2,3\n1,,3\n",
            "line 3 has no value for its label, in column 'stars'",
        ),
        ("a.csv", "user,stars,day\n1,2,3\n1,inf,3\n", "line 3 has inf for its label"),
        ("a.csv", "user,stars,day\n1,2,3\n,2,3\n,2,3\n", "line 3 has no value for .*2 in all"),
        ("a.csv", "user,stars,day\na,2,3\nb,2,\n", "line 3 has no value for its time"),
        (
            "a.csv",
            "user,stars,day\na,2,3\nb,2,soon\n",
            "'day' has .* in line [23], which is not a number.*; times are numbers, or dates",
        ),
        ("a.csv", "user,stars,day\na,2,31.12.2020\n", "'31.12.2020' in line 2, .* as yyyy-mm-dd"),
        ("a.parquet", "user,stars", "first bytes are not such a file's"),
        ("a.csv.gz", None, "it is not compressed so"),
        ("a.svm", "1 qid:1 1:1\n2 qid:1 1:1\n", "svmlight text, which has no times"),
        ("a.tsv", "user\tstars\tday\n1\t2\t3\n1\t\t3\n", "line 3 has no value for its label"),
        ("a.jsonl", '{"user": 1, "stars": null, "day": 3}\n', "line 1 has no value for its label"),
        ("a.jsonl", '{"user": 1}\n{"user": ["b"]}\n', "lists or objects in some lines"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(b"no gzip" if text is None else text.encode())
    with pytest.raises(ValueError, match=message) as caught:
        read_table(path, **ROLES)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:1\n2 1:1\n", r"has a client \(qid:\) in 0 of 2 rows"),
        ("1 qid:1 1:1\n2 1:1\n", r"has a client \(qid:\) in 1 of 2 rows"),
        ("1 qid:1 1:1\nnan qid:1 1:1\n", "row 2 has nan for its label"),
        ("1 qid:1 1:1\n2 qid:1 1:nan\n", "row 2 has a feature that is not finite"),
        ("1\n", "holds no rows of features"),
        (
            "user stars\n1 2\n",
            "line 1 is not svmlight text.* by what it is, such as .csv",
        ),
    ],
)
def test_what_is_wrong_in_svmlight_is_said(tmp_path, text, message):
    path = put(tmp_path / "a.svm", text)
    with pytest.raises(ValueError, match=message):
        read_table(path, client="qid", label="y")


def test_there_is_no_such_file(tmp_path):
    for path, words in ((tmp_path, "holds no files to read"), (tmp_path / "none.csv", "no file ")):
        with pytest.raises(ValueError, match=words):
            read_table(path, client=None, label=None)


# Holding out


def table_of(client=None, time=None, rows=None):
    frame = pd.DataFrame(index=range(rows if client is None else len(client)))
    return Table(frame, client=client, time=time)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.floats(0.01, 0.99),
    st.integers(0, 3),
)
def test_every_client_keeps_a_row(clients, share, seed):
    client = np.array([f"c{i}" for i in clients])
    table = table_of(client)
    counts = pd.Series(client).value_counts()
    if counts.max() == 1:
        few = "1 rows are too few" if len(client) == 1 else f"the {len(client)} clients has one row"
        with pytest.raises(ValueError, match=few):
            hold_out(table, share, seed)
        return
    train, held = hold_out(table, share, seed)
    assert sorted([*train, *held]) == list(range(len(client)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(held) > 0).all()
    assert len(held)
    assert set(client[train]) == set(client)
    for name, many in pd.Series(client[held]).value_counts().items():
        assert many <= min(np.ceil(counts[name] * share), counts[name] - 1)
    assert_array_equal(hold_out(table, share, seed)[1], held)


def test_the_share_is_kept_for_small_clients_too():
    _, held = hold_out(table_of(np.repeat(np.arange(1000), 3)), 0.2)
    assert 550 < len(held) < 650
    other = hold_out(table_of(np.repeat(np.arange(1000), 3)), 0.2, seed=1)[1]
    assert set(held.tolist()) != set(other.tolist())


@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=60),
    st.floats(0.01, 0.99),
    st.integers(0, 3),
)
def test_the_last_rows_of_each_client_are_held_out_where_there_is_a_time(clients, share, seed):
    client = np.array(clients)
    table = table_of(client, np.arange(len(client), dtype=float))
    if len(set(clients)) == len(clients):
        with pytest.raises(ValueError, match=f"the {len(client)} clients has one row"):
            hold_out(table, share, seed)
        return
    train, held = hold_out(table, share, seed)
    assert sorted([*train, *held]) == list(range(len(client)))
    late = len(client) - int(len(client) * share / 2)
    known = set(client[train]) & set(client[held])
    assert known
    for name in set(clients):
        own = np.flatnonzero(client == name)
        of_train, of_held = (np.intersect1d(own, rows) for rows in (train, held))
        if len(of_train):
            assert of_train.max() < of_held.min(initial=len(client))
            assert len(of_held) <= min(max(1, np.ceil(len(own) * share)), len(own) - 1)
        else:
            assert own[0] >= late  # new: it came last


def test_clients_who_come_last_are_new():
    client = np.array([1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3, 3])
    train, held = hold_out(table_of(client, np.arange(20.0)), 0.2)
    assert 3 not in client[train]
    assert {18, 19} < set(held.tolist())
    assert {1, 2} <= set(client[held])
    # Of those who stay, one is judged for sure.
    client = np.array([*range(88), 0, *[99] * 10])
    for seed in range(9):
        held = hold_out(table_of(client, np.arange(99.0)), 0.21, seed)[1]
        assert held.tolist() == list(range(88, 99))
    # Nobody is new if all others have a row each.
    client = np.array([*range(89), *[99] * 10])
    held = hold_out(table_of(client, np.arange(99.0)), 0.21)[1]
    assert 0 < len(held) < 10
    assert held.min() > 89
    # Without a time nobody comes last.
    client = np.array([1, 2] * 9 + [3, 3])
    assert 3 in client[hold_out(table_of(client), 0.2)[0]]


def test_rows_without_clients_are_those_of_one():
    train, held = hold_out(table_of(rows=10), 0.2)
    assert (len(train), len(held)) == (8, 2)


@pytest.mark.parametrize(
    "table", [table_of(rows=0), table_of(rows=1), table_of(time=[1.0], rows=1)]
)
def test_too_few_rows_to_hold_out(table):
    with pytest.raises(ValueError, match=r"\d rows are too few"):
        hold_out(table)


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_a_share_that_is_none(share):
    with pytest.raises(ValueError, match=f"between 0 and 1, not {share}"):
        hold_out(table_of(rows=9), share)


# The generated set


def test_generated_ratings():
    ratings = generate(users=200, items=100, rows=20_000, seed=3)
    assert ratings.equals(generate(users=200, items=100, rows=20_000, seed=3))
    assert not ratings.equals(generate(users=200, items=100, rows=20_000, seed=4))
    assert list(ratings) == ["user_id", "item_id", "genres", "year", "timestamp", "rating"]
    assert ratings["timestamp"].is_monotonic_increasing
    assert set(ratings["rating"]) == set(np.arange(2, 11) / 2)
    rows = ratings["user_id"].value_counts()
    assert len(rows) == 200
    assert rows.max() > 5 * rows.median()  # a long tail
    each = ratings.groupby("item_id")[["genres", "year"]].nunique()
    assert (each == 1).all(axis=None)


def test_generated_ratings_have_a_shared_and_a_personal_part():
    ratings = generate(users=50, items=100, rows=20_000)
    residual = ratings["rating"] - ratings.groupby("item_id")["rating"].transform("mean")
    shared = 1 - residual.var() / ratings["rating"].var()
    taste = residual.groupby([ratings["user_id"], ratings["genres"]]).transform("mean")
    personal = 1 - (residual - taste).var() / residual.var()
    assert shared > 0.2
    assert personal > 0.4


def test_too_few_to_generate():
    with pytest.raises(ValueError, match="not 5 users, 1 items and 4 rows"):
        generate(users=5, items=1, rows=4)

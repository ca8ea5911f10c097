import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from fedres.tables.columns import Hashed, Number, OneHot, Scaled
from fedres.tables.encoder import Encoder

hashing = pytest.mark.filterwarnings("ignore::fedres.tables.column_notes.ColumnWarning")
FILMS = pd.DataFrame(
    {
        "year": [1990.0, 2000.0, np.nan],
        "genre": ["Action|Comedy", None, "Drama"],
        "item_id": [17, 4, 17],
        "seen": [True, False, True],
    }
)


def dense(x):
    return x.toarray() if sparse.issparse(x) else x


# Exact numbers


def test_a_small_table():
    encoder = Encoder.fit(FILMS, categorical=["item_id"], local=["genre", "year"])
    assert encoder.names_global == [
        "year",
        "year=missing",
        "genre=Action",
        "genre=Comedy",
        "genre=Drama",
        "genre=missing",
        "item_id=17",
        "item_id=4",
        "seen",
    ]
    x_global, x_local = encoder.transform(FILMS)
    up, down = np.sqrt(0.5), -np.sqrt(2)
    expected = [
        [-1, 0, 1, 1, 0, 0, 1, 0, up],
        [1, 0, 0, 0, 0, 1, 0, 1, down],
        [0, 1, 0, 0, 1, 0, 1, 0, up],
    ]
    assert_allclose(x_global, expected, rtol=1e-6)
    assert_array_equal(x_local, x_global[:, :6])
    assert (x_global.dtype, x_local.dtype) == (np.float32, np.float32)
    assert encoder.names_local == encoder.names_global[:6]
    assert (encoder.width_global, encoder.width_local) == (9, 6)


def test_an_array():
    encoder = Encoder.fit(np.array([[1.0, 5.0], [3.0, 5.0]]), local=["x1"])
    x_global, x_local = encoder.transform(np.array([[1, 9], [5, 5]]))
    assert_array_equal(x_global, [[-1, 0], [3, 0]])
    assert_array_equal(x_local, [[0], [0]])
    assert encoder.names_global == ["x0", "x1"]


def test_categories_of_an_array():
    encoder = Encoder.fit(np.array([[1.0], [3.0], [np.nan]]), categorical=["x0"])
    assert encoder.names_global == ["x0=1", "x0=3", "x0=missing"]
    assert_array_equal(encoder.transform([[3.0], [2.0]])[0], [[0, 1, 0], [0, 0, 0]])


def test_a_sparse_matrix_is_scaled_but_not_centred():
    x = sparse.csr_array(np.array([[0, 2.0, 0], [-4.0, 1.0, 0]]))
    encoder = Encoder.fit(x, local=["x1"])
    x_global, x_local = encoder.transform(x)
    assert_array_equal(x_global.toarray(), [[0, 1, 0], [-1, 0.5, 0]])
    assert_array_equal(x_local.toarray(), [[1], [0.5]])
    assert (x_global.dtype, x_global.indices.dtype) == (np.float32, np.int32)
    # A column that was empty when the encoder was learned is taken as it comes.
    assert_array_equal(encoder.transform(np.array([[0, 0, 3.0]]))[0].toarray(), [[0, 0, 3]])


def test_a_sparse_matrix_that_is_given_stays_as_it_is():
    parts = np.float32([1, 2, 4]), np.int32([1, 0, 1]), np.int32([0, 3])
    x = sparse.csr_array(tuple(part.copy() for part in parts), shape=(1, 2))
    x_global, _ = Encoder.fit(x).transform(x)
    assert_array_equal(x_global.toarray(), [[1, 1]])
    for before, after in zip(parts, (x.data, x.indices, x.indptr), strict=True):
        assert_array_equal(before, after)


def test_hashes_never_change():
    column = Hashed("item", bits=18, missing=True)
    assert [column.find(text) for text in ("", "Comedy", "17", "Käse", "漢字")] == [
        42724,
        218106,
        80160,
        146352,
        255476,
    ]
    assert Hashed("item", bits=4, missing=True).find("17") == 80160 % 16


# Inference of types


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], Number),
        ([True, False], Number),
        ([True, None], Number),
        ([Decimal("1.5"), None], Number),
        ([date(2020, 1, 1), date(2020, 1, 2)], Number),
        ([datetime(2020, 1, 1), None], Number),
        ([timedelta(1), timedelta(2)], Number),
        (pd.array([1, None], dtype="Int64"), Number),
        (pd.to_datetime(["2020-01-01", None]).tz_localize("Europe/Rome"), Number),
        (["a", "b"], OneHot),
        (["1", "2"], OneHot),
        ([1, "a"], OneHot),
        ([["a"], ["a", "b"]], OneHot),
        (pd.Categorical([1, 2]), OneHot),
    ],
)
def test_types_are_inferred(values, kind):
    (column,) = Encoder.fit(pd.DataFrame({"a": values})).columns
    assert isinstance(column, kind)


def test_dates_are_seconds():
    frame = pd.DataFrame({"d": pd.to_datetime(["1970-01-01", "1970-01-02"])})
    assert Encoder.fit(frame).columns == (Number("d", 43200.0, 1 / 43200, False, "times"),)
    for values in ([date(1970, 1, 1), date(1970, 1, 2)], [datetime(1970, 1, 1, tzinfo=UTC)] * 2):
        assert_array_equal(Encoder.fit(frame).transform(pd.DataFrame({"d": values}))[0][0], [-1])


def test_categories_are_the_same_whatever_the_type_of_the_column():
    encoder = Encoder.fit(pd.DataFrame({"a": [1, 2, 3]}), categorical="a")
    expected = [[0, 1, 0], [0, 0, 1]]
    for values in ([2, 3], [2.0, 3.0], ["2", "3"], np.float32([2, 3]), pd.Categorical([2, 3])):
        assert_array_equal(encoder.transform(pd.DataFrame({"a": values}))[0], expected)
    assert_array_equal(encoder.transform(pd.DataFrame({"a": [np.nan, 2.0]}))[0][1], expected[0])


@pytest.mark.parametrize("two", [["a", "b"], ("a", "b"), np.array(["b", "a"]), " a | b|", "b|a|b"])
def test_several_categories_in_one_value(two):
    values = pd.Series([two, "a", None], dtype=object)
    encoder = Encoder.fit(pd.DataFrame({"g": values}))
    assert encoder.names_global == ["g=a", "g=b", "g=missing"]
    x, _ = encoder.transform(pd.DataFrame({"g": values}))
    assert_array_equal(x, [[1, 1, 0], [1, 0, 0], [0, 0, 1]])


def test_an_empty_text_or_list_is_missing():
    encoder = Encoder.fit(pd.DataFrame({"g": ["a", ""]}))
    assert encoder.names_global == ["g=a", "g=missing"]
    x, _ = encoder.transform(pd.DataFrame({"g": [[], None, "|", "a"]}))
    assert_array_equal(x, [[0, 1], [0, 1], [0, 1], [1, 0]])


def hashed_beyond(categories, bits=18):
    """Columns of more categories are hashed, to so many bits."""
    return patch.multiple("fedres.tables.columns", MAX_CATEGORIES=categories, HASH_BITS=bits)


@hashing
def test_unknown_categories_have_no_feature_or_their_bucket():
    new = pd.DataFrame({"g": ["c", None]})
    one_hot = Encoder.fit(pd.DataFrame({"g": ["a", "b"]}))
    assert_array_equal(one_hot.transform(new)[0], np.zeros((2, 2)))
    with hashed_beyond(1, bits=3):
        hashed = Encoder.fit(pd.DataFrame({"g": ["a", "b"]}), local=["g"])
    x, _ = hashed.transform(new)
    assert_array_equal(x.sum(axis=1), [1, 0])
    assert x[0, Hashed("g", 3, False).find("c")] == 1
    assert hashed.names_global == [f"g#{i}" for i in range(8)]


@hashing
def test_too_many_categories_are_hashed():
    frame = pd.DataFrame({"g": list("abc")})
    with hashed_beyond(3):
        assert isinstance(Encoder.fit(frame).columns[0], OneHot)
    with hashed_beyond(2):
        encoder = Encoder.fit(frame)
    assert encoder.columns == (Hashed("g", 18, False),)
    assert encoder.width_global == 2**18
    assert encoder.width_local == 0  # too wide
    x, _ = encoder.transform(frame)
    assert sparse.issparse(x)
    assert x.shape == (3, 2**18)
    assert x.nnz == 3


def test_wide_categories_are_sparse_each_side_for_itself():
    frame = pd.DataFrame({"g": [f"c{i}" for i in range(17)], "n": range(17)})
    x_global, x_local = Encoder.fit(frame, local=["n"]).transform(frame)
    assert isinstance(x_local, np.ndarray)
    assert x_global.indices.dtype == x_global.indptr.dtype == np.int32
    assert x_global.has_canonical_format
    narrow, _ = Encoder.fit(frame.head(16)).transform(frame)
    assert isinstance(narrow, np.ndarray)


def test_numbers_that_do_not_vary_or_are_all_missing():
    frame = pd.DataFrame({"a": [0.1] * 3, "b": [np.nan] * 3, "c": [None] * 3, "d": [1e300, 0, 1]})
    encoder = Encoder.fit(frame)
    assert encoder.names_global == ["a", "b", "b=missing", "c=missing", "d"]
    x, _ = encoder.transform(frame)
    assert_array_equal(x[:, :4], [[0, 0, 1, 1]] * 3)
    assert_allclose(x[:, 4], [np.sqrt(2), -np.sqrt(0.5), -np.sqrt(0.5)], rtol=1e-6)
    assert_array_equal(encoder.transform(frame.assign(a=7.0))[0][:, 0], [0, 0, 0])


def test_a_number_missing_only_later_is_the_mean():
    encoder = Encoder.fit(pd.DataFrame({"a": [1.0, 3.0]}))
    assert_array_equal(encoder.transform(pd.DataFrame({"a": [None, 3.0]}))[0], [[0], [1]])
    assert_array_equal(encoder.transform(pd.DataFrame({"a": [None]}))[0], [[0]])
    assert_array_equal(encoder.transform(pd.DataFrame({"a": ["3"]}))[0], [[1]])


# Sides


def test_usual_sides_of_a_table():
    frame = pd.DataFrame({"wide": [f"c{i}" for i in range(40)], "n": range(40), "m": range(40)})
    frame["g"] = frame["n"] % 10
    frame["h"] = frame["n"] % 20
    encoder = Encoder.fit(frame, categorical=["g", "h"])
    assert encoder.width_global == 40 + 2 + 10 + 20
    assert encoder.names_local[:2] == ["n", "m"]
    assert encoder.width_local == 2 + 10 + 20


def test_usual_sides_of_a_sparse_matrix_are_the_columns_used_most():
    x = np.eye(40)
    x[0, -3:] = 2
    assert Encoder.fit(sparse.csr_array(x)).local == (*range(29), 37, 38, 39)
    assert Encoder.fit(x).local == tuple(range(32))


def test_sides_by_name_and_wildcard():
    frame = pd.DataFrame({"genre_a": [1, 2], "genre_b": [1, 2], "[x]": [1, 2], "text": ["a", "b"]})
    encoder = Encoder.fit(frame, local="genre*", global_=["[x]", "genre_b"])
    assert encoder.names_local == ["genre_a", "genre_b"]
    assert encoder.names_global == ["genre_b", "[x]"]
    encoder.transform(frame.drop(columns="text"))  # what is in no view is not needed
    none = Encoder.fit(frame, local=[])
    assert none.transform(frame)[1].shape == (2, 0)
    assert none.names_local == []


@pytest.mark.parametrize("side", ["local", "global_", "categorical"])
def test_a_name_that_matches_nothing(side):
    message = rf"{side.strip('_')} names 'title\*', but the columns are year, genre"
    with pytest.raises(ValueError, match=message):
        Encoder.fit(FILMS[["year", "genre"]], **{side: ["year", "title*"]})


# One row, all rows, and after storage

numbers = st.none() | st.integers(-1000, 1000).map(lambda i: i / 8)
texts = st.none() | st.sampled_from(["a", "b|c", "c", "", "d|a", "ä"])
lists = st.none() | st.lists(st.sampled_from("abc"), max_size=3)
many = st.integers(0, 40).map("item{}".format)


@st.composite
def tables(draw):
    n = draw(st.integers(1, 8))

    def column(values):
        return pd.Series(draw(st.lists(values, min_size=n, max_size=n)), dtype=object)

    return pd.DataFrame(
        {
            "number": column(numbers).astype(float),
            "text": column(texts),
            "list": column(lists),
            "many": column(many),
        }
    )


@hashing
@given(tables(), tables(), st.sampled_from([None, 2, 5]))
def test_one_row_is_as_all_rows_and_storage_changes_nothing(table, new, bits):
    with hashed_beyond(0, bits) if bits else nullcontext():
        encoder = Encoder.fit(table, local=["number", "many"])
    again = Encoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder
    for rows in (table, new):
        views = encoder.transform(rows)
        for x, y in zip(views, again.transform(rows), strict=True):
            assert type(x) is type(y)
            assert_array_equal(dense(x), dense(y))
            assert np.isfinite(dense(x)).all()
        for i, row in enumerate(rows.to_dict("records")):
            for x, one in zip(views, encoder.transform_one(row), strict=True):
                assert type(x) is type(one)
                assert x.dtype == one.dtype
                assert_allclose(dense(one), dense(x)[[i]], rtol=1e-6)
    assert len(encoder.names_global) == encoder.width_global == views[0].shape[1]
    assert len(encoder.names_local) == encoder.width_local == views[1].shape[1]


def test_one_row_of_a_sparse_matrix_and_of_an_array():
    x = np.array([[0, 2.0, 5], [4.0, 1.0, 6]])
    for rows in (x, sparse.csr_array(x)):
        encoder = Encoder.fit(rows)
        one = encoder.transform_one({"x0": 4, "x1": 1.0, "x2": 6.0, "unknown": "!"})
        for side, whole in zip(one, encoder.transform(rows), strict=True):
            assert_allclose(dense(side), dense(whole)[[1]], rtol=1e-6)
    assert encoder.transform_one({})[0].nnz == 0


@pytest.mark.parametrize("value", [pd.NA, pd.NaT, np.nan, None, np.float32("nan")], ids=repr)
def test_a_missing_value_in_one_row_is_as_a_missing_key(value):
    encoder = Encoder.fit(FILMS, categorical="item_id")
    absent = encoder.transform_one({"item_id": 17})[0]
    row = {"year": value, "genre": value, "item_id": 17, "seen": value}
    assert_array_equal(encoder.transform_one(row)[0], absent)


@pytest.mark.parametrize(
    "value", [datetime(2020, 1, 2, 3), datetime(2020, 1, 2, 3, tzinfo=UTC), date(2020, 1, 2)]
)
def test_dates_in_one_row(value):
    encoder = Encoder.fit(pd.DataFrame({"d": pd.to_datetime(["2020-01-01", "2020-01-03"])}))
    expected = encoder.transform(pd.DataFrame({"d": [value]}))[0]
    assert_allclose(encoder.transform_one({"d": value})[0], expected, atol=1e-6)


def test_rows_come_in_any_order_of_columns_and_with_others():
    encoder = Encoder.fit(FILMS)
    shuffled = FILMS[["seen", "item_id", "genre", "year"]].assign(other="?")
    assert_array_equal(encoder.transform(shuffled)[0], encoder.transform(FILMS)[0])
    assert encoder.transform(FILMS.head(0))[0].shape == (0, encoder.width_global)


def test_a_sparse_matrix_for_an_array_and_the_other_way_round():
    x = np.array([[0, 2.0], [4.0, 1.0]])
    for learned, given_ in ((x, sparse.csr_array(x)), (sparse.csr_array(x), x)):
        encoder = Encoder.fit(learned)
        for a, b in zip(encoder.transform(learned), encoder.transform(given_), strict=True):
            assert type(a) is type(b)
            assert_array_equal(dense(a), dense(b))


# What is wrong is said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"year": None}, "no column 'year': the columns are genre, item_id, seen"),
        ({"year": ["1990", "soon", 3]}, "column 'year' has 'soon' in row 1, which is not a number"),
        ({"year": [1, np.inf, 2]}, "column 'year' has inf in row 1, which is not a finite number"),
        ({"year": [1e300, 1, 2]}, "column 'year' has 1e[+]300 in row 0, which is too large"),
        ({"year": [1j, 1, 2]}, "column 'year' has 1j in row 0, which is complex"),
    ],
)
def test_rows_that_do_not_fit(change, message):
    encoder = Encoder.fit(FILMS)
    frame = FILMS.drop(columns="year") if change == {"year": None} else FILMS.assign(**change)
    with pytest.raises(ValueError, match=message):
        encoder.transform(frame)
    if change["year"]:
        with pytest.raises(ValueError, match=message.split(" in row")[0]):
            [encoder.transform_one({"year": value}) for value in change["year"]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((3, 3)), "rows have 3 columns, those learned from had 2"),
        (np.zeros(3), "2-D array of numbers, not float64 in 1 dimensions"),
        (np.array([["a", "b"]]), "2-D array of numbers, not <U1"),
        (FILMS, "came as array when the encoder was learned, now as table"),
        ([[1.0, np.inf]], "column 'x1' has inf in row 0"),
    ],
)
def test_arrays_that_do_not_fit(rows, message):
    with pytest.raises(ValueError, match=message):
        Encoder.fit(np.eye(2)).transform(rows)


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (FILMS.head(0), {}, "there are 0 rows to learn from"),
        (FILMS[[]], {}, "there is no column left to learn from"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "two columns are called 'a'"),
        (pd.DataFrame({"a": [1.0, np.inf]}), {}, "column 'a' has inf in row 1"),
        (sparse.csr_array([[0, np.nan]]), {}, "column 'x1' has nan in row 0"),
        (sparse.eye_array(2), {"categorical": ["x0"]}, "no categorical columns"),
    ],
)
def test_nothing_to_learn_from(X, options, message):
    with pytest.raises(ValueError, match=message):
        Encoder.fit(X, **options)


DAMAGES = {
    "empty": lambda stored: stored.clear(),
    "no columns": lambda stored: stored.pop("columns"),
    "no column": lambda stored: stored["columns"].append(None),
    "unknown kind": lambda stored: stored["columns"][0].update(kind="word2vec"),
    "text for a number": lambda stored: stored["columns"][0].update(mean="much"),
    "nan": lambda stored: stored["columns"][0].update(scale=float("nan")),
    "no name": lambda stored: stored["columns"][0].pop("name"),
    "more": lambda stored: stored["columns"][0].update(more=1),
    "numbers for texts": lambda stored: stored["columns"][1].update(categories=[1, 2]),
    "a side too far": lambda stored: stored["local"].append(9),
    "a side before": lambda stored: stored["local"].insert(0, -1),
    "unknown source": lambda stored: stored.update(source="polars"),
    "bits": lambda stored: stored["columns"].append(
        {"kind": "hashed", "name": "h", "bits": 99, "missing": True}
    ),
}


@pytest.mark.parametrize("change", DAMAGES)
def test_a_broken_description_is_refused(change):
    stored = Encoder.fit(FILMS).to_dict()
    assert Encoder.from_dict(stored) == Encoder.fit(FILMS)
    DAMAGES[change](stored)
    with pytest.raises(ValueError, match="this is not a stored encoder: "):
        Encoder.from_dict(stored)


@pytest.mark.parametrize("stored", [None, [], "x", {"columns": 3}])
def test_a_foreign_description_is_refused(stored):
    with pytest.raises(ValueError, match="this is not a stored encoder: "):
        Encoder.from_dict(stored)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_global_features_have_a_limit(kind):
    rows = kind(np.float32([[1, -8, 3], [2, 4, 1]]))
    free = Encoder.fit(rows, local=["x1"], global_=["x0", "x1"])
    encoder = replace(free, limit_global=0.75)
    assert Encoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder
    x_global, x_local = (dense(x) for x in encoder.transform(rows))
    all_global, all_local = (dense(x) for x in free.transform(rows))
    assert abs(all_global).max() == 1.0
    assert_array_equal(x_global, all_global.clip(-0.75, 0.75))
    assert_array_equal(x_local, all_local)
    one = encoder.transform_one({"x0": 1.0, "x1": -8.0})
    for x, of_all in zip(one, (x_global, x_local), strict=True):
        assert_array_equal(dense(x)[0], of_all[0])


def test_every_kind_of_column_survives_storage():
    for columns in [
        (Number("a", 0.1, 1 / 3, True), OneHot("b", ("x", "y"), False), Hashed("c", 5, True)),
        (Scaled("x0", 1 / 3), Scaled("x1", 1e-40)),
    ]:
        source = "csr" if isinstance(columns[0], Scaled) else "table"
        encoder = Encoder(source, columns, (0, 1), (1,))
        assert Encoder.from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder

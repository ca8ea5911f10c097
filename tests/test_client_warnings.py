"""Clients and indexes that do not fit the rows raise warnings or errors of one sentence."""

import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedres import FedResClassifier, FedResRegressor, compare
from fedres.cli import app
from fedres.tables.client_ids import ClientWarning
from fedres.tables.input_rows import IndexWarning
from fedres.tables.unseen import UnseenWarning

RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=90), "b": RNG.choice(["Yes", "No"], 90)})
USER = pd.Series(RNG.choice(["a", "b", "c"], 90))
Y = X.a + USER.map({"a": -1.0, "b": 0.0, "c": 1.0}) + 0.1 * RNG.normal(size=90)
SOME = ["a", "zz", None]


@pytest.fixture(scope="module")
def model():
    return FedResRegressor().fit(X, Y, client=USER)


@pytest.fixture(scope="module")
def classes():
    return FedResClassifier().fit(X, Y > 0, client=USER)


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("model", lambda m: m.predict(X[:3], client=SOME)),
        ("model", lambda m: m.predict(X[:3], client=SOME, return_std=True)),
        ("model", lambda m: m.predict_interval(X[:3], client=SOME)),
        ("model", lambda m: m.contributions(X[:3], client=SOME)),
        ("model", lambda m: m.score(X[:3], Y[:3], client=SOME)),
        ("classes", lambda m: m.predict(X[:3], client=SOME)),
        ("classes", lambda m: m.predict_proba(X[:3], client=SOME)),
        ("classes", lambda m: m.score(X[:3], Y[:3] > 0, client=SOME)),
    ],
)
def test_unknown_and_missing_clients_raise_one_warning_each(request, kind, call):
    with pytest.warns(ClientWarning) as told:
        call(request.getfixturevalue(kind))
    assert [str(one.message) for one in told] == [
        "1 of 3 rows name clients that the model does not know, such as 'zz': these rows are "
        "predicted by the shared model alone",
        "1 of 3 rows name no client: these rows are predicted by the shared model alone",
    ]


def test_where_clients_make_no_difference_there_is_no_warning(model):
    model.predict(X[:3], client=False)  # warnings are errors here
    FedResRegressor(method="central").fit(X, Y, client=USER).predict(X[:3], client=SOME)
    FedResRegressor().fit(X, Y, client=["a"] * 90).predict(X[:3], client=SOME)


SHUFFLED = USER.sample(frac=1, random_state=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda _: FedResRegressor().fit(X, Y, client=SHUFFLED),
        lambda _: FedResRegressor().fit(X.to_numpy()[:, :1], Y, client=SHUFFLED),
        lambda _: FedResRegressor().partial_fit(X, Y, client=SHUFFLED),
        lambda m: m.partial_fit(X, Y, client=SHUFFLED),
        lambda m: m.predict(X, client=SHUFFLED),
        lambda m: m.score(X, SHUFFLED, client=USER),
        lambda _: compare(X, client=SHUFFLED, label=Y),
    ],
)
def test_the_same_index_in_another_order_is_refused(model, call):
    with pytest.raises(
        ValueError, match=r"in another order.*\.loc\[.*\.index\], or pass .*to_numpy"
    ):
        call(model)


def test_other_indexes_raise_one_warning(model):
    moved = USER.set_axis(USER.index + 7)
    with pytest.warns(IndexWarning) as told:
        found = model.predict_interval(X, client=moved)
    (one,) = told
    assert str(one.message) == (
        "X and client have different indexes, such as 0 and 7 in row 0: rows are matched by "
        "position; pass client.to_numpy() if their order is right"
    )
    np.testing.assert_array_equal(found, model.predict_interval(X, client=USER))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = X.set_axis([0, 0, *range(88)]), USER.set_axis([0, 0, *range(88)])
        model.predict(both[0], client=both[1])
        model.predict(X.set_axis(moved.index), client=USER.to_numpy())


def test_an_unknown_client_of_local_models_is_named(model):
    with pytest.raises(KeyError) as refused:
        model.local_models_[99]
    assert str(refused.value) == (
        f"there is no local model of client 99: there are 3, such as that of {USER[0]!r}"
    )
    assert model.local_models_.get(99) is None


def test_one_id_for_all_rows_is_refused(model):
    with pytest.raises(ValueError, match=r"client is 7, .* one id per row: .* use \[7\] \* len"):
        model.predict(X, client=7)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # scikit-learn's
def test_texts_in_an_array_ask_for_a_table(model):
    asked = "holds '(Yes|No)', .*: give a DataFrame with the columns a, b"
    with pytest.raises(ValueError, match=asked):
        model.predict(X[["b", "a"]].to_numpy(), client=USER)


def test_clients_in_a_column_of_a_table(model):
    expected = model.predict(X, client=USER)
    np.testing.assert_array_equal(model.predict(X, client=USER.to_frame()), expected)
    for client, message in [
        (X, "client is a table of 2 columns: give one id per row"),
        ({"a": 1}, "client is a dict: give one id per row"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.predict(X, client=client)


def test_alone_unknown_clients_are_predicted_by_a_constant():
    alone = FedResRegressor(method="independent").fit(X, Y, client=USER)
    with pytest.warns(ClientWarning, match="'zz': these rows are predicted by a constant") as found:
        alone.predict(X[:2], client=["a", "zz"])
    assert found[0].filename == __file__


@pytest.mark.parametrize("dtype", [object, str, bytes])
def test_arrays_of_texts_are_refused_in_one_sentence(model, dtype):
    texts = np.array([["p", "q"]] * 3, dtype=dtype)
    with pytest.raises(ValueError, match=r"X is an array that holds .*'p', and arrays are read as"):
        FedResRegressor().fit(texts, Y[:3], client=USER[:3])


def test_missing_labels_are_found():
    y = Y.where(Y.index != 7).set_axis(range(2, 92)).rename_axis("line")
    for model in (FedResRegressor(), FedResClassifier()):
        labels = y if isinstance(model, FedResRegressor) else y > 0
        labels = labels.astype(object).where(y.notna(), None)
        with pytest.raises(ValueError, match=r"Input y contains NaN in line 9: .*, 1 in all"):
            model.fit(X.set_axis(y.index), labels, client=USER.to_numpy())
    with pytest.raises(ValueError, match="Input y contains infinity in row 7"):
        FedResRegressor().fit(X, Y.where(Y.index != 7, np.inf).to_numpy(), client=USER)
    with pytest.raises(ValueError, match=r"y must be numbers: could not convert .*: 'p'; Fed"):
        FedResRegressor().fit(X, np.array(["p"] * 90), client=USER)


def of_kinds(rows=300):
    """Rows with categories, lists, numbers that are missing at times and such that never are."""
    frame = pd.DataFrame(
        {
            "a": RNG.normal(size=rows),
            "b": np.where(np.arange(rows) % 9 == 0, np.nan, RNG.normal(size=rows)),
            "cat": RNG.choice(["red", "blue"], rows),
            "tags": RNG.choice(["x|y", "y", "z"], rows),
        }
    )
    return frame, frame["a"].to_numpy() + RNG.normal(size=rows), np.arange(rows) % 7


def test_values_that_training_never_saw_are_counted(tmp_path):
    frame, y, client = of_kinds()
    model = FedResRegressor(client="user").fit(frame, y, client=client)
    model.predict(frame, client=client)  # warnings are errors here
    model.predict(frame.assign(b=np.nan), client=client)
    new = frame.copy()
    new.loc[3:7, "cat"] = "purple"
    new.loc[7:8, "tags"] = "x|new"
    with pytest.warns(UnseenWarning) as found:
        model.predict(new, client=client)
    assert [str(one.message) for one in found] == [
        "6 of 300 rows have a category that training did not have, such as cat='purple' in row 3: "
        "it adds nothing to their predictions"
    ]
    assert found[0].filename == __file__
    lacking = frame.assign(a=frame["a"].where(frame.index != 5), cat=frame["cat"].where(y < 1))
    with pytest.warns(UnseenWarning) as found:
        model.predict(lacking, client=client)
    absent = int(lacking[["a", "cat"]].isna().any(axis=1).sum())
    assert str(found[0].message).startswith(
        f"{absent} of 300 rows lack a value where none was missing in training, such as a in row 5:"
    )
    assert len(found) == 1
    model.save(tmp_path / "model")
    new.assign(user=client).to_csv(tmp_path / "new.csv", index=False)
    arguments = ["predict", str(tmp_path / "model"), str(tmp_path / "new.csv")]
    for options in ([], ["--memory", "1GB"], ["--interval", "0.9"]):
        with pytest.warns(UnseenWarning, match="^6 of 300 rows have a category") as found:
            done = CliRunner().invoke(app, [*arguments, *options])
        assert done.exit_code == 0
        assert len(found) == 1
    arrays = FedResRegressor().fit(frame[["a"]].to_numpy(), y, client=client)
    with pytest.warns(UnseenWarning, match="1 of 3 rows lack a value .*, such as x0 in row 1"):
        arrays.predict(np.array([[1.0], [np.nan], [2.0]]), client=client[:3])

"""The estimators keep scikit-learn's and river's conventions, and learn."""

import subprocess
import sys
from contextlib import nullcontext
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedres import FedResClassifier, FedResRegressor, compare, register_with_river
from fedres.tables.client_ids import Clients, ClientWarning
from fedres.tables.sgd_tuning import split_for_tuning

EQUAL_WEIGHTS = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ),
    "it asks for 7 digits of predictions of 32 bits, which numbers centred by other rows have not",
)


@parametrize_with_checks(
    [FedResRegressor(client=False), FedResClassifier(client=False)],
    expected_failed_checks=lambda _: EQUAL_WEIGHTS,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def ratings(n=3000, users=30, films=40, seed=0, noise=0.3):
    """Users rate films of one or two genres, each film and each user with a bent of its own."""
    rng = np.random.default_rng(seed)
    user, film = rng.integers(0, users, n), rng.integers(0, films, n)
    genres = np.array(["Action", "Action|Comedy", "Comedy", "Drama|Comedy"])[film % 4]
    taste = rng.normal(size=(users, 4))
    y = rng.normal(size=films)[film] + taste[user, film % 4] + noise * rng.normal(size=n)
    frame = pd.DataFrame({"film": film.astype(str), "genres": genres, "year": 1950.0 + film})
    frame.loc[::7, "year"] = np.nan
    return frame, y, np.array([f"user {i}" for i in user])


@pytest.fixture(scope="module")
def fitted():
    X, y, user = ratings()
    return FedResRegressor(local_features="genres").fit(X[:2000], y[:2000], client=user[:2000])


def rmse(a, b):
    return np.sqrt(np.mean((a - b) ** 2))


def test_personal_and_shared_beat_either_alone(fitted):
    X, y, user = ratings()
    held = slice(2000, None)
    errors = {"fedres": rmse(fitted.predict(X[held], client=user[held]), y[held])}
    for method in ("independent", "central"):
        model = clone(fitted).set_params(method=method)
        model.fit(X[:2000], y[:2000], client=user[:2000])
        errors[method] = rmse(model.predict(X[held], client=user[held]), y[held])
    assert errors["fedres"] < 0.4  # of which noise is 0.3
    assert errors["fedres"] < 0.7 * min(errors["independent"], errors["central"])


def test_a_prediction_is_the_sum_of_both_models(fitted):
    X, _, user = ratings()
    x_global, x_local = fitted.encoder_.transform(X[:50])
    shared = fitted.global_model_
    expected = x_global @ shared.weights + shared.constant
    for k, own in enumerate(map(fitted.local_models_.__getitem__, user[:50])):
        table = own.table()
        expected[k] += own.constant
        row = dict(zip(fitted.encoder_.names_local, np.ravel(x_local[[k]]), strict=True))
        expected[k] += sum(row[name] * table[name] for name in own.names)
    assert shared.names == fitted.encoder_.names_global
    np.testing.assert_allclose(fitted.predict(X[:50], client=user[:50]), expected, atol=1e-4)


def test_local_models_are_a_mapping(fitted):
    local = fitted.local_models_
    assert set(local) == set(fitted.clients_) == {f"user {i}" for i in range(30)}
    assert len(local) == 30
    assert "user 3" in local
    assert "user 99" not in local
    with pytest.raises(KeyError, match="user 99"):
        local["user 99"]
    np.testing.assert_allclose(local.norms, [local[c].norm for c in local], rtol=1e-5)


def test_unseen_clients_get_the_global_model(fitted):
    X, _, user = ratings()
    x_global, _ = fitted.encoder_.transform(X[:20])
    shared = fitted.global_model_
    expected = x_global @ shared.weights + shared.constant
    for client in (["nobody"] * 20, [7] * 20, [None] * 20, False):
        told = pytest.warns(UserWarning, match="20 of 20 rows name") if client else nullcontext()
        with told:
            predicted = fitted.predict(X[:20], client=client)
        np.testing.assert_allclose(predicted, expected, atol=1e-4)
    assert not np.allclose(fitted.predict(X[:20], client=user[:20]), expected, atol=1e-2)


def test_predictions_stay_within_the_labels_seen(fitted):
    X, y, user = ratings()
    wild = X.assign(year=1e6)
    predictions = fitted.predict(wild, client=user)
    assert predictions.min() >= y[:2000].min()
    assert predictions.max() <= y[:2000].max()


def test_clients_with_three_rows_do_not_overfit():
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(320), [3] * 300 + [100] * 20)
    w, bent = rng.normal(size=4), 0.3 * rng.normal(size=(320, 4))

    def rows_of(user):
        X = rng.normal(size=(len(user), 4))
        return X, (X * (w + bent[user])).sum(axis=1) + rng.normal(size=len(user))

    X, y = rows_of(user)
    small, large = np.repeat(np.arange(300), 10), np.repeat(np.arange(300, 320), 10)
    tests = [(*rows_of(few_or_many), few_or_many) for few_or_many in (small, large)]
    errors = {}
    for method in ("fedres", "central", "independent"):
        model = FedResRegressor(method=method).fit(X, y, user)
        errors[method] = [rmse(model.predict(X, client), y) for X, y, client in tests]
    assert errors["fedres"][0] < errors["central"][0]
    assert errors["fedres"][1] < 0.95 * errors["central"][1]
    assert errors["fedres"][0] < 0.95 * errors["independent"][0]


@pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
def test_local_models_with_nothing_to_say_do_little_harm():
    rng = np.random.default_rng(0)
    X, user = rng.normal(size=(4000, 5)), rng.integers(0, 400, 4000)
    y = X @ np.arange(5) + rng.normal(size=4000)
    both, shared = (
        FedResRegressor(method=method).fit(X[:3000], y[:3000], user[:3000])
        for method in ("fedres", "central")
    )
    errors = [rmse(model.predict(X[3000:], user[3000:]), y[3000:]) for model in (both, shared)]
    assert errors[0] < 1.02 * errors[1]


@pytest.mark.parametrize("solver", ["bayes", "sgd"])
def test_classes(solver):
    rng = np.random.default_rng(0)
    X, user = rng.normal(size=(1500, 3)), rng.integers(0, 5, 1500)
    bent = rng.normal(size=(5, 3, 3))
    y = np.array(["red", "green", "blue"])[
        np.einsum("nd,ndk->nk", X, 1 + bent[user]).argmax(axis=1)
    ]
    model = FedResClassifier(solver=solver).fit(X[:1000], y[:1000], user[:1000])
    central = FedResClassifier(solver=solver, method="central").fit(X[:1000], y[:1000])
    score = model.score(X[1000:], y[1000:], user[1000:])
    assert score > 0.85
    assert score > central.score(X[1000:], y[1000:]) + 0.1
    proba = model.predict_proba(X, user)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X, user))
    assert model.decision_function(X, user).shape == (1500, 3)
    assert model.global_model_.table().shape == (4, 3)


def test_two_classes_are_one_problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = X[:, 0] + 0.1 * X[:, 1] > 0
    model = FedResClassifier(client=False).fit(X, y)
    odds = model.decision_function(X)
    assert odds.shape == (400,)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-odds)))
    assert model.score(X, y) > 0.97
    assert model.global_model_.weights.shape == (2,)


def test_what_is_given_is_not_chosen():
    X, y, user = ratings(500)
    model = FedResRegressor(eta=0.2, shrinkage=5.0, passes=3).fit(X, y, user)
    assert (model.eta_, model.shrinkage_, model.passes_) == (0.2, 5.0, 3)
    assert model.validation_ == []
    model = FedResRegressor(passes=2).fit(X, y, user)
    assert {trial["passes"] for trial in model.validation_} == {2}
    best = min(model.validation_, key=lambda trial: trial["loss"])
    assert (model.eta_, model.shrinkage_) == (best["eta"], best["shrinkage"])


@pytest.mark.parametrize("solver", ["bayes", "sgd"])
@pytest.mark.parametrize("rows", [1, 2, 10, 200])
def test_few_rows_and_clients_with_one_each_will_do(rows, solver):
    X, y, _ = ratings(rows)
    model = FedResRegressor(solver=solver).fit(X, y, np.arange(rows))
    assert np.isfinite(model.predict(X, np.arange(rows))).all()
    assert len(model.clients_) == rows
    assert bool(model.validation_) == (rows == 200 and solver == "sgd")


def test_the_same_again():
    X, y, user = ratings(500)
    for solver in ("bayes", "sgd"):
        one, other = (FedResRegressor(solver=solver).fit(X, y, user) for _ in range(2))
        np.testing.assert_array_equal(one.predict(X, user), other.predict(X, user))
    one, other = (FedResRegressor(solver="sgd", random_state=k).fit(X, y, user) for k in range(2))
    assert not np.array_equal(one.predict(X, user), other.predict(X, user))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(0, 1000))
def test_rows_held_out_leave_every_client_some(counts, seed):
    client = np.repeat(np.arange(len(counts)), counts)
    rest, held = split_for_tuning(client, np.random.RandomState(seed))
    assert sorted([*rest, *held]) == list(range(len(client)))
    assert set(client[rest]) == set(client)
    assert (
        np.bincount(client[held], minlength=len(counts)) <= np.ceil(np.array(counts) / 10)
    ).all()


# Tables.


def test_dataframe_array_and_csr_hold_the_same():
    rng = np.random.default_rng(0)
    X, user = rng.random((300, 4)), rng.integers(0, 5, 300)
    y = X @ np.arange(4.0) + user
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(4)])
    by_array, by_frame = (FedResRegressor().fit(x, y, user) for x in (X, frame))
    np.testing.assert_array_equal(by_array.predict(X, user), by_frame.predict(frame, user))
    by_csr = FedResRegressor().fit(csr_array(X), y, user)
    assert by_csr.score(csr_array(X), y, user) > 0.9
    assert by_frame.feature_names_in_.tolist() == ["x0", "x1", "x2", "x3"]
    assert by_csr.n_features_in_ == 4


def test_the_client_may_be_a_column():
    X, y, user = ratings(600)
    by_argument = FedResRegressor().fit(X, y, client=user)
    by_column = FedResRegressor(client="user").fit(X.assign(user=user), y)
    expected = by_argument.predict(X, client=user)
    np.testing.assert_array_equal(by_column.predict(X.assign(user=user)), expected)
    np.testing.assert_array_equal(by_column.predict(X, client=user), expected)
    with pytest.raises(ValueError, match="X has no 'user', which names the clients"):
        FedResRegressor(client="user").fit(X, y)


NOBODY = "X names no client: pass client=, one id per row, or let the parameter client of"


def test_personalisation_is_not_dropped_in_silence():
    X, y, user = ratings(600)
    for act in (FedResRegressor().fit, FedResRegressor().partial_fit):
        with pytest.raises(ValueError, match=NOBODY):
            act(X, y)
    with pytest.raises(ValueError, match="the row names no client"):
        FedResRegressor().learn_one({"year": 1970.0}, 2.0)
    with pytest.raises(ValueError, match="client is 'user' for 600 rows of X: give one client id"):
        FedResRegressor().fit(X, y, client="user")
    with pytest.raises(ValueError, match="client must name a column or be None or False, not 7"):
        FedResRegressor(client=7).fit(X, y)
    classifier = FedResClassifier(client="user", passes=1).fit(X, y > 0, user)
    for act in (classifier.predict, classifier.predict_proba, classifier.decision_function):
        with pytest.raises(ValueError, match="the model has 30 clients and X names none: pass"):
            act(X)
    with pytest.raises(ValueError, match="the model has 30 clients and X names none"):
        classifier.score(X, y > 0)
    with pytest.raises(ValueError, match="the model has 30 clients and the row names none"):
        classifier.predict_one({"year": 1970.0})


def test_all_rows_may_be_one_clients_if_that_is_said():
    X, y, user = ratings(600)
    said = FedResRegressor(client=False, passes=1).fit(X, y)
    named = FedResRegressor(passes=1).fit(X, y, ["ann"] * 600)
    once = FedResRegressor(passes=1).fit(X, y, client=False)
    for model in (said, once):
        np.testing.assert_array_equal(model.predict(X), named.predict(X))
        assert len(model.clients_) == 1
    said.learn_one({"year": 1970.0}, 2.0)
    assert np.isfinite(said.predict_one({"year": 1970.0}))
    central = FedResRegressor(method="central", passes=1)
    expected = clone(central).fit(X, y).predict(X)
    np.testing.assert_array_equal(central.fit(X, y, user).predict(X), expected)
    with pytest.raises(ValueError, match="X has no 'user'"):
        FedResRegressor(method="central", client="user").fit(X, y)


def test_numbers_and_strings_name_clients():
    clients = Clients()
    assert clients.learn(pd.Series([5, 7, 5]), 3).tolist() == [0, 1, 0]
    assert clients.find(np.array([7.0, 5.0]), 2).tolist() == [1, 0]
    assert clients.find(["ann", "07"], 2).tolist() == [-1, -1]
    with pytest.raises(ValueError, match="client '7' is unknown, and 7 is known: give ids as they"):
        clients.find(["ann", "7"], 2)
    with pytest.raises(ValueError, match="client 7 is unknown, and '7' is known"):
        Clients(["7"]).find_one(7)
    with pytest.raises(ValueError, match="ids such as 5, and 'ann' is of another kind"):
        clients.learn(["ann"], 1)
    assert clients.ids == [5, 7]
    for bad, why in [
        ([None], "client is missing in row 0"),
        ([1.5], "not 1.5"),
        ([(1, 2)], r"not \(1, 2\)"),
    ]:
        with pytest.raises(ValueError, match=why):
            clients.learn(bad, 1)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"eta": -1}, {}, "eta must be a positive number or None, not -1"),
        ({"shrinkage": np.nan}, {}, "shrinkage must be a number from 0 up or None, not nan"),
        ({"passes": 0}, {}, "passes must be a whole number from 1 up or None, not 0"),
        ({"solver": "magic"}, {}, "unknown solver 'magic': choose one of auto, bayes, sgd$"),
        ({"method": "alone"}, {}, "unknown method 'alone': choose one of fedres"),
        ({"local_features": ["nope"]}, {}, "local names 'nope', but the columns are film"),
        ({}, {"y": [np.nan] * 100}, "y contains NaN"),
        ({}, {"y": ["a"] * 100}, "y must be numbers"),
        ({}, {"y": [1.0] * 99}, "inconsistent numbers of samples"),
        ({}, {"client": ["ann"] * 99}, r"client has shape \(99,\) for 100 rows of X"),
        ({}, {"client": [None, *"a" * 99]}, "client is missing in row 0"),
        ({}, {"X": pd.DataFrame({"a": [np.inf] * 100})}, "column 'a' has inf in row 0"),
        ({}, {"X": np.full((100, 1), np.inf)}, "X contains infinity"),
    ],
)
def test_mistakes_are_one_sentence_and_change_nothing(options, change, message):
    X, y, user = ratings(100)
    model = FedResRegressor(passes=1).fit(X, y, user)
    before = model.predict(X, user)
    good = {"X": X, "y": y, "client": user}
    model.set_params(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(**{**good, **change})
    np.testing.assert_array_equal(model.predict(X, user), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [0.0] * 99 + [1e30]}, "y has 1e.30 in row 99, more than 1e.08 times the spread"),
        ({"y": [0.0] * 99 + [np.inf]}, "y contains infinity"),
        ({"client": [1] * 100}, "clients are known by ids such as 'user"),
        ({"year": 1e30}, "a feature is .* times its spread"),
        ({"film": None}, "missing"),
    ],
)
def test_mistakes_later_on_change_nothing_either(change, message):
    X, y, user = ratings(100)
    model = FedResRegressor().partial_fit(X, y, user)
    before, clients = model.predict(X, user), list(model.clients_)
    good = {"X": X, "y": y, "client": user}
    if "year" in change:
        change = {"X": X.assign(**change)}
    elif "film" in change:
        change = {"X": X.drop(columns="film")}
    with pytest.raises(ValueError, match=message):
        model.partial_fit(**{**good, **change})
    np.testing.assert_array_equal(model.predict(X, user), before)
    assert model.clients_ == clients


@pytest.mark.parametrize("kind", [pd.DataFrame, np.array])
def test_a_batch_without_rows_changes_nothing_once_there_is_a_model(kind):
    X, y, user = ratings(100)
    X = kind(X[["year"]])
    with pytest.raises(ValueError, match=r"0 rows|0 sample"):
        FedResRegressor().partial_fit(X[:0], y[:0], user[:0])
    model = FedResRegressor().partial_fit(X, y, user)
    before = model.predict(X, user)
    assert model.partial_fit(X[:0], y[:0], user[:0]) is model
    np.testing.assert_array_equal(model.predict(X, user), before)
    assert model.predict(X[:0], user[:0]).shape == (0,)


def test_classes_are_named_when_training_begins():
    X = np.arange(6.0)[:, None]
    model = FedResClassifier(client=False).partial_fit(X, [0, 1, 0, 1, 0, 1], classes=[0, 1, 2])
    assert model.classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="y has 3, and the classes are 0, 1, 2"):
        model.partial_fit(X, [0, 1, 2, 3, 0, 1])
    with pytest.raises(ValueError, match="only one class, 1"):
        FedResClassifier(client=False).fit(X, [1] * 6)


# Other people's machinery.


def test_in_a_pipeline_and_a_grid_search_with_routing():
    X, y, user = ratings(600)
    X = X[["year"]].fillna(1970)
    with sklearn.config_context(enable_metadata_routing=True):
        model = FedResRegressor(passes=1)
        for ask in (model.set_fit_request, model.set_score_request, model.set_predict_request):
            ask(client=True)
        pipeline = make_pipeline(MinMaxScaler().set_output(transform="pandas"), model)
        search = GridSearchCV(pipeline, {"fedresregressor__shrinkage": [0.0, 10.0]}, cv=KFold(2))
        search.fit(X, y, client=user)
        assert search.best_estimator_[-1].clients_ == list(dict.fromkeys(user))
        shared = search.best_estimator_.predict(X, client=False)
        assert search.score(X, y, client=user) > r2_score(y, shared) + 0.1
    pipeline.fit(X, y, fedresregressor__client=user)
    assert pipeline.predict(X, client=user).shape == (600,)


def test_in_cross_validation():
    rng = np.random.default_rng(0)
    X, user = rng.normal(size=(600, 2)), rng.integers(0, 10, 600)
    y = X[:, 0] + 3 * rng.normal(size=10)[user]
    with sklearn.config_context(enable_metadata_routing=True):
        model = FedResRegressor().set_fit_request(client=True).set_score_request(client=True)
        assert cross_val_score(model, X, y, params={"client": user}, cv=3).min() > 0.95
    # scikit-learn keeps groups to itself: the model would hear of no client.
    with pytest.raises(ValueError, match=NOBODY):
        cross_val_score(FedResRegressor(), X, y, groups=user, cv=GroupKFold(3))
    # Of folds by client, those to be predicted are never those learned from.
    model = FedResRegressor(client="user", passes=1)
    named = pd.DataFrame(X, columns=["a", "b"]).assign(user=user)
    with pytest.warns(UserWarning, match=r"\d+ of \d+ rows name clients that the model"):
        cross_val_score(model, named, y, groups=user, cv=GroupKFold(3))


def test_clients_who_are_all_unknown_are_told_of():
    X, y, user = ratings(600)
    model = FedResRegressor(passes=1).fit(X, y, user)
    expected = model.predict(X, client=False)
    all_new = "600 of 600 rows name clients that the model does not know, such as 'new 4': these"
    with pytest.warns(UserWarning, match=all_new):
        predicted = model.predict(X, client=["new 4"] * 600)
    np.testing.assert_array_equal(predicted, expected)
    with pytest.warns(UserWarning, match="600 of 600 rows name no client: these"):
        model.score(X, y, client=[None] * 600)
    some = np.where(np.arange(600) < 1, user, "new 4")
    with pytest.warns(ClientWarning, match="599 of 600 rows name clients"):
        assert (model.predict(X, client=some)[1:] == expected[1:]).all()
    model.set_params(method="central").fit(X, y, user).predict(X, client=["new 4"] * 600)


@pytest.mark.parametrize("kind", ["pyarrow", "polars", "polars, lazy"])
def test_tables_of_other_libraries(kind):
    X, y, user = ratings(400)
    frame = X.assign(user=user, stars=y)
    library = import_module(kind.split(",")[0])
    if kind == "pyarrow":
        table = library.Table.from_pandas(frame)
        features, columns = table.select(list(X)), [table["stars"], table["user"]]
    else:
        table = library.from_pandas(frame)
        features, columns = table.select(list(X)), [table["stars"], table["user"]]
        if kind == "polars, lazy":
            features, table = features.lazy(), table.lazy()
    expected = FedResRegressor(passes=1).fit(X, y, user)
    model = FedResRegressor(passes=1).fit(features, *columns)
    assert model.feature_names_in_.tolist() == list(X)
    np.testing.assert_array_equal(
        model.predict(features, client=columns[1]), expected.predict(X, user)
    )
    assert model.score(features, *columns) == expected.score(X, y, user)
    found = compare(table, client="user", label="stars", model=FedResRegressor(passes=1))
    as_pandas = compare(frame, client="user", label="stars", model=FedResRegressor(passes=1))
    assert found.verdict() == as_pandas.verdict()
    liked = FedResClassifier(passes=1).fit(features, np.where(y > 0, "yes", "no"), columns[1])
    assert liked.classes_.tolist() == ["no", "yes"]


def test_in_a_grid_search_without_routing():
    X, y, user = ratings(600)
    search = GridSearchCV(FedResRegressor(client="user"), {"eta": [0.1, 0.3]}, cv=KFold(2))
    search.fit(X.assign(user=user), y)
    assert search.best_score_ > 0.5


def rows_as_dicts(X, user):
    return [{**row, "who": who} for row, who in zip(X.to_dict("records"), user, strict=True)]


def test_one_row_is_predicted_as_in_a_table():
    X, y, user = ratings(300)
    for y_, model in [(y, FedResRegressor()), (y > 0, FedResClassifier())]:
        model.set_params(client="who").fit(X, y_, client=user)
        expected = model.predict(X[:30], client=user[:30]).tolist()
        rows = rows_as_dicts(X[:30], user[:30])
        assert [model.predict_one(row) for row in rows] == expected
        assert rows[0]["who"] == user[0]
    proba = model.predict_proba_one(rows[0])
    assert list(proba) == [False, True]
    assert proba[True] == model.predict_proba(X[:1], client=user[:1])[0, 1]


def test_one_row_is_learned_as_in_a_table():
    X, y, user = ratings(300)
    begun = {"X": X[:200], "y": y[:200], "client": user[:200]}
    tables = FedResRegressor().partial_fit(**begun).partial_fit(X[200:], y[200:], user[200:])
    rows = FedResRegressor(client="who").partial_fit(**begun)
    for row, label in zip(rows_as_dicts(X[200:], user[200:]), y[200:], strict=True):
        rows.learn_one(row, label)
    np.testing.assert_array_equal(rows.predict(X, client=user), tables.predict(X, client=user))


def stream(n, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        user, x = int(rng.integers(0, 8)), float(rng.normal())
        film = str(rng.choice(["Jaws", "Heat", "Fargo"]))
        y = 100 + 10 * (x + user - 4 + 3 * (film == "Heat"))
        yield {"user": user, "size": 1000 * x, "film": film}, y


def test_river_is_told_of_the_estimators_only_when_asked():
    code = (
        "from river import base, metrics; import fedres; "
        "both = fedres.FedResRegressor(client='u'), fedres.FedResClassifier(client='u'); "
        "kinds = base.Regressor, base.Classifier; "
        "print([isinstance(*one) for one in zip(both, kinds)]); fedres.register_with_river(); "
        "print([isinstance(*one) for one in zip(both, kinds)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[False, False]", "[True, True]"]


def test_in_river_regression():
    from river import compose, evaluate, metrics

    register_with_river()
    model = FedResRegressor(client="user")
    assert model.predict_one({"user": 1, "size": 2.0}) == 0
    mae = evaluate.progressive_val_score(stream(1000), model, metrics.MAE())
    assert mae.get() < 4
    assert sorted(model.clients_) == list(range(8))
    pipeline = compose.Pipeline(compose.Discard("film"), FedResRegressor(client="user"))
    worse = evaluate.progressive_val_score(stream(1000), pipeline, metrics.MAE())
    assert mae.get() < worse.get() < 20


def test_in_river_classification():
    from river import evaluate, metrics

    def labelled(n):
        return ((x, "high" if y > 110 else "low" if y < 90 else "mid") for x, y in stream(n))

    register_with_river()
    model = FedResClassifier(client="user")
    assert model.predict_one({"user": 1}) is None
    assert model.predict_proba_one({"user": 1}) == {}
    accuracy = evaluate.progressive_val_score(labelled(1000), model, metrics.Accuracy())
    assert accuracy.get() > 0.8
    assert sorted(model.classes_) == ["high", "low", "mid"]
    assert sum(model.predict_proba_one({"user": 1, "film": "Heat"}).values()) == pytest.approx(1)
    loss = evaluate.progressive_val_score(
        labelled(500), FedResClassifier(client="user"), metrics.CrossEntropy()
    )
    assert loss.get() < np.log(3)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ({"size": 1.0}, 1.0, "the row has no 'user', which names the clients"),
        ({"user": "ann", "size": 1.0}, 1.0, "of another kind"),
        ({"user": 1, "size": np.inf}, 1.0, "column 'size' has inf"),
        ({"user": 1, "size": 1.0}, np.nan, "y must be a finite number, not nan"),
        ({"user": 1, "size": 1.0}, "much", "y must be a number, not 'much'"),
    ],
)
def test_a_bad_row_is_refused_and_changes_nothing(x, y, message):
    model, row = FedResRegressor(client="user"), {"user": 3, "size": 500.0}
    with pytest.raises(ValueError, match="y must be"):
        model.learn_one(row, None)
    assert not hasattr(model, "encoder_")
    for good, label in stream(50):
        model.learn_one(good, label)
    before, seen = model.predict_one(row), model.encoder_.to_dict()
    with pytest.raises(ValueError, match=message):
        model.learn_one(x, y)
    assert model.predict_one(row) == before
    assert model.encoder_.to_dict() == seen
    with pytest.raises(ValueError, match="began with learn_one"):
        model.predict(pd.DataFrame({"size": [1.0]}))

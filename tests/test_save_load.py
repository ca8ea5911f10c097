"""A model that was saved is the model it was, for all clients or for one."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedres import FedResClassifier, FedResRegressor, load_data, load_model
from fedres.tables import storage
from test_estimators import ratings, rows_as_dicts, stream


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    X, y, user = ratings(600)
    model = FedResRegressor(client="who", local_features="genres").fit(X, y, user)
    folder = tmp_path_factory.mktemp("models") / "model"
    model.save(folder)
    return model, folder


def test_all_is_as_it_was(saved):
    model, folder = saved
    X, _, user = ratings(600)
    again = load_model(folder)
    assert type(again) is FedResRegressor
    assert again.get_params() == model.get_params()
    assert again.clients_ == model.clients_
    assert again.validation_ == model.validation_
    assert (again.eta_, again.shrinkage_, again.passes_) == (
        model.eta_,
        model.shrinkage_,
        model.passes_,
    )
    np.testing.assert_array_equal(again.predict(X, user), model.predict(X, user))
    np.testing.assert_array_equal(again.feature_names_in_, model.feature_names_in_)
    pd.testing.assert_series_equal(
        again.local_models_["user 3"].table(), model.local_models_["user 3"].table()
    )


@pytest.mark.parametrize("classes", [[False, True], ["a", "b", "c"], [1, 2, 30], [0.5, 1.5]])
def test_classes_keep_their_type(classes, tmp_path):
    X, y, user = ratings(300)
    labels = np.array(classes)[np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])) % len(classes)]
    labels = labels if classes != [0.5, 1.5] else labels.astype(str)
    model = FedResClassifier().fit(X, labels, user)
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X, user), model.predict_proba(X, user))
    assert again.classes_.dtype == model.classes_.dtype
    assert again.predict(X, user).tolist() == model.predict(X, user).tolist()


def test_the_other_solver_and_methods(tmp_path):
    X, y, user = ratings(300)
    for k, options in enumerate(
        ({"solver": "sgd", "shrinkage": 1.0}, {"method": "central"}, {"method": "independent"})
    ):
        model = FedResRegressor(**options).fit(X, y, user)
        model.save(tmp_path / str(k))
        again = load_model(tmp_path / str(k))
        np.testing.assert_array_equal(again.predict(X, user), model.predict(X, user))


def test_one_client_takes_its_model_along(saved, tmp_path):
    model, folder = saved
    X, y, user = ratings(600)
    own = load_model(folder, client="user 7")
    mine = user == "user 7"
    assert own.clients_ == ["user 7"]
    expected = model.predict(X[mine], client=user[mine])
    np.testing.assert_array_equal(own.predict(X[mine], client=user[mine]), expected)
    np.testing.assert_array_equal(own.predict(X[mine]), expected)
    row = X[mine].to_dict("records")[0]
    assert own.predict_one(row) == expected[0]
    whole = load_model(folder)
    whole.partial_fit(X[mine], y[mine], user[mine])
    own.partial_fit(X[mine], y[mine], user[mine])
    np.testing.assert_array_equal(
        own.predict(X[mine], user[mine]), whole.predict(X[mine], user[mine])
    )
    own.save(tmp_path / "own")
    assert load_model(tmp_path / "own").clients_ == ["user 7"]
    with pytest.raises(ValueError, match="knows no client 'zed'"):
        load_model(folder, client="zed")


def test_one_client_reads_only_its_own(saved, monkeypatch):
    _, folder = saved
    read = []
    part = storage.Stored.slice

    def watched(self, group, array, a, b=None, finite=False):
        read.append((array, b - a))
        return part(self, group, array, a, b, finite)

    monkeypatch.setattr(storage.Stored, "slice", watched)
    groups = []
    group = storage.Stored.group
    monkeypatch.setattr(
        storage.Stored,
        "group",
        lambda self, name, *a, **k: groups.append(name) or group(self, name, *a, **k),
    )
    own = load_model(folder, client="user 7")
    assert groups == ["global"]
    weights = own.encoder_.width_local + 1
    for array, size in read:
        assert size <= (weights * (weights + 1) // 2 if array == "cells" else weights)


PIECES = st.lists(
    st.tuples(
        st.integers(1, 25), st.sampled_from(["table", "rows", "table, saved", "rows, saved"])
    ),
    min_size=1,
    max_size=6,
)


@given(PIECES, st.booleans(), st.integers(0, 5))
def test_stopping_and_going_on_is_never_having_stopped(tmp_path_factory, pieces, classes, seed):
    folder = tmp_path_factory.mktemp("stops") / "model"
    X, y, user = ratings(20 + sum(size for size, _ in pieces), users=8, seed=seed)
    y = (y > 0) if classes else y
    kind = FedResClassifier if classes else FedResRegressor
    names = {"classes": [False, True]} if classes else {}

    def begun():
        model = kind(client="who", local_features=["genres", "year"])
        return model.partial_fit(X[:20], y[:20], user[:20], **names)

    straight, stopped = begun(), begun()
    straight.partial_fit(X[20:], y[20:], user[20:])
    at = 20
    for size, how in pieces:
        part = slice(at, at + size)
        at += size
        if "table" in how:
            stopped.partial_fit(X[part], y[part], user[part])
        else:
            rows = zip(rows_as_dicts(X[part], user[part]), y[part].tolist(), strict=True)
            for row, label in rows:
                stopped.learn_one(row, label)
        if "saved" in how:
            stopped.save(folder)
            stopped = load_model(folder)
    for mine, theirs in zip(stopped._models.pack(8), straight._models.pack(8), strict=True):
        for name in theirs:
            np.testing.assert_array_equal(mine[name], theirs[name])
    assert stopped.clients_ == straight.clients_
    np.testing.assert_array_equal(stopped.predict(X, user), straight.predict(X, user))


@settings(max_examples=15)
@given(st.sets(st.integers(1, 39), max_size=4), st.booleans())
def test_models_that_began_with_dicts_go_on_likewise(tmp_path_factory, stops, classes):
    folder = tmp_path_factory.mktemp("dicts") / "model"
    kind = FedResClassifier if classes else FedResRegressor
    straight, stopped = kind(client="user"), kind(client="user")
    for n, (x, y) in enumerate(stream(40)):
        label = ["low", "mid", "high"][int(y > 90) + int(y > 110)] if classes else y
        assert stopped.predict_one(x) == straight.predict_one(x)
        straight.learn_one(x, label)
        stopped.learn_one(x, label)
        if n in stops:
            stopped.save(folder)
            stopped = load_model(folder)
    assert stopped.encoder_ == straight.encoder_


def test_what_is_damaged_or_foreign_is_refused(saved, tmp_path):
    model, _ = saved
    with pytest.raises(ValueError, match=r"not fitted|fitted yet"):
        FedResRegressor().save(tmp_path / "new")
    model.save(tmp_path / "model")
    part = next((tmp_path / "model").glob("local-*"))
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    with pytest.raises(ValueError, match=r"local-\w+.safetensors is damaged"):
        load_model(tmp_path / "model")
    storage.write(tmp_path / "other", {"kind": "toaster"}, {})
    with pytest.raises(ValueError, match="holds a toaster, not a model that can be loaded"):
        load_model(tmp_path / "other")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "model.json").write_text(json.dumps({"kind": "regressor"}))
    with pytest.raises(ValueError, match="is not that of a fedres model"):
        load_model(tmp_path / "foreign")
    with pytest.raises(ValueError, match="holds no model"):
        load_model(tmp_path, client="ann")
    with pytest.raises(ValueError, match="model is a folder: give a file, or read a model in it"):
        load_data(tmp_path / "model")
    with pytest.raises(ValueError, match="nowhere holds no model"):
        load_model(tmp_path / "nowhere")


def test_parameters_of_numpy_and_pandas_are_kept(tmp_path):
    X, y, user = ratings(100)
    model = FedResRegressor(
        local_features=X.columns[1:2], eta=np.float64(0.1), passes=np.int64(2), shrinkage=0.0
    ).fit(X, y, user)
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.local_features == ["genres"]
    assert again.fit(X, y, user).predict(X, user) == pytest.approx(model.predict(X, user), abs=0)
    model.set_params(random_state=np.random.RandomState(0))
    with pytest.raises(ValueError, match="must be plain JSON"):
        model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").random_state == 0

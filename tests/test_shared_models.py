"""Shared models that are not linear: trees and models of scikit-learn, trained, judged and kept."""

import importlib
import json
import pickle
import re
import subprocess
import sys
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils._testing import check_output
from typer.testing import CliRunner

from fedres import FedResClassifier, FedResRegressor, load_model
from fedres.cli import app
from fedres.tables import shared_models, skops_files


def steps(n=1500, clients=60, seed=0, curved=True):
    """Rows whose shared part is a step times a sign; each client has a constant of its own."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    client = rng.integers(0, clients, n)
    shared = 2 * np.sign(X["a"] * X["b"]) if curved else 2 * X["a"] - X["b"]
    own = np.random.default_rng(9).normal(size=clients)
    return X, (shared + own[client] + 0.5 * rng.normal(size=n)).to_numpy(), client


def error(model, rows):
    X, y, client = rows
    return float(np.sqrt(((model.predict(X, client) - y) ** 2).mean()))


def test_trees_find_what_is_not_linear():
    train, new = steps(), steps(seed=1)
    linear, trees = (FedResRegressor(shared=s).fit(*train) for s in ("linear", "trees"))
    assert isinstance(trees._shared[0], shared_models.LightGbmTrees)
    assert error(linear, new) > 1.9
    assert error(trees, new) < 0.75
    alone = FedResRegressor(shared="trees", method="central").fit(*train)
    assert error(alone, new) > 1.0  # what clients have of their own is not the trees'


@pytest.mark.parametrize(("curved", "taken"), [(False, "linear"), (True, "trees")])
def test_auto_takes_what_the_rows_are_like(curved, taken):
    model = FedResRegressor(shared="auto").fit(*steps(curved=curved))
    assert model.shared_ == taken
    losses = {trial["shared"]: trial["loss"] for trial in model.validation_}
    assert min(losses, key=losses.get) == taken
    new = steps(seed=1, curved=curved)
    assert error(model, new) == error(FedResRegressor(shared=taken).fit(*steps(curved=curved)), new)


@pytest.mark.parametrize("shared", ["trees", DecisionTreeRegressor(random_state=0)])
def test_what_a_model_leaves_of_its_own_rows_is_not_taken_for_noise(shared):
    # A whole tree leaves nothing of its own rows: local models fitted to that would be nothing.
    train, new = steps(3000), steps(3000, seed=1)
    model = FedResRegressor(shared=shared).fit(*train)
    components = model.variance_components_.set_index(["part", "column"])["variance"]
    assert 0.5 < components["client", "constant"] < 2
    low, high = model.predict_interval(new[0], new[2], level=0.9).T
    assert 0.87 < ((low <= new[1]) & (new[1] <= high)).mean() < 0.93


def test_variances_are_those_that_new_rows_have():
    # Trees learn some of the rows that they see by heart, the more so of columns without meaning.
    rng = np.random.default_rng(0)
    X, client = rng.normal(size=(2500, 40)), rng.integers(0, 20, 2500)
    shared = np.sign(X[:, :4]).sum(axis=1)
    y = shared + rng.normal(size=20)[client] + rng.normal(size=2500)
    model = FedResRegressor(shared="trees", local_features=[])
    model.fit(X[:1500], y[:1500], client[:1500])
    left = y[1500:] - model.predict(X[1500:], client[1500:])
    assert model.variance_components_["variance"].iloc[-1] == pytest.approx(left.var(), rel=0.15)
    inside = y[:1500] - model.predict(X[:1500], client[:1500])
    assert inside.var() < 0.7 * left.var()  # so that it matters


def test_any_regressor():
    train, new = steps(), steps(seed=1)
    model = FedResRegressor(shared=RandomForestRegressor(30, random_state=0)).fit(*train)
    assert model.shared_ == "RandomForestRegressor"
    assert error(model, new) < 0.85
    assert len(model.effects_) == 60 * model.effects_["column"].nunique()


def test_trees_end_where_classes_are_separated():
    # Their loss becomes smaller by a share at each step for ever.
    X, client = np.random.default_rng(0).normal(size=(900, 2)), np.arange(900) % 9
    y = np.where(X[:, 0] + 0.01 * X[:, 1] ** 2 > 0, "yes", "no")
    model = FedResClassifier(shared="trees").fit(X, y, client)
    assert model._shared[0].count < 1000
    assert model.validation_[0]["loss"] < 0.1


def test_columns_of_many_categories_are_left_to_the_linear_side():
    X, y, client = steps(2000)
    film = np.random.default_rng(3).integers(0, 50, 2000)
    y = y + np.random.default_rng(4).normal(size=50)[film]
    X["film"] = [f"film {i}" for i in film]
    model = FedResRegressor(shared="trees").fit(X[:1500], y[:1500], client[:1500])
    assert error(model, (X[1500:], y[1500:], client[1500:])) < 0.85
    table = model.variance_components_.set_index(["part", "column"])["variance"]
    assert 0.4 < table["shared", "film"] < 2.5
    assert ("shared", "numbers") not in table.index
    predicted = model._shared_scores(model._views(X[:1500])[0]) * model._labels.scale
    assert table["shared", "trees"] == pytest.approx(predicted.var(), rel=1e-3)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("shared", ["trees", RandomForestRegressor(30), LogisticRegression()])
def test_classifiers(classes, shared):
    X, y, client = steps(2400)
    label = np.digitize(y - np.sign(X["a"] * X["b"]), [0.0, 1.0][: classes - 1])
    X["product"] = X["a"] * X["b"] > 0  # which makes it linear
    if shared == "trees":
        X = X.drop(columns="product")
    train, new = (X[:1600], label[:1600], client[:1600]), slice(1600, None)
    model = FedResClassifier(shared=shared, local_features=[]).fit(*train)
    central = FedResClassifier(shared=shared, method="central").fit(*train)
    hits, without = (m.score(X[new], label[new], client[new]) for m in (model, central))
    assert hits > without + 0.03
    assert hits > (0.8 if classes == 2 else 0.68)


def test_a_class_may_be_missing_where_rows_are_left_out():
    X, y, client = steps(300)
    label = np.where(np.arange(300) == 7, 2, y > 0)
    model = FedResClassifier(shared=LogisticRegression()).fit(X, label, client)
    assert model.predict_proba(X, client)[:, 2].mean() < 0.05
    x = X.to_numpy()
    first = shared_models.ForeignModel(LogisticRegression().fit(x[:100], y[:100] > 0), 3)
    assert (first.predict(x)[2] < -6).all()


def test_counts():
    X, y, client = steps()
    counts = np.random.default_rng(0).poisson(np.exp(y.clip(-4, 4) / 2))
    linear, trees = (
        FedResRegressor(shared=s, loss="poisson").fit(X[:1000], counts[:1000], client[:1000])
        for s in ("linear", "trees")
    )
    new = X[1000:], counts[1000:], client[1000:]
    assert error(trees, new) < 0.9 * error(linear, new)


@pytest.mark.filterwarnings("ignore::fedres.tables.skops_files.SaveWarning")
def test_trees_follow_rows_that_count_more():
    X, y, client = steps(400, 10)
    weight = np.where(np.arange(400) < 300, 1.0, 50.0)
    y = np.where(weight > 1, y + 5 * (X["a"] > 0), y)
    weighed = FedResRegressor(method="central", shared="trees")
    weighed.fit(X, y, client, sample_weight=weight)
    plain = FedResRegressor(method="central", shared="trees").fit(X, y, client)
    heavy = X[300:], y[300:], client[300:]
    assert error(weighed, heavy) < 0.8 * error(plain, heavy)
    with pytest.raises(ValueError, match="KNeighborsRegressor takes no sample_weight"):
        FedResRegressor(shared=KNeighborsRegressor()).fit(X, y, client, sample_weight=weight)


def test_local_models_go_on_learning_and_trees_stay():
    X, y, client = steps()
    model = FedResRegressor(client="client", shared="trees").fit(X.assign(client=client), y)
    later, labels, _ = steps(600, seed=2)
    is_high = (later["a"] * later["b"] > 0.1).to_numpy()  # rows for which trees say 2
    rows, labels = later[is_high].assign(client=100), labels[is_high] + 3
    text, old = model._shared[0].pack(), slice(100, 200)
    model.partial_fit(rows[:50], labels[:50])
    assert abs((labels - model.predict(rows))[old].mean()) < 0.5
    for row, label in zip(
        rows[50:100].assign(client=101).to_dict("records"), labels[50:100], strict=True
    ):
        model.learn_one(row, label)
    assert abs((labels - model.predict(rows.assign(client=101)))[old].mean()) < 0.5
    assert (model._shared[0].pack() == text).all()
    one = rows.iloc[0].to_dict()
    assert model.predict_one(one) == pytest.approx(model.predict(rows[:1])[0], rel=1e-5)
    with pytest.raises(ValueError, match="shared='trees' needs many rows to begin with"):
        FedResRegressor(shared="trees").partial_fit(X, y, client)


@pytest.mark.parametrize(
    ("shared", "text"),
    [
        ("forest", r"shared must be 'linear', 'trees', 'auto' .* not 'forest'|unknown shared"),
        (3, "a regressor of scikit-learn's kind, not 3"),
        (LogisticRegression(), "a regressor of scikit-learn's kind, not LogisticRegression"),
        (DecisionTreeRegressor, "not <class"),
    ],
)
def test_what_cannot_be_shared_is_refused(shared, text):
    with pytest.raises(ValueError, match=text):
        FedResRegressor(shared=shared).fit(*steps(50, 5))
    X, y, client = steps(50, 5)
    with pytest.raises(ValueError, match=r"shared must have predict_proba, which SVC\(\) has not"):
        FedResClassifier(shared=SVC()).fit(X, y > 0, client)
    with pytest.raises(ValueError, match="Ridge needs 6 rows or more, not 5: use shared='linear'"):
        FedResRegressor(shared=Ridge()).fit(X[:5], y[:5], client[:5])


def test_only_bayes_knows_other_shared_models():
    with pytest.raises(ValueError, match=r"shared='trees' needs solver='bayes'.*leave it out"):
        FedResRegressor(shared="trees", solver="sgd").fit(*steps(50, 5))
    assert FedResRegressor(shared="auto", solver="sgd").fit(*steps(50, 5)).shared_ == "linear"


def test_few_rows_are_too_few_for_trees(tmp_path):
    model = FedResRegressor(shared="trees").fit(*steps(12, 3))
    model.save(tmp_path / "model")
    X, _, client = steps(12, 3, seed=1)
    assert (load_model(tmp_path / "model").predict(X, client) == model.predict(X, client)).all()


@pytest.mark.parametrize("shared", ["trees", RandomForestRegressor(5, random_state=0)])
def test_what_is_saved_predicts_the_same(shared, tmp_path):
    X, y, client = steps(600)
    model = FedResRegressor(shared=shared).fit(X, y, client)
    model.save(tmp_path / "model")
    for path in (tmp_path / "model").iterdir():
        assert path.suffix in {".json", ".safetensors"} or path.name.startswith(".")
    again = load_model(tmp_path / "model")
    assert type(again.shared) is type(shared)
    assert again.shared_ == model.shared_
    assert (again.predict(X, client) == model.predict(X, client)).all()
    assert (again.predict_interval(X, client) == model.predict_interval(X, client)).all()
    mine, one = client == 7, load_model(tmp_path / "model", client=7)
    assert (one.predict(X[mine]) == model.predict(X[mine], client[mine])).all()


@pytest.mark.parametrize("rows", [12, 600])  # 12 are too few for a tree
@pytest.mark.parametrize("shared", ["trees", RandomForestRegressor(5, random_state=0)])
def test_copies_predict_the_same(shared, rows):
    X, y, client = steps(rows)
    model = FedResRegressor(shared=shared).fit(X, y, client)
    for again in (pickle.loads(pickle.dumps(model)), deepcopy(model)):
        assert (again.predict(X, client) == model.predict(X, client)).all()
        again.partial_fit(X, y, client)
    assert not hasattr(clone(model), "_models")


@pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
def test_models_with_trees_travel_to_other_processes():
    X, y, client = steps(600)
    model = FedResRegressor(shared="trees", client="client")
    one, two = (
        cross_val_score(model, X.assign(client=client), y, cv=2, n_jobs=n_jobs) for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_wide_sparse_rows_stay_sparse(monkeypatch):
    rng = np.random.default_rng(0)
    flags = rng.integers(0, 2, size=(600, 2)).astype(np.float64)
    X = sparse.csr_array(sparse.hstack([flags, sparse.random(600, 2000, 0.002, random_state=0)]))
    client = rng.integers(0, 20, 600)
    y = 3 * flags.prod(axis=1) + rng.normal(size=20)[client]

    def refuse(_):
        raise AssertionError("made dense")

    monkeypatch.setattr(shared_models, "dense", refuse)
    for shared in ("trees", Ridge()):
        model = FedResRegressor(shared=shared, local_features=[]).fit(X, y, client)
        assert model.shared_ != "linear"
        assert model.score(X, y, client) > 0.9


def test_wide_sparse_rows_that_a_model_cannot_take_are_refused(monkeypatch):
    X, y, client = sparse.csr_array((60, 2000)), np.arange(60.0), np.arange(60) % 6
    monkeypatch.setattr(shared_models, "MOST_DENSE", 60 * 2000 - 1)
    match = "shared=GaussianProcessRegressor takes no sparse rows, and 60 rows of 2000 columns"
    with pytest.raises(ValueError, match=match):
        FedResRegressor(shared=GaussianProcessRegressor(), local_features=[]).fit(X, y, client)


def test_tables_that_are_long_are_predicted_part_by_part(monkeypatch):
    X, y, client = steps(300)
    for shared in ("trees", RandomForestRegressor(5, random_state=0)):
        model = FedResRegressor(shared=shared).fit(X, y, client)
        whole = model.predict(X, client)
        with monkeypatch.context() as patch:
            patch.setattr(shared_models, "MOST_DENSE", 7 * 3)
            np.testing.assert_array_equal(model.predict(X, client), whole)
        assert model.predict(X[:0], client[:0]).shape == (0,)


def test_classifiers_are_saved_with_all_their_trees(tmp_path):
    X, y, client = steps(600)
    label = np.digitize(y, [-1, 1])
    for shared in ("trees", LogisticRegression()):
        model = FedResClassifier(shared=shared).fit(X, label, client)
        model.save(tmp_path / "model")
        again = load_model(tmp_path / "model")
        assert (again.predict_proba(X, client) == model.predict_proba(X, client)).all()


def hostile(marker):
    """Return a pipeline whose first step calls ``check_output(rows, executable=...)``."""
    run = FunctionTransformer(check_output, kw_args={"shell": True, "executable": str(marker)})
    return make_pipeline(run, Ridge().fit(np.ones((2, 3)), np.ones(2)))


def save_unchecked(model, folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(skops_files, "_refuse_unknown", lambda *_: None)
        patch.setattr(check_output, "__module__", "sklearn.utils._testing")
        model.save(folder)


def test_a_model_folder_that_names_a_function_is_refused(tmp_path, monkeypatch):
    X, y, client = steps(300)
    model = FedResRegressor(shared=Ridge()).fit(X, y, client)
    marker = tmp_path / "marker"
    model._shared[0].fitted = [hostile(marker)]
    with pytest.raises(ValueError, match=r"not saved, since .*check_output.*save\(folder, trust="):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    save_unchecked(model, tmp_path / "model", monkeypatch)
    with pytest.raises(ValueError, match=r"could run code: .*_testing.check_output") as refused:
        load_model(tmp_path / "model")
    assert "\n" not in str(refused.value)
    X.assign(client=client).to_csv(tmp_path / "rows.csv", index=False)
    command = ["predict", str(tmp_path / "model"), str(tmp_path / "rows.csv")]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ValueError)
    assert "could run code" in str(done.exception)
    assert not marker.exists()


@pytest.mark.filterwarnings("ignore::fedres.tables.skops_files.SaveWarning")
def test_classes_outside_the_list_are_saved_and_loaded_on_purpose(tmp_path):
    X, y, client = steps(300)
    shared = make_pipeline(FunctionTransformer(np.tanh), Ridge())
    model = FedResRegressor(shared=shared).fit(X, y, client)
    with pytest.raises(ValueError, match="FunctionTransformer") as refused:
        model.save(tmp_path / "model")
    assert "numpy.tanh" in str(refused.value)
    trust = ["numpy.tanh", "sklearn.preprocessing._function_transformer.FunctionTransformer"]
    model.save(tmp_path / "model", trust=trust)
    with pytest.raises(ValueError, match=r"load_model\(folder, trust=\['numpy.tanh', "):
        load_model(tmp_path / "model")
    again = load_model(tmp_path / "model", trust=trust)
    assert (again.predict(X, client) == model.predict(X, client)).all()


@pytest.mark.parametrize(
    "shared", [KNeighborsRegressor(), make_pipeline(FunctionTransformer(), Ridge())]
)
def test_what_cannot_be_saved_is_said_before_it_is_trained(shared):
    X, y, client = steps(300)
    with pytest.warns(skops_files.SaveWarning, match=r"can be trained, but .* not saved"):
        FedResRegressor(shared=shared).fit(X, y, client)


def test_no_function_or_method_is_on_the_list():
    for name in skops_files.KNOWN:
        module, _, attribute = name.rpartition(".")
        if module != "numpy" or hasattr(np, attribute):
            assert isinstance(getattr(importlib.import_module(module), attribute), type), name


@pytest.mark.parametrize("text", [b"tree\nversion=v4\ngarbage", b"\xff\xfe", b"PK\x03\x04"])
@pytest.mark.parametrize("kind", [shared_models.LightGbmTrees, shared_models.ForeignModel])
def test_damaged_shared_models_are_one_sentence(kind, text):
    with pytest.raises(ValueError, match="damaged"):
        kind.unpack(np.frombuffer(text, np.uint8), 3)


def test_lightgbm_is_not_imported_before_it_is_used():
    code = "import fedres, sys; fedres.FedResRegressor; print('lightgbm' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_the_command_says_which_shared_model_it_took_and_saves_it(tmp_path):
    X, y, client = steps(900)
    X.assign(client=client, y=y).to_csv(tmp_path / "rows.csv", index=False)
    fit = ["fit", tmp_path / "rows.csv", "--client", "client", "--label", "y"]
    fit = [*map(str, fit), "--out", str(tmp_path / "model")]
    done = CliRunner().invoke(app, fit)
    said = " ".join(done.stdout.split())
    assert re.search("Shared model: trees, with .+% less loss on rows left out than a linear", said)
    assert load_model(tmp_path / "model").shared_ == "trees"
    told = json.loads(CliRunner().invoke(app, [*fit, "--shared", "linear", "--json"]).stdout)
    assert told["shared"] == "linear"
    assert told["shared_because"] is None
    assert load_model(tmp_path / "model").shared_ == "linear"
    done = CliRunner().invoke(app, [*fit, "--shared", "forest"])
    assert "forest" in str(done.exception)

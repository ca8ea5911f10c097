"""What `partial_fit` and `learn_one` learn after a fit by empirical Bayes."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from fedres import FedResClassifier, FedResRegressor, load_model
from fedres.tables import arrow, empirical_bayes
from fedres.tables.arrow import Arrow
from fedres.tables.empirical_bayes import labels_of, solve_for
from fedres.tables.prepared_rows import in_range
from fedres.tables.sgd_tuning import Encoded


def rows(n=400, clients=15, seed=0):
    """Clients have constants and slopes of their own; films a weight; numbers and texts."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    film, client = rng.integers(0, 12, n), rng.integers(0, clients, n)
    X["film"] = [f"film {i}" for i in film]
    own = np.random.default_rng(99)
    y = X["a"] - X["b"] + own.normal(size=12)[film] + own.normal(size=clients)[client]
    y = y + own.normal(size=clients)[client] * X["a"] + 0.5 * rng.normal(size=n)
    return X, y.to_numpy(), np.array([f"client {i}" for i in client])


def part(data, *where):
    return tuple(one[slice(*where)] for one in data)


def batch_weights(model, X, y, client):
    """Both models fitted to all rows at once, under the variances that the model has."""
    numbers = np.array([model.clients_.index(one) for one in client])
    data = Encoded(
        *in_range(model.encoder_.transform(X)), model._labels.targets(y), numbers, (-1, 1)
    )
    known, shape = model._posterior, model._models.settings
    alive = known.variances[0] > 0
    arrow = Arrow(shape, data, model._groups, alive)
    variances = empirical_bayes.Variances(known.variances[0], float(known.noise[0]), alive)
    found = solve_for(arrow, labels_of(shape, data, arrow, 0), variances, 0)
    owner = np.repeat(np.arange(len(model.clients_)), np.diff(arrow.rows.first_slot))
    slots = model._models.slots.find(owner * len(model._groups.of_local) + arrow.columns) - 1
    return found, owner, slots, arrow


@pytest.mark.parametrize("method", ["fedres", "independent", "central"])
def test_going_on_is_the_fit_to_all_rows_under_the_same_variances(method):
    data = rows()
    model = FedResRegressor(method=method).fit(*part(data, 200))
    model.partial_fit(*part(data, 200, 400))
    found, owner, slots, arrow = batch_weights(model, *data)
    if method != "independent":
        np.testing.assert_allclose(model._models.w_global[0], found.w_global, atol=2e-4)
    np.testing.assert_allclose(model._models.w_local[0, slots + 1], found.w_local, atol=2e-4)
    if method == "central":
        return
    # ... and so are standard errors and the spread of predictions
    errors = np.sqrt(model._posterior._variance_of(owner, slots)[0])
    np.testing.assert_allclose(errors, np.sqrt(found.covariance.local), rtol=2e-3)
    X, _, client = data
    numbers = np.array([model.clients_.index(one) for one in client])
    spread = model._posterior.variances_of(model._models, *model._views(X), numbers)
    expected = arrow.variances_of_rows(found.covariance) * found.variances.noise
    np.testing.assert_allclose(spread[arrow.order], expected, rtol=5e-3)


@settings(max_examples=15)
@given(st.integers(0, 1000), st.booleans(), st.sampled_from([1.0, 0.9]))
def test_rows_one_by_one_are_rows_in_one_call(seed, wide, keep):
    data = rows(90, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        if wide:
            patch.setattr(arrow, "WHOLE_ROOT", 0)
        one, many = (FedResRegressor(forgetting_factor=keep).fit(*part(data, 60)) for _ in range(2))
    assert one._posterior.is_whole != wide
    many.partial_fit(*part(data, 60, 90))
    for n in range(60, 90):
        one.partial_fit(*part(data, n, n + 1))
    np.testing.assert_allclose(
        one.predict(data[0], data[2]), many.predict(data[0], data[2]), atol=1e-4
    )
    np.testing.assert_allclose(
        one.predict_interval(data[0], data[2]), many.predict_interval(data[0], data[2]), atol=1e-3
    )


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 30))
@settings(max_examples=20)
def test_with_the_global_side_fixed_a_client_has_the_closed_form(seed, width, count):
    # Independent has no global side, and a new client no rows before.
    rng = np.random.default_rng(seed)
    X, client = rng.normal(size=(200, width)), np.arange(200) % 10
    w = rng.normal(size=(10, width))
    y = (X * w[client]).sum(axis=1) + 0.1 * rng.normal(size=200)
    model = FedResRegressor(method="independent").fit(X, y, client)
    new = rng.normal(size=(count, width))
    labels = new @ rng.normal(size=width)
    model.partial_fit(new, labels, np.full(count, 77))
    known = model._posterior
    has = (known.variances[0] > 0)[known.groups.of_local]
    x = np.hstack([model._views(new)[1], np.ones((count, 1))])[:, has]
    ridge = known.noise[0] / known.variances[0][known.groups.of_local][has]
    target = model._labels.targets(labels)[0]
    expected = np.linalg.solve(x.T @ x + np.diag(ridge), x.T @ target)
    _, found = model._models.client(10)
    np.testing.assert_allclose(found[0], expected, atol=2e-3)


def test_new_clients_begin_at_the_shared_model_and_are_less_sure():
    model = FedResRegressor().fit(*rows(500))
    new, labels, _ = rows(100, clients=1, seed=7)
    with pytest.warns(UserWarning, match="clients that the model does not know"):
        before = model.predict_interval(new, np.full(100, "new"))
    model.partial_fit(new[:50], labels[:50], np.full(50, "new"))
    after = model.predict_interval(new, np.full(100, "new"))
    assert (np.diff(after) < 0.95 * np.diff(before)).all()
    low, high = after[50:].T
    assert ((low < labels[50:]) & (labels[50:] < high)).mean() > 0.75
    assert len(model.effects_) == 16 * model.effects_["column"].nunique()
    errors = model.effects_.set_index(["client", "column"])["standard_error"]
    assert errors["new", "constant"] > 0


@pytest.mark.parametrize("wide", [False, True])
def test_going_on_is_nearly_as_good_as_a_new_fit(wide, monkeypatch):
    if wide:
        monkeypatch.setattr(arrow, "WHOLE_ROOT", 0)
    data, new = rows(800), rows(2000, seed=1)

    def error(model):
        return np.sqrt(np.mean((model.predict(new[0], new[2]) - new[1]) ** 2))

    half = FedResRegressor().fit(*part(data, 400))
    again = error(FedResRegressor().fit(*data))
    first = error(half)
    share = 0.6 if wide else 0.1  # where global weights count as independent of all others
    assert error(half.partial_fit(*part(data, 400, 800))) < again + share * (first - again)


def test_learn_one_is_partial_fit_of_one_row():
    X, y, client = rows(300)
    X = X.assign(client=client)
    one, other = (FedResRegressor(client="client").fit(X[:200], y[:200]) for _ in range(2))
    for n, row in enumerate(X[200:].to_dict("records"), 200):
        one.learn_one(row, y[n])
        other.partial_fit(X[n : n + 1], y[n : n + 1])
    np.testing.assert_allclose(one.predict(X), other.predict(X), atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("wide", [False, True])
def test_classes_go_on(classes, wide, monkeypatch, tmp_path):
    if wide:
        monkeypatch.setattr(arrow, "WHOLE_ROOT", 0)
    X, y, client = rows(3000)
    label = np.digitize(y, [0.0, 1.5][: classes - 1])
    half = FedResClassifier().fit(X[:500], label[:500], client[:500])
    whole = FedResClassifier().fit(X[:2000], label[:2000], client[:2000])
    new = X[2000:], label[2000:], client[2000:]

    def loss(model):
        probability = model.predict_proba(new[0], new[2])
        return -np.log(probability[np.arange(1000), new[1]]).mean()

    first, again = loss(half), loss(whole)
    half.partial_fit(X[500:2000], label[500:2000], client[500:2000])
    assert loss(half) < again + 0.35 * (first - again)
    half.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load_model(tmp_path / "model").predict_proba(new[0], new[2]),
        half.predict_proba(new[0], new[2]),
    )


def test_counts_and_offsets_go_on():
    X, y, client = rows(1500)
    log_mean = (y / 2).clip(-3, 3)
    X = X.assign(seen=np.random.default_rng(1).normal(size=1500), client=client)
    counts = np.random.default_rng(0).poisson(np.exp(log_mean + X["seen"]))
    options = {"client": "client", "offset": "seen", "loss": "poisson"}
    half, whole = (FedResRegressor(**options).fit(X[:n], counts[:n]) for n in (300, 1000))
    first, again = (m.score(X[1000:], counts[1000:]) for m in (half, whole))
    half.partial_fit(X[300:999], counts[300:999])
    half.learn_one(X.iloc[999].to_dict(), counts[999])
    assert half.score(X[1000:], counts[1000:]) > again - 0.5 * (again - first)
    half.learn_one(X.iloc[0].to_dict(), 10_000)  # which is far off, and not the end
    assert np.isfinite(half.predict(X)).all()
    with pytest.raises(ValueError, match="no number under 'seen', which holds the offset"):
        half.learn_one({"a": 1.0, "client": "client 1"}, 2)


@pytest.mark.parametrize("shared", ["trees", Ridge()])
def test_classes_with_other_shared_models_go_on(shared):
    X, y, client = rows(900)
    model = FedResClassifier(shared=shared).fit(X[:600], y[:600] > 0, client[:600])
    model.partial_fit(X[600:], y[600:] > 0, client[600:])
    assert model.score(X, y > 0, client) > 0.75


@pytest.mark.parametrize("keep", [1.0, 0.9])
def test_what_is_saved_goes_on_with_the_same_numbers(tmp_path, keep):
    data = rows(500)
    model = FedResRegressor(forgetting_factor=keep).fit(*part(data, 300))
    X, y, client = part(data, 300, 400)
    model.partial_fit(X, y, np.where(np.arange(100) < 40, "new", client))
    model.save(tmp_path / "model")
    again, mine = load_model(tmp_path / "model"), load_model(tmp_path / "model", client="new")
    more = part(data, 400, 500)
    own = more[0], more[1], np.full(100, "new")
    for one in (model, again):
        one.partial_fit(*own).partial_fit(*more)
    np.testing.assert_array_equal(again.predict(*more[::2]), model.predict(*more[::2]))
    np.testing.assert_allclose(
        again.predict_interval(*more[::2]), model.predict_interval(*more[::2]), rtol=1e-6
    )
    pd.testing.assert_frame_equal(again.effects_, model.effects_, rtol=1e-5)
    assert mine.predict_interval(own[0]).shape == (100, 2)
    assert mine.partial_fit(own[0], own[1], own[2]).clients_ == ["new"]


def test_forgetting_follows_a_client_that_changes():
    X, y, client = rows(500)
    last = rows(400, seed=5)
    change = np.where(np.arange(400) < 200, -3.0, 3.0)
    mine = last[0], last[1] + change, np.full(400, "client 0")
    errors = {}
    for keep in (1.0, 0.95):
        model = FedResRegressor(forgetting_factor=keep).fit(X, y, client)
        model.partial_fit(*part(mine, 380))
        errors[keep] = np.abs((mine[1] - model.predict(*mine[::2]))[380:]).mean()
    assert errors[0.95] < 0.6 * errors[1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forgetting_factor": 0}, "forgetting_factor must be above 0 and at most 1, not 0"),
        ({"forgetting_factor": 1.1}, "forgetting_factor must be above 0 and at most 1, not 1.1"),
        ({"forgetting_factor": 0.9, "solver": "sgd"}, "forgetting_factor needs solver='bayes'"),
    ],
)
def test_forgetting_is_a_share_and_for_bayes(options, message):
    X, y, client = rows(50)
    with pytest.raises(ValueError, match=message):
        FedResRegressor(**options).fit(X, y, client)
    with pytest.raises(ValueError, match="forgetting_factor needs many rows to begin with"):
        FedResRegressor(forgetting_factor=0.9).partial_fit(X, y, client)

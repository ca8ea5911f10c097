"""Estimators that mix: the mixture of simulations, row by row, and all that is kept of it."""

import numpy as np
import pandas as pd
import pytest

import fedres
from fedres import FedResClassifier, FedResRegressor, load_model
from fedres.core.theory import mixture_bound
from fedres.tables.mixed_models import MixedModels
from fedres.tables.online_models import ModelShape

N, EACH = 180, 60


def rows(n=N, clients=3, seed=0):
    """Features, labels from -2 to 2, and clients, each one's rows together."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    user = np.repeat([f"user {i}" for i in range(clients)], n // clients)
    own = np.repeat(rng.normal(size=(clients, 4)), n // clients, axis=0)
    y = np.clip((X.to_numpy() * (0.5 + own)).sum(axis=1), -2, 2)
    return X, y, user


def estimator(kind, **options):
    options = {"global_features": ["a", "b", "c"], "local_features": ["c", "d"]} | options
    return kind(method="mixture", eta=0.5, shrinkage=0.0, **options)


def labels_of(kind, y):
    return y if kind is FedResRegressor else np.where(y > 0, "yes", "no")


@pytest.mark.parametrize("kind", [FedResRegressor, FedResClassifier])
def test_is_the_mixture_of_simulations(kind):
    X, y, user = rows()
    y = y - y.mean()
    y /= y.std()  # which the regressor would do
    labels = labels_of(kind, y)
    model = estimator(kind).partial_fit(X, labels, user)
    x_global, x_local = model.encoder_.transform(X)
    # One client after another: in a round of several, all predict before the server has learned.
    turns = fedres.Participation(join=np.arange(3) * EACH, leave=(np.arange(3) + 1) * EACH)
    federation = fedres.Federation.from_arrays(
        x_global,
        x_local,
        np.where(labels == "yes", 1, -1) if kind is FedResClassifier else y,
        user,
        test=(x_global, x_local, np.ones(N), user),
        local_only=[1],
    )
    run = fedres.simulate(
        federation,
        "mixture",
        rounds=N,
        participation=turns,
        shuffle=False,
        step=fedres.Adaptive(0.5, clip=False),
        loss=model._loss,
    )
    close = {"rtol": 2e-4, "atol": 2e-4}  # the constants of local models are added in another order
    trust = [model._models.trust_of(i)[0] for i in range(3)]
    np.testing.assert_allclose(trust, run.expert_weights, **close)
    if kind is FedResRegressor:
        expected = np.clip(run.test_predictions, y.min(), y.max())
        np.testing.assert_allclose(model.predict(X, user), expected, **close)
    else:
        found = model.decision_function(X, user)
        np.testing.assert_allclose(found, run.test_predictions, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", [FedResRegressor, FedResClassifier])
def test_single_rows_are_learned_as_tables_are(kind):
    X, y, user = rows()
    labels = labels_of(kind, y)
    whole, single = (estimator(kind, client="who").partial_fit(X, labels, user) for _ in range(2))
    more, new, who = rows(seed=1)
    new = labels_of(kind, new)
    whole.partial_fit(more, new, who)
    for row, label, one in zip(more.to_dict("records"), new, who, strict=True):
        single.learn_one(row | {"who": one}, label)
    np.testing.assert_allclose(whole._models.trust, single._models.trust, rtol=1e-4, atol=1e-6)
    x_global, x_local = single.encoder_.transform(X)
    sums = [
        model._models.predict(model._models.rows(x_global, x_local, np.arange(N) % 3, new=False))
        for model in (single, whole)
    ]
    np.testing.assert_allclose(*sums, rtol=1e-4, atol=1e-4)


def test_no_client_loses_more_than_its_best_expert_and_the_bound():
    """However the range of labels grows on the way."""
    rng = np.random.default_rng(0)
    x, client = np.float32(rng.normal(size=(600, 2))), rng.integers(0, 4, 600)
    y = np.float32((x[:, 0] + (client - 1) * x[:, 1]) * np.linspace(0.1, 3, 600))
    models = MixedModels(ModelShape(2, 2), own=np.array([], int))
    lost = np.zeros((4, 4))
    for k in range(600):
        one = slice(k, k + 1)
        low, high = float(y[: k + 1].min()), float(y[: k + 1].max())
        models.between(low, high)
        models.widen(high - low)
        rows = models.rows(x[one], x[one], client[one])
        experts = models.alone, models.shared, super(MixedModels, models)
        said = [e.predict(r)[0, 0] for e, r in zip(experts, rows[:3], strict=True)]
        said.append(models.learn(rows, y[None, one])[0, 0])
        lost[client[k]] += (np.clip(said, low, high) - y[k]) ** 2
    bound = mixture_bound(3, float(y.max() - y.min()))
    assert (lost[:, 3] - lost[:, :3].min(axis=1) <= bound).all()
    assert models.trust_of(0).sum() == pytest.approx(1)


def test_a_client_of_whom_nothing_is_known_is_left_to_what_all_share():
    X, y, user = rows()
    model = estimator(FedResRegressor).partial_fit(X, y, user)
    x_global = model.encoder_.transform(X)[0]
    models, (mean, scale) = model._models, (model._labels.mean, model._labels.scale)
    shared = x_global @ models.shared.w_global[0, :-1] + models.shared.w_global[0, -1]
    both = x_global @ models.w_global[0, :-1] + models.w_global[0, -1]
    with pytest.warns(UserWarning, match="predicted by the shared model alone"):
        found = model.predict(X, np.full(N, "nobody"))
    low, high = (mean + scale * np.sort([shared, both], axis=0)).clip(y.min(), y.max())
    assert ((found >= low - 1e-3) & (found <= high + 1e-3)).all()


@pytest.mark.parametrize("kind", [FedResRegressor, FedResClassifier])
@pytest.mark.parametrize("begin", ["table", "rows"])
def test_what_is_saved_goes_on_as_if_nothing_had_happened(kind, begin, tmp_path):
    X, y, user = rows()
    labels = labels_of(kind, y)
    model = estimator(kind, client="who")
    dicts = [row | {"who": one} for row, one in zip(X.to_dict("records"), user, strict=True)]
    if begin == "table":
        model.partial_fit(X, labels, user)
    else:
        for row, label in zip(dicts, labels.tolist(), strict=True):
            model.learn_one(row, label)
    model.save(tmp_path / "model")
    again, one = load_model(tmp_path / "model"), load_model(tmp_path / "model", client="user 1")
    for each in (model, again, one):
        for row, label in zip(dicts[EACH : EACH + 5], labels.tolist()[:5], strict=True):
            each.learn_one(row, label)
    expected = [model.predict_one(row) for row in dicts[EACH : 2 * EACH]]
    assert [again.predict_one(row) for row in dicts[EACH : 2 * EACH]] == expected
    assert [one.predict_one(row) for row in dicts[EACH : 2 * EACH]] == expected


def test_what_a_mixture_cannot_do_is_refused():
    X, y, user = rows()
    with pytest.raises(ValueError, match="method='mixture' learns whom to trust"):
        estimator(FedResRegressor).fit(X, y, user)
    model = estimator(FedResRegressor).partial_fit(X, y, user)
    with pytest.raises(ValueError, match="which a mixture is not"):
        model.contributions(X, user)

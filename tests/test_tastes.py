"""Tastes: factors of clients and of items, found, judged, kept and gone on from."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedres import FedResClassifier, FedResRegressor, compare, load_model
from fedres.cli import app
from fedres.tables.online_models import ModelShape
from fedres.tables.sgd_tuning import Encoded
from fedres.tables.tastes import Factors, TasteArrow, squares
from fedres.tables.weight_groups import Groups

PARAMETERS = {"client": "user", "latent": 2, "item": "film"}


def ratings(n=6000, users=80, films=60, strength=1.0, seed=0):
    """Rows of users and films, whose labels are two tastes, constants and noise."""
    made, rng = np.random.default_rng(9), np.random.default_rng(seed)
    u, v = made.normal(size=(users, 2)), made.normal(size=(films, 2))
    mood, quality = made.normal(size=users), made.normal(size=films)
    X = pd.DataFrame({"user": rng.integers(0, users, n), "film": rng.integers(0, films, n)})
    score = mood[X.user] + quality[X.film] + strength * (u[X.user] * v[X.film]).sum(axis=1)
    return X, score + 0.5 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    return FedResRegressor(**PARAMETERS).fit(*ratings())


def error(model, X, y):
    return float(np.sqrt(((model.predict(X) - y) ** 2).mean()))


def test_tastes_are_found(fitted):
    new = ratings(seed=1)
    without = FedResRegressor(client="user", categorical_features="film").fit(*ratings())
    assert fitted.latent_ == 2
    assert error(fitted, *new) < 0.6  # of which 0.5 is noise
    assert error(without, *new) > 1.3
    assert fitted.validation_[0]["loss"] > 2 * min(one["loss"] for one in fitted.validation_)
    u = fitted.effects_.query("column.str.startswith('taste for film')")
    assert len(u) == 2 * 80
    made = np.random.default_rng(9).normal(size=(80, 2))
    own = u.pivot_table(index="client", columns="column", values="effect").to_numpy()
    left = made - own @ np.linalg.lstsq(own, made, rcond=None)[0]
    assert np.abs(left).mean() < 0.2  # the same two axes, turned


def test_intervals_cover_and_parts_add_up(fitted):
    X, y = ratings(seed=1)
    low, high = fitted.predict_interval(X, level=0.9).T
    assert 0.88 < ((low < y) & (y < high)).mean() < 0.92
    parts = fitted.contributions(X.iloc[:50])
    assert ("client", "taste for film") in parts
    inside = fitted.predict(X.iloc[:50])
    seen = ratings()[1]
    np.testing.assert_allclose(parts.sum(axis=1).clip(seen.min(), seen.max()), inside, atol=1e-4)
    assert ("client", "taste for film") in set(
        fitted.variance_components_[["part", "column"]].itertuples(index=False, name=None)
    )


@pytest.mark.parametrize("rows", [6000, 300])
@pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
def test_where_there_are_none_there_are_none(rows):
    train = ratings(rows, strength=0.0)
    model = FedResRegressor(**PARAMETERS).fit(*train)
    without = FedResRegressor(client="user", categorical_features="film").fit(*train)
    assert model.latent_ == 0
    X, _ = ratings(seed=1)
    np.testing.assert_allclose(model.predict(X), without.predict(X), atol=1e-6)


def newcomers(seed):
    X, y = ratings(seed=seed)
    some = X.user < 20
    return X[some].assign(user=X.user + 1000), y[some]


def _width(model, X):
    return np.diff(model.predict_interval(X), axis=1).mean()


@pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
def test_new_clients_and_items_begin_at_the_prior_and_fold_in(fitted, tmp_path):
    X, _ = ratings(seed=1)
    X = X.assign(user=X.user + 1000)
    parts = fitted.contributions(X.iloc[:20])
    assert (parts["client"] == 0).all(axis=None)
    folder = tmp_path / "model"
    fitted.save(folder)
    going_on = load_model(folder)
    first, rest = newcomers(seed=2), newcomers(seed=3)
    old, _ = ratings(seed=4)
    same = going_on.predict(old)
    with pytest.warns(UserWarning, match="clients that the model does not know"):
        before, width = error(going_on, *rest), _width(going_on, rest[0])
    going_on.partial_fit(*first)
    after = error(going_on, *rest)
    assert after < 0.65
    assert before > 1.5
    assert _width(going_on, rest[0]) < 0.7 * width
    # The others are as they were, but for what the newcomers tell of the shared side.
    assert np.abs(going_on.predict(old) - same).mean() < 0.1
    going_on.learn_one({**first[0].iloc[0].to_dict(), "user": 2000}, 1.0)
    assert 2000 in going_on.clients_
    unknown = {"user": 3, "film": "never seen"}
    assert np.isfinite(going_on.predict_one(unknown))


def test_what_is_saved_is_the_same(fitted, tmp_path):
    X, _ = ratings(seed=1)
    folder = tmp_path / "model"
    fitted.save(folder)
    again = load_model(folder)
    assert again.latent_ == 2
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(again.predict_interval(X), fitted.predict_interval(X))
    pd.testing.assert_frame_equal(again.effects_, fitted.effects_)
    one = load_model(folder, client=5)
    mine = X.user == 5
    np.testing.assert_array_equal(one.predict(X[mine]), fitted.predict(X[mine]))
    row = X.iloc[0].to_dict()
    assert again.predict_one(row) == pytest.approx(fitted.predict(X.iloc[:1])[0], abs=1e-5)


def test_rows_that_count_and_seeds():
    X, y = ratings(1500)
    model = FedResRegressor(**PARAMETERS, random_state=3).fit(X, y)
    again = FedResRegressor(**PARAMETERS, random_state=3).fit(X, y, sample_weight=np.ones(1500))
    np.testing.assert_allclose(model.predict(X), again.predict(X), atol=1e-5)


def test_many_rows_are_told_by_some_clients(monkeypatch):
    monkeypatch.setattr("fedres.tables.tastes.MOST_ROWS", 3000)
    model = FedResRegressor(**PARAMETERS).fit(*ratings())
    assert error(model, *ratings(seed=1)) < 0.6


def test_two_classes():
    X, y = ratings(strength=2.0)
    new, truth = ratings(seed=1, strength=2.0)
    model = FedResClassifier(**PARAMETERS).fit(X, y > 0)
    without = FedResClassifier(client="user", categorical_features="film").fit(X, y > 0)
    assert model.latent_ == 2
    assert model.score(new, truth > 0) > without.score(new, truth > 0) + 0.05


def test_each_side_is_found_given_mean_and_covariance_of_the_other():
    rng, n, size = np.random.default_rng(0), 60, 2
    client, item = rng.integers(0, 5, n), rng.integers(0, 7, n)
    x, target, weight = rng.normal(size=(n, 1)), rng.normal(size=n), rng.uniform(0.5, 2, n)
    start = Factors.start(7, size, rng)
    spread = start.spread * 0.3 + [0, 0.1, 0]
    factors = Factors(start.mean.astype(np.float32).astype(float), spread)
    local = np.float32(np.hstack([x, factors.mean[item]]))
    data = Encoded(np.zeros((n, 0), np.float32), local, target[None], client, (-9, 9))
    names = [("client", "x"), ("client", "taste"), ("client", "constant")]
    groups = Groups(names, np.zeros(0, int), np.array([0, 1, 1, 2]))
    arrow = TasteArrow(ModelShape(None, 3), data, groups, None, item, factors)
    order, ridges, noise = arrow.order, np.array([0.7, 2.0, 0.4]), 0.6
    arrow.weigh(weight[order])
    arrow.set_ridges(ridges)
    _, w_local = arrow.means(target[order], np.zeros(0), 1e-9)
    found = arrow.fit_items(target[order] - arrow.scores(np.zeros(0), w_local), w_local, noise)
    whole = np.column_stack([local, np.ones(n)]).astype(float)
    precision, sums = np.stack([np.eye(size)] * 7), np.zeros((7, size))
    for i in range(5):
        mine = client == i
        a = (whole[mine].T * weight[mine]) @ whole[mine] + np.diag(ridges[groups.of_local])
        for m in np.flatnonzero(mine):
            a[1:3, 1:3] += weight[m] * squares(spread, size)[item[m]]
        covariance = np.linalg.inv(a)
        w = covariance @ (whole[mine].T @ (weight[mine] * target[mine]))
        np.testing.assert_allclose(w_local[4 * i : 4 * i + 4], w, rtol=1e-5)
        for m in np.flatnonzero(mine):
            rest = target[m] - whole[m, [0, 3]] @ w[[0, 3]]
            across = covariance[1:3][:, [0, 3]] @ whole[m, [0, 3]]
            precision[item[m]] += weight[m] * (
                np.outer(w[1:3], w[1:3]) / noise + covariance[1:3, 1:3]
            )
            sums[item[m]] += weight[m] * (w[1:3] * rest / noise - across)
    np.testing.assert_allclose(squares(found.spread, size), np.linalg.inv(precision), rtol=1e-5)
    expected = np.linalg.solve(precision, sums[:, :, None])[:, :, 0]
    np.testing.assert_allclose(found.mean, expected, rtol=1e-4, atol=1e-6)


def test_turning_axes_changes_no_product():
    rng = np.random.default_rng(0)
    factors = Factors(rng.normal(size=(5, 3)), Factors.start(5, 3, rng).spread)
    turned = factors.turned(np.arange(5))
    np.testing.assert_allclose(turned.mean @ turned.mean.T, factors.mean @ factors.mean.T)
    scatter = turned.mean.T @ turned.mean
    np.testing.assert_allclose(scatter, np.diag(np.sort(np.diag(scatter))[::-1]), atol=1e-9)
    np.testing.assert_allclose(squares(turned.spread, 3), [np.eye(3)] * 5, atol=1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"item": None}, "latent=2 needs the other of both, such as item="),
        ({"latent": None}, "item='film' needs the other of both, such as latent=8"),
        ({"latent": 0}, "a whole number from 1 up or None, not 0"),
        ({"item": "song"}, "'song'"),
        ({"item": "user"}, "both 'user'"),
        ({"shared": "trees"}, "needs a linear shared model, not shared='trees'"),
        ({"solver": "sgd"}, "latent needs solver='bayes'"),
        ({"eta": 0.1}, "latent needs solver='bayes'"),
    ],
)
def test_mistakes_are_one_sentence(parameters, message):
    with pytest.raises(ValueError, match=message):
        FedResRegressor(**{**PARAMETERS, **parameters}).fit(*ratings(50))


def test_what_is_not_sound_is_refused():
    X, y = ratings(200)
    with pytest.raises(ValueError, match="two classes, not for 3"):
        FedResClassifier(**PARAMETERS).fit(X, np.sign(y.round()).astype(int))
    several = X.assign(film=X.film.astype(str).where(X.film != 7, "7|8"))
    with pytest.raises(ValueError, match="2 categories in column 'film'"):
        FedResRegressor(**PARAMETERS).fit(several, y)
    with pytest.raises(ValueError, match="latent needs many rows to begin with"):
        FedResRegressor(**PARAMETERS).partial_fit(X, y)


def test_halves_have_no_tastes_and_the_verdict_has(tmp_path):
    X, y = ratings(3000)
    table = tmp_path / "ratings.csv"
    X.assign(rating=y).to_csv(table, index=False)
    found = compare(
        X.assign(rating=y), client="user", label="rating", model=FedResRegressor(**PARAMETERS)
    )
    assert found.model.latent_ == 2
    assert found.gain_over("central").mean > 0.5
    arguments = ["fit", str(table), "--client", "user", "--label", "rating", "--latent", "2"]
    arguments += ["--item", "film", "--out", str(tmp_path / "model")]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert "Tastes: 2 per client; with them the loss" in " ".join(told.output.split())
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "model"), "--json"])
    assert "taste for film" in json.loads(shown.output)["local"]["columns"]
    answer = CliRunner().invoke(
        app, ["predict", str(tmp_path / "model"), str(table), "--interval", "0.9"]
    )
    assert answer.exit_code == 0, answer.output

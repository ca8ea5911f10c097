"""Empirical Bayes: variances from the rows, and all that follows from them."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.linalg import null_space
from scipy.optimize import minimize

from fedres import FedResClassifier, FedResRegressor, load_model
from fedres.tables import arrow, empirical_bayes
from fedres.tables.arrow import Arrow
from fedres.tables.columns import Number
from fedres.tables.empirical_bayes import find_variances, train
from fedres.tables.labels import NumberLabels
from fedres.tables.online_models import ModelShape
from fedres.tables.sgd_tuning import Encoded
from fedres.tables.weight_groups import Groups


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_are_laid_out_client_by_client(form):
    """Values are where they belong whatever their form, and slots follow clients and columns."""
    rng = np.random.default_rng(0)
    x = rng.integers(-1, 2, (200, 5)).astype(np.float32)
    x[:, 3] = 1.0  # varies within no client
    client = rng.integers(0, 30, 200)
    client[:30] = np.arange(30)
    data = Encoded(form(x), form(x), np.zeros((1, 200), np.float32), client, (0.0, 1.0))
    groups = Groups.of([Number(f"x{j}", 0.0, 1.0, False) for j in range(5)], ())
    groups = groups._replace(of_local=np.arange(6), names=[("client", str(j)) for j in range(6)])
    arrow = Arrow(ModelShape(5, 5), data, groups)
    order, rows = np.argsort(client, kind="stable"), arrow.rows
    ones = np.ones((200, 1))
    shape = (200, 6)
    shared = sparse.csr_array((rows.x_global, rows.columns, rows.begin_global), shape)
    np.testing.assert_array_equal(shared.toarray(), np.hstack([x[order], ones]))
    columns = arrow.columns[rows.slots]
    own = sparse.csr_array((rows.x_local, columns, rows.begin_local), shape).toarray()
    np.testing.assert_array_equal(own, np.hstack([x[order] * [1, 1, 1, 0, 1], ones]))
    of_slot = np.repeat(np.arange(30), np.diff(rows.first_slot))
    keys = of_slot * 6 + arrow.columns
    assert (np.diff(keys) > 0).all()
    of_row = np.repeat(client[order], np.diff(rows.begin_local))
    np.testing.assert_array_equal(keys[rows.slots], of_row * 6 + columns)


def test_local_models_are_eliminated_exactly():
    """Both of clients with fewer rows than weights and with more, for weights of rows."""
    rng = np.random.default_rng(1)
    client = np.repeat(np.arange(12), [1, 2, 3, 9, 12, 1, 2, 8, 20, 3, 4, 6])
    x = rng.normal(size=(len(client), 5)).astype(np.float32)
    x[rng.random(x.shape) < 0.3] = 0
    y, weight = rng.normal(size=len(client)), rng.uniform(0.5, 2, len(client))
    weight[[1, 4, 20, 40]] = 0
    data = Encoded(x, x, y[None].astype(np.float32), client, (-3.0, 3.0))
    numbers = [Number(f"x{j}", 0.0, 1.0, False) for j in range(5)]
    groups = Groups.of(numbers, numbers)
    arrow = Arrow(ModelShape(5, 5), data, groups)
    arrow.weigh(weight)
    ridges = rng.uniform(0.5, 2, len(groups.names))
    arrow.set_ridges(ridges)
    w_global, w_local = arrow.means(y, np.zeros(6), 1e-10)
    with_one = np.hstack([x, np.ones((len(x), 1))])
    own = (np.eye(12)[client][:, :, None] * with_one[:, None]).reshape(len(x), -1)
    both = np.hstack([with_one, own])
    ridge = np.concatenate(
        [np.append(ridges, 0)[groups.of_global], np.tile(ridges[groups.of_local], 12)]
    )
    precision = both.T @ (weight[:, None] * both) + np.diag(ridge)
    w = np.linalg.solve(precision, both.T @ (weight * y))
    np.testing.assert_allclose(w_global, w[:6], rtol=1e-5)
    of_slot = np.repeat(np.arange(12), np.diff(arrow.rows.first_slot))
    np.testing.assert_allclose(w_local, w[6:].reshape(12, 6)[of_slot, arrow.columns], atol=1e-6)
    side = arrow.covariance(arrow.draws(0), np.zeros((6, 6)), 1e-10)
    at = np.append(np.arange(6), 6 + of_slot * 6 + arrow.columns)
    expected = np.linalg.inv(precision)[np.ix_(at, at)]
    np.testing.assert_allclose(np.append(side.global_, side.local), expected.diagonal(), rtol=1e-5)
    for i in (0, 4):  # a block of rows, and one of weights
        mine = np.flatnonzero(of_slot == i)
        own = np.zeros((len(mine), len(mine)))
        own[np.tril_indices(len(mine))] = side.blocks[arrow.corner[i] : arrow.corner[i + 1]]
        own = np.tril(own + side.root_local[mine] @ side.root_local[mine].T)
        np.testing.assert_allclose(own, np.tril(expected[np.ix_(6 + mine, 6 + mine)]), atol=1e-6)


def rmse(a, b):
    return np.sqrt(np.mean((a - b) ** 2))


def shops(n=1500, shops=40, items=12, seed=0, slope=0.5, constant=1.0, noise=0.7):
    """Shops differ by a constant and a slope in `x`; `size` is the same in all rows of a shop."""
    rng = np.random.default_rng(seed)
    shop, item, x = rng.integers(0, shops, n), rng.integers(0, items, n), rng.normal(size=n)
    size = rng.normal(size=shops)
    y = 0.5 * x + 0.3 * size[shop] + rng.normal(size=items)[item]
    y += constant * rng.normal(size=shops)[shop] + slope * rng.normal(size=shops)[shop] * x
    frame = pd.DataFrame({"x": x, "size": size[shop], "item": item.astype(str)})
    return frame, y + noise * rng.normal(size=n), shop


def by_hand(frame, y, shop):
    """The likeliest variances and the scores they give, with all matrices written out."""
    z = (y - y.mean()) / y.std()
    numbers = frame[["x", "size"]]
    numbers = ((numbers - numbers.mean()) / numbers.std(ddof=0)).to_numpy()
    own, item = (np.eye(np.max(one) + 1)[one] for one in (shop, frame["item"].astype(int)))
    parts = [numbers, item, own * numbers[:, :1], own]
    squares = [part @ part.T for part in parts]
    rest = null_space(np.ones((1, len(z))))  # the global constant is free
    seen = [rest.T @ square @ rest for square in squares]

    def unlikely(logs):
        v = sum(np.exp(log) * one for log, one in zip(logs, seen, strict=False))
        v = v + np.exp(logs[-1]) * np.eye(len(z) - 1)
        low = np.linalg.cholesky(v)
        half = np.linalg.solve(low, rest.T @ z)
        return np.log(np.diag(low)).sum() + half @ half / 2

    found = minimize(unlikely, np.full(5, -1.0), method="BFGS", options={"gtol": 1e-4}).x
    *variances, noise = np.exp(found)
    signal = sum(v * square for v, square in zip(variances, squares, strict=True))
    inverse = np.linalg.inv(signal + noise * np.eye(len(z)))
    ones = np.ones(len(z))
    constant = ones @ inverse @ z / (ones @ inverse @ ones)
    scores = constant + signal @ inverse @ (z - constant)
    free = ones - signal @ inverse @ ones
    error = np.diag(signal - signal @ inverse @ signal) + free**2 / (ones @ inverse @ ones)
    return np.array(variances), noise, y.mean() + y.std() * scores, y.std() * np.sqrt(error + noise)


def test_equals_the_likelihood_written_out(monkeypatch):
    monkeypatch.setattr(empirical_bayes, "CLOSE", 1e-6)
    monkeypatch.setattr(find_variances, "__defaults__", (1e-6, None))
    frame, y, shop = shops(300, 15, 6)
    variances, noise, scores, deviation = by_hand(frame, y, shop)
    model = FedResRegressor(local_features=["x"]).fit(frame, y, shop)
    found = model.variance_components_
    assert found["column"].tolist() == ["numbers", "item", "x", "constant", ""]
    expected = np.append(variances, noise) * y.var()
    np.testing.assert_allclose(found["variance"], expected, rtol=1e-3)
    predicted, spread = model.predict(frame, shop, return_std=True)
    np.testing.assert_allclose(predicted, scores.clip(y.min(), y.max()), atol=1e-3 * y.std())
    np.testing.assert_allclose(spread, deviation, rtol=1e-3)


@pytest.mark.parametrize("block", [0, 5])
def test_conjugate_gradients_find_the_same(monkeypatch, block):
    frame, y, shop = shops(items=120)
    direct = FedResRegressor(local_features=["x"]).fit(frame, y, shop)
    monkeypatch.setattr(arrow, "WIDEST_SOLVED", 10)
    monkeypatch.setattr(arrow, "WIDEST_BLOCK", block)
    monkeypatch.setattr(arrow, "WHOLE_ROOT", 0)
    monkeypatch.setattr(arrow, "DRAWS", 200)
    iterated = FedResRegressor(local_features=["x"]).fit(frame, y, shop)
    one, other = (model.variance_components_["variance"] for model in (direct, iterated))
    np.testing.assert_allclose(one, other, rtol=0.02, atol=1e-3)
    (one, sure), (other, also) = (
        model.predict(frame, shop, return_std=True) for model in (direct, iterated)
    )
    np.testing.assert_allclose(one, other, atol=0.02)
    np.testing.assert_allclose(sure, also, rtol=0.08)


def test_few_draws_are_not_biased(monkeypatch):
    # Most of these weights are hardly determined: variances drawn for them are often too large.
    frame, y, shop = shops(4000, 600, 1200, noise=2.0)
    exact = FedResRegressor(local_features=["x"]).fit(frame, y, shop).variance_components_
    monkeypatch.setattr(arrow, "WIDEST_SOLVED", 10)
    monkeypatch.setattr(arrow, "MOST_SEARCHED", 1)
    drawn = FedResRegressor(local_features=["x"]).fit(frame, y, shop).variance_components_
    np.testing.assert_allclose(drawn["variance"][1:], exact["variance"][1:], rtol=0.1)


def test_draws_do_not_change_from_run_to_run():
    frame, y, shop = shops(items=120)
    one, other, third = (
        FedResRegressor(random_state=seed).fit(frame, y, shop) for seed in (0, 0, 1)
    )
    bounds = [model.predict_interval(frame, shop) for model in (one, other, third)]
    np.testing.assert_array_equal(bounds[0], bounds[1])
    assert not np.array_equal(bounds[0], bounds[2])


def test_some_clients_tell_the_variances_of_all(monkeypatch):
    frame, y, shop = shops(4000, 400)
    whole = FedResRegressor().fit(frame, y, shop)
    monkeypatch.setattr(empirical_bayes, "MOST_ROWS", 2000)
    part = FedResRegressor().fit(frame, y, shop)
    assert len(part.effects_["client"].unique()) == 400
    assert rmse(part.predict(frame, shop), whole.predict(frame, shop)) < 0.05


def test_a_column_that_is_constant_within_clients_has_no_slope():
    frame, y, shop = shops()
    model = FedResRegressor(local_features=["x", "size"]).fit(frame, y, shop)
    own = model.variance_components_.query("part == 'client'").set_index("column")["variance"]
    assert own["size"] == 0
    assert own["x"] > 0.05
    assert "size" not in set(model.effects_["column"])
    assert model.local_models_[3].names == ["x"]


@pytest.mark.parametrize("personal", [0.0, 3.0])
def test_nothing_is_lost_where_all_are_alike_or_different(personal):
    rng = np.random.default_rng(1)
    X, user = rng.normal(size=(4000, 6)), rng.integers(0, 200, 4000)
    w = 1 + personal * rng.normal(size=(200, 6))
    y = (X * w[user]).sum(axis=1) + rng.normal(size=4000)
    errors = {}
    for method in ("fedres", "central", "independent"):
        model = FedResRegressor(method=method).fit(X[:3000], y[:3000], user[:3000])
        errors[method] = rmse(model.predict(X[3000:], user[3000:]), y[3000:])
    assert errors["fedres"] < 1.01 * min(errors.values())


@pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
def test_noise_is_seen_to_be_noise():
    rng = np.random.default_rng(0)
    X, y, user = rng.normal(size=(600, 8)), rng.normal(size=600), rng.integers(0, 200, 600)
    model = FedResRegressor().fit(X[:300], y[:300], user[:300])
    assert rmse(model.predict(X[300:], user[300:]), y[300:]) < 1.01 * y[300:].std()


def test_few_rows_a_client_and_many_columns():
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(800), 3)
    X, bent = rng.normal(size=(2400, 20)), rng.normal(size=800)
    y = X[:, 0] + bent[user] + rng.normal(size=2400)
    train_, held = np.arange(2400) % 3 > 0, np.arange(2400) % 3 == 0
    errors = [
        rmse(
            FedResRegressor(local_features=local)
            .fit(X[train_], y[train_], user[train_])
            .predict(X[held], user[held]),
            y[held],
        )
        for local in (None, [])
    ]
    assert errors[0] < 1.02 * errors[1]  # chance finds slopes for half of the columns


@pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("noise", ["normal", "skewed"])
def test_intervals_cover(level, noise):
    frame, y, shop = shops(9000, 450, 100, noise=0.0)
    rng = np.random.default_rng(1)
    y = y + (rng.normal(size=9000) if noise == "normal" else rng.exponential(size=9000))
    known = (shop < 300) & (np.arange(9000) < 6000)
    model = FedResRegressor().fit(frame[known], y[known], shop[known])
    for rows in (~known & (shop < 300), shop >= 300):
        low, high = model.predict_interval(frame[rows], shop[rows], level=level).T
        assert abs(((low <= y[rows]) & (y[rows] <= high)).mean() - level) < 0.04
    old, new = (
        model.predict(frame[:50], client, return_std=True)[1] for client in (shop[:50], False)
    )
    assert np.median(new / old) > 1.2
    strange = model.predict(frame[:50].assign(item="new"), shop[:50], return_std=True)[1]
    assert np.median(strange / old) > 1.1


def test_effects_have_standard_errors():
    frame, y, shop = shops(3000, 60)
    model = FedResRegressor(local_features=[]).fit(frame, y, shop)
    effects = model.effects_
    assert effects.columns.tolist() == ["client", "column", "effect", "standard_error"]
    assert effects["client"].tolist() == model.clients_
    of_three = effects.set_index("client").loc[3]
    assert of_three["effect"] == pytest.approx(model.local_models_[3].constant)
    few = FedResRegressor(local_features=[]).fit(frame[:300], y[:300], shop[:300])
    assert few.effects_["standard_error"].mean() > 1.3 * effects["standard_error"].mean()
    assert model.variance_components_["share"].sum() == pytest.approx(1)


def test_a_weight_is_so_many_rows():
    frame, y, shop = shops(600)
    frame, times = frame[["item"]], np.arange(600) % 3
    again = np.repeat(np.arange(600), times)
    weighted = FedResRegressor().fit(frame, y, shop, sample_weight=times)
    repeated = FedResRegressor().fit(frame.iloc[again], y[again], shop[again])
    one, other = (model.predict(frame, shop, return_std=True) for model in (weighted, repeated))
    np.testing.assert_allclose(one, other, rtol=1e-4)
    plain = FedResRegressor().fit(frame, y, shop)
    assert rmse(plain.predict(frame, shop), one[0]) > 0.05
    np.testing.assert_allclose(
        *(m.variance_components_["variance"] for m in (weighted, repeated)), rtol=1e-4
    )


def test_intervals_of_new_clients_are_spread_as_clients_are():
    # The noise has long tails and clients have none: most rows of a client lie close together.
    rng = np.random.default_rng(0)
    shop, x = np.repeat(np.arange(900), 6), rng.normal(size=5400)
    y = x + rng.normal(size=900)[shop] + 0.3 * rng.standard_t(2.5, 5400)
    rest, frame = shop < 600, pd.DataFrame({"x": x})
    model = FedResRegressor(local_features=[]).fit(frame[rest], y[rest], shop[rest])
    with pytest.warns(UserWarning, match="clients that the model does not know"):
        low, high = model.predict_interval(frame[~rest], shop[~rest], level=0.5).T
    assert 0.45 < ((low < y[~rest]) & (y[~rest] < high)).mean() < 0.55
    of_rows = np.ptp(model._posterior.quantiles(0.5), axis=1)
    assert of_rows[0] < 0.85 * of_rows[1]


def test_an_offset_is_added():
    frame, y, shop = shops(600)
    score = 100 * frame["x"]
    model = FedResRegressor(offset="score").fit(frame.assign(score=score), y + score, shop)
    plain = FedResRegressor().fit(frame, y, shop)
    rows = frame.assign(score=score)
    expected = plain.predict(frame, shop) + score
    np.testing.assert_allclose(model.predict(rows, shop), expected, atol=0.02)
    model.set_params(client="shop")
    one = rows.assign(shop=shop).iloc[0].to_dict()
    assert model.predict_one(one) == pytest.approx(expected[0], abs=0.02)
    with pytest.raises(ValueError, match="X has no column 'score', which holds the offset"):
        model.predict(frame, shop)
    with pytest.raises(ValueError, match="column 'score' has inf"):
        model.predict(frame.assign(score=np.inf), shop)
    with pytest.raises(ValueError, match="offset needs many rows to begin with"):
        FedResRegressor(offset="score").partial_fit(rows, y, shop)
    odds = FedResClassifier(offset="score").fit(frame.assign(score=3.0), y > 0, shop)
    np.testing.assert_allclose(
        odds.predict_proba(frame.assign(score=3.0), shop),
        FedResClassifier().fit(frame, y > 0, shop).predict_proba(frame, shop),
        atol=0.01,
    )


def counts(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    shop, x, days = rng.integers(0, 80, n), rng.normal(size=n), rng.integers(1, 30, n)
    rate = np.exp(0.3 * x + 0.7 * rng.normal(size=80)[shop] - 1)
    frame = pd.DataFrame({"x": x, "days": np.log(days)})
    return frame, rng.poisson(rate * days), shop, rate * days


def test_counts():
    frame, y, shop, mean = counts()
    model = FedResRegressor(loss="poisson", offset="days").fit(frame[:2000], y[:2000], shop[:2000])
    predicted, spread = model.predict(frame[2000:], shop[2000:], return_std=True)
    assert np.mean(np.abs(predicted / mean[2000:] - 1)) < 0.12
    assert (spread > np.sqrt(predicted)).all()
    low, high = model.predict_interval(frame[2000:], shop[2000:], level=0.9).T
    assert 0.88 < ((low <= y[2000:]) & (y[2000:] <= high)).mean() < 0.96
    found = model.variance_components_.set_index(["part", "column"])["variance"]
    assert found["client", "constant"] == pytest.approx(0.49, rel=0.4)
    assert ("residual", "") not in found.index  # that of a count is its mean
    assert model.variance_components_["share"].sum() == pytest.approx(1)
    alone = FedResRegressor(loss="poisson", method="independent").fit(frame, y, shop)
    assert np.isfinite(alone.predict(frame, shop)).all()
    with pytest.raises(ValueError, match="loss='poisson' takes counts from 0 up, not -1"):
        model.fit(frame, -np.ones(4000), shop)
    with pytest.raises(ValueError, match="unknown loss 'hinge': choose one of squared, poisson"):
        FedResRegressor(loss="hinge").fit(frame, y, shop)


def test_classes_shrink_as_their_clients_vary():
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 150, 9000), rng.integers(0, 20, 9000)
    odds = 1.2 * rng.normal(size=150)[user] + rng.normal(size=20)[item]
    y = rng.random(9000) < 1 / (1 + np.exp(-odds))
    frame = pd.DataFrame({"item": item.astype(str)})
    model = FedResClassifier().fit(frame, y, user)
    found = model.variance_components_.set_index(["part", "column"])["variance"]
    assert found["client", "constant"] == pytest.approx(1.44, rel=0.35)
    assert found["shared", "item"] == pytest.approx(1, rel=0.6)
    assert found["residual", ""] == pytest.approx(np.pi**2 / 3)
    assert rmse(model.decision_function(frame, user), odds) < 0.4
    three = FedResClassifier().fit(frame, np.digitize(odds, [-1, 1]), user)
    assert set(three.variance_components_["class"]) == {0, 1, 2}
    assert three.effects_.groupby("class")["client"].nunique().tolist() == [150] * 3


@pytest.mark.parametrize("options", [{}, {"loss": "poisson", "offset": "size"}])
def test_what_is_saved_knows_as_much(tmp_path, options):
    frame, y, shop = shops(items=100)
    y = np.round(np.abs(y)) if options else y
    model = FedResRegressor(**options).fit(frame, y, shop)
    model.save(tmp_path)
    again, own = load_model(tmp_path), load_model(tmp_path, client=7)
    rows = slice(0, 200)
    bounds = model.predict_interval(frame[rows], shop[rows])
    np.testing.assert_array_equal(again.predict_interval(frame[rows], shop[rows]), bounds)
    mine = shop[rows] == 7
    np.testing.assert_array_equal(
        own.predict_interval(frame[rows][mine], shop[rows][mine]), bounds[mine]
    )
    pd.testing.assert_frame_equal(again.effects_, model.effects_)
    pd.testing.assert_frame_equal(again.variance_components_, model.variance_components_)
    of_seven = model.effects_.query("client == 7").reset_index(drop=True)
    pd.testing.assert_frame_equal(own.effects_, of_seven)


def test_it_goes_on_learning_from_what_it_knows():
    frame, y, shop = shops(3000, 60)
    model = FedResRegressor().fit(frame[:1500], y[:1500], shop[:1500])
    before = rmse(model.predict(frame[2700:], shop[2700:]), y[2700:])
    model.partial_fit(frame[1500:2700], y[1500:2700], shop[1500:2700])
    after = rmse(model.predict(frame[2700:], shop[2700:]), y[2700:])
    assert after < before
    new = np.full(1200, 99)
    moved = y[1500:2700] + 3
    model.partial_fit(frame[1500:2700], moved, new)
    assert rmse(model.predict(frame[2700:], new[:300]), y[2700:] + 3) < 2
    assert len(model.effects_["client"].unique()) == 61


def test_auto_is_sgd_where_it_is_asked_for_or_bayes_is_too_wide(monkeypatch):
    frame, y, shop = shops(300)
    assert FedResRegressor().fit(frame, y, shop).solver_ == "bayes"
    by_sgd = FedResRegressor(passes=1).fit(frame, y, shop)
    assert by_sgd.solver_ == "sgd"
    with pytest.raises(AttributeError, match="solver='sgd' estimates no variances: fit with"):
        by_sgd.effects_  # noqa: B018
    with pytest.raises(ValueError, match="sample_weight needs solver='bayes', and passes is for"):
        by_sgd.fit(frame, y, shop, sample_weight=np.ones(300))
    with pytest.raises(ValueError, match="solver='bayes' needs many rows to begin with"):
        FedResRegressor(solver="bayes").partial_fit(frame, y, shop)
    with pytest.raises(ValueError, match="level must be between 0 and 1, not 90"):
        FedResRegressor().fit(frame, y, shop).predict_interval(frame, shop, level=90)
    monkeypatch.setattr(arrow, "MOST_CELLS", 10)
    assert FedResRegressor().fit(frame, y, shop).solver_ == "sgd"
    with pytest.raises(ValueError, match="make fewer features local, or use solver='sgd'"):
        FedResRegressor(solver="bayes").fit(frame, y, shop)


def test_constant_labels_and_perfect_fits_will_do():
    frame, y, shop = shops(200, noise=0.0)
    for labels in (np.ones(200), y, np.zeros(200)):
        model = FedResRegressor().fit(frame, labels, shop)
        assert np.isfinite(model.predict_interval(frame, shop)).all()
    twice = np.repeat(frame[["x"]].to_numpy(), 2, axis=1)
    assert np.isfinite(FedResRegressor().fit(twice, y, shop).predict(twice, shop)).all()


def test_rows_of_any_order_and_outputs_side_by_side():
    rng = np.random.default_rng(0)
    x, client = rng.normal(size=(300, 3)).astype(np.float32), rng.integers(0, 7, 300)
    y = (x.sum(axis=1) + client)[None].astype(np.float32)
    labels = NumberLabels.fit(y[0].astype(float))
    data = Encoded(x, x, np.vstack([y, -y]), client, labels.limits)
    shape = ModelShape(3, 3)
    groups = Groups(
        [("shared", "numbers"), ("client", "numbers"), ("client", "constant")],
        np.array([0, 0, 0, -1]),
        np.array([1, 1, 1, 2]),
    )
    mixed = rng.permutation(300)
    _, both = train(shape, data, groups, np.random.RandomState(0))
    _, one = train(shape, data.only(mixed), groups, np.random.RandomState(0))
    np.testing.assert_allclose(both[0].w_global, -both[1].w_global, atol=1e-8)
    np.testing.assert_allclose(both[0].w_local, one[0].w_local, atol=1e-5)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"method": "central"}, {"method": "independent"}, {"shared": "trees"}],
    ids=["fedres", "central", "independent", "trees"],
)
def test_contributions_add_up_to_predictions(parameters):
    frame, y, shop = shops(600)
    model = FedResRegressor(**parameters).fit(frame, y, client=shop)
    parts = model.contributions(frame[:50], client=shop[:50])
    total = parts.sum(axis=1).clip(y.min(), y.max())
    np.testing.assert_allclose(total, model.predict(frame[:50], client=shop[:50]), atol=1e-5)
    sides = {side for side, _ in parts.columns}
    assert sides == ({"shared"} if model.method == "central" else {"shared", "client"})
    if not parameters:  # a known weight, in the units of the label
        weight = model.local_models_[shop[0]].constant
        np.testing.assert_allclose(parts["client", "constant"][0], weight, atol=1e-5)
        new = model.contributions(frame[:2], client=False)
        assert not new[[column for column in new if column[0] == "client"]].to_numpy().any()

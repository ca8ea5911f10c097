"""Slopes of clients begin at the mean of a column or at its zero, as clients are."""

import numpy as np
import pandas as pd
import pytest

from fedres import FedResRegressor, load_model
from fedres.tables.encoder import Encoder


def tiring(n=1500, clients=60, origin=0.0, seed=0):
    """Reaction times that are independent of how people tire on one day: `origin`."""
    rng, made = np.random.default_rng(seed), np.random.default_rng(9)
    client, day = rng.integers(0, clients, n), rng.integers(0, 10, n).astype(float)
    slope, constant = 3 * made.normal(size=clients), made.normal(size=clients)
    y = 5 + day + constant[client] + slope[client] * (day - origin) + 2 * rng.normal(size=n)
    return pd.DataFrame({"day": day, "other": rng.normal(size=n)}), y, client


def error(model, X, y, client):
    return float(np.sqrt(((model.predict(X, client) - y) ** 2).mean()))


@pytest.mark.parametrize(("origin", "expected"), [(0.0, (0,)), (4.5, ()), (9.0, ())])
def test_numbers_are_counted_from_where_constants_and_slopes_are_independent(origin, expected):
    model = FedResRegressor().fit(*tiring(origin=origin))
    assert model.encoder_.from_zero == expected


@pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
def test_few_rows_gain_by_it(monkeypatch):
    train, new = tiring(150), tiring(5000, seed=1)
    model = FedResRegressor().fit(*train)
    assert model.encoder_.from_zero == (0,)
    monkeypatch.setattr("fedres.tables.origins.NEAREST", 99.0)
    assert error(model, *new) < 0.98 * error(FedResRegressor().fit(*train), *new)


def test_all_that_follows_counts_from_there_too(tmp_path):
    X, y, client = tiring()
    model = FedResRegressor(client="who").fit(X.assign(who=client), y)
    constants = model.effects_.query("column == 'constant'").sort_values("client")["effect"]
    made = np.random.default_rng(9)
    made.normal(size=60)
    assert np.corrcoef(constants, made.normal(size=60))[0, 1] > 0.5  # those of day 0
    parts = model.contributions(X, client)
    predicted = model.predict(X, client)
    np.testing.assert_allclose(parts.sum(axis=1).clip(y.min(), y.max()), predicted, atol=1e-3)
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X, client), model.predict(X, client))
    row = {**X.iloc[3].to_dict(), "who": int(client[3])}
    assert again.predict_one(row) == pytest.approx(model.predict(X, client)[3], abs=1e-4)
    again.learn_one(row, 3.0)
    model.partial_fit(X.iloc[3:4].assign(who=client[3:4]), [3.0])
    np.testing.assert_allclose(again.predict(X, client), model.predict(X, client), atol=1e-4)


def test_missing_values_stay_the_mean():
    X = pd.DataFrame({"day": [0.0, 2.0, np.nan], "word": ["a", "b", "c"]})
    at_mean = Encoder.fit(X)
    at_zero = Encoder.from_dict({**at_mean.to_dict(), "from_zero": [0]})
    zero = -1.0  # 0 is one deviation below the mean
    x, moved = at_mean.transform(X)[1], at_zero.transform(X)[1]
    np.testing.assert_allclose(moved[:, 0], x[:, 0] - zero)
    np.testing.assert_array_equal(moved[:, 1:], x[:, 1:])
    np.testing.assert_array_equal(at_zero.transform(X)[0], at_mean.transform(X)[0])
    for row in X.to_dict("records"):
        one = at_zero.transform_one(row)[1]
        np.testing.assert_array_equal(one, at_zero.transform(pd.DataFrame([row]))[1])

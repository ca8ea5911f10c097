import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import fedres
from conftest import random_federation
from fedres.core.best_pair import Samples, best_pair
from fedres.core.views import client_rows
from fedres.simulation.federation import sides
from fedres.simulation.regret import rows_seen

SETTINGS = [
    {"rounds": 50},
    {"rounds": 50, "batch": 8, "delay": 6},
    {"passes": 3},
    {"passes": 2, "batch": 4, "delay": 5},
    {"passes": 2, "client_weight": "T/N"},
    {"rounds": 31, "client_weight": [1.0, 0.5, 3.0]},
    {"passes": 2, "shuffle": False},
    {"rounds": 40, "radius": 0.1},
    {"rounds": 40, "participation": fedres.Participation(join=[0, 9, 20], leave=[30, 40, 40])},
    {
        "rounds": 41,
        "batch": 4,
        "client_weight": "T/N",
        "participation": fedres.Participation(share=0.8),
    },
    {"rounds": 40, "constant": False},
    {"rounds": 40, "method": "independent"},
    {"rounds": 40, "method": "central"},
]


def to_dense(x):
    return x.toarray() if issparse(x) else x


def test_by_hand():
    """One feature, always 1: the best constant for labels 1, 2, 3, 3, 3, 3 is 2.5."""
    x, y = np.ones((6, 1)), np.array([1.0, 2, 3, 3, 3, 3])
    federation = fedres.Federation.from_arrays(x, None, y, np.zeros(6))
    run = fedres.simulate(
        federation, step=fedres.Sgd(0.5), constant=False, shuffle=False
    )  # predicts the last label
    lost = (np.array([0.0, 1, 2, 3, 3, 3]) - y) ** 2 - (2.5 - y) ** 2
    np.testing.assert_allclose(run.regret(), np.cumsum(lost) / np.arange(1, 7), atol=1e-6)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_rows_are_those_the_run_saw(settings):
    """With nothing learned, the loss tells the label, and so the row."""
    federation = random_federation(rows=13)
    run = fedres.simulate(federation, step=fedres.Sgd(1e-12), **settings)
    rows = rows_seen(federation, run.settings)
    assert ((rows >= 0) == ~np.isnan(run.predictions)).all()
    weight = run.settings.weights(federation)[:, None] * (rows >= 0)
    squares = np.where(rows >= 0, federation.train.y[rows] ** 2, 0)
    starts = np.arange(0, rows.shape[1], run.settings.batch)
    by_round = np.add.reduceat((weight * squares).sum(axis=0), starts)
    mass = np.add.reduceat(weight.sum(axis=0), starts)
    np.testing.assert_allclose(run.loss_by_round, by_round / mass, rtol=1e-4)


def loss_of_best_pair(run):
    """The mean loss of the best pair for all samples that a run saw, each as often as it did."""
    federation, train = run.federation, run.federation.train
    weight, rows = run.settings.weights(federation), rows_seen(federation, run.settings)
    views = sides(federation, train, run.settings.method)
    clients = []
    for i, seen in enumerate(rows):
        own = seen[seen >= 0] - train.row_start[i]
        shared, local = (client_rows(view, train.row_start, i)[own] for view in views)
        labels = train.y[train.row_start[i] + own]
        clients.append(Samples(shared, local, labels, np.full(len(own), float(weight[i]))))
    fit = best_pair(clients, constant=run.settings.constant, radius=run.settings.radius)
    return fit.loss / sum(client.weight.sum() for client in clients)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_last_value_is_the_loss_less_that_of_the_best_pair(settings):
    run = fedres.simulate(random_federation(rows=13), step=fedres.Sgd(0.01), **settings)
    curve = run.regret()
    assert curve.shape == run.loss_by_round.shape
    assert curve[-1] == pytest.approx(run.loss - loss_of_best_pair(run), abs=1e-5)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_as_equation_1_it_is_divided_by_clients_and_rounds(settings):
    run = fedres.simulate(random_federation(rows=13), step=fedres.Sgd(0.01), **settings)
    weight = run.settings.weights(run.federation) @ ~np.isnan(run.predictions)
    rounds = np.minimum(
        run.settings.batch * np.arange(1, len(run.loss_by_round) + 1), run.predictions.shape[1]
    )
    total = run.regret() * np.cumsum(weight)[rounds - 1]
    np.testing.assert_allclose(run.regret(over="PT"), total / (3 * rounds), rtol=1e-6)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("sparse", [False, True])
def test_one_that_learns_nothing_loses_to_the_best_what_others_find(loss, sparse):
    """Other solvers, on one model of all features: the shared ones, then those of each client."""
    federation = random_federation(rows=40, labels="signs", sparse=sparse)
    run = fedres.simulate(federation, step=fedres.Sgd(1e-9), loss=loss)
    train = federation.train
    owner = np.repeat(np.arange(3), train.counts)
    x_global, x_local = (
        np.vstack([to_dense(client_rows(view, train.row_start, i)) for i in range(3)])
        for view in (train.x_global, train.x_local)
    )
    own = np.hstack(
        [np.hstack([x_local, np.ones((len(owner), 1))]) * (owner == i)[:, None] for i in range(3)]
    )
    x = np.hstack([x_global, own])
    if loss == "squared":
        worst, best = 1.0, np.linalg.lstsq(x, train.y, rcond=None)[1][0] / len(owner)
    else:
        fit = LogisticRegression(C=1e9, fit_intercept=False, tol=1e-8, max_iter=1000)
        worst, best = np.log(2), log_loss(train.y, fit.fit(x, train.y).predict_proba(x)[:, 1])
    assert best < 0.98 * worst
    assert run.regret()[-1] == pytest.approx(worst - best, abs=1e-5)


def test_regret_falls_where_a_pair_of_models_can_be_right():
    rng = np.random.default_rng(0)
    clients, n, d = 5, 2000, 3
    x_global, x_local = rng.normal(size=(2, clients * n, d))
    owner = np.repeat(np.arange(clients), n)
    y = x_global @ rng.normal(size=d) + (x_local * rng.normal(size=(clients, d))[owner]).sum(1)
    federation = fedres.Federation.from_arrays(x_global, x_local, y, owner)
    curve = fedres.simulate(federation, rounds=n, step=fedres.Sgd(0.02)).regret()
    at = [curve[t - 1] for t in (20, 200, 2000)]
    assert at[0] > 5 * at[1] > 25 * at[2] > 0


@pytest.mark.parametrize(("clients", "rounds", "rows"), [(1, 20_000, 300), (1000, 500, 60)])
def test_long_runs_and_many_clients(clients, rounds, rows):
    run = fedres.simulate(random_federation(clients=clients, rows=rows), rounds=rounds)
    curve = run.regret()
    assert np.isfinite(curve).all()
    assert curve[-1] == pytest.approx(run.loss - loss_of_best_pair(run), rel=1e-4)

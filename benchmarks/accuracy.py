"""Test accuracy of FedRes beside scikit-learn's logistic regression, on the paper's sets.

Run with `make bench-accuracy`; needs FEDRES_DATA. Every row is a federation of P = 50 clients (35
where the set is the small sample of sensorless), dealt as the paper deals it, over ten seeds.
Each method fits the logistic loss to the training rows; FedRes is `best_pair`, both models at once.

All methods are treated alike: features standardised on the pooled training rows, ridges chosen
by the log loss in three folds, stratified within each client, one choice a method and
federation. Ridges so large that a model is as good as absent are among FedRes's choices, so that
it can be only local or only global. To save time, on mnist and usps, with their many features,
only 15 of the 50 clients take part in the *choice* of ridges, of every method; all 50 are fitted
and tested. The whole takes some minutes on two cores.

Pooling all features is what FedRes is there to avoid: it sends every feature of every sample to
the server. It is shown as the yardstick that it is.
"""

import sys
import warnings
from itertools import product
from time import perf_counter
from typing import NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression

import fedres
from fedres.core.best_pair import Samples, best_pair
from fedres.core.losses import LOGISTIC
from fedres.simulation.intervals import interval
from fedres.simulation.parallel import map_in_order

SETS = ("letter", "pendigits", "shuttle", "covtype", "mnist", "satimage", "sensorless", "usps")
SEEDS, CLIENTS, FOLDS = 10, 50, 3
FEWER = {"sensorless": 35}
CHOOSERS = {"mnist": 15, "usps": 15}
RIDGES = (0.1, 1.0, 10.0)
OFF = 1e6
PAIRS = [pair for pair in product((*RIDGES, OFF), repeat=2) if pair != (OFF, OFF)]


class Client(NamedTuple):
    """One client's rows, all features, and which of them are global."""

    x: np.ndarray
    y: np.ndarray
    is_global: np.ndarray


def take(client, rows):
    return client._replace(x=client.x[rows], y=client.y[rows])


def all_(client):
    return client.x


def shared(client):
    return client.x[:, client.is_global]


def rest(client):
    return client.x[:, ~client.is_global]


def federation(name, seed):
    """Training and test rows of every client, standardised."""
    dealt = fedres.federate(name, FEWER.get(name, CLIENTS), seed, local="all")
    width = int(dealt.train.x_local.width[0])
    is_global = np.ones(width, bool)
    is_global[dealt.local_only] = False
    x, x_test = (rows.x_local.values.reshape(-1, width) for rows in (dealt.train, dealt.test))
    mean, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread == 0] = 1

    def clients(x, rows):
        parts = np.split((x - mean) / spread, rows.row_start[1:-1])
        labels = np.split(rows.y, rows.row_start[1:-1])
        return [Client(*part, is_global) for part in zip(parts, labels, strict=True)]

    return clients(x, dealt.train), clients(x_test, dealt.test)


def classifier(ridge, x, y):
    """The same objective as `best_pair`'s: the sum of losses + ridge |w|^2."""
    return LogisticRegression(C=1 / (2 * ridge), max_iter=1000).fit(x, y)


def alone(ridge, train, test):
    return [
        classifier(ridge, own.x, own.y).decision_function(tested.x)
        for own, tested in zip(train, test, strict=True)
    ]


def pooled(view):
    def predict(ridge, train, test):
        x = np.vstack([view(client) for client in train])
        model = classifier(ridge, x, np.concatenate([client.y for client in train]))
        return [model.decision_function(view(client)) for client in test]

    return predict


def joint(local):
    def predict(ridges, train, test):
        samples = [Samples(shared(client), local(client), client.y) for client in train]
        fit = best_pair(samples, LOGISTIC, ridge_global=ridges[0], ridge_local=ridges[1])
        return [
            shared(client) @ fit.w_global[:-1] + local(client) @ w[:-1] + fit.w_global[-1] + w[-1]
            for client, w in zip(test, fit.w_local, strict=True)
        ]

    return predict


METHODS = {
    "each client alone": (alone, RIDGES),
    "pooled, global features": (pooled(shared), RIDGES),
    "pooled, all features": (pooled(all_), RIDGES),
    "FedRes, local=rest": (joint(rest), PAIRS),
    "FedRes, local=all": (joint(all_), PAIRS),
}
OURS = "FedRes, local=all"


def folds(client, rng):
    """The fold of each row; each fold has its share of both labels."""
    fold = np.empty(len(client.y), int)
    for label in (-1, 1):
        rows = rng.permutation(np.flatnonzero(client.y == label))
        fold[rows] = np.arange(len(rows)) % FOLDS
    return fold


def choose(method, choices, clients, seed):
    """The choice with the least log loss on rows held out."""
    rng = np.random.default_rng(seed)
    held = [folds(client, rng) for client in clients]
    losses = np.zeros(len(choices))
    for fold in range(FOLDS):
        train = [take(c, part != fold) for c, part in zip(clients, held, strict=True)]
        test = [take(c, part == fold) for c, part in zip(clients, held, strict=True)]
        y = np.concatenate([client.y for client in test])
        for i, choice in enumerate(choices):
            predicted = np.concatenate(method(choice, train, test))
            losses[i] += LOGISTIC.value(predicted, y).sum()
    return choices[int(losses.argmin())]


def accuracies(name, seed):
    """The accuracy of each method, mean over clients, and its choice."""
    train, test = federation(name, seed)
    found, chosen = {}, {}
    for title, (method, choices) in METHODS.items():
        chosen[title] = choose(method, choices, train[: CHOOSERS.get(name)], seed)
        predicted = method(chosen[title], train, test)
        right = [((p > 0) == (c.y > 0)).mean() for p, c in zip(predicted, test, strict=True)]
        found[title] = float(np.mean(right))
    return found, chosen


def fit(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return accuracies(*run)


def main():
    names = sys.argv[1:] or SETS
    tables = [
        Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        for title in (
            f"Test accuracy, mean over clients, {SEEDS} seeds, 95% intervals",
            f"Paired difference: {OURS}, less the best other",
        )
    ]
    for column in ("set", *METHODS):
        tables[0].add_column(column)
    for column in ("set", "best other", "difference", "best without pooling all", "difference"):
        tables[1].add_column(column)
    began = perf_counter()
    runs = [(name, seed) for name in names for seed in range(SEEDS)]
    found = dict(zip(runs, map_in_order(fit, runs, None, "fitting"), strict=True))
    for name in names:
        scores = {
            title: np.array([found[name, seed][0][title] for seed in range(SEEDS)])
            for title in METHODS
        }
        tables[0].add_row(name, *(str(interval(values)) for values in scores.values()))
        row = [name]
        for left_out in ({OURS}, {OURS, "pooled, all features"}):
            best = max(scores.keys() - left_out, key=lambda title: scores[title].mean())
            row += [best, str(interval(scores[OURS] - scores[best]))]
        tables[1].add_row(*row)
    console = Console(width=150)
    for table in tables:
        console.print(table)
    console.print(f"{perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

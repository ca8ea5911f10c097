"""Every mistake is one clear sentence."""

import numpy as np
import pytest

import fedres
from conftest import random_federation

X, Y, WHO = np.ones((4, 2)), np.array([1.0, 2.0, 3.0, 4.0]), ["a", "a", "b", "b"]


def broken(array, value):
    array = np.array(array, float)
    array.flat[1] = value
    return array


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((broken(X, np.nan), X, Y, WHO), "x_global has nan at row 0, column 1"),
        ((X, broken(X, np.inf), Y, WHO), "x_local has inf at row 0, column 1"),
        ((X, X, broken(Y, np.nan), WHO), "y has nan at position 1"),
        ((X[:3], X, Y, WHO), "x_global has 3 rows, y has 4"),
        ((X, X, Y, WHO[:2]), "client has 2 ids, y has 4 labels"),
        ((X, X, [], []), "no rows"),
        ((X, X, ["a"] * 4, WHO), "labels must be numbers"),
        (([["x", "y"]] * 4, X, Y, WHO), "x_global must be a table of numbers"),
        ((np.ones(4), X, Y, WHO), "two dimensions"),
        ((X, {"a": X[:2]}, Y, WHO), "no rows for client 'b'"),
        ((X, {"a": X[:2], "b": X[:1]}, Y, WHO), "x_local of client 'b' has 1 rows, y has 2"),
        ((X, X, np.ones((4, 1)), WHO), "one label a row"),
    ],
)
def test_arrays(arguments, message):
    with pytest.raises(ValueError, match=message):
        fedres.Federation.from_arrays(*arguments)


def test_test_rows():
    with pytest.raises(ValueError, match="client 'z' has test rows but no training rows"):
        fedres.Federation.from_arrays(X, X, Y, WHO, test=(X, X, Y, list("aabz")))
    with pytest.raises(ValueError, match="2 features in the training rows and 1 in the test rows"):
        fedres.Federation.from_arrays(X, X, Y, WHO, test=(X[:, :1], X, Y, WHO))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "sgd"}, "unknown method 'sgd': choose one of independent, central, fedres"),
        ({"alignment": "left"}, "unknown alignment 'left': choose one of aligned, asymmetric"),
        ({"loss": "hinge"}, "unknown loss 'hinge': choose one of squared, logistic"),
        ({"loss": "logistic"}, "takes labels -1 or 1, not"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"passes": 0}, "passes must be at least 1"),
        ({"radius": -1.0}, "radius must be a positive number"),
        ({"seed": -1}, "seed must be a number from 0"),
        ({"residual_bits": 9}, "1 to 8, 16 or 32, not 9"),
        ({"delay": -1}, "must not be negative"),
        ({"local_step": fedres.Sgd(1.0)}, "must be of one kind"),
        ({"client_weight": [1.0]}, "1 weights for 3 clients"),
        ({"client_weight": [1.0, -1.0, 1.0]}, "numbers from 0 up, not -1"),
        ({"client_weight": {9: 1.0}}, "names client 9, who is not there"),
        ({"client_weight": "N/T"}, "unknown client_weight 'N/T'"),
    ],
)
def test_settings(options, message):
    with pytest.raises(ValueError, match=message):
        fedres.simulate(random_federation(0), **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedres.Delay(up=-1), "up must not be negative, and is -1"),
        (lambda: fedres.Delay(down=1.5), "whole number of rounds"),
        (lambda: fedres.Delay(up=[0, -2, 1]), "must not be negative, and is -2"),
        (lambda: fedres.Uniform(3, 1), "0 <= low <= high"),
        (lambda: fedres.Sgd(0.0), "eta must be a positive number, not 0"),
        (lambda: fedres.Adaptive(float("nan")), "eta must be a positive number"),
        (lambda: fedres.federate("digits", clients=0), "clients must be at least 1, not 0"),
        (lambda: fedres.federate("no such set"), "no such set"),
        (lambda: fedres.federate("digits", local="some"), "'rest' or 'all', not 'some'"),
        (lambda: fedres.compare(seeds=0), "seeds must be at least 1"),
        (lambda: fedres.run_all([], n_jobs=0), "n_jobs must be at least 1"),
    ],
)
def test_makers(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_number_of_delays():
    with pytest.raises(ValueError, match="2 delays were given for 3 clients"):
        fedres.simulate(random_federation(0), delay=fedres.Delay(up=[1, 2]))


def test_accuracy_needs_test_rows_and_two_labels():
    run = fedres.simulate(random_federation(0), rounds=2)
    with pytest.raises(ValueError, match="accuracy needs two labels"):
        _ = run.accuracy
    none = fedres.simulate(fedres.Federation.from_arrays(X, X, Y, WHO), rounds=2)
    with pytest.raises(ValueError, match="no test rows"):
        _ = none.accuracy


def test_divergence_is_seen():
    run = fedres.simulate(random_federation(0), rounds=500, step=fedres.Sgd(50.0))
    assert not np.isfinite(run.loss)

"""The federated split of section 6.1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedres
from fedres.core.views import whole


def marked(rows_per_class=60, classes=10, width=6, test=False):
    """A data set in which the first feature is the number of the row and the second its class."""
    y = np.repeat(np.arange(classes), rows_per_class)
    x = np.tile(np.arange(width, dtype=np.float32), (len(y), 1))
    x[:, 0], x[:, 1] = np.arange(len(y)), y
    extra = (x + 0, y) if test else (None, None)
    return fedres.Dataset("marked", x, y, *extra)


def columns(federation):
    """All features of the training rows in their order."""
    return np.hstack([whole(federation.train.x_global), whole(federation.train.x_local)])


@given(st.integers(0, 500), st.integers(1, 12))
def test_tasks_are_balanced_disjoint_and_single_class(seed, clients):
    federation = fedres.federate(marked(), clients=clients, seed=seed, local="all")
    x, train = whole(federation.train.x_local), federation.train
    n = federation.facts["samples"]
    assert n <= 30
    assert (train.counts == 2 * n).all()
    assert len(np.unique(x[:, 0])) == len(x)  # no row twice
    merged = federation.facts["merged"]
    assert len(merged) == 3  # floor(0.3 * 10)
    for i, task in enumerate(federation.facts["tasks"]):
        part = slice(train.row_start[i], train.row_start[i + 1])
        y, classes = train.y[part], x[part, 1]
        assert (y == 1).sum() == (y == -1).sum() == n
        assert np.isin(classes[y == 1], merged).all()
        assert (classes[y == -1] == task).all()
        assert task not in merged


@given(st.integers(0, 500))
def test_test_rows_are_held_out_and_of_the_same_tasks(seed):
    federation = fedres.federate(marked(), clients=5, seed=seed, local="all")
    train, test = (whole(rows.x_local) for rows in (federation.train, federation.test))
    assert not np.isin(test[:, 0], train[:, 0]).any()
    for i, task in enumerate(federation.facts["tasks"]):
        part = slice(*federation.test.row_start[i : i + 2])
        assert (test[part, 1][federation.test.y[part] == -1] == task).all()
        assert federation.test.y[part].sum() == 0


def test_its_own_test_rows_are_used_where_a_set_has_some():
    federation = fedres.federate(marked(test=True), clients=12, seed=0)
    assert federation.facts["samples"] == 15  # all 180 rows of A, none held out: 180 / 12


def test_half_of_the_features_are_global():
    federation = fedres.federate("digits", clients=4, seed=3)
    assert federation.width_global == 32
    assert federation.train.x_local.width.tolist() == [32] * 4
    for seed in range(5):
        dealt = fedres.federate(marked(width=7), clients=2, seed=seed)
        assert dealt.width_global == 3
        # features 2 to 6 hold their own number: each is on just one side
        found = columns(dealt)
        assert found.shape[1] == 7
        assert set(range(2, 7)) <= set(found[0].tolist())


def test_the_seed_decides_everything():
    a, b, c = (fedres.federate("digits", clients=4, seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(columns(a), columns(b))
    np.testing.assert_array_equal(whole(a.test.x_global), whole(b.test.x_global))
    assert not np.array_equal(columns(a), columns(c))


def test_an_impossible_request_says_how_many_clients_are_possible():
    with pytest.raises(ValueError, match="at most 12 clients are possible"):
        fedres.federate(marked(), clients=13, seed=0)
    assert len(fedres.federate(marked(), clients=12, seed=0).clients) == 12


def test_tiny_classes_are_drawn_again():
    data = marked()
    keep = np.flatnonzero((data.y != 4) | (np.arange(len(data.y)) % 60 < 4))
    tiny = fedres.Dataset("tiny", data.x[keep], data.y[keep])
    redraws = [fedres.federate(tiny, clients=9, seed=s).facts["redraws"] for s in range(20)]
    assert max(redraws) > 0

"""Local models of any kind behind one protocol."""

import doctest
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from river import linear_model, preprocessing, tree
from scipy.sparse import csr_array
from sklearn.linear_model import SGDRegressor
from sklearn.neural_network import MLPRegressor
from vowpalwabbit import Workspace

import fedres
from conftest import random_federation
from fedres.core.losses import LOGISTIC, SQUARED
from fedres.core.parties import Client, Server
from fedres.core.rule import Rule
from fedres.learners import (
    LearnerClient,
    LinearLearner,
    RiverLearner,
    SklearnLearner,
    VowpalLearner,
    play,
)

ROOT = Path(__file__).parents[1]
ONE = np.float32([[1.0]])
LEARNERS = {
    "linear": lambda: LinearLearner(Rule(fedres.Adaptive(0.1)), width=2),
    "river tree": lambda: RiverLearner(tree.HoeffdingTreeRegressor(grace_period=20)),
    "river pipeline": lambda: RiverLearner(
        preprocessing.StandardScaler() | linear_model.LinearRegression(), names=["a", "b"]
    ),
    "sklearn": lambda: SklearnLearner(SGDRegressor(random_state=0)),
    "sklearn net": lambda: SklearnLearner(MLPRegressor(learning_rate_init=0.01, random_state=0)),
    "vw": VowpalLearner,
    "vw workspace": lambda: VowpalLearner(Workspace("--adaptive -l 0.1 -q ll --quiet")),
}
every_learner = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)


class Scripted:
    """Predicts what it is told, raises what it is told, and remembers what it was taught."""

    loss = "squared"

    def __init__(self, says=0.0, fails=None):
        self.says, self.fails, self.taught = says, fails, []

    def __repr__(self):
        return "Scripted()"

    def predict(self, x):
        return np.full(x.shape[0], self.says) if np.isscalar(self.says) else self.says

    def learn(self, x, y, offset):
        if self.fails:
            raise self.fails
        self.taught.append((x, y, offset))


rules = st.builds(
    Rule,
    step=st.sampled_from(
        [fedres.Sgd(0.05), fedres.Adaptive(0.3), fedres.Adaptive(0.3, clip=False)]
    ),
    loss=st.sampled_from([SQUARED, LOGISTIC]),
    alignment=st.sampled_from(["arrival", "asymmetric", "late"]),
    batch=st.integers(1, 3),
    radius=st.sampled_from([None, 0.5]),
    constant=st.booleans(),
    residual_bits=st.sampled_from([2, 16, 32]),
    local_step=st.sampled_from([None, fedres.Sgd(0.02)]),
)


@given(rules, st.integers(0, 99), st.booleans(), st.sampled_from([0.5, 1.0, 3.0]))
def test_a_linear_learner_is_the_client_of_sgd(rule, seed, sparse, weight):
    rng = np.random.default_rng(seed)
    initial = rng.normal(size=2 + rule.constant).astype(np.float32)
    theirs = Client(rule, 3, 2, client=5, weight=weight, initial_local=initial)
    ours = LearnerClient(rule, 3, LinearLearner(rule, 2, weight, initial), client=5)
    server = Server(rule, 3)
    for turn in range(8):
        x = [rng.normal(size=(2, width)).astype(np.float32) for width in (3, 2)]
        y = np.sign(rng.normal(size=2)).astype(np.float32)
        x = [csr_array(one) for one in x] if sparse else x
        np.testing.assert_array_equal(ours.predict(*x), theirs.predict(*x))
        sent = [client.observe(*x, y) for client in (ours, theirs)]
        if turn == 7:
            sent = [
                upload or client.flush()
                for upload, client in zip(sent, (ours, theirs), strict=True)
            ]
        ours_sent, theirs_sent = (upload and upload.pack() for upload in sent)
        assert ours_sent == theirs_sent
        if sent[0]:
            server.apply(sent[0])
        model = server.publish()
        if turn % 3:
            ours.refresh(model)
            theirs.refresh(model)


@pytest.mark.parametrize("rounds", [None, 15])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "delay", [0, 5, fedres.Delay(up=[0, 3, 1], down=2), fedres.Delay(up=fedres.Uniform(0, 4))]
)
@pytest.mark.parametrize("alignment", ["arrival", "asymmetric", "late"])
def test_play_is_the_simulation(rounds, batch, delay, alignment):
    federation = random_federation(3, sparse=batch == 3)
    options = {"rounds": rounds, "batch": batch, "delay": delay, "alignment": alignment}
    run = fedres.simulate(federation, **options, shuffle=False, seed=7, compiled=False)
    rule = Rule(batch=batch, alignment=alignment)
    learners = {client: LinearLearner(rule, 2) for client in federation.clients}
    played = play(federation, learners, rule=rule, rounds=rounds, delay=delay, seed=7)
    np.testing.assert_array_equal(played.predictions, run.predictions)
    np.testing.assert_array_equal(played.server.global_.weights, run.w_global)
    np.testing.assert_allclose(list(played.loss_by_client.values()), run.loss_by_client)
    for client, w_local in zip(federation.clients, run.w_local, strict=True):
        np.testing.assert_array_equal(learners[client].model.weights, w_local)
        assert played.clients[client].version == played.server.version


@pytest.mark.parametrize(
    ("loss", "alignment"), [(SQUARED, "arrival"), (LOGISTIC, "arrival"), (SQUARED, "late")]
)
def test_vw_is_the_linear_model(loss, alignment):
    federation = random_federation(1, rows=60, labels="signs")
    rule = Rule(fedres.Adaptive(0.3), loss, alignment)
    arguments = f"--adaptive -l 0.3 --loss_function {loss.name}"
    ours, vw = (
        play(federation, {client: make() for client in federation.clients}, rule=rule, delay=9)
        for make in (lambda: LinearLearner(rule, 2), lambda: VowpalLearner(arguments))
    )
    np.testing.assert_allclose(vw.predictions, ours.predictions, atol=1e-4)
    np.testing.assert_allclose(vw.server.global_.weights, ours.server.global_.weights, atol=1e-4)


@every_learner
def test_learners_come_nearer_to_what_is_left_over(make):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2)).astype(np.float32)
    offset = rng.normal(size=600).astype(np.float32)
    y = offset + 2 * x[:, 0] - x[:, 1]
    learner = make()
    before = np.abs(np.asarray(learner.predict(x)) + offset - y).mean()
    for k in range(0, 600, 2):
        learner.learn(x[k : k + 2], y[k : k + 2], offset[k : k + 2])
    after = np.asarray(learner.predict(x)) + offset - y
    assert np.abs(after).mean() < before / 3
    np.testing.assert_array_equal(learner.predict(x[:5]), learner.predict(x[:5]))


@every_learner
@pytest.mark.parametrize("sparse", [False, True])
def test_learners_mix_with_others(make, sparse):
    federation = random_federation(2, clients=3, rows=30, sparse=sparse)
    learners = {0: make(), 1: LinearLearner(Rule(), 2), 2: make()}
    played = play(federation, learners, delay=4)
    shared, own = np.ones((2, 3), np.float32), np.ones((2, 2), np.float32)
    if sparse:
        shared, own = csr_array(shared), csr_array(own)
    for client in federation.clients:
        assert np.isfinite(played.loss_by_client[client])
        upload = played.clients[client].observe(shared, own, np.float32([1.0, 2.0]))
        assert upload.residual.dtype == np.float32
        assert np.isfinite(upload.residual).all()


def test_what_river_is_given():
    class Regressor:
        def __init__(self):
            self.taught = []

        def predict_one(self, x):
            return sum(x.values())

        def learn_one(self, x, y):
            self.taught.append((x, y))

    regressor = Regressor()
    dense, y, offset = np.float32([[1.0, 0.0]]), np.float32([3.0]), np.float32([0.5])
    by_position, by_name = RiverLearner(regressor), RiverLearner(regressor, names=["a", "b"])
    by_position.learn(dense, y, offset)
    by_position.learn(csr_array(dense), y, offset)
    by_name.learn(dense, y, offset)
    by_name.learn(csr_array(dense), y, offset)
    features = [{0: 1.0, 1: 0.0}, {0: 1.0}, {"a": 1.0, "b": 0.0}, {"a": 1.0}]
    assert regressor.taught == [(x, 2.5) for x in features]
    assert by_name.predict(np.float32([[1, 2], [3, 4]])) == [3.0, 7.0]
    with pytest.raises(ValueError, match="rows have 1 features, 2 names were given"):
        by_name.predict(ONE)


def test_sklearn_may_have_learned_before():
    regressor = SGDRegressor(random_state=0)
    assert SklearnLearner(regressor).predict(ONE) == 0
    regressor.partial_fit(ONE, [5.0])
    assert SklearnLearner(regressor).predict(ONE) == regressor.predict(ONE) > 0


def test_a_learner_is_taught_given_the_global_part():
    rule = Rule(step=fedres.Sgd(0.125), constant=False)
    learner, server = Scripted(says=0.5), Server(rule, 1)
    client = LearnerClient(rule, 1, learner)
    for _ in range(2):
        server.apply(client.observe(ONE, ONE, np.float32([1.0])))
        client.refresh(server.publish())
    # w^g = 0.125 * 2 * (1 - 0.5) after the first
    assert [float(offset[0]) for _, _, offset in learner.taught] == [0.0, 0.125]
    assert server.global_.weights == pytest.approx(0.125 + 0.25 * 0.375)
    assert client.predict(ONE, ONE) == pytest.approx(0.5 + 0.125 + 0.25 * 0.375)


def test_joint_predictions_are_clipped_to_labels_seen():
    client = LearnerClient(Rule(), 1, Scripted(says=9.0))
    assert client.predict(ONE, ONE) == 0
    client.observe(ONE, ONE, np.float32([2.0]))
    assert client.predict(ONE, ONE) == 2


@pytest.mark.parametrize(
    ("says", "fails", "message"),
    [
        (np.nan, None, "could not predict, .*: it must give finite numbers, not nan"),
        (np.inf, None, "could not predict, .*: it must give finite numbers, not inf"),
        (1e300, None, "could not predict, .*: it must give finite numbers, not inf"),
        ([1.0, 2.0, 3.0], None, r"could not predict, .* one a row, not .* shape \(3,\)"),
        (["high"], None, "could not predict, .*: could not convert string"),
        (0.0, RuntimeError("out of luck"), "could not learn, .*: out of luck"),
    ],
)
@pytest.mark.parametrize("batch", [1, 2])
def test_a_learner_that_fails_is_named_and_the_server_hears_nothing(says, fails, message, batch):
    rule = Rule(batch=batch)
    learner = Scripted(says, fails)
    client = LearnerClient(rule, 1, learner, client=4, name="ann")
    twice = (np.ones((batch, 1), np.float32),) * 2
    y = np.ones(batch, np.float32)
    with pytest.raises(ValueError, match=r"^Scripted\(\) of client 'ann' " + message):
        client.observe(*twice, y)
    assert client.flush() is None
    learner.says, learner.fails = 0.25, None
    upload = client.observe(*twice, y)
    assert (upload.client, upload.round) == (4, 0)
    np.testing.assert_array_equal(upload.residual, np.full(batch, 0.25))
    assert len(upload.y) == batch


def test_a_learner_that_fails_to_predict_stops_play():
    federation = random_federation(0)
    learners = {0: Scripted(), 1: Scripted(np.nan), 2: Scripted()}
    with pytest.raises(ValueError, match=r"Scripted\(\) of client 1 could not predict"):
        play(federation, learners)


LINEAR = LinearLearner(Rule(), 1)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda c: c.observe(ONE, ONE, [np.nan]), "one finite label for each of 1 rows, not .nan."),
        (lambda c: c.observe(ONE, ONE, [1.0, 2.0]), "one finite label for each of 1 rows"),
        (lambda c: c.observe(ONE * np.nan, ONE, [1.0]), "x_global has nan at row 0, column 0"),
        (lambda c: c.observe(np.ones((1, 3)), ONE, [1.0]), "1 rows of 3 features, .* 1 features"),
        (lambda c: c.predict(np.ones((2, 1)), ONE), "2 rows of 1 features, x_local has 1 rows"),
        (lambda c: c.predict(ONE, np.ones((1, 3))), "client 0 could not predict"),
    ],
)
def test_bad_rows_change_nothing(act, message):
    learner = LinearLearner(Rule(), 1)
    client = LearnerClient(Rule(), 1, learner)
    with pytest.raises(ValueError, match=message):
        act(client)
    assert client.flush() is None
    assert not learner.model.weights.any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RiverLearner(3), "3 has no predict_one: give a regressor of river"),
        (lambda: SklearnLearner(tree), "has no predict: give a regressor of scikit-learn"),
        (lambda: VowpalLearner("--nonsense"), "does not take '--nonsense': unrecognised option"),
        (lambda: VowpalLearner("--oaa 3"), "--oaa 3 .*does not learn from simple labels"),
        (lambda: LearnerClient(Rule(alignment="aligned"), 1, LINEAR), "use 'late', or 'arrival'"),
        (
            lambda: LearnerClient(Rule(loss=LOGISTIC), 1, SklearnLearner(SGDRegressor())),
            r"SklearnLearner\(SGDRegressor\) of client 0 learns the squared loss, the federation "
            "the logistic",
        ),
        (lambda: LearnerClient(Rule(loss=LOGISTIC), 1, VowpalLearner()), "the squared loss"),
    ],
)
def test_wrong_makings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("learners", "options", "message"),
    [
        ({0: LINEAR}, {}, "there is no learner for client 1"),
        (dict.fromkeys(range(3), LINEAR), {}, "clients 0 and 1 have one learner between them"),
        (dict.fromkeys(range(4), LINEAR), {}, "names client 3, who is not there"),
        ({}, {"rounds": 0}, "rounds must be at least 1, not 0"),
    ],
)
def test_wrong_plays(learners, options, message):
    with pytest.raises(ValueError, match=message):
        play(random_federation(0), learners, **options)


def test_importing_learners_imports_no_other_library():
    heavy = ("river", "sklearn", "vowpalwabbit", "numba", "pandas")
    found = f"import sys, fedres.learners; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_both_halves_of_the_example_gain(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "examples")
    found = import_module("hoeffding_trees").main(seeds=2, clients=6, rows=150)
    for loss in found.values():
        together = loss["both, mixed"]
        assert (together < loss["local models alone"]).all()
        assert (together < loss["global model alone"]).all()
    assert "gain over local models alone" in capsys.readouterr().out


def test_the_page_runs():
    page = doctest.testfile(str(ROOT / "docs" / "learners.md"), module_relative=False)
    assert page.attempted > 0
    assert page.failed == 0

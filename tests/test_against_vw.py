"""Vowpal Wabbit is the outside judge of the adaptive step."""

import numpy as np
import pytest
from vowpalwabbit import Workspace

import fedres

ROUNDS = 500
CLOSE = 1e-4


class Vw:
    """One VW learner that says what it predicts before it learns."""

    def __init__(self, eta, options=""):
        self.vw = Workspace(f"--adaptive -l {eta} --quiet {options}")

    def example(self, x, y=None, initial=0.0):
        label = "" if y is None else f"{y:g} 1 {initial:.9g}"
        return self.vw.example(
            f"{label} | " + " ".join(f"{j}:{v:.9g}" for j, v in enumerate(x) if v)
        )

    def predict(self, x, y=None, initial=0.0):
        """The clipped prediction, and the sum before clipping."""
        example = self.example(x, y, initial)
        prediction = self.vw.predict(example)
        raw = example.get_partial_prediction()
        self.vw.finish_example(example)
        return prediction, raw

    def learn(self, x, y, initial=0.0):
        example = self.example(x, y, initial)
        self.vw.learn(example)
        self.vw.finish_example(example)


def digits_with(labels, clients=3):
    """Digits, no row twice. (Rows learned by heart have errors near zero, and large steps make
    chaos of rounding: there, no two programs agree for long.)
    """
    data = fedres.load_data("digits")
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(data.y))[: ROUNDS * clients]
    columns = rng.permutation(data.x.shape[1])
    xg, xl = data.x[rows][:, columns[:32]], data.x[rows][:, columns[32:]]
    y = np.where(data.y[rows] > 4, labels[1], labels[0]).astype(np.float32)
    federation = fedres.Federation.from_arrays(xg, xl, y, np.arange(len(y)) % clients)

    def sample(i, t):
        k = t * clients + i
        return xg[k], xl[k], y[k]

    return federation, sample, clients


def ours(federation, method, eta, **options):
    return fedres.simulate(
        federation, method, rounds=ROUNDS, step=fedres.Adaptive(eta), shuffle=False, **options
    ).predictions


LABELS = pytest.mark.parametrize("labels", [(-1, 1), (0, 1)])
ETAS = pytest.mark.parametrize("eta", [0.1, 0.3, 0.5])


@LABELS
@ETAS
def test_independent_is_one_vw_a_client(eta, labels):
    federation, sample, clients = digits_with(labels)
    predictions = ours(federation, "independent", eta)
    for i in range(clients):
        vw = Vw(eta)
        for t in range(ROUNDS):
            xg, xl, y = sample(i, t)
            x = np.concatenate([xg, xl])
            assert vw.predict(x)[0] == pytest.approx(predictions[i, t], abs=CLOSE)
            vw.learn(x, y)


@LABELS
@ETAS
def test_central_is_one_vw_over_all_clients_in_turn(eta, labels):
    federation, sample, clients = digits_with(labels)
    predictions = ours(federation, "central", eta)
    vw = Vw(eta)
    for t in range(ROUNDS):
        samples = [sample(i, t) for i in range(clients)]
        theirs = [vw.predict(xg)[0] for xg, _, _ in samples]
        np.testing.assert_allclose(predictions[:, t], theirs, rtol=0, atol=CLOSE)
        for xg, _, y in samples:
            vw.learn(xg, y)


@LABELS
@ETAS
def test_fedres_is_vws_wired_by_initial_labels(eta, labels):
    federation, sample, clients = digits_with(labels)
    predictions = ours(federation, "fedres", eta, alignment="arrival")
    server, locals_ = Vw(eta), [Vw(eta) for _ in range(clients)]
    for t in range(ROUNDS):
        samples = [sample(i, t) for i in range(clients)]
        uploads = []
        for i, (xg, xl, y) in enumerate(samples):
            seen = server.predict(xg)[1]
            joint, raw = locals_[i].predict(xl, y, initial=seen)
            assert joint == pytest.approx(predictions[i, t], abs=CLOSE)
            locals_[i].learn(xl, y, initial=seen)
            uploads.append((xg, y, raw - seen))
        for xg, y, residual in uploads:
            server.learn(xg, y, initial=residual)


def test_logistic_loss_is_vws_too():
    federation, sample, _ = digits_with((-1, 1), clients=2)
    predictions = ours(federation, "independent", 0.5, loss="logistic")
    vw = Vw(0.5, "--loss_function logistic")
    for t in range(ROUNDS):
        xg, xl, y = sample(0, t)
        x = np.concatenate([xg, xl])
        assert vw.predict(x)[0] == pytest.approx(predictions[0, t], rel=CLOSE, abs=CLOSE)
        vw.learn(x, y)


def test_client_weight_is_vws_importance():
    federation, sample, _ = digits_with((-1, 1), clients=2)
    predictions = ours(federation, "independent", 0.5, client_weight=[3.0, 1.0])
    vw = Vw(0.5)
    for t in range(ROUNDS):
        xg, xl, y = sample(0, t)
        x = np.concatenate([xg, xl])
        assert vw.predict(x)[0] == pytest.approx(predictions[0, t], abs=CLOSE)
        example = vw.vw.example(
            f"{y:g} 3 | " + " ".join(f"{j}:{v:.9g}" for j, v in enumerate(x) if v)
        )
        vw.vw.learn(example)
        vw.vw.finish_example(example)


@pytest.mark.needs_data
@pytest.mark.parametrize("delay", [0, 20, 200])
@pytest.mark.parametrize(("name", "eta"), [("letter", 0.5), ("usps", 0.02)])
def test_late_is_vws_that_get_their_examples_late(name, eta, delay):
    """VW learns at its newest weights, so only examples can be late.

    A second server, fed `down` rounds after the first, is the global model that clients hold.
    (Steps of 0.5 along 256 pixels overshoot, and then double every rounding error.)
    """
    data, clients = fedres.load_data(name), 2
    rows = np.random.default_rng(0).permutation(len(data.y))[: ROUNDS * clients]
    half = data.x.shape[1] // 2
    x = np.asarray(data.x[rows].toarray() if hasattr(data.x, "toarray") else data.x[rows])
    y = np.where(data.y[rows] > np.median(data.y), 1, -1).astype(np.float32)
    federation = fedres.Federation.from_arrays(
        x[:, :half], x[:, half:], y, np.arange(len(y)) % clients
    )
    up, down = delay - delay // 2, delay // 2
    lag = fedres.Delay(up=up, down=down)
    predictions = ours(federation, "fedres", eta, alignment="late", delay=lag)

    server, held = Vw(eta), Vw(eta)
    locals_ = [Vw(eta) for _ in range(clients)]
    sent, served = [], []

    def sample(i, t):
        k = t * clients + i
        return x[k, :half], x[k, half:], y[k]

    for t in range(ROUNDS):
        for message in served[t - 1 - down] if t > down else []:
            held.learn(*message)
        sent.append([])
        for i, vw in enumerate(locals_):
            if (due := t - up - down - 1) >= 0:
                xg, xl, label = sample(i, due)
                vw.learn(xl, label, initial=held.predict(xg)[1])
            xg, xl, label = sample(i, t)
            seen = held.predict(xg)[1]
            joint, raw = vw.predict(xl, label, initial=seen)
            assert joint == pytest.approx(predictions[i, t], abs=CLOSE)
            sent[t].append((xg, label, raw - seen))
        served.append(sent[t - up] if t >= up else [])
        for message in served[t]:
            server.learn(*message)

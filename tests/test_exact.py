"""Tiny runs worked out by hand."""

import numpy as np
import pytest

import fedres
from fedres.core.parties import Client, Server
from fedres.core.rule import Rule

ONE = np.float32([[1.0]])


def constant_federation(clients=1, rows=4, y=1.0):
    n = clients * rows
    return fedres.Federation.from_arrays(
        np.ones((n, 1)), np.ones((n, 1)), np.full(n, y), np.repeat(np.arange(clients), rows)
    )


def run(**options):
    options = {"rounds": 4, "step": fedres.Sgd(0.125), "constant": False} | options
    return fedres.simulate(constant_federation(options.pop("clients", 1)), **options)


def test_sgd_without_delay():
    # p = wg + wl; both move by 0.125 * 2 * (1 - p): the error halves each round
    np.testing.assert_allclose(run().predictions[0], [0, 0.5, 0.75, 0.875])


def test_sgd_sums_the_gradients_of_clients():
    # wg moves by both clients' gradients: 0.25 e each; wl by one: error falls to 1/4
    np.testing.assert_allclose(run(clients=2).predictions, [[0, 0.75, 0.9375, 0.984375]] * 2)


@pytest.mark.parametrize(
    ("alignment", "expected"),
    [
        # round 2 sees nothing of round 1: the server has it at the end of round 2; both apply
        # the gradients of rounds 1, 2, 3 before rounds 3, 4, 5
        ("aligned", [0, 0, 0.5, 1.0, 1.25]),
        # the client does not wait: with e the error, wl has 0.25 e of all rounds before, wg of all
        # but the last; p = 0, 1/4, 1/4 + 3/16 + 1/4, ...
        ("asymmetric", [0, 1 / 4, 11 / 16, 61 / 64, 267 / 256]),
        # the server's error is that of its newest model with the residual of a round ago:
        # wg = 0, 0, 1/4, 3/8, 27/64 and wl = 0, 1/4, 7/16, 33/64, 139/256
        ("arrival", [0, 1 / 4, 11 / 16, 57 / 64, 247 / 256]),
        # the server likewise; the client learns the examples of rounds 1, 2, 3 before rounds 3, 4,
        # 5, at the pair it holds then: wg = 0, 0, 1/4, 7/16, 17/32 and wl = 0, 0, 3/16, 9/32, 21/64
        ("late", [0, 0, 7 / 16, 23 / 32, 55 / 64]),
    ],
)
def test_sgd_with_delay(alignment, expected):
    delayed = run(alignment=alignment, delay=fedres.Delay(up=1), rounds=5)
    np.testing.assert_allclose(delayed.predictions[0], expected, atol=1e-6)


def test_downlink_delay_shows_an_old_global_model():
    # the global model alone: w1 = 0.25, and it is seen one round late
    federation = fedres.Federation.from_arrays(np.ones((4, 1)), None, np.ones(4), np.zeros(4))
    down = fedres.simulate(
        federation, rounds=4, step=fedres.Sgd(0.125), constant=False, delay=fedres.Delay(down=1)
    )
    # arrival: the server itself is never late, so it moves as without delay
    np.testing.assert_allclose(down.predictions[0], [0, 0, 0.25, 0.4375])


def test_adaptive_first_step_is_eta_and_then_shrinks():
    # slope -2: G = 4, w += eta on each side; p = 2 eta; slope 2(0.2-1) = -1.6: G = 6.56
    predictions = run(step=fedres.Adaptive(0.1), rounds=3).predictions[0]
    second = 0.2 + 2 * 0.1 * 1.6 / np.sqrt(4 + 1.6**2)
    np.testing.assert_allclose(predictions, [0, 0.2, second], rtol=1e-6)


def test_adaptive_clips_to_labels_seen():
    predictions = run(step=fedres.Adaptive(5.0), rounds=3).predictions[0]
    # w jumps to 5 + 5, is clipped to 1, and with no error stays
    np.testing.assert_array_equal(predictions, [0, 1, 1])


def test_logistic_step():
    predictions = run(loss="logistic", step=fedres.Sgd(1.0), rounds=2).predictions[0]
    np.testing.assert_allclose(predictions, [0, 2 * 0.5])


def test_batch_steps_on_the_mean():
    predictions = run(batch=2, rounds=4).predictions[0]
    np.testing.assert_allclose(predictions, [0, 0, 0.5, 0.5])


def test_delays_are_rounded_up_to_batches():
    two = run(batch=2, delay=fedres.Delay(up=2), rounds=8, alignment="aligned")
    one = run(batch=2, delay=fedres.Delay(up=1), rounds=8, alignment="aligned")
    np.testing.assert_array_equal(two.predictions, one.predictions)


def test_objects_by_hand():
    rule = Rule(step=fedres.Sgd(0.125), constant=False)
    client, server = Client(rule, 1, 1), Server(rule, 1)
    for expected in (0, 0.5, 0.75):
        assert client.predict(ONE, ONE)[0] == pytest.approx(expected)
        server.apply(client.observe(ONE, ONE, np.float32([1.0])))
        client.refresh(server.publish())


def test_predict_learns_nothing():
    rule, none, one = Rule(step=fedres.Sgd(0.125)), np.empty((1, 0), np.float32), np.float32([1.0])
    for learner, x in (
        (Client(rule, 1, 1), (ONE, ONE)),
        (Client(rule, 1, 0), (ONE, none)),  # as in Central
        (Client(rule, 0, 1), (none, ONE)),  # as in Independent
    ):
        learner.observe(*x, one)
        expected = 0 if x[-1] is none else 0.5  # the weight and the constant, 0.25 each
        for _ in range(3):
            assert learner.predict(*x) == expected


def test_an_older_global_model_does_not_replace_a_newer():
    rule = Rule(step=fedres.Sgd(0.125))
    client, server = Client(rule, 1, 1), Server(rule, 1)
    server.apply(client.observe(ONE, ONE, np.float32([1.0])))
    first, second = server.publish(), server.publish()
    client.refresh(second)
    client.refresh(first)
    assert client.version == 2


def test_a_batch_begun_is_finished_with_its_model():
    rule = Rule(step=fedres.Sgd(0.125), batch=2)
    client, server = Client(rule, 1, 1), Server(rule, 1)
    assert client.observe(ONE, ONE, np.float32([1.0])) is None
    client.refresh(server.publish())
    assert client.version == 0
    assert client.observe(ONE, ONE, np.float32([1.0])).version == 0
    assert client.version == 1


def test_a_version_no_longer_kept_is_refused():
    rule = Rule(step=fedres.Sgd(0.125), alignment="aligned")
    client, server = Client(rule, 1, 1), Server(rule, 1, history=2)
    upload = client.observe(ONE, ONE, np.float32([1.0]))
    for _ in range(4):
        server.publish()
    with pytest.raises(ValueError, match="predicted with global model 0"):
        server.apply(upload)


@pytest.mark.parametrize("alignment", ["aligned", "late"])
def test_a_client_that_waits_may_miss_versions_and_hear_of_one_twice(alignment):
    rule = Rule(step=fedres.Sgd(0.125), alignment=alignment, constant=False)
    twins = [(Client(rule, 1, 1), Server(rule, 1)) for _ in range(2)]
    for turn in range(6):
        published = []
        for client, server in twins:
            server.apply(client.observe(ONE, ONE, np.float32([1.0])))
            published.append([server.publish(), server.publish()])
        for model in published[0]:  # hears of everything, and twice
            twins[0][0].refresh(model)
            twins[0][0].refresh(model)
        if turn % 2:  # fetches only the newest, now and then
            twins[1][0].refresh(published[1][1])
    waiting = [client._waiting for client, _ in twins]
    assert waiting == [{}, {}]
    assert twins[1][0].local.weights[0] > 0

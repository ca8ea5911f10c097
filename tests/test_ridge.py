"""Second-order FedRes: exact, whatever is late, with and without the compiler and as messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fedres.bandits import (
    BanditClient,
    BanditServer,
    Event,
    Greedy,
    LinUCB,
    Thompson,
    simulate_bandit,
)
from fedres.bandits.targets import ReplayLearner
from fedres.core.messages import Upload
from fedres.core.ridge import Ridge
from fedres.core.ridge_parties import RidgeClient, RidgeServer
from test_bandit_simulator import choices, methods, options, play, small_world

CLIENTS = 3
ONE_BLOCK = ("catalogue", "catalogue, sparse", "replay", "replay, sparse")
steps = st.builds(Ridge, st.sampled_from([0.3, 1.0, 5.0]), st.booleans())
hopeful = st.sampled_from([(LinUCB(0.5), "all"), (Thompson(0.3), "all")])


def samples(rng, widths, count):
    """Rows of both views, rewards, and whose they are."""
    x = [rng.normal(size=(count, width)).astype(np.float32) for width in widths]
    return *x, rng.normal(size=count).astype(np.float32), rng.integers(CLIENTS, size=count)


def joint_fit(x_global, x_local, y, owner, penalty, penalty_local, constant=True):
    """The inverse of the normal equations of all models, and their solution."""
    ones = np.ones((len(y), int(constant)))
    left = np.hstack([x_global, ones]) if x_global.shape[1] else x_global
    right = np.hstack([x_local, ones]) if x_local.shape[1] else x_local
    own = [right * (owner == i)[:, None] for i in range(CLIENTS)]
    x = np.hstack([left, *own]).astype(float)
    penalties = np.full(x.shape[1], penalty_local)
    penalties[: left.shape[1]] = penalty
    inverse = np.linalg.inv(np.diag(penalties) + x.T @ x)
    return inverse, inverse @ x.T @ y, left.shape[1], right.shape[1]


@given(
    st.integers(0, 1000),
    st.sampled_from([(3, 2), (2, 4), (0, 3), (3, 0), (1, 1)]),
    st.sampled_from([0.5, 2.0]),
    st.sampled_from([0.5, 20.0]),
    st.randoms(use_true_random=False),
)
def test_whatever_is_late_it_is_the_joint_fit(seed, widths, penalty, penalty_local, order):
    rng = np.random.default_rng(seed)
    x_global, x_local, y, owner = samples(rng, widths, 40)
    clients = [RidgeClient(Ridge(penalty_local), *widths, i) for i in range(CLIENTS)]
    server, under_way = RidgeServer(Ridge(penalty), widths[0]), []
    for row, client in enumerate(owner):
        one = slice(row, row + 1)
        under_way.append(clients[client].observe(x_global[one], x_local[one], y[one]))
        if order.random() < 0.3:  # some arrive, in any order, and someone hears of it
            server.apply(under_way.pop(order.randrange(len(under_way))))
            clients[order.randrange(CLIENTS)].refresh(server.publish())
    for upload in order.sample(under_way, len(under_way)):
        server.apply(upload)
    last = server.publish()
    inverse, weights, size, own = joint_fit(x_global, x_local, y, owner, penalty, penalty_local)
    np.testing.assert_allclose(server.global_.weights, weights[:size], atol=2e-5)
    rows = samples(rng, widths, 5)[:2]
    for i, client in enumerate(clients):
        client.refresh(last)
        begin = size + i * own
        np.testing.assert_allclose(client.local.weights, weights[begin : begin + own], atol=2e-5)
        ones = [np.pad(x, ((0, 0), (0, 1)), constant_values=1) for x in rows]
        both = np.zeros((5, len(weights)))
        both[:, :size], both[:, begin : begin + own] = ones[0][:, :size], ones[1][:, :own]
        variance = ((both @ inverse) * both).sum(axis=1)
        np.testing.assert_allclose(client.errors(*rows), np.sqrt(variance), rtol=1e-4)
        np.testing.assert_allclose(client.predict(*rows), both @ weights, atol=1e-4)


@given(
    st.sampled_from([*ONE_BLOCK, "classes", "classes, halves", "classes, sparse"]),
    hopeful | choices,
    methods,
    options,
    steps,
    st.booleans(),
)
def test_the_compiler_changes_no_bit(kind, choice, method, options, step, constant):
    world, (policy, learn_from) = small_world(kind, options["seed"]), choice
    options = options | {"step": step, "constant": constant and world.blocks == 1}
    with_, without = (
        simulate_bandit(
            world, policy, method, **options, learn_from=learn_from, rounds=10,
            keep_decisions=True, compiled=compiled,
        )
        for compiled in (True, False)
    )  # fmt: skip
    for name in ("actions", "rewards", "probabilities", "w_global", "w_local", "mean_by_round"):
        np.testing.assert_array_equal(getattr(with_, name), getattr(without, name), name)


@given(st.sampled_from(ONE_BLOCK), hopeful | choices, methods, options, steps)
def test_the_simulator_equals_clients_and_server(kind, choice, method, options, step):
    world, (policy, learn_from) = small_world(kind, options["seed"]), choice
    options = options | {"rounds": 12, "learn_from": learn_from, "step": step}
    run = simulate_bandit(world, policy, method, **options, constant=True, keep_decisions=True)
    actions, rewards, w_global, _ = play(world, policy, method, **options)
    np.testing.assert_array_equal(run.actions, actions)
    np.testing.assert_array_equal(run.rewards, rewards)
    np.testing.assert_array_equal(run.w_global, w_global)


@given(st.sampled_from(["catalogue", "replay, sparse", "classes", "classes, halves"]), hopeful)
def test_a_run_ends_with_the_joint_fit_to_its_own_decisions(kind, choice):
    """Of classes as well, of each of which the simulator keeps a covariance of its own."""
    world = small_world(kind, 5)
    run = simulate_bandit(
        world, choice[0], rounds=15, step=Ridge(2.0), local_step=Ridge(3.0), keep_decisions=True
    )
    made = [(i, n) for i in range(CLIENTS) for n in range(15)]
    rows = [[], []]
    for i, n in made:
        offer = world.actions(0, i, n + 1)
        for view, table in zip(rows, world.tables("fedres"), strict=True):
            x = world.contexts(offer, table)[[run.actions[i, n]]]
            view.append((x.toarray() if hasattr(x, "toarray") else x)[0])
    owner = np.array([i for i, _ in made])
    y = np.array([run.rewards[i, n] for i, n in made])
    _, weights, size, own = joint_fit(*map(np.array, rows), y, owner, 2.0, 3.0, constant=False)
    np.testing.assert_allclose(run.w_global, weights[:size], atol=2e-5)
    np.testing.assert_allclose(run.w_local, weights[size:].reshape(CLIENTS, own), atol=2e-5)


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=2),
    st.lists(st.floats(0.05, 1), min_size=2, max_size=2),
)
def test_of_two_actions_thompson_takes_each_as_often_as_it_is_better(scores, errors):
    found = Thompson(0.7).probabilities(scores, 1, errors)
    better = norm.cdf((scores[0] - scores[1]) / (0.7 * np.hypot(*errors)))
    np.testing.assert_allclose(found, [better, 1 - better], atol=0.02)


def test_thompson_takes_actions_as_often_as_they_are_best():
    rng = np.random.default_rng(0)
    scores, errors = rng.normal(size=6), rng.uniform(0.2, 2.0, 6)
    best = (scores + 0.5 * errors * rng.normal(size=(200_000, 6))).argmax(axis=1)
    often = np.bincount(best, minlength=6) / len(best)
    np.testing.assert_allclose(Thompson(0.5).probabilities(scores, 1, errors), often, atol=0.01)


@pytest.mark.parametrize("policy", [LinUCB(0.0), Thompson(0.0)])
def test_without_doubt_all_is_greedy(policy):
    scores = [0.3, 0.7, 0.7]
    expected = Greedy().probabilities(scores, 1)
    np.testing.assert_array_equal(policy.probabilities(scores, 1, [1.0, 2.0, 3.0]), expected)


def test_linucb_prefers_what_may_be_best_and_learns_that_it_is_not():
    client = BanditClient(LinUCB(1.0), 0, features_global=2, step=Ridge(), seed=0)
    server = BanditServer(2, step=Ridge())
    actions = np.eye(2)
    taken = []
    for _ in range(50):
        decision = client.choose(actions)
        taken.append(decision.action)
        client.reward(decision.id, [0.2, 0.9][decision.action])
        client.confirm(server.apply(client.uploads()))
        client.refresh(server.publish())
    assert 0 < taken.count(0) < 15
    assert taken[-1] == 1


def test_a_replayed_log_teaches_what_is_not_known():
    learner, x = ReplayLearner(LinUCB(0.5), "fedres", Ridge()), np.eye(2, dtype=np.float32)
    for turn in range(1, 9):  # the log only ever takes the first action, which pays a little
        chances = learner(Event(0, turn, x, x, 0, np.array([0.5, 0.5]), 0.1))
    np.testing.assert_array_equal(chances, [0.0, 1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Ridge(0.0), "penalty must be a positive number, not 0.0"),
        (lambda: LinUCB(-1.0), "alpha must be a number from 0 up, not -1.0"),
        (lambda: Thompson(np.inf), "scale must be a number from 0 up, not inf"),
        (lambda: LinUCB().probabilities([1.0], 1), "needs the standard errors of scores"),
        (lambda: LinUCB().probabilities([1.0], 1, [-1.0]), "1 numbers from 0 up"),
        (lambda: BanditClient(LinUCB(), 2), "needs the standard errors of scores: give step="),
        (lambda: RidgeClient(Ridge(), 3000, 2), "3000 features have 9,000,000 covariances"),
        (
            lambda: RidgeServer(Ridge(), 3).apply(
                Upload(7, 0, 0, np.ones((1, 3), np.float32), *np.ones((2, 1), np.float32))
            ),
            "client 7 sent 2 global features, this server was made for 3",
        ),
        (lambda: run(step=Ridge(), local_step=Ridge(diagonal=True)), "do not go together"),
        (lambda: run(step=Ridge(), alignment="late"), "are for steps, not Ridge"),
        (lambda: run(step=Ridge(), radius=1.0), "are for steps, not Ridge"),
        (lambda: run("classes", step=Ridge(), constant=True), "ties the weights of all classes"),
        (lambda: run(policy=Thompson()), "needs the standard errors of scores: give step="),
    ],
)
def test_what_cannot_be_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def run(kind="catalogue", policy=None, **options):
    return simulate_bandit(small_world(kind, 0), policy or Greedy(), rounds=2, **options)

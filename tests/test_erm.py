"""FedRes.ERM and fictitious play."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import fedres
from conftest import random_federation
from fedres.core.compiled import compiled
from fedres.core.losses import LOGISTIC
from fedres.core.solvers import least_squares_in_ball, minimise_in_ball
from fedres.core.views import whole
from fedres.simulation.dealing import shuffle_rows

METHODS = ["fedres-erm", "fictitious-play"]


def same(a, b):
    """Bit for bit."""
    np.testing.assert_array_equal(a.predictions, b.predictions)
    np.testing.assert_array_equal(a.w_global, b.w_global)
    for mine, theirs in zip(a.w_local, b.w_local, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(a.test_predictions, b.test_predictions)


lags = st.one_of(st.integers(0, 3), st.just(fedres.Uniform(0, 3)))


@given(
    method=st.sampled_from(METHODS),
    options=st.fixed_dictionaries(
        {
            "rounds": st.one_of(st.none(), st.integers(1, 20)),
            "delay": st.builds(fedres.Delay, up=lags, down=lags),
            "batch": st.integers(1, 3),
            "radius": st.sampled_from([None, 0.5]),
            "ridge": st.sampled_from([0.0, 0.01, 1.0]),
            "solve_every": st.integers(1, 3),
            "client_weight": st.sampled_from([None, "T/N", [0.5, 1.0, 2.0]]),
            "constant": st.booleans(),
            "residual_bits": st.sampled_from([3, 32]),
            "shuffle": st.booleans(),
            "seed": st.integers(0, 1000),
        }
    ),
    sparse=st.booleans(),
)
def test_reference_equals_simulation(method, options, sparse):
    federation = random_federation(options["seed"], sparse=sparse)
    if method == "fedres-erm":
        del options["residual_bits"]  # it sends none
    fast = fedres.simulate(federation, method, **options)
    plain = fedres.simulate(federation, method, **options, compiled=False)
    same(fast, plain)
    assert (fast.bytes_up, fast.bytes_down) == (plain.bytes_up, plain.bytes_down)


@pytest.mark.parametrize("method", METHODS)
def test_initial_weights_and_the_path(method):
    federation = random_federation(3)
    options = {"rounds": 12, "initial_global": [1.0, 0.0, 2.0], "keep_path": True, "ridge": 0.1}
    options["initial_local"] = [[1.0, 2.0], [0.0, 1.0], [3.0, 3.0]]
    fast, plain = (
        fedres.simulate(federation, method, **options, compiled=c) for c in (True, False)
    )
    same(fast, plain)
    np.testing.assert_array_equal(fast.global_path, plain.global_path)
    np.testing.assert_array_equal(fast.global_path[0], [1.0, 0.0, 2.0, 0.0])
    train = federation.train
    first = train.row_start[0] + _first_row(federation)
    expected = whole(train.x_global)[first] @ [1, 0, 2] + whole(train.x_local)[first] @ [1, 2]
    assert fast.predictions[0, 0] == pytest.approx(expected, abs=1e-5)


def _first_row(federation):
    order = np.arange(federation.train.counts[0], dtype=np.int32)
    with np.errstate(over="ignore"):
        shuffle_rows(order, 0, len(order), 0, 0, 0)
    return order[0]


@pytest.mark.parametrize("method", ["independent", "central", "fedres"])
def test_initial_weights_of_sgd(method):
    federation = random_federation(4)
    options = {"rounds": 15, "step": fedres.Sgd(0.02), "keep_path": True}
    options["delay"] = 0 if method == "independent" else 2
    width = {"independent": 5, "central": 0, "fedres": 2}[method]
    if method != "independent":
        options["initial_global"] = [0.5, -0.5, 1.0, 0.25]
    if width:
        options["initial_local"] = np.linspace(-1, 1, width)
    fast, plain = (
        fedres.simulate(federation, method, **options, compiled=c) for c in (True, False)
    )
    same(fast, plain)
    if method != "independent":
        np.testing.assert_array_equal(fast.global_path, plain.global_path)


def two_samples():
    """x^g = x^l = 1 and labels 1, then 3: one client, no constant."""
    return fedres.Federation.from_arrays(np.ones((2, 1)), np.ones((2, 1)), [1.0, 3.0], [0, 0])


def test_erm_by_hand():
    run = fedres.simulate(two_samples(), "fedres-erm", rounds=3, shuffle=False, constant=False)
    # Round 1: (0, 0). The server fits y = 1 given w = 0: G_1 = 1.
    # Round 2: the client fits 1 - G_1: w = 0, predicts 1. The server fits the mean of (1, 3): 2.
    # Round 3: the client fits the mean of (1 - 2, 3 - 2): 0, predicts 2.
    np.testing.assert_allclose(run.predictions[0], [0, 1, 2], atol=1e-6)


def test_fictitious_play_by_hand():
    run = fedres.simulate(two_samples(), "fictitious-play", rounds=3, shuffle=False, constant=False)
    # Round 1: (0, 0). Both fit the same error: G = w = 1. Round 2 predicts 2, and y = 3.
    # The client remembers seeing 0, then 1: mean of (1, 2). So does the server: 1.5 each, so 3.
    np.testing.assert_allclose(run.predictions[0], [0, 2, 3], atol=1e-6)


@given(st.integers(0, 999), st.integers(1, 6), st.integers(1, 8), st.sampled_from([0.1, 1.0, 9.0]))
def test_the_ball_is_solved_exactly(seed, d, rows, radius):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(rows, d)), rng.normal(size=rows)
    A, r = x.T @ x, x.T @ y
    w = least_squares_in_ball(A, r, radius)
    np.testing.assert_array_equal(compiled(least_squares_in_ball, allocates=True)(A, r, radius), w)
    assert np.linalg.norm(w) <= radius * (1 + 1e-9)
    gradient = r - A @ w  # at the optimum it is mu w with mu >= 0, and 0 inside
    free = least_squares_in_ball(A, r)
    np.testing.assert_allclose(free, np.linalg.pinv(x) @ y, atol=1e-6)  # minimum norm
    if np.linalg.norm(free) <= radius:
        np.testing.assert_allclose(w, free)
    else:
        mu = gradient @ w / (w @ w)
        assert mu >= 0
        np.testing.assert_allclose(gradient, mu * w, atol=1e-7 * max(1, np.abs(r).max()))
        assert np.linalg.norm(w) == pytest.approx(radius)


@given(st.integers(0, 999), st.sampled_from([np.inf, 0.5, 5.0]), st.sampled_from([0.01, 1.0]))
def test_other_losses_are_minimised_in_the_ball(seed, radius, ridge):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(20, 3)), np.sign(rng.normal(size=20))
    offset = rng.normal(size=20)
    w = minimise_in_ball(
        LOGISTIC, x, y, offset, np.ones(20), radius=radius, ridge=ridge, start=np.zeros(3)
    )

    def value(w):
        return LOGISTIC.value(x @ w + offset, y).sum() + ridge * w @ w

    bound = [] if radius == np.inf else [
        {"type": "ineq", "fun": lambda w: radius**2 - w @ w, "jac": lambda w: -2 * w}
    ]  # fmt: skip
    other = minimize(value, np.zeros(3), method="SLSQP", constraints=bound, options={"ftol": 1e-13})
    assert value(w) <= other.fun + 1e-6
    assert np.linalg.norm(w) <= radius * (1 + 1e-9)


def test_without_delay_erm_reaches_the_joint_optimum():
    """Alternating minimisation over fixed samples: the gap to a joint solve vanishes."""
    rng = np.random.default_rng(0)
    clients, rows = 4, 30
    owner = np.repeat(np.arange(clients), rows)
    x, z = rng.normal(size=(clients * rows, 3)), rng.normal(size=(clients * rows, 2))
    z[:, 0] += x[:, 0]  # correlated, so that one pass does not suffice
    y = rng.normal(size=clients * rows)
    federation = fedres.Federation.from_arrays(x, z, y, owner)
    ridge = 0.0
    run = fedres.simulate(federation, "fedres-erm", rounds=rows * 200, ridge=ridge)
    # By then every row has been seen 200 times: the run's argmins are those of the fixed set.
    stacked = np.zeros((clients * rows, 4 + 3 * clients))
    stacked[:, :4] = np.hstack([x, np.ones((len(x), 1))])
    for i in range(clients):
        mine = owner == i
        stacked[mine, 4 + 3 * i : 7 + 3 * i] = np.hstack([z[mine], np.ones((rows, 1))])
    best = np.linalg.lstsq(stacked, y, rcond=None)
    optimum = ((stacked @ best[0] - y) ** 2).sum()
    joint = stacked[:, :4] @ run.w_global.astype(float)
    for i in range(clients):
        mine = owner == i
        joint[mine] += stacked[mine, 4 + 3 * i : 7 + 3 * i] @ run.w_local[i].astype(float)
    reached = ((joint - y) ** 2).sum()
    assert reached / optimum - 1 < 1e-6


def test_logistic_erm_reaches_the_joint_optimum():
    federation = random_federation(5, labels="signs", rows=14)
    ridge, passes, train = 0.1, 20, federation.train
    run = fedres.simulate(
        federation, "fedres-erm", passes=passes, loss="logistic", ridge=ridge, solve_every=4,
        constant=False,
    )  # fmt: skip
    owner = np.repeat(np.arange(3), train.counts)
    stacked = np.zeros((len(owner), 3 + 2 * 3))
    stacked[:, :3] = whole(train.x_global)
    for i in range(3):
        stacked[owner == i, 3 + 2 * i : 5 + 2 * i] = whole(train.x_local)[owner == i]

    def value(w):
        return passes * LOGISTIC.value(stacked @ w, train.y).sum() + ridge * w @ w

    optimum = minimize(value, np.zeros(9), method="BFGS", options={"gtol": 1e-4}).fun
    reached = value(np.concatenate([run.w_global, *run.w_local]).astype(float))
    assert value(np.zeros(9)) > 1.02 * optimum  # there is something to learn
    assert reached / optimum - 1 < 1e-4


def test_erm_pays_more_for_its_messages_than_sgd():
    federation = fedres.federate("digits", clients=5, seed=0)
    sgd, erm, play = (
        fedres.simulate(federation, method, rounds=20) for method in ("fedres", *METHODS)
    )
    samples = 5 * 20
    # the local features and the local model (32 + 1 weights) instead of a residual
    assert erm.bytes_up - sgd.bytes_up == samples * (4 * 32 + 4 * 33 - 4)
    assert play.bytes_up == sgd.bytes_up
    assert erm.bytes_down == sgd.bytes_down


def test_mistakes():
    federation = random_federation(0)
    with pytest.raises(ValueError, match=r"initial_global has shape \(7,\) for a model of 4"):
        fedres.simulate(federation, initial_global=np.ones(7))
    with pytest.raises(ValueError, match="initial_local must be finite"):
        fedres.simulate(federation, initial_local=[np.nan, 1.0])
    with pytest.raises(ValueError, match="ridge must be a number from 0 up, not -1"):
        fedres.simulate(federation, "fedres-erm", ridge=-1)
    with pytest.raises(ValueError, match="solve_every must be at least 1"):
        fedres.simulate(federation, "fedres-erm", solve_every=0)
    with pytest.raises(ValueError, match="needs global features"):
        fedres.simulate(random_federation(0, width_global=0), "fedres-erm")


@pytest.mark.parametrize(
    ("method", "option"),
    [
        *((method, option) for method in ("fedres", "independent", "central")
          for option in ({"ridge": 0.0}, {"solve_every": 1})),
        *((method, option) for method in METHODS
          for option in ({"step": fedres.Adaptive(0.5)}, {"local_step": fedres.Adaptive(0.5)},
                         {"alignment": "arrival"})),
        ("fedres-erm", {"residual_bits": 32}),
    ],
)  # fmt: skip
def test_an_option_that_a_method_does_not_know_is_refused(method, option):
    name = next(iter(option))
    with pytest.raises(ValueError, match=f"{method} does not know {name}=.*: leave it out, or use"):
        fedres.simulate(random_federation(0), method, rounds=2, **option)


@pytest.mark.parametrize("method", METHODS)
def test_clients_may_differ_in_width_and_have_no_model(method):
    rng = np.random.default_rng(0)
    local = {0: rng.normal(size=(5, 1)), 1: rng.normal(size=(7, 4)), 2: np.empty((3, 0))}
    x, y = rng.normal(size=(15, 2)), rng.normal(size=15)
    federation = fedres.Federation.from_arrays(x, local, y, np.repeat([0, 1, 2], [5, 7, 3]))
    options = {"rounds": 30, "ridge": 0.1}
    if method == "fictitious-play":
        options["residual_bits"] = 2
    fast, plain = (
        fedres.simulate(federation, method, **options, compiled=c) for c in (True, False)
    )
    np.testing.assert_array_equal(fast.predictions, plain.predictions)
    assert [len(w) for w in fast.w_local] == [2, 5, 0]
    # the third predicts by the global model alone, and says nothing of a local one
    alone = fedres.Federation.from_arrays(x[12:], None, y[12:], np.zeros(3))
    bits = {} if method == "fedres-erm" else {"residual_bits": 2}
    third = fedres.simulate(alone, method, rounds=30, ridge=0.1, **bits)
    exact = fedres.simulate(alone, method, rounds=30, ridge=0.1)
    np.testing.assert_array_equal(third.predictions, exact.predictions)
    assert third.bytes_up == exact.bytes_up


@pytest.mark.parametrize("method", METHODS)
def test_other_losses_play_in_the_ball_and_with_delay(method):
    federation = random_federation(6, labels="signs")
    options = {"loss": "logistic", "radius": 0.5, "delay": 3, "batch": 2, "solve_every": 2}
    run = fedres.simulate(federation, method, **options)
    same(run, fedres.simulate(federation, method, **options, compiled=False))
    norms = [np.linalg.norm(w) for w in (run.w_global, *run.w_local)]
    assert max(norms) == pytest.approx(0.5)  # the ball holds back some
    assert min(norms) > 0

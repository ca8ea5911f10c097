"""Losses l(y, y^g, y^l) that are not of the sum of both predictions."""

import numpy as np
import pytest

import fedres
from fedres.core.parties import Client, Server
from fedres.core.rule import Rule

SUM = fedres.PairLoss(
    "sum",
    lambda y, g, own: (g + own - y) ** 2,
    lambda y, g, own: np.float32(2) * (g + own - y),
    lambda y, g, own: np.float32(2) * (g + own - y),
)
APART = fedres.PairLoss(
    "apart",
    lambda y, g, own: (y - g) ** 2 + 3 * (y - own) ** 2,
    lambda y, g, _: 2 * (g - y),
    lambda y, _, own: 6 * (own - y),
)


@pytest.fixture(scope="module")
def federation():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 24, 2)), rng.normal(size=24)
    return fedres.Federation.from_arrays(*x, y, np.arange(24) % 3)


@pytest.mark.parametrize("alignment", ["arrival", "aligned", "asymmetric", "late"])
@pytest.mark.parametrize("step", [fedres.Sgd(0.05), fedres.Adaptive(0.3, clip=False)])
def test_of_the_sum_it_is_the_squared_loss(federation, alignment, step):
    same = {"rounds": 12, "delay": 3, "alignment": alignment, "step": step, "batch": 2}
    one, two = (
        fedres.simulate(federation, loss=loss, compiled=False, **same) for loss in ("squared", SUM)
    )
    assert one.predictions.tobytes() == two.predictions.tobytes()
    assert one.w_global.tobytes() == two.w_global.tobytes()
    np.testing.assert_allclose(one.loss_by_client, two.loss_by_client)


@pytest.mark.parametrize("alignment", ["arrival", "aligned", "asymmetric", "late"])
def test_each_side_steps_along_its_own_slope(federation, alignment):
    """With a loss that parts into two, either side learns as if it were alone."""
    step = fedres.Sgd(0.05)
    run = fedres.simulate(
        federation, rounds=8, loss=APART, step=step, alignment=alignment, constant=False,
        shuffle=False,
    )  # fmt: skip
    train, start = federation.train, federation.train.row_start
    x_global, x_local = (x.reshape(24, 2) for x in (train.x_global.values, train.x_local.values))
    w_global, w_local, suffered = np.zeros(2), np.zeros((3, 2)), []
    for t in range(8):
        gradient = np.zeros(2)
        for i in range(3):
            g, own, y = x_global[start[i] + t], x_local[start[i] + t], train.y[start[i] + t]
            suffered.append(APART.value(y, g @ w_global, own @ w_local[i]))
            gradient += APART.slope_global(y, g @ w_global, 0) * g
            w_local[i] -= 0.05 * APART.slope_local(y, 0, own @ w_local[i]) * own
        w_global -= 0.05 * gradient
    np.testing.assert_allclose(run.w_global, w_global, rtol=1e-4)
    np.testing.assert_allclose(np.array(run.w_local), w_local, rtol=1e-4)
    assert run.loss == pytest.approx(np.mean(suffered), rel=1e-4)


def test_objects_are_the_simulation(federation):
    run = fedres.simulate(federation, rounds=8, loss=APART, shuffle=False)
    rule = Rule(loss=APART)
    server, clients = Server(rule, 2), [Client(rule, 2, 2, i) for i in range(3)]
    train = federation.train
    for t in range(8):
        for i, client in enumerate(clients):
            c = slice(train.row_start[i] + t, train.row_start[i] + t + 1)
            x = (view.values.reshape(24, 2)[c] for view in (train.x_global, train.x_local))
            server.apply(client.observe(*x, train.y[c]))
        model = server.publish()
        for client in clients:
            client.refresh(model)
    assert server.global_.weights.tobytes() == run.w_global.tobytes()


@pytest.mark.parametrize("method", ["fedres-erm", "fictitious-play", "mixture"])
def test_methods_that_need_a_loss_of_the_sum_say_so(federation, method):
    with pytest.raises(ValueError, match=r"'apart' is not one of the sum.*'squared'"):
        fedres.simulate(federation, method, rounds=3, loss=APART)


def test_regret_says_so_too(federation):
    run = fedres.simulate(federation, rounds=3, loss=APART)
    with pytest.raises(ValueError, match="'apart' is not one of the sum"):
        run.regret()

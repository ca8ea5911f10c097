"""What must hold whatever the data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedres
from conftest import random_federation
from fedres.core.views import whole

ALIGNMENTS = ["aligned", "asymmetric", "arrival"]
seeds = st.integers(0, 10_000)
steps = st.sampled_from([fedres.Sgd(0.02), fedres.Adaptive(0.3)])


def same(a, b, atol=1e-5):
    np.testing.assert_allclose(a.predictions, b.predictions, rtol=0, atol=atol)


@given(seeds, steps)
def test_without_delay_the_alignments_agree_for_one_client(seed, step):
    federation = random_federation(seed, clients=1)
    runs = [
        fedres.simulate(federation, rounds=30, step=step, alignment=alignment)
        for alignment in ALIGNMENTS
    ]
    same(runs[0], runs[1])
    same(runs[0], runs[2])


@given(seeds)
def test_without_delay_sgd_is_plain_sgd(seed):
    """One step of joint gradient descent a round, written out."""
    federation = random_federation(seed, clients=3, rows=6)
    run = fedres.simulate(federation, rounds=20, step=fedres.Sgd(0.02), shuffle=False)
    train = federation.train
    xg, xl = whole(train.x_global), whole(train.x_local)
    xg, xl = (np.hstack([x, np.ones((len(x), 1))]) for x in (xg, xl))
    wg, wl = np.zeros(xg.shape[1]), np.zeros((3, xl.shape[1]))
    for t in range(20):
        k = [train.row_start[i] + t % train.counts[i] for i in range(3)]
        p = np.array([xg[k[i]] @ wg + xl[k[i]] @ wl[i] for i in range(3)])
        np.testing.assert_allclose(run.predictions[:, t], p, atol=1e-4)
        slope = 2 * (p - train.y[k])
        wg = wg - 0.02 * sum(slope[i] * xg[k[i]] for i in range(3))
        wl = wl - 0.02 * slope[:, None] * xl[k]


@given(seeds, steps, st.sampled_from(ALIGNMENTS), st.integers(0, 5))
def test_without_global_features_fedres_is_independent(seed, step, alignment, delay):
    federation = random_federation(seed, width_global=0)
    options = {"rounds": 30, "step": step}
    fed = fedres.simulate(federation, "fedres", alignment=alignment, delay=delay, **options)
    alone = fedres.simulate(federation, "independent", **options)
    same(fed, alone)
    assert fed.bytes_up == fed.bytes_down == 0


@given(seeds, steps, st.sampled_from(ALIGNMENTS), st.integers(0, 5), st.integers(1, 3))
def test_without_local_features_fedres_is_central(seed, step, alignment, delay, batch):
    federation = random_federation(seed, width_local=0)
    options = {"rounds": 30, "step": step, "alignment": alignment, "delay": delay, "batch": batch}
    fed = fedres.simulate(federation, "fedres", **options)
    central = fedres.simulate(federation, "central", **options)
    same(fed, central)
    assert fed.bytes_up == central.bytes_up


@given(seeds, steps, st.sampled_from(ALIGNMENTS), st.integers(0, 6), st.integers(0, 6))
def test_random_delay_of_constant_value_is_fixed_delay(seed, step, alignment, up, down):
    federation = random_federation(seed)
    options = {"rounds": 30, "step": step, "alignment": alignment}
    fixed = fedres.simulate(federation, delay=fedres.Delay(up, down), **options)
    drawn = fedres.Delay(fedres.Uniform(up, up), fedres.Uniform(down, down))
    same(fixed, fedres.simulate(federation, delay=drawn, **options), atol=0)
    listed = fedres.Delay([up] * 3, [down] * 3)
    same(fixed, fedres.simulate(federation, delay=listed, **options), atol=0)


def test_a_delay_is_the_same_however_it_is_given():
    given = [fedres.Delay([0, 3, 1], 2), fedres.Delay(np.array([0, 3, 1]), np.int64(2))]
    assert given[0] == given[1] == fedres.Delay((0, 3, 1), 2)
    assert len(set(given)) == 1
    federation = random_federation()
    split, whole_ = (
        fedres.simulate(federation, rounds=20, delay=delay)
        for delay in (fedres.Delay(up=[0, 2, 1], down=[0, 1, 1]), [0, 3, 2])
    )
    same(split, whole_, atol=0)
    assert split.settings.delay == whole_.settings.delay


@given(seeds, st.sampled_from(ALIGNMENTS), st.integers(0, 8))
def test_late_uploads_are_not_lost(seed, alignment, slack):
    """With steps so small that slopes stay -2y, the global model is the sum of what arrived."""
    train = random_federation(seed, labels="signs").train
    x_global, x_local, eta = whole(train.x_global), whole(train.x_local), 1e-8
    # One more client, with nothing to tell, goes on until the uploads of all others are in.
    n = int(train.counts.max()) * (slack + 1)
    federation = fedres.Federation.from_arrays(
        np.vstack([x_global, np.zeros((n, x_global.shape[1]))]),
        np.vstack([x_local, np.zeros((n, x_local.shape[1]))]),
        np.concatenate([train.y, np.ones(n)]),
        np.concatenate([np.repeat(np.arange(3), train.counts), np.full(n, 3)]),
    )
    run = fedres.simulate(
        federation, step=fedres.Sgd(eta), alignment=alignment, constant=False, seed=seed,
        delay=fedres.Delay(up=fedres.Uniform(0, slack)),
    )  # fmt: skip
    np.testing.assert_allclose(run.w_global / eta, 2 * train.y @ x_global, rtol=0, atol=1e-3)


@given(seeds, steps, st.sampled_from([0.05, 0.5]), st.sampled_from(ALIGNMENTS))
def test_models_stay_inside_the_ball(seed, step, radius, alignment):
    run = fedres.simulate(
        random_federation(seed), rounds=30, step=step, radius=radius, alignment=alignment, delay=3
    )
    norms = [np.linalg.norm(w) for w in (run.w_global, *run.w_local)]
    assert max(norms) <= radius * (1 + 1e-6)


@given(seeds, st.permutations(range(4)))
def test_the_order_of_clients_does_not_matter_to_sgd(seed, order):
    federation = random_federation(seed, clients=4)
    train = federation.train
    owner = np.repeat(np.array(order), train.counts)
    renamed = fedres.Federation.from_arrays(
        whole(train.x_global), whole(train.x_local), train.y, owner
    )
    options = {"rounds": 30, "step": fedres.Sgd(0.01), "shuffle": False, "delay": 2}
    a = fedres.simulate(federation, **options)
    b = fedres.simulate(renamed, **options)
    np.testing.assert_allclose(a.predictions, b.predictions[order], atol=1e-5)


@given(seeds, st.sampled_from(["squared", "logistic"]))
def test_every_client_sees_each_row_once_a_pass(seed, loss):
    federation = random_federation(seed, clients=5, rows=9, labels="signs")
    run = fedres.simulate(federation, passes=2, batch=2, loss=loss, seed=seed)
    np.testing.assert_array_equal(
        np.isfinite(run.predictions).sum(axis=1), 2 * federation.train.counts
    )


def test_the_same_seed_gives_the_same_run_on_any_number_of_cores(digits):
    def calls():
        return [
            lambda seed=seed, method=method: fedres.simulate(
                digits,
                method,
                rounds=100,
                seed=seed,
                delay=0 if method == "independent" else fedres.Delay(fedres.Uniform(0, 9), 3),
            )
            for seed in range(4)
            for method in ("independent", "central", "fedres")
        ]

    one, two = fedres.run_all(calls(), n_jobs=1), fedres.run_all(calls(), n_jobs=2)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.predictions, b.predictions)
        np.testing.assert_array_equal(a.w_global, b.w_global)
    assert not np.array_equal(one[0].predictions, one[3].predictions)


def test_t_over_n_weighs_clients_alike():
    federation = random_federation(1, clients=4, rows=12)
    run = fedres.simulate(federation, client_weight="T/N")
    assert run.loss == pytest.approx(run.loss_by_client.mean(), rel=1e-6)


def test_few_bits_cost_bytes_accordingly(digits):
    runs = {bits: fedres.simulate(digits, rounds=100, residual_bits=bits) for bits in (1, 16, 32)}
    samples = 10 * 100
    assert runs[32].bytes_up - runs[16].bytes_up == 2 * samples
    assert runs[16].bytes_up - runs[1].bytes_up == samples
    batched = fedres.simulate(digits, rounds=100, residual_bits=1, batch=8)
    assert batched.bytes_up < runs[1].bytes_up
    assert batched.bytes_down < runs[1].bytes_down / 7


def example_2(clients, rows, seed=0):
    """The paper's Example 2: the same features on both sides, +v for half of the clients."""
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(2, 4))
    owner = np.repeat(np.arange(clients), rows)
    x = rng.normal(size=(clients * rows, 4))
    y = x @ u + np.where(owner < clients // 2, 1, -1) * (x @ v)
    return fedres.Federation.from_arrays(x, x, y, owner)


def test_clients_that_differ_are_learned_by_fedres_and_not_by_central():
    federation = example_2(clients=10, rows=2000)
    fed = fedres.simulate(federation, "fedres", step=fedres.Sgd(0.01), constant=False)
    central = fedres.simulate(federation, "central", step=fedres.Sgd(0.001), constant=False)
    assert fed.loss_by_round[:10].mean() > 1
    assert fed.loss_by_round[-100:].mean() < 1e-6
    assert central.loss_by_round[-100:].mean() > 1


def test_with_all_features_local_fedres_is_not_worse_than_independent():
    gains = []
    for seed in range(20):
        federation = fedres.federate("digits", clients=10, seed=seed, local="all")
        fed, alone = (
            fedres.simulate(federation, method, rounds=500, seed=seed).accuracy
            for method in ("fedres", "independent")
        )
        gains.append(fed - alone)
    assert np.mean(gains) > -2 * np.std(gains) / np.sqrt(len(gains))


def test_independent_sees_each_feature_once():
    federation = fedres.federate("digits", clients=5, seed=0, local="all")
    assert federation.all_features[0].width.tolist() == [64] * 5
    x, y = np.eye(4, dtype=np.float32), [1.0, 2.0, 3.0, 4.0]
    equal = fedres.Federation.from_arrays(x, x, y, [0, 0, 1, 1])
    assert equal.all_features[0].width.tolist() == [4, 4]

"""Compiled and not compiled, the functions of `fedres.core` give the same bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedres
from conftest import random_federation
from fedres.core.messages import RESIDUAL_BITS
from fedres.core.parties import Client, Server
from fedres.core.rule import Rule
from fedres.core.schedule import plan
from fedres.core.sgd import ALIGNMENTS
from fedres.simulation.settings import known_by

CLOSE = 1e-4

lags = st.one_of(
    st.integers(0, 4),
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
    st.tuples(st.integers(0, 2), st.integers(0, 3)).map(
        lambda pair: fedres.Uniform(pair[0], pair[0] + pair[1])
    ),
)
options = st.fixed_dictionaries(
    {
        "rounds": st.one_of(st.none(), st.integers(1, 30)),
        "passes": st.integers(1, 2),
        "delay": st.builds(fedres.Delay, up=lags, down=lags),
        "step": st.sampled_from([fedres.Sgd(0.02), fedres.Adaptive(0.1)]),
        "alignment": st.sampled_from(ALIGNMENTS),
        "loss": st.sampled_from(["squared", "logistic"]),
        "batch": st.integers(1, 5),
        "radius": st.sampled_from([None, 0.3]),
        "client_weight": st.sampled_from([None, "T/N", [0.5, 1.0, 2.0]]),
        "constant": st.booleans(),
        "residual_bits": st.sampled_from(RESIDUAL_BITS),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 1000),
        "local": st.booleans(),
    }
)


@given(
    method=st.sampled_from(["independent", "central", "fedres"]),
    options=options,
    widths=st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any),
    sparse=st.booleans(),
)
def test_reference_equals_simulation(method, options, widths, sparse):
    if method == "central" and widths[0] == 0:
        widths = (1, widths[1])
    federation = random_federation(
        options["seed"],
        width_global=widths[0],
        width_local=widths[1],
        labels="signs" if options["loss"] == "logistic" else "numbers",
        sparse=sparse,
    )
    if options.pop("local"):
        options["local_step"] = type(options["step"])(0.05)
    if method == "independent":
        options["delay"] = 0
    for name in {"local_step", "alignment", "residual_bits"} - known_by(method):
        options.pop(name, None)
    fast = fedres.simulate(federation, method, **options)
    plain = fedres.simulate(federation, method, **options, compiled=False)
    for name in ("predictions", "w_global", "test_predictions", "loss_by_round", "loss_by_client"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name), name)
    for mine, theirs in zip(fast.w_local, plain.w_local, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (fast.bytes_up, fast.bytes_down) == (plain.bytes_up, plain.bytes_down)


def test_clients_may_differ_in_width_and_kind():
    rng = np.random.default_rng(0)
    client = np.repeat(["ann", "bob", "cyd"], [5, 7, 3])
    local = {
        "ann": rng.normal(size=(5, 1)),
        "bob": rng.normal(size=(7, 4)),
        "cyd": np.empty((3, 0)),
    }
    federation = fedres.Federation.from_arrays(
        rng.normal(size=(15, 2)), local, rng.normal(size=15), client
    )
    for method, bits in {"independent": None, "fedres": 4}.items():
        options = {"rounds": 30, "residual_bits": bits}
        fast = fedres.simulate(federation, method, **options)
        plain = fedres.simulate(federation, method, **options, compiled=False)
        np.testing.assert_array_equal(fast.predictions, plain.predictions)
        assert fast.bytes_up == plain.bytes_up
    assert [len(w) for w in fast.w_local] == [2, 5, 0]


def test_csr_equals_dense():
    sparse = random_federation(3, clients=4, rows=20, width_global=8, width_local=6, sparse=True)
    from fedres.core.views import whole

    train = sparse.train
    owner = np.repeat(np.arange(4), train.counts)
    dense = fedres.Federation.from_arrays(
        whole(train.x_global).toarray(), whole(train.x_local).toarray(), train.y, owner
    )
    for method, delay in {"independent": 0, "central": 3, "fedres": 3}.items():
        for batch in (1, 3):
            for step in (fedres.Sgd(0.01), fedres.Adaptive(0.1)):
                runs = [
                    fedres.simulate(one, method, rounds=40, batch=batch, step=step, delay=delay)
                    for one in (sparse, dense)
                ]
                np.testing.assert_allclose(*(run.predictions for run in runs), atol=CLOSE)


@pytest.mark.parametrize("step", [fedres.Sgd(0.02), fedres.Adaptive(0.1)])
@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("delay", [fedres.Delay(), fedres.Delay(up=2, down=3)])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_objects_that_exchange_messages_equal_simulation(step, alignment, delay, share):
    rng = np.random.default_rng(0)
    away = fedres.Participation(join=[0, 6, 0], leave=[30, 30, 20], share=share)
    present = away.draw(3, 30, seed=0)
    rounds, clients = 30, 3
    x_global, x_local = rng.normal(size=(2, rounds, clients, 2)).astype(np.float32)
    y = rng.normal(size=(rounds, clients)).astype(np.float32)
    who = np.tile(np.arange(clients), rounds)
    federation = fedres.Federation.from_arrays(
        x_global.reshape(-1, 2), x_local.reshape(-1, 2), y.ravel(), who
    )
    options = {"step": step, "alignment": alignment, "delay": delay, "participation": away}
    run = fedres.simulate(federation, rounds=rounds, **options, shuffle=False, compiled=False)
    rule = Rule(step=step, alignment=alignment)
    server, parties = Server(rule, 2), [Client(rule, 2, 2, client=i) for i in range(clients)]
    published, sent, row = [server.current()], [], [0] * clients
    for t in range(rounds):
        sent.append([])
        for i in np.flatnonzero(present[:, t]):
            client, k = parties[i], row[i]
            client.refresh(published[max(t - delay.down, 0)])
            x = x_global[k, i : i + 1], x_local[k, i : i + 1]
            assert client.predict(*x)[0] == run.predictions[i, t]
            sent[t].append(client.observe(*x, y[k, i : i + 1]))
            row[i] += 1
        for upload in sent[t - delay.up] if t >= delay.up else []:
            server.apply(upload)
        published.append(server.publish())
    np.testing.assert_array_equal(server.global_.weights, run.w_global)
    assert (np.isnan(run.predictions) == ~present).all()
    assert run.bytes_up == sum(len(upload.pack()) for uploads in sent for upload in uploads)


@pytest.mark.parametrize("method", ["independent", "central", "fedres", "fedres-erm"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("alignment", ["arrival", "late"])
def test_clients_that_come_and_go_are_compiled_alike(method, batch, alignment):
    away = fedres.Participation(join=[0, 3, 0], leave=[9, 12, 12], share=[1.0, 0.5, 0.8])
    options = {"rounds": 12 * batch - 1, "batch": batch, "participation": away}
    if method != "independent":
        options["delay"] = fedres.Delay(up=fedres.Uniform(0, 2), down=1)
    if "alignment" in known_by(method):
        options["alignment"] = alignment
    federation = random_federation(1)
    fast, plain = (fedres.simulate(federation, method, **options, compiled=c) for c in (1, 0))
    for name in ("predictions", "w_global", "test_predictions", "loss_by_round", "loss_by_client"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name), name)
    assert np.isnan(fast.predictions[1, : 3 * batch]).all()


def test_where_all_take_part_nothing_is_planned_anew():
    here = np.ones((3, 20), bool)
    for waits in (False, True):
        usual, told = (
            plan(3, 20, 1, fedres.Delay(2, 1), waits=waits, present=present)
            for present in (None, here)
        )
        assert told.depth == usual.depth
        for mine, theirs in zip(told.times, usual.times, strict=True):
            np.testing.assert_equal(mine, theirs)


@pytest.mark.parametrize(
    ("participation", "message"),
    [
        ({"join": 20}, "client number 0 takes part in none of 10 rounds"),
        ({"join": [0, 1]}, "join has 2 values for 3 clients"),
        ({"leave": -1}, "leave must be rounds from 0 up"),
        ({"share": 0.0}, "share must be above 0 and at most 1"),
    ],
)
def test_participation_that_cannot_be(participation, message):
    with pytest.raises(ValueError, match=message):
        fedres.simulate(
            random_federation(), rounds=10, participation=fedres.Participation(**participation)
        )


def test_participation_needs_rounds():
    with pytest.raises(ValueError, match="say how many with rounds"):
        fedres.simulate(random_federation(), participation=fedres.Participation(join=2))

"""Clients and servers on disk: killed at any moment, they go on as if nothing had happened."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from fedres.bandits import (
    BanditClient,
    BanditServer,
    EpsilonGreedy,
    Greedy,
    LinUCB,
    RewardError,
    Ridge,
    Softmax,
    SquareCB,
    Thompson,
)
from fedres.bandits.choosing import Chooser
from fedres.bandits.learners import STEP
from fedres.bandits.policies import Policy
from fedres.core.steps import Adaptive, Sgd

KILLS = Path(__file__).parents[1] / "benchmarks" / "kills.py"


def offers(rng, kind, actions=3):
    views = rng.normal(size=(2, actions, 3)).astype(np.float32)
    views[rng.random(views.shape) < 0.4] = 0
    return [sparse.csr_array(x) if kind == "sparse" else x for x in views]


STEPS = {
    "adaptive": STEP,
    "clip": Adaptive(0.3),
    "sgd": Sgd(0.05),
    "ridge": Ridge(),
    "diagonal": Ridge(diagonal=True),
}


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("step", "policy"),
    [
        *product(
            ("adaptive", "clip", "sgd"),
            (EpsilonGreedy(0.3), EpsilonGreedy(explore_every=4), SquareCB(5.0), Softmax(0.2)),
        ),
        *product(("ridge", "diagonal"), (LinUCB(0.5), Thompson(0.5))),
    ],
    ids=str,
)
def test_decisions_are_those_without_the_restarts(policy, step, kind, tmp_path):
    events, step = {"steady": [], "restarted": []}, STEPS[step]
    clients = {
        name: BanditClient(policy, 3, client="anna", seed=1, step=step, wait=7, late=0.5, log=log)
        for name, log in ((name, log.append) for name, log in events.items())
    }
    servers = {name: BanditServer(3, step) for name in clients}
    rng, chance = np.random.default_rng(2), np.random.default_rng(3)
    made = {name: [] for name in clients}
    for turn in range(40):
        contexts = offers(rng, kind, actions=1 + turn % 4)
        rewarded = int(chance.integers(0, 3))
        for name, client in clients.items():
            made[name].append(client.choose(*contexts))
            for back in range(1, rewarded + 1):
                if back <= len(made[name]) and made[name][-back].id in {
                    one.id for one in client.waiting
                }:
                    client.reward(made[name][-back].id, float(back))
            if turn % 3 == 0:
                client.confirm(servers[name].apply(client.uploads()))
                client.refresh(servers[name].publish())
        if chance.random() < 0.4:
            clients["restarted"].save(tmp_path / "client")
            servers["restarted"].save(tmp_path / "server")
            log = events["restarted"].append
            clients["restarted"] = BanditClient.load(tmp_path / "client", log=log)
            servers["restarted"] = BanditServer.load(tmp_path / "server")
    steady, restarted = clients.values()
    for one, other in zip(*made.values(), strict=True):
        assert (one.turn, one.action, one.explores) == (other.turn, other.action, other.explores)
        np.testing.assert_array_equal(one.probabilities, other.probabilities)
    np.testing.assert_array_equal(steady.w_local, restarted.w_local)
    np.testing.assert_array_equal(*(server.w_global for server in servers.values()))
    assert steady.counts == restarted.counts
    assert len(steady.uploads()) == len(restarted.uploads())
    assert steady.counts.expired > 0  # else not all was tried
    for one, other in zip(*events.values(), strict=True):
        assert (one.turn, one.reward, one.expired) == (other.turn, other.reward, other.expired)
        for view in ("contexts_global", "contexts_local"):
            assert type(getattr(one, view)) is type(getattr(other, view))
            assert abs(getattr(one, view) - getattr(other, view)).sum() == 0


@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_any_generator_goes_on(bits, tmp_path):
    rng = np.random.Generator(getattr(np.random, bits)(5))
    client = BanditClient(EpsilonGreedy(0.9), 2, 0, seed=rng)
    client.choose(None, np.eye(2))
    client.save(tmp_path / "client")
    again = BanditClient.load(tmp_path / "client")
    for _ in range(10):
        assert again.choose(None, np.eye(2)).action == client.choose(None, np.eye(2)).action


def test_what_was_not_saved_is_forgotten_and_its_ids_with_it(tmp_path):
    client, server = BanditClient(Greedy(), 2, 2, client="anna"), BanditServer(2)
    kept = client.choose(np.eye(2), np.eye(2))
    client.save(tmp_path / "client")
    server.save(tmp_path / "server")
    lost = [client.choose(np.eye(2), np.eye(2)) for _ in range(3)]
    client.reward(lost[0].id, 1.0)
    server.apply(client.uploads())
    lost_model = server.publish()
    for _ in range(2):  # from the same file, as if a second kill came before the next save
        client = BanditClient.load(tmp_path / "client")
        server = BanditServer.load(tmp_path / "server")
        new = client.choose(np.eye(2), np.eye(2))
        assert new.turn == 2
        for one in lost:
            with pytest.raises(RewardError) as told:
                client.reward(one.id, 1.0)
            assert told.value.reason == "unknown"
        client.reward(kept.id, 1.0)
        client.reward(new.id, 1.0)
        assert len(client.uploads()) == 2
        server.apply(client.uploads())
        client.refresh(lost_model)
        client.refresh(server.publish())
        np.testing.assert_array_equal(client._models.global_.weights, server.w_global)
        lost.append(new)


def test_an_upload_made_before_the_save_counts_once_whenever_it_is_sent(tmp_path):
    client, server = BanditClient(Greedy(), 2, 2), BanditServer(2)
    client.reward(client.choose(np.eye(2), np.eye(2)).id, 1.0)
    server.apply(client.uploads())
    client.save(tmp_path / "client")
    server.save(tmp_path / "server")
    once = server.w_global
    client, server = (
        BanditClient.load(tmp_path / "client"),
        BanditServer.load(tmp_path / "server"),
    )
    client.confirm(server.apply(client.uploads()))
    np.testing.assert_array_equal(server.w_global, once)
    assert client.uploads() == []


def test_a_window_goes_on_while_the_client_is_away(tmp_path):
    now = [0.0]
    client = BanditClient(Greedy(), 2, 0, window=10.0, late=0.0, clock=lambda: now[0])
    client.choose(None, np.eye(2))
    client.save(tmp_path / "client")
    now[0] = 11.0
    client = BanditClient.load(tmp_path / "client", clock=lambda: now[0])
    client.settle()
    assert client.counts == (1, 0, 1, 1)


def test_a_client_that_has_not_chosen_yet_can_be_saved(tmp_path):
    BanditClient(Greedy(), 2, client="anna", seed=1).save(tmp_path / "client")
    client = BanditClient.load(tmp_path / "client")
    assert client.client == "anna"
    assert client.choose(np.eye(2), np.eye(2)).turn == 1


class Mine(Policy):
    """A policy of one's own."""

    @property
    def chooser(self):
        return Chooser(0)


def test_what_cannot_be_saved_or_loaded_is_told(tmp_path):
    class Draws:
        def random(self):
            return 0.5

    with pytest.raises(ValueError, match=r"client 'anna' draws from .*cannot be saved"):
        BanditClient(Greedy(), 1, client="anna", seed=Draws()).save(tmp_path / "client")
    assert not (tmp_path / "client").exists()
    BanditClient(Mine(), 1).save(tmp_path / "client")
    with pytest.raises(ValueError, match="policy of one's own: give `policy`"):
        BanditClient.load(tmp_path / "client")
    assert isinstance(BanditClient.load(tmp_path / "client", Mine()).policy, Mine)
    with pytest.raises(ValueError, match="client holds a bandit client, no bandit server"):
        BanditServer.load(tmp_path / "client")
    (tmp_path / "client").write_bytes(b"not this")
    with pytest.raises(ValueError, match="client is damaged, or not a state that fedres wrote"):
        BanditClient.load(tmp_path / "client")


def test_killed_again_and_again_it_decides_as_if_undisturbed():
    """A small run of `make bench-kills`."""
    size = ["--clients", "8", "--turns", "3", "--kills", "5"]
    done = subprocess.run(
        [sys.executable, KILLS, *size], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 kills" in done.stdout
    assert "as the undisturbed run" in done.stdout


def test_sparse_contexts_in_any_order_are_sent_and_saved_in_rising_order(tmp_path):
    client, server = BanditClient(Greedy(), 0, 4), BanditServer(4)
    given = sparse.csr_array(([1.0, 2.0, 3.0], [3, 1, 1], [0, 3]), shape=(1, 4), dtype="f4")
    client.reward(client.choose(given).id, 1.0)
    client.save(tmp_path / "client")
    client = BanditClient.load(tmp_path / "client")
    (upload,) = client.uploads()
    assert upload.x_global.toarray().tolist() == [[0.0, 5.0, 0.0, 1.0]]
    assert given.indices.tolist() == [3, 1, 1]  # what was given stays
    server.apply(upload)

"""Bandit clients that mix: scores are those of the mixture, and it is kept over restarts."""

import numpy as np
import pytest
from scipy import sparse

from fedres.bandits import BanditClient, BanditServer, Greedy, LinUCB, Ridge, SquareCB
from fedres.bandits.learners import STEP, new_client
from fedres.core.losses import SQUARED
from fedres.core.mixture import mix, mix_rows, new_mixture
from fedres.core.steps import Adaptive, Sgd

REWARDS = (0.0, 3.0)
STEPS = [STEP, Adaptive(0.3), Sgd(0.05), Ridge()]


def offers(rng, kind="dense", actions=4):
    views = rng.normal(size=(2, actions, 3)).astype(np.float32)
    return [sparse.csr_array(x) if kind == "sparse" else x for x in views]


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_it_chooses_by_the_mixture_of_what_three_models_say(step):
    rng = np.random.default_rng(0)
    client = BanditClient(Greedy(), 3, 3, seed=1, step=step, mix=REWARDS)
    server = BanditServer(3, step)
    both, alone = new_client(step, 3, 3, client=0), new_client(step, 0, 6, client=0)
    mixture, none = new_mixture(SQUARED.number, REWARDS, 1, 3), np.empty((4, 0), np.float32)
    for _ in range(30):
        x_global, x_local = offers(rng)
        together = np.hstack([x_global, x_local])
        action = client.choose(x_global, x_local).action
        shared = x_global @ both.global_.weights[:3] + both.global_.weights[3]
        own = x_local @ both.local.weights[:3] + both.local.weights[3]
        by_itself = together @ alone.local.weights[:6] + alone.local.weights[6]
        said = np.stack([by_itself, shared, shared + own]).astype(np.float32)
        scores = np.empty(4, np.float32)
        mix_rows(mixture, np.zeros(4, np.int64), said, scores)
        assert scores[action] == pytest.approx(scores.max(), abs=1e-5)
        reward = float(np.clip(x_global[action, 0] + 1, *REWARDS))
        client.reward(client.waiting[-1].id, reward)
        one, y = slice(action, action + 1), np.float32([reward])
        mix(mixture, np.ascontiguousarray(said[:, one]), y, np.empty(1, np.float32))
        both.observe(x_global[one], x_local[one], y)
        alone.observe(none[one], together[one], y)
        client.confirm(server.apply(client.uploads()))
        client.refresh(server.publish())
        both.refresh(server.publish())
    trust = (mixture.staying + mixture.moving)[:, 0]
    np.testing.assert_allclose(client._mixed.trust, trust, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_decisions_are_those_without_the_restarts(step, kind, tmp_path):
    clients = [BanditClient(SquareCB(5.0), 3, seed=1, step=step, mix=REWARDS) for _ in range(2)]
    servers = [BanditServer(3, step) for _ in clients]
    rng = np.random.default_rng(2)
    for turn in range(30):
        contexts = offers(rng, kind)
        made = [client.choose(*contexts) for client in clients]
        np.testing.assert_array_equal(*(one.probabilities for one in made))
        for one, client, server in zip(made, clients, servers, strict=True):
            client.reward(one.id, float(turn % 3))
            client.confirm(server.apply(client.uploads()))
            client.refresh(server.publish())
        if turn % 4 == 0:
            clients[1].save(tmp_path / "client")
            clients[1] = BanditClient.load(tmp_path / "client")
    np.testing.assert_array_equal(*(client._mixed.trust for client in clients))


def test_what_cannot_be_mixed_is_refused():
    with pytest.raises(ValueError, match=r"mix is the lowest reward and the highest, not \(1, 1\)"):
        BanditClient(Greedy(), 3, mix=(1, 1))
    with pytest.raises(ValueError, match="a reward must be a finite number, not inf"):
        BanditClient(Greedy(), 3, mix=(0.0, np.inf))
    with pytest.raises(ValueError, match="which mix has not"):
        BanditClient(LinUCB(0.5), 3, step=Ridge(), mix=REWARDS)

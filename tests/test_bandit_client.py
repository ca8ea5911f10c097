import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Thread

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy import sparse

from fedres.bandits import (
    BanditClient,
    BanditServer,
    EpsilonGreedy,
    Greedy,
    RewardError,
    Softmax,
    SquareCB,
)
from fedres.bandits.learners import STEP
from fedres.core.messages import GlobalModel, Upload
from fedres.core.parties import Client, Server
from fedres.core.rule import Rule
from fedres.core.steps import Adaptive

FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a disk would be waited for at each save


def contexts_of(rng, actions=3, width_global=2, width_local=2):
    return (
        rng.normal(size=(actions, width_global)).astype(np.float32),
        rng.normal(size=(actions, width_local)).astype(np.float32),
    )


class Life(RuleBasedStateMachine):
    """Any sequence of calls against a plain account of what every decision came to."""

    @initialize(
        policy=st.sampled_from([EpsilonGreedy(0.5), EpsilonGreedy(explore_every=2)]),
        learn_from=st.sampled_from(["all", "exploration"]),
        widths=st.sampled_from([(2, 2), (0, 2), (2, 0)]),
        wait=st.sampled_from([None, 0, 2]),
        window=st.sampled_from([None, 1.0, 2.5]),
        late=st.sampled_from([None, 0.25]),
        most=st.sampled_from([1, 3, 1000]),
    )
    def begin(self, policy, learn_from, widths, wait, window, late, most):
        self.learn_from, self.widths = learn_from, widths
        self.wait, self.late, self.most = wait, late, most
        self.window, self.now, self.times = window or np.inf, 0.0, {}
        self.rng = np.random.default_rng(5)
        self.ids = []
        self.client = BanditClient(
            policy,
            features_local=widths[1],
            features_global=widths[0],
            seed=3,
            learn_from=learn_from,
            window=window,
            wait=wait,
            clock=lambda: self.now,
            late=late,
            most_pending=most,
        )
        self.server = BanditServer(widths[0])
        self.published = []
        rule_ = Rule(step=STEP)
        self.plain_client = Client(rule_, *widths)
        self.plain_server = Server(rule_, widths[0])
        self.plain_uploads = []
        self.status, self.rows, self.ended = {}, {}, []
        self.samples = 0

    def waiting(self):
        return [id_ for id_, status in self.status.items() if status == "waits"]

    def settle(self, id_, status, reward):
        self.status[id_] = status
        self.ended.append(id_)
        x_global, x_local, explores = self.rows[id_]
        if reward is not None and (self.learn_from == "all" or explores):
            self.samples += 1
            upload = self.plain_client.observe(x_global, x_local, np.float32([reward]))
            self.plain_uploads += [upload] if self.widths[0] else []

    def close_windows(self):
        for id_ in self.waiting():
            if self.times[id_] + self.window <= self.now:
                self.settle(id_, "expired", self.late)

    @rule(seconds=st.sampled_from([0.5, 1.0]), told=st.booleans())
    def pass_time(self, seconds, told):
        self.now += seconds
        if told:
            assert self.client.settle() == self.now
            self.close_windows()

    @rule(actions=st.integers(1, 4))
    def choose(self, actions):
        views = contexts_of(self.rng, actions, *self.widths)
        decision = self.client.choose(*views)
        self.close_windows()
        self.times[decision.turn] = decision.time
        for id_ in self.waiting():
            if self.wait is not None and decision.turn - id_ > self.wait:
                self.settle(id_, "expired", self.late)
        if len(self.waiting()) == self.most:
            self.settle(self.waiting()[0], "expired", self.late)
        assert decision.turn == len(self.status) + 1
        assert decision.id not in self.ids
        self.ids.append(decision.id)
        self.status[decision.turn] = "waits"
        self.rows[decision.turn] = (*(x[[decision.action]] for x in views), decision.explores)
        for x in views:
            x[:] = np.nan  # the client must have kept its own copy

    @rule()
    def restart(self):
        with TemporaryDirectory(dir=FAST) as folder:
            client, server = (Path(folder) / name for name in ("client", "server"))
            self.client.save(client)
            self.server.save(server)
            self.client = BanditClient.load(client, clock=lambda: self.now)
            self.server = BanditServer.load(server)

    @rule(back=st.integers(-2, 6), reward=st.sampled_from([0.0, 1.0, -2.5]))
    def reward(self, back, reward):
        turn = len(self.status) - back
        self.close_windows()
        id_ = self.ids[turn - 1] if turn in self.status else f"0:{turn}"
        if self.status.get(turn) == "waits":
            self.client.reward(id_, reward)
            self.settle(turn, "rewarded", reward)
        else:
            forgotten = self.ended[: -self.most]
            why = "unknown" if turn in forgotten else self.status.get(turn, "unknown")
            with pytest.raises(RewardError, match=f"decision '{id_}'") as told:
                self.client.reward(id_, reward)
            assert told.value.reason == why

    @rule(reward=st.sampled_from([np.nan, np.inf, "1", None]))
    @precondition(lambda self: self.waiting())
    def bad_reward(self, reward):
        with pytest.raises(ValueError, match="finite number"):
            self.client.reward(self.ids[self.waiting()[0] - 1], reward)

    @rule(lost=st.booleans(), packed=st.booleans())
    def upload(self, lost, packed):
        uploads = self.client.uploads()
        if packed:
            uploads = [Upload.unpack(one.pack(), self.widths[0]) for one in uploads]
        receipts = self.server.apply(uploads)
        for upload in self.plain_uploads:
            self.plain_server.apply(upload)
        self.plain_uploads = []
        if not lost:  # else the same uploads come again, and must change nothing
            self.client.confirm(receipts)
            assert self.client.uploads() == []

    @rule()
    def publish(self):
        self.published.append((self.server.publish(), self.plain_server.publish()))

    @rule(which=st.integers(0, 100))
    @precondition(lambda self: self.published)
    def refresh(self, which):
        model, plain = self.published[which % len(self.published)]
        self.client.refresh(model)
        self.plain_client.refresh(plain)

    @rule()
    def expire(self):
        self.client.expire()
        for id_ in self.waiting():
            self.settle(id_, "expired", self.late)

    @invariant()
    def nothing_is_lost_or_counted_twice(self):
        if not hasattr(self, "client"):
            return
        counts, said = self.client.counts, list(self.status.values())
        assert counts.made == len(said)
        assert counts.rewarded == said.count("rewarded")
        assert counts.expired == said.count("expired")
        assert self.client.pending == said.count("waits") <= self.most
        assert counts.learned == self.samples
        np.testing.assert_array_equal(self.client.w_local, self.plain_client.local.weights)
        np.testing.assert_array_equal(self.server.w_global, self.plain_server.global_.weights)


TestLife = Life.TestCase


def test_the_readme_example():
    rng = np.random.default_rng(0)
    server = BanditServer(features_global=20)
    client = BanditClient(policy=EpsilonGreedy(explore_every=20), features_local=8, seed=7)
    contexts_global, contexts_local = contexts_of(rng, 5, 20, 8)
    decision = client.choose(contexts_global, contexts_local)
    assert decision.probability == decision.probabilities[decision.action] == 0.2
    client.reward(decision.id, 1.0)
    client.confirm(server.apply(client.uploads()))
    client.refresh(server.publish())
    assert client.choose(contexts_global, contexts_local).probabilities.max() == 1


def test_learning_worked_by_hand():
    half = Adaptive(0.5, clip=False)
    client = BanditClient(Greedy(), features_local=1, seed=0, step=half)
    server = BanditServer(1, step=half)
    decision = client.choose([[2.0]], [[1.0]])
    client.reward(decision.id, 1.0)
    # slope -2, and the first adaptive step is eta whatever the gradient
    assert client.w_local.tolist() == [0.5, 0.5]
    server.apply(client.uploads())
    model = server.publish()
    assert model.weights.tolist() == [0.5, 0.5]
    client.refresh(model)
    # scores 0.5 * 1 + 0.5 + 0.5 * 2 + 0.5 = 2.5 and 0.5 + 0.5 = 1
    policy = Softmax(temperature=1.0)
    client.policy = policy
    second = client.choose([[2.0], [0.0]], [[1.0], [0.0]])
    np.testing.assert_array_equal(second.probabilities, policy.probabilities([2.5, 1.0], 2))


def test_sparse_contexts_do_as_dense_ones():
    dense, csr = (BanditClient(SquareCB(), features_local=3, seed=1) for _ in range(2))
    servers = BanditServer(4), BanditServer(4)
    rng = np.random.default_rng(2)
    for _ in range(30):
        views = [np.where(rng.random(x.shape) < 0.5, x, 0) for x in contexts_of(rng, 4, 4, 3)]
        one, other = dense.choose(*views), csr.choose(*map(sparse.csr_matrix, views))
        assert one.action == other.action
        np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-4)
        for client, server, made in zip((dense, csr), servers, (one, other), strict=True):
            client.reward(made.id, views[1][one.action, 0])
            client.confirm(server.apply(client.uploads()))
            client.refresh(server.publish())
    np.testing.assert_allclose(dense.w_local, csr.w_local, rtol=1e-4, atol=1e-6)


def test_it_learns_the_width_of_the_global_view_from_contexts_or_from_a_refresh():
    by_contexts = BanditClient(Greedy(), features_local=1)
    by_contexts.choose([[1.0, 2.0]], [[1.0]])
    by_refresh = BanditClient(Greedy(), features_local=1)
    by_refresh.refresh(BanditServer(2).publish())
    for client in (by_contexts, by_refresh):
        with pytest.raises(ValueError, match="3 features, the global model 2"):
            client.choose([[1.0, 2.0, 3.0]], [[1.0]])
        with pytest.raises(ValueError, match="has 3 features, client 0 2"):
            client.refresh(BanditServer(3).publish())
        client.choose([[1.0, 2.0]], [[1.0]])


def test_without_a_global_model_nothing_is_sent():
    client = BanditClient(Greedy(), features_local=1, features_global=0)
    client.reward(client.choose(None, [[1.0], [2.0]]).id, 1.0)
    assert client.uploads() == []
    assert client.counts.learned == 1
    assert client.w_local.any()


def test_without_a_local_model_the_server_learns_alone():
    client = BanditClient(Greedy(), features_local=0)
    server = BanditServer(1, step=Adaptive(0.5, clip=False))
    client.reward(client.choose([[1.0]]).id, 1.0)
    (upload,) = client.uploads()
    server.apply(upload)
    assert server.publish().weights.tolist() == [0.5, 0.5]
    assert client.w_local.size == 0


def test_clipping_steps_do_not_clip_scores():
    client = BanditClient(Softmax(1.0), features_local=0, step=Adaptive(0.5))
    client.refresh(GlobalModel(1, np.float32([1.0, 0.0]), 0.0, 0.0))
    assert client.choose([[1.0], [3.0]]).probabilities[1] == pytest.approx(1 / (1 + np.exp(-2)))


def test_only_the_chosen_rows_wait():
    client = BanditClient(Greedy(), features_local=2)
    client.choose(*contexts_of(np.random.default_rng(0), actions=50))
    (waiting,) = client._pending.waiting.values()
    assert waiting.x_global.shape == waiting.x_local.shape == (1, 2)
    assert waiting.x_global.base is None
    assert waiting.contexts is None


def test_what_an_old_id_came_to_is_told_as_far_as_bounded_memory_goes():
    client = BanditClient(Greedy(), features_local=1, wait=0, most_pending=2)
    ids = [client.choose(None, [[1.0]]).id for _ in range(5)]
    client.reward(ids[4], 1.0)  # the others expired, and the last two ends are remembered
    for id_, reason, why in (
        (ids[4], "rewarded", "was rewarded already"),
        (ids[3], "expired", "has expired"),
        (ids[2], "unknown", "over more than 2 decisions ago"),
        *((never, "unknown", "knows no decision") for never in (0, 6, "5", "0:1", 2.5, None)),
    ):
        with pytest.raises(RewardError, match=why) as told:
            client.reward(id_, 1.0)
        assert told.value.reason == reason
    assert client.counts == (5, 1, 4, 1)


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (([[np.nan, 0.0]], [[1.0, 1.0]]), "contexts_global has nan"),
        (([[1.0, 0.0]], [[1.0, np.inf]]), "contexts_local has inf"),
        (([[1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]), "1 in contexts_global and 2 in contexts_local"),
        (([[1.0, 0.0]], [[1.0]]), "contexts_local has 1 features, the local model 2"),
        (([[1.0]], [[1.0, 1.0]]), "contexts_global has 1 features, the global model 2"),
        ((None, [[1.0, 1.0]]), "contexts_global has 0 features, the global model 2"),
        (([1.0, 0.0], [[1.0, 1.0]] * 2), "contexts_global must have two dimensions"),
        (([[1.0, 0.0], [1.0]], [[1.0, 1.0]] * 2), "contexts_global must be a table of numbers"),
        ((3.0, [[1.0, 1.0]]), "contexts_global must be a table"),
        ((None, None), "not none"),
        ((np.empty((0, 2)), np.empty((0, 2))), "0 actions"),
        ((np.full((1, 2), 3e38, np.float32), [[1.0, 1.0]]), "score of action 0 is inf"),
    ],
)
def test_bad_contexts_change_nothing(views, message):
    clients = [
        BanditClient(EpsilonGreedy(0.5), features_local=2, seed=4, wait=0, late=1.0)
        for _ in range(2)
    ]
    for client in clients:
        client.refresh(GlobalModel(1, np.float32([3.0, 3.0, 0.0]), -np.inf, np.inf))
        client.choose(np.eye(2), np.eye(2))
    with pytest.raises(ValueError, match=message):
        clients[0].choose(*views)
    assert clients[0].counts == clients[1].counts
    for _ in range(8):
        actions = [client.choose(np.eye(2), np.eye(2)).action for client in clients]
        assert actions[0] == actions[1]


def test_a_first_bad_call_does_not_settle_the_width():
    client = BanditClient(Greedy(), features_local=2)
    with pytest.raises(ValueError, match="local model 2"):
        client.choose(np.eye(3), np.eye(3))
    client.choose(np.eye(2), np.eye(2))


def test_a_server_applies_all_uploads_or_none():
    uploads = []
    for width in (2, 3):
        client = BanditClient(Greedy(), features_local=0, client=width)
        client.reward(client.choose(np.ones((1, width))).id, 1.0)
        uploads += client.uploads()
    server = BanditServer(2)
    with pytest.raises(ValueError, match="client 3 sent 3 global features"):
        server.apply(uploads)
    assert not server.publish().weights.any()


@pytest.mark.parametrize("sent", [[np.nan, 0.0], [np.inf, 0.0]])
def test_a_broken_global_model_is_refused(sent):
    client = BanditClient(Greedy(), features_local=0)
    with pytest.raises(ValueError, match="not finite"):
        client.refresh(GlobalModel(1, np.float32(sent), 0.0, 0.0))
    client.choose(np.ones((1, 5)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learn_from": "exploration"}, "Softmax.* no rounds of pure exploration"),
        ({"learn_from": "none"}, "learn_from"),
        ({"wait": -1}, "wait"),
        ({"window": 0.0}, "window must be a positive number of seconds"),
        ({"window": np.inf}, "window"),
        ({"late": np.nan}, "finite"),
        ({"most_pending": 0}, "most_pending"),
        ({"features_global": -1}, "negative"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BanditClient(Softmax(), features_local=1, **options)
    with pytest.raises(ValueError, match="negative"):
        BanditServer(-1)


def a_decision(client):
    return client.choose(np.eye(2), np.eye(2))


@pytest.mark.parametrize("name", [7, "anna", -1, 2**40])
def test_an_old_click_is_never_credited_to_a_decision_after_a_restart(name):
    before, after = (BanditClient(Greedy(), 2, client=name) for _ in range(2))
    old = [a_decision(before).id for _ in range(50)]
    new = [a_decision(after).id for _ in range(50)]
    assert len({*old, *new}) == 100
    assert sorted(new) == new
    for id_ in old:
        with pytest.raises(RewardError, match="knows no decision") as told:
            after.reward(id_, 1.0)
        assert told.value.reason == "unknown"
    assert after.counts == (50, 0, 0, 0)


def test_a_client_does_not_take_the_click_of_another():
    anna, bob = (BanditClient(Greedy(), 2, client=name) for name in ("anna", "bob"))
    anna._pending.serial = bob._pending.serial
    assert a_decision(anna).id != a_decision(bob).id


def test_uploads_come_again_until_confirmed_and_count_once():
    client, server = BanditClient(Greedy(), 2, client="anna"), BanditServer(2)
    for _ in range(3):
        client.reward(a_decision(client).id, 1.0)
    first, second, third = client.uploads()
    server.apply([second])
    once = server.w_global
    assert (server.apply([second, second]), (server.w_global == once).all()) == (
        [(second.ticket.sender, second.ticket.serial)] * 2,
        True,
    )
    client.confirm(server.apply([first]))
    assert [one.ticket.serial for one in client.uploads()] == [
        second.ticket.serial,
        third.ticket.serial,
    ]
    moved = server.w_global
    # Its receipt was lost, and that of another client does not matter.
    client.confirm([(client._sender + 1, third.ticket.serial)])
    client.confirm(server.apply(client.uploads()))
    assert client.uploads() == []
    assert (server.w_global != moved).any()
    # Late on the wire, long after it was confirmed.
    moved = server.w_global
    server.apply([first, second, third])
    assert (server.w_global == moved).all()
    assert not any(one.beyond for one in server._received.values())


def test_clients_of_one_name_are_told_apart_by_the_server():
    server = BanditServer(2)
    for _ in range(2):
        client = BanditClient(Greedy(), 2)  # both are client 0, as is one without its state
        client.reward(a_decision(client).id, 1.0)
        before = server.w_global
        server.apply(client.uploads())
        assert (server.w_global != before).any()


def test_an_upload_without_a_ticket_is_refused():
    client, server = Client(Rule(), 2, 2), BanditServer(2)
    upload = client.observe(np.ones((1, 2), "f4"), np.ones((1, 2), "f4"), np.float32([1]))
    with pytest.raises(ValueError, match="upload of client 0 has no ticket"):
        server.apply(upload)


@pytest.mark.parametrize("packed", [False, True])
def test_after_a_restart_of_the_server_its_models_are_the_newer_ones(packed):
    client = BanditClient(Greedy(), 0, 2)
    old, new = BanditServer(2), BanditServer(2)
    models = [old.publish() for _ in range(5)]
    client.reward(client.choose(np.eye(2)).id, 1.0)
    new.apply(client.uploads())
    restarted = new.publish()
    if packed:
        models, restarted = (
            [GlobalModel.unpack(one.pack(0), 0) for one in several]
            for several in (models, [restarted])
        )
        (restarted,) = restarted
    client.refresh(models[4])
    client.refresh(restarted)
    client.refresh(models[3])
    np.testing.assert_array_equal(client._models.global_.weights, new.w_global)
    assert new.w_global.any()


def test_four_threads_share_a_client_and_a_server():
    client, server = BanditClient(EpsilonGreedy(0.5), 2, 2, seed=0), BanditServer(2)
    ids, errors = [[] for _ in range(4)], []
    begin = Barrier(4)

    def work(mine):
        rng = np.random.default_rng(0)
        begin.wait()
        try:
            for _ in range(150):
                decision = client.choose(*contexts_of(rng))
                mine.append(decision.id)
                client.reward(decision.id, 1.0)
                client.confirm(server.apply(client.uploads()))
                client.refresh(server.publish())
        except Exception as error:  # a thread's own would be lost
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [Thread(target=work, args=(mine,)) for mine in ids]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert len({id_ for mine in ids for id_ in mine}) == 600
    assert client.counts == (600, 600, 0, 600)
    assert client.uploads() == []
    (received,) = server._received.values()
    assert (received.confirmed - client._sender - 1, received.beyond) == (600, [])


def test_a_late_reward_is_taken_once_until_the_window_closes():
    now = [100.0]
    client = BanditClient(Greedy(), 0, 2, window=60.0, late=0.0, clock=lambda: now[0])
    first, second = (client.choose(np.eye(2)) for _ in range(2))
    assert (first.time, first.model) == (100.0, (0, 0))
    now[0] = 159.9
    client.reward(first.id, 1.0)
    now[0] = 160.0
    for decision, reason in ((first, "rewarded"), (second, "expired")):
        with pytest.raises(RewardError) as told:
            client.reward(decision.id, 1.0)
        assert told.value.reason == reason
    assert client.counts == (2, 1, 1, 2)
    assert [float(upload.y[0]) for upload in client.uploads()] == [1.0, 0.0]


def test_windows_close_while_nothing_else_happens():
    now = [0.0]
    client = BanditClient(Greedy(), 0, 2, window=1.0, clock=lambda: now[0])
    client.choose(np.eye(2))
    now[0] = 1.0
    assert client.pending == 1
    client.settle()
    assert client.pending == 0

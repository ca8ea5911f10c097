"""The bandit simulator is itself without a compiler, and `BanditClient` and `BanditServer`."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import fedres
from fedres.bandits import (
    BanditClient,
    BanditServer,
    Catalogue,
    EpsilonGreedy,
    Greedy,
    Multiclass,
    Replay,
    Softmax,
    SquareCB,
    paper_bandit,
    simulate_bandit,
)
from fedres.bandits.estimates import estimate
from fedres.bandits.run_log import events_of
from fedres.bandits.targets import joint_policy
from fedres.bandits.world import ACTION, EXPLORE, drawn, key_of
from fedres.core import theory
from fedres.core.compiled import compiled
from fedres.core.delays import Delay, as_delay
from fedres.core.parties import Client, Server
from fedres.core.rule import Rule
from fedres.core.schedule import draw_delays, draw_label_delays
from fedres.simulation.dataset import Dataset
from fedres.simulation.intervals import interval

CLIENTS = 3


def uniform(seed, client, round_, purpose):
    return compiled(drawn)(np.uint64(compiled(key_of)(seed, client, round_)), purpose)


class Draws:
    """The numbers that the simulator draws for the choices of one client."""

    def __init__(self, seed, client, purposes):
        self.seed, self.client, self.purposes = seed, client, purposes
        self.count = 0

    def random(self):
        round_, k = divmod(self.count, len(self.purposes))
        self.count += 1
        return uniform(self.seed, self.client, round_, self.purposes[k])


def play(world, policy, method, *, rounds, delay, reward_delay, step, learn_from, seed):
    """What `simulate_bandit` does, with objects and messages: actions, rewards, models."""
    tables = world.tables(method)
    widths = [world.blocks * table.shape[1] for table in tables]
    purposes = (EXPLORE, ACTION) if getattr(policy, "epsilon", None) is not None else (ACTION,)
    clients = [
        BanditClient(
            policy, widths[1], widths[0], i, Draws(seed, i, purposes), learn_from, step=step
        )
        for i in range(world.clients)
    ]
    server = BanditServer(widths[0], step=step)
    delay = as_delay(delay) if widths[0] else Delay()
    ups, downs = draw_delays(delay, world.clients, rounds, 1, seed)
    late = draw_label_delays(reward_delay, world.clients, rounds, 1, seed)
    versions = {}
    to_client, to_server, sent = defaultdict(list), defaultdict(list), defaultdict(set)
    actions, rewards = np.empty((2, world.clients, rounds))
    for n in range(rounds):
        for i, client in enumerate(clients):
            for version, model in versions.items():
                if version + downs[i, version] == n:
                    client.refresh(model)
            offer = world.actions(seed, i, n + 1)
            decision = client.choose(*(world.contexts(offer, table) for table in tables))
            action = decision.action
            reward = world.reward(seed, i, n + 1, offer.row[action], offer.block[action])
            actions[i, n], rewards[i, n] = action, reward
            to_client[n + late[i, n]].append((i, n, decision.id, reward))
        for i, s, id_, reward in sorted(to_client.pop(n, [])):
            clients[i].reward(id_, reward)
            arrives = n + ups[i, n]
            new = [one for one in clients[i].uploads() if one.ticket.serial not in sent[i]]
            sent[i] |= {one.ticket.serial for one in new}
            to_server[arrives] += [(i, n, s, upload) for upload in new]
        for i, *_, upload in sorted(to_server.pop(n, []), key=lambda sent: sent[:3]):
            clients[i].confirm(server.apply(upload))
        versions[n + 1] = server.publish()
    return actions, rewards, server.w_global, [client.w_local for client in clients]


def small_world(kind, seed):
    rng = np.random.default_rng(seed)
    if kind.startswith("catalogue"):
        # Features that sum to 1, as drawn ones do, would tie after one adaptive step.
        tables = [rng.random((8, width), np.float32) for width in (3, 2)]
        if kind == "catalogue, sparse":
            tables = [csr_array(np.where(x > 0.3, x, 0)) for x in tables]
        weights = rng.random(3) / 6, rng.random((CLIENTS, 2)) / 4
        return Catalogue(*tables, *weights, 1, 4, "bernoulli" if seed % 2 else 0.1)
    if kind.startswith("replay"):
        x = [rng.random((14, width), np.float32) for width in (3, 2)]
        if kind == "replay, sparse":
            x = [csr_array(np.where(one > 0.3, one, 0)) for one in x]
        whose = [*np.arange(12) % CLIENTS, 0, 7]  # one row of a client that has no other
        return Replay.from_arrays(whose, rng.random(14), *x, offers=5)
    data = Dataset("random", rng.random((30, 5), np.float32), np.arange(30) % 3)
    views = "halves" if "halves" in kind else "same"
    world = Multiclass.deal(data, CLIENTS, classes=2, permute=0.7, views=views, seed=seed)
    if "sparse" not in kind:
        return world
    tables = (csr_array(x) for x in (world.x_global, world.x_local, world.x_all))
    return Multiclass(*tables, world.first, world.seen, world.pays)


uniforms = st.tuples(st.integers(0, 2), st.integers(0, 3)).map(
    lambda pair: fedres.Uniform(pair[0], pair[0] + pair[1])
)
message_lags = st.one_of(
    st.integers(0, 3), st.lists(st.integers(0, 3), min_size=CLIENTS, max_size=CLIENTS), uniforms
)


# Contexts of several blocks are sparse rows to clients: so sums have the order of sparse rows.
ALIKE = (
    "catalogue", "catalogue, sparse", "classes, sparse", "classes, halves, sparse", "replay",
    "replay, sparse",
)  # fmt: skip
options = st.fixed_dictionaries(
    {
        "delay": st.builds(fedres.Delay, up=message_lags, down=message_lags),
        "reward_delay": st.one_of(st.integers(0, 3), uniforms),
        "step": st.sampled_from(
            [fedres.Adaptive(0.1, clip=False), fedres.Adaptive(0.3), fedres.Sgd(0.05)]
        ),
        "seed": st.integers(0, 1000),
    }
)
methods = st.sampled_from(["independent", "central", "fedres"])
choices = st.sampled_from(
    [
        (Greedy(), "all"),
        (EpsilonGreedy(0.3), "all"),
        (EpsilonGreedy(0.3), "exploration"),
        (EpsilonGreedy(explore_every=3), "all"),
        (EpsilonGreedy(explore_every=3), "exploration"),
        (SquareCB(4.0), "all"),
        (Softmax(0.2), "all"),
    ]
)


@given(
    kind=st.sampled_from([*ALIKE, "classes", "classes, halves"]),
    choice=choices,
    method=methods,
    options=options,
    constant=st.booleans(),
)
def test_the_compiler_changes_no_bit(kind, choice, method, options, constant):
    world, (policy, learn_from) = small_world(kind, options["seed"]), choice
    with_, without = (
        simulate_bandit(
            world, policy, method, **options, learn_from=learn_from, constant=constant,
            rounds=12, keep_decisions=True, compiled=compiled,
        )
        for compiled in (True, False)
    )  # fmt: skip
    for name in (
        "actions", "rewards", "probabilities", "w_global", "w_local", "reward_by_round",
        "reward_by_client", "mean_by_round",
    ):  # fmt: skip
        np.testing.assert_array_equal(getattr(with_, name), getattr(without, name), name)


@given(kind=st.sampled_from(ALIKE), choice=choices, method=methods, options=options)
def test_the_simulator_equals_clients_and_server(kind, choice, method, options):
    world, (policy, learn_from) = small_world(kind, options["seed"]), choice
    options = options | {"rounds": 15, "learn_from": learn_from}
    run = simulate_bandit(world, policy, method, **options, constant=True, keep_decisions=True)
    actions, rewards, w_global, w_local = play(world, policy, method, **options)
    np.testing.assert_array_equal(run.actions, actions)
    np.testing.assert_array_equal(run.rewards, rewards)
    np.testing.assert_array_equal(run.w_global, w_global)
    np.testing.assert_array_equal(run.w_local, w_local)
    np.testing.assert_allclose(run.reward_by_round, rewards.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(run.reward_by_client, rewards.mean(axis=1), atol=1e-6)
    sums = np.nansum(run.probabilities, axis=2)
    np.testing.assert_allclose(sums, 1)


def test_a_replay_offers_clients_their_own_rows_and_pays_what_they_say():
    client = np.array(["ann", "bob", "ann", "cid", "bob", "ann", "ann"])
    x, reward = np.diag(np.arange(1.0, 8.0)), np.arange(7) / 7
    world = Replay.from_arrays(client, reward, x, offers=3)
    assert (world.clients, world.most, world.blocks) == (2, 3, 1)  # cid has nothing to choose from
    seen = set()
    for turn in range(1, 60):
        for i, name in enumerate(("ann", "bob")):
            offer = world.actions(4, i, turn)
            assert len(offer.row) == (3 if name == "ann" else 2)
            assert len({*offer.row.tolist()}) == len(offer.row)
            for row in offer.row:
                (column,) = np.flatnonzero(world.x_global[row])
                assert client[column] == name
                assert world.reward(4, i, turn, row, 0) == np.float32(reward[column])
                seen.add(int(column))
    assert seen == {0, 1, 2, 4, 5, 6}
    greedy, blind = (
        simulate_bandit(world, policy, rounds=400) for policy in (Greedy(), EpsilonGreedy(1.0))
    )
    assert greedy.regret_by_round[-100:].mean() < 0.02
    assert blind.regret_by_round[-100:].mean() > 0.1


def test_some_clients_of_a_replay():
    whose = np.repeat(np.arange(6), 4)
    world = Replay.from_arrays(whose, whose, np.eye(24))
    assert world.some(6, seed=1) is world
    some = world.some(2, seed=1)
    assert (some.clients, len(some.pays)) == (2, 8)
    assert len(np.unique(some.pays)) == 2
    assert (world.some(2, seed=2).pays != some.pays).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": [1, 2, 3]}, "none of the 3 clients has two rows"),
        ({"reward": [1, np.nan, 0]}, "3 rows: give each a reward, a finite number"),
        ({"reward": [1, 0]}, "3 rows: give each a reward"),
        ({"offers": 1}, "offers must be at least 2, not 1"),
        ({"x_global": np.eye(2)}, "x_global has 2 rows"),
    ],
)
def test_replays_that_cannot_be_are_told(options, message):
    fine = {"client": [1, 1, 2], "reward": [0, 1, 0], "x_global": np.eye(3)}
    with pytest.raises(ValueError, match=message):
        Replay.from_arrays(**(fine | options))


def test_a_run_depends_on_its_seed_alone():
    world = Multiclass.deal("digits", 5, classes=4, permute=0.5, seed=1)
    options = {"rounds": 50, "reward_delay": fedres.Uniform(0, 5), "keep_decisions": True}
    calls = [
        lambda seed=seed: simulate_bandit(world, EpsilonGreedy(0.2), seed=seed, **options)
        for seed in (3, 3, 4)
    ]
    first, again, other = fedres.run_all(calls, n_jobs=2)
    assert (first.actions == again.actions).all()
    assert (first.w_local == again.w_local).all()
    assert (first.actions != other.actions).any()


def test_draws_are_uniform_and_unrelated():
    drawn = np.array(
        [[[uniform(9, i, n, k) for k in range(4)] for n in range(25)] for i in range(25)]
    )
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts, _ = np.histogram(drawn, 20)
    expected = drawn.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 36  # chi-square with 19 df, p = 0.01
    columns = drawn.reshape(-1, 4)
    neighbours = [*columns.T, np.roll(columns[:, 0], 1), np.roll(columns[:, 0], 25)]
    apart = np.abs(np.corrcoef(neighbours) - np.eye(6))
    assert apart.max() < 4 / np.sqrt(len(columns))


@given(
    clients=st.integers(1, 5),
    items=st.integers(1, 20),
    widths=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    difference=st.floats(0, 1),
    seed=st.integers(0, 10_000),
)
def test_expected_rewards_of_a_catalogue_are_realizable(clients, items, widths, difference, seed):
    world = Catalogue.draw(
        clients, items=items, actions=(1, items), width_global=widths[0], width_local=widths[1],
        difference=difference, seed=seed,
    )  # fmt: skip
    # Of small matrices BLAS may raise a flag for numbers that are not theirs.
    shared, own = (np.einsum("jk,ik->ij", *pair) for pair in (
        (world.x_global, world.w_global[None]), (world.x_local, world.w_local),
    ))  # fmt: skip
    np.testing.assert_allclose(world.mean, shared + own, atol=1e-6)
    assert 0 <= world.mean.min() <= world.mean.max() <= 1
    assert difference > 0 or np.ptp(world.mean, axis=0).max() < 1e-6
    offer = world.actions(seed, clients - 1, turn=1)
    assert len(set(offer.row)) == len(offer.row) <= items


def test_rewards_are_as_expected():
    world = Catalogue.draw(2, items=3, actions=2, seed=0)
    paid = [world.reward(0, 1, turn, row=2, block=0) for turn in range(1, 4001)]
    assert set(paid) == {0.0, 1.0}
    assert abs(np.mean(paid) - world.mean[1, 2]) < 4 * np.sqrt(0.25 / 4000)
    noisy = Catalogue.draw(2, items=3, actions=2, noise=0.1, seed=0)
    around = [noisy.reward(0, 1, turn, row=2, block=0) - noisy.mean[1, 2] for turn in range(1, 99)]
    assert -0.1 <= min(around) < -0.08
    assert 0.08 < max(around) <= 0.1


def test_classes_pay_what_the_client_calls_them():
    world = Multiclass.deal("digits", 6, classes=3, permute=0.4, seed=2)
    data = fedres.load_data("digits")
    order = np.argsort(data.y, kind="stable")
    assert ((world.pays != np.arange(10)).sum(axis=1) == 4).all()
    for client in range(6):
        assert sorted(world.pays[client]) == list(range(10))
        for turn in range(1, 30):
            offer = world.actions(5, client, turn)
            label = data.y[order[offer.row[0]]]
            assert label in world.seen[client]
            paid = [world.reward(5, client, turn, *action) for action in zip(*offer, strict=True)]
            assert np.flatnonzero(paid) == [world.pays[client, label]]


def test_the_best_pair_of_classes_is_the_least_squares_fit_on_all_rows():
    rng = np.random.default_rng(0)
    data = Dataset("random", rng.random((90, 4), np.float32), np.repeat(np.arange(3), [20, 30, 40]))
    world = Multiclass.deal(data, 1, permute=1.0)
    x = np.hstack([world.x_all, np.ones((90, 1))])
    rows = np.sqrt(1 / np.diff(world.first))[world.world.class_of]
    targets = np.eye(3)[world.pays[0]][world.world.class_of]
    weights = np.linalg.lstsq(x * rows[:, None], targets * rows[:, None])[0]
    right = (x @ weights).argmax(axis=1) == world.pays[0][world.world.class_of]
    assert np.mean(world.best[0] == right) > 0.95  # but for the ridge


def test_regret_of_a_catalogue_compares_with_the_best_on_offer():
    world = Catalogue.draw(2, items=6, actions=(1, 3), seed=3)
    run = simulate_bandit(world, Softmax(), rounds=10, seed=4, keep_decisions=True)
    for n in range(10):
        gaps = []
        for i in range(2):
            means = world.mean[i, world.actions(4, i, n + 1).row]
            gaps.append(means.max() - means[run.actions[i, n]])
        assert run.regret_by_round[n] == pytest.approx(np.mean(gaps))


def test_who_knows_the_truth_has_no_regret():
    world = Catalogue.draw(4, seed=1)
    best = world.value(Greedy(), world.w_global, world.w_local, decisions=1000, seed=0)
    run = simulate_bandit(world, EpsilonGreedy(1.0), rounds=1000, seed=0)
    assert run.regret_by_round.mean() + run.mean_by_round.mean() == pytest.approx(best)


def exponent(policy, learn_from):
    """The slope of log average regret against log T, with its interval over environments."""
    rounds = [1000, 4000, 16_000, 64_000]
    slopes = []
    for seed in range(6):
        world = Catalogue.draw(
            4, items=50, actions=5, width_global=4, width_local=4, difference=0.5, seed=seed
        )
        regret = [
            simulate_bandit(
                world, policy(T), rounds=T, step=fedres.Adaptive(0.1, clip=False),
                learn_from=learn_from, seed=seed,
            ).regret_by_round.mean()
            for T in rounds
        ]  # fmt: skip
        slopes.append(np.polyfit(np.log(rounds), np.log(regret), 1)[0])
    return interval(slopes)


def test_regret_shrinks_as_theory_says():
    # Theorem 3: T^(-1/5) with B growing as T^(1/5), or better; measured -0.24 +- 0.03.
    paper = exponent(lambda T: EpsilonGreedy(explore_every=round(T**0.2)), "exploration")
    assert paper.mean + paper.half < -0.2 + 0.03
    assert paper.mean - paper.half > -0.35
    # Inverse-gap weighting: T^(-1/2); measured -0.48 +- 0.05.
    gaps = exponent(lambda _: SquareCB(), "all")
    assert gaps.mean + gaps.half < -0.5 + 0.15
    assert gaps.mean - gaps.half > -0.5 - 0.15


@pytest.mark.parametrize("delay", [fedres.Delay(), fedres.Delay(up=2, down=3)])
def test_the_papers_bandit_is_the_aligned_rule_on_exploration_alone(delay):
    """Clients and server as objects are fed the same decisions, those of every third round."""
    world, seed, rounds, every = small_world("catalogue", 3), 5, 31, 3
    steps = {"step": fedres.Sgd(0.2), "local_step": fedres.Sgd(0.3)}
    options = {
        "rounds": rounds,
        "delay": delay,
        "explore_every": every,
        "radius": 0.15,
        "seed": seed,
    }
    run = paper_bandit(world, **options, **steps, keep_decisions=True)
    rule = Rule(**steps, alignment="aligned", radius=0.15, constant=False)
    server = Server(rule, 3)
    clients = [Client(rule, 3, 2, client=i) for i in range(world.clients)]
    published, sent = [server.current()], []
    for n in range(rounds + 1):
        for client in clients:
            client.refresh(published[max(n - delay.down, 0)])
        if n == rounds:
            break
        sent.append([])
        for i, client in enumerate(clients if (n + 1) % every == 0 else []):
            offer = world.actions(seed, i, n + 1)
            contexts = [world.contexts(offer, table) for table in world.tables("fedres")]
            x = [rows[run.actions[i, n]][None] for rows in contexts]
            sent[n].append(client.observe(*x, np.float32([run.rewards[i, n]])))
        for upload in sent[n - delay.up] if n >= delay.up else []:
            server.apply(upload)
        published.append(server.publish())
    np.testing.assert_allclose(run.w_global, server.global_.weights[:3], atol=1e-6)
    for mine, client in zip(run.w_local, clients, strict=True):
        np.testing.assert_allclose(mine, client.local.weights[:2], atol=1e-6)
    free = paper_bandit(world, **options | {"radius": 9.0}, **steps)
    assert np.linalg.norm(free.w_local, axis=1).max() > 0.15  # so the ball matters
    assert np.linalg.norm(run.w_local, axis=1).max() <= 0.15 + 1e-6


def test_the_papers_bandit_takes_what_theory_says():
    world = small_world("catalogue", 3)
    run = paper_bandit(world, rounds=5000, delay=10)
    every = theory.explore_every(5000, world.clients, world.most, theory.Problem())
    assert run.policy == EpsilonGreedy(explore_every=every)


@pytest.mark.parametrize("kind", ["catalogue", "classes"])
def test_estimates_from_a_simulated_log_cover_the_truth(kind):
    world = small_world(kind, seed=1)
    target = Softmax(0.3)
    teacher = simulate_bandit(world, EpsilonGreedy(0.5), rounds=300, seed=8, constant=True)
    truth = world.value(target, teacher.w_global, teacher.w_local, seed=9)
    log = simulate_bandit(world, EpsilonGreedy(0.5), rounds=500, seed=2, keep_decisions=True)
    models = teacher.w_global, dict(enumerate(teacher.w_local))
    result = estimate(events_of(log), joint_policy(target, *models))
    assert result.events == log.decisions
    assert result.logged.mean == pytest.approx(log.reward)
    for found in (result.ips, result.snips, result.dr):
        assert abs(found.mean - truth) < found.half
        assert found.half < 0.1


def test_independent_clients_do_not_wait_for_messages():
    world = Catalogue.draw(3, seed=0)
    at_once, late = (
        simulate_bandit(world, SquareCB(), "independent", rounds=50, delay=delay)
        for delay in (0, 20)
    )
    assert (at_once.w_local == late.w_local).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"seed": -1}, "seed must be"),
        ({"method": "federated"}, "unknown method 'federated'"),
        ({"learn_from": "some"}, "unknown learn_from 'some'"),
        ({"learn_from": "exploration"}, "use learn_from='all'"),
        ({"reward_delay": -1}, "must not be negative"),
        ({"delay": [1, 2]}, "2 delays were given for 3 clients"),
        ({"local_step": fedres.Sgd(0.1)}, "of one kind"),
        ({"step": fedres.Sgd(1e30), "local_step": None}, "use a smaller eta"),
    ],
)
def test_bad_settings(wrong, message):
    world = Catalogue.draw(3, seed=0)
    settings = {"rounds": 20} | wrong
    if "delay" in wrong:
        settings["delay"] = fedres.Delay(up=wrong["delay"])
    with pytest.raises(ValueError, match=message):
        simulate_bandit(world, SquareCB(), **settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Catalogue.draw(0), "clients must be at least 1"),
        (lambda: Catalogue.draw(2, items=5, actions=6), "5 items to offer, not 6 to 6"),
        (lambda: Catalogue.draw(2, difference=1.5), "difference must be from 0 to 1"),
        (lambda: Catalogue.draw(2, noise=-1.0), "noise must be"),
        (
            lambda: Catalogue(*np.ones((2, 1, 1)), np.ones(1), np.ones((2, 1)), 1, 1),
            r"expected rewards go from 2 to 2",
        ),
        (lambda: Multiclass.deal("digits", 2, classes=11), "classes must be from 1 to 10"),
        (lambda: Multiclass.deal("digits", 2, permute=-0.1), "permute must be"),
        (lambda: Multiclass.deal("digits", 2, views="thirds"), "unknown views 'thirds'"),
        (lambda: Multiclass.deal("digits", 0), "clients must be at least 1"),
        (
            lambda: Catalogue.draw(2).value(Greedy(), np.zeros(3), np.zeros((2, 10))),
            r"w_global has weights of shape \(1, 3\)",
        ),
    ],
)
def test_bad_environments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_events_need_kept_decisions():
    run = simulate_bandit(Catalogue.draw(2), Greedy(), rounds=2)
    with pytest.raises(ValueError, match="keep_decisions=True"):
        next(events_of(run))


def test_the_best_pair_of_classes_is_that_of_the_joint_fit():
    from fedres.bandits.multiclass import RIDGE
    from fedres.core.best_pair import Samples, best_pair

    world = Multiclass.deal("digits", clients=3, classes=4, permute=0.5, views="halves", seed=1)
    rows = [
        np.concatenate([np.arange(*world.first[[c, c + 1]]) for c in seen]) for seen in world.seen
    ]
    class_of = np.repeat(np.arange(10), np.diff(world.first))

    def samples(i, action):
        of = class_of[rows[i]]
        reward = np.float32(world.pays[i][of] == action)
        weight = 1 / np.diff(world.first)[of]  # classes are seen equally often
        one = np.ones((len(of), 1), np.float32)
        x, z = (np.hstack([table[rows[i]], one]) for table in (world.x_global, world.x_local))
        return Samples(x, z, reward, weight)

    ridge = 4 * RIDGE
    scores = np.zeros((3, len(class_of), 10))
    ones = np.ones((len(class_of), 1))
    for action in range(10):
        fit = best_pair(
            [samples(i, action) for i in range(3)],
            constant=False, ridge_global=ridge, ridge_local=ridge,
        )  # fmt: skip
        for i, own in enumerate(fit.w_local):
            scores[i, :, action] = np.hstack([world.x_global, ones]) @ fit.w_global
            scores[i, :, action] += np.hstack([world.x_local, ones]) @ own
    for i in range(3):
        named = scores[i, rows[i]].argmax(axis=1) == world.pays[i][class_of[rows[i]]]
        assert (named == world.best[i][rows[i]]).mean() > 0.999

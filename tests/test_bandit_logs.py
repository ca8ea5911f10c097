import json

import numpy as np
import pytest
from scipy import sparse

from fedres.bandits import (
    BanditClient,
    BanditServer,
    Event,
    EventLog,
    Greedy,
    ReplayLearner,
    Softmax,
    SquareCB,
    estimate,
    evaluate_log,
    joint_policy,
    read_dsjson,
    read_events,
    write_dsjson,
)
from fedres.bandits.estimates import Weighed, _predict_rewards, evaluate
from test_examples import load

NONE = np.empty((2, 0), np.float32)
GOOD = {
    "client": 0,
    "id": 1,
    "action": 1,
    "probabilities": [0.25, 0.75],
    "reward": 1,
    "global": [[0.1, 2.0], [3.0, 4.0]],
    "local": None,
}


def dense(x):
    return x.toarray() if sparse.issparse(x) else x


def event_of(action, reward, probabilities=(0.5, 0.5), id_=1, client=0, x=((1.0,), (2.0,))):
    return Event(client, id_, np.float32(x), NONE, action, np.array(probabilities), reward)


def sent_and_back(sent, path, write, read):
    write(sent, path)
    back = list(read(path))
    assert len(back) == len(sent)
    for event, one in zip(sent, back, strict=True):
        for name in ("client", "id", "turn", "time", "model", "action", "reward", "expired"):
            assert getattr(one, name) == getattr(event, name)
        np.testing.assert_array_equal(one.probabilities, event.probabilities)
        for side in ("contexts_global", "contexts_local"):
            given, got = getattr(event, side), getattr(one, side)
            np.testing.assert_array_equal(dense(got), dense(given))
            assert got.dtype == np.float32
            if given.shape[1]:
                assert sparse.issparse(got) == sparse.issparse(given)


def write_events(events, path):
    with EventLog(path) as log:
        for event in events:
            log(event)


@pytest.mark.parametrize(
    ("write", "read"),
    [(write_events, read_events), (write_dsjson, read_dsjson)],
    ids=["fedres", "dsjson"],
)
@pytest.mark.parametrize("make", [np.float32, sparse.csr_array], ids=["dense", "sparse"])
def test_events_come_back_as_they_were(make, write, read, tmp_path):
    rng = np.random.default_rng(0)
    x_global = make(rng.normal(size=(3, 4)).astype(np.float32))
    x_local = make(np.where(rng.random((3, 5)) < 0.3, rng.normal(size=(3, 5)), 0).astype("f4"))
    wide = make((rng.random((3, 30_000)) < 0.01).astype("f4"))
    nothing = make(np.empty((3, 0), np.float32))
    thirds, odds = np.ones(3) / 3, np.array([0.1, 0.7, 0.2])
    sent = [
        Event(2, 1, x_global, x_local, 1, odds, 0.3),
        Event(2, 2, x_global, nothing, 0, thirds, None, True),
        Event("anna", "anna:1f", wide, x_local, 2, odds, 1.0, turn=7, time=1.5e9, model=(2**60, 9)),
        Event("7", "7:1f", make(np.zeros((3, 9), "f4")), x_local, 2, odds, -1.0, True, turn=1),
    ]
    sent_and_back(sent, tmp_path / "log", write, read)


def test_lines_are_compact():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 28)).astype("f4")
    event = Event("anna", "anna:1f", x[:, :20], x[:, 20:], 1, np.ones(12) / 12, 1.0, turn=1)
    assert len(event.to_json()) < 4 / 3 * 4 * x.size + 400
    ones = (rng.random((12, 1000)) < 0.01).astype("f4")
    for make in (np.asarray, sparse.csr_array):
        line = Event(0, 1, make(ones), NONE[:0], 1, np.ones(12) / 12, 1.0).to_json()
        assert len(line) < 4 / 3 * 2 * ones.sum() + 400
    twice = sparse.csr_array(([0.1, 1.0, 1.0], [700, 3, 3], [0, 1, 3]), shape=(2, 1000), dtype="f4")
    back = Event.from_json(Event(0, 1, twice, NONE, 1, np.array([0.5, 0.5]), 1.0).to_json())
    np.testing.assert_array_equal(back.contexts_global.toarray(), twice.toarray())


def test_what_is_logged_twice_is_read_once(tmp_path):
    """A client that is killed between the log and its save logs the same event again."""
    events = []
    client = BanditClient(Softmax(), 1, client="anna", seed=0, log=events.append)
    decision = client.choose(None, [[5.0], [6.0]])
    client.save(tmp_path / "client")
    client.reward(decision.id, 1.0)
    client = BanditClient.load(tmp_path / "client", log=events.append)
    client.reward(decision.id, 1.0)
    client.choose(None, [[5.0], [6.0]])
    client.expire()
    write_events(events, tmp_path / "log")
    assert [(e.turn, e.reward) for e in read_events(tmp_path / "log")] == [(1, 1.0), (2, None)]
    assert [e.client for e in read_events(tmp_path / "log")] == ["anna", "anna"]


def test_the_log_knows_when_and_by_which_model(tmp_path):
    server, events = BanditServer(1), []
    client = BanditClient(Softmax(), 0, 1, seed=0, log=events.append, clock=lambda: 12.5)
    client.refresh(server.publish())
    client.reward(client.choose([[5.0], [6.0]]).id, 1.0)
    assert (events[0].time, events[0].model) == (12.5, (server.epoch, 1))


THEIRS = """{"_label_cost":-1,"_label_probability":0.8,"_label_Action":2,"_labelIndex":1,\
"Version":"1","EventId":"aa","Timestamp":"2026-11-16T12:00:00.2500000Z","a":[2,1],"p":[0.8,0.2],\
"c":{"User":{"id":"anna","age":3},"_multi":[{"Item":{"kind":"news"}},{"Item":{"kind":"sport","x":2}}]},\
"VWState":{"m":"x"}}
"""


def test_logs_of_others_are_hashed(tmp_path):
    path = tmp_path / "theirs.dsjson"
    path.write_text(THEIRS + THEIRS.replace('"aa"', '"bb"').replace("anna", "bob"))
    first, second = read_dsjson(path, client="User.id")
    assert (first.client, first.id, first.turn, first.action, first.reward) == (
        "anna", "aa", 1, 1, 1.0,
    )  # fmt: skip
    assert first.time == pytest.approx(1794830400.25)
    assert first.probabilities.tolist() == [0.2, 0.8]
    assert first.contexts_global.shape == (2, 4096)
    # kind; x; and the products of both with id and age
    assert [len(row.data) for row in (first.contexts_global[[a]] for a in (0, 1))] == [3, 6]
    assert second.client == "bob"
    assert abs(first.contexts_global - second.contexts_global).sum() > 0
    assert [event.client for event in read_dsjson(path)] == [0, 0]
    with pytest.raises(ValueError, match=r"line 1 is no event: it has no 'User.name' in its cont"):
        list(read_dsjson(path, client="User.name"))
    path.write_text(THEIRS.replace('"a":[2,1]', '"a":[2,3]'))
    with pytest.raises(ValueError, match=r"its actions are \[2, 3\], and it has 2"):
        list(read_dsjson(path))
    path.write_text('{"c": {}}\n')
    with pytest.raises(ValueError, match="it has no '_multi'"):
        list(read_dsjson(path))


def test_vowpal_wabbit_reads_what_is_written(tmp_path):
    vowpalwabbit = pytest.importorskip("vowpalwabbit")
    rng, events = np.random.default_rng(0), []
    for t in range(1, 401):
        x, action = rng.normal(size=(3, 2)).astype("f4"), int(rng.integers(3))
        thirds, reward = np.ones(3) / 3, float(x[action, 0] > 0)
        events.append(Event("anna", t, x, x[:, :0], action, thirds, reward))
    assert write_dsjson(events, tmp_path / "log.dsjson") == 400
    learner = vowpalwabbit.Workspace(f"--dsjson --cb_adf -d {tmp_path / 'log.dsjson'} --quiet")
    assert learner.get_weighted_examples() == 400
    # Who takes the best of three gets 7/8 of the time, the log half of the time.
    assert learner.get_sum_loss() / 400 == pytest.approx(-0.85, abs=0.15)
    learner.finish()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": 2}, "action is 2"),
        ({"action": True}, "action is True"),
        ({"action": 0, "probabilities": [0.0, 1.0]}, "action 0 was chosen with probability 0"),
        ({"client": 1.5}, "client is 1.5"),
        ({"id": 0}, "turn is 0"),
        ({"id": "a"}, "turn is 'a'"),
        ({"reward": "1"}, "reward is '1'"),
        ({"reward": np.nan}, "reward is nan"),
        ({"probabilities": [0.5, 0.6]}, "sum to 1"),
        ({"probabilities": [1.5, -0.5]}, "sum to 1"),
        ({"probabilities": [1.0]}, "1 probabilities for 2 actions"),
        ({"probabilities": "none"}, "'none' where numbers .f8. in base64 belong"),
        ({"global": {"shape": [2, 2], "u2": "BAA="}}, "beyond its shape of 2 by 2"),
        ({"global": [[0.1, np.nan], [3.0, 4.0]]}, "contexts_global has nan"),
        ({"global": [[0.1], [3.0, 4.0]]}, "contexts_global must be a table"),
        ({"global": {"width": 3, "rows": [{"3": 1.0}, {}]}}, "beyond its width of 3"),
        ({"global": {"rows": [{}, {}]}}, "no width"),
        ({"local": [[1.0]]}, "2 in contexts_global and 1 in contexts_local"),
        ({"global": None}, "one row an action"),
    ],
)
def test_a_broken_line_is_told_with_its_number(change, message, tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in (GOOD, GOOD | change, GOOD)) + "\n")
    events = read_events(path)
    assert next(events).reward == 1.0
    with pytest.raises(ValueError, match=f"events.jsonl, line 2 is no event: .*{message}"):
        next(events)


def test_an_event_that_could_not_be_read_again_is_not_made():
    x = np.float32([[1.0], [2.0]])
    with pytest.raises(ValueError, match="its reward is inf"):
        Event("anna", 1, x, x, 0, np.array([0.5, 0.5]), np.inf)


def test_a_line_without_a_field_is_told(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"client": 0, "id": 1}\n[]\n')
    with pytest.raises(ValueError, match=r"line 1 .* no action, global, local, probabilities, rew"):
        list(read_events(path))
    path.write_text("\n")
    with pytest.raises(ValueError, match=r"line 1 .* not JSON"):
        list(read_events(path))
    path.write_text("[]\n")
    with pytest.raises(ValueError, match=r"line 1 .* not a JSON object"):
        list(read_events(path))


def test_a_torn_last_line_is_told_and_removed_when_the_log_is_opened_again(tmp_path):
    path = tmp_path / "events.jsonl"
    line = json.dumps(GOOD)
    path.write_text(f"{line}\n{line[:40]}")
    with pytest.raises(ValueError, match="line 2 is no event: it is cut short"):
        list(read_events(path))
    with EventLog(path) as log:
        log(event_of(0, 0.5, id_=2))
    assert [event.reward for event in read_events(path)] == [1.0, 0.5]
    path.write_text(line[:40])
    EventLog(path).close()
    assert path.read_bytes() == b""


def test_a_client_logs_each_decision_once_it_is_over():
    events, contexts = [], (np.eye(2, dtype="f4"), np.float32([[5.0], [6.0]]))
    client = BanditClient(Softmax(), 1, client=4, seed=0, wait=1, late=0.25, log=events.append)
    made = [client.choose(*contexts) for _ in range(3)]  # the third ends the wait of the first
    for x in contexts:
        x[:] = np.nan  # the client must have kept its own copy
    client.reward(made[2].id, 2.0)
    client.expire()
    assert [(e.turn, e.reward, e.expired) for e in events] == [
        (1, 0.25, True),
        (3, 2.0, False),
        (2, 0.25, True),
    ]
    assert events[0].client == 4
    assert {event.id for event in events} == {one.id for one in made}
    assert events[0].action == made[0].action
    for event in events:
        np.testing.assert_array_equal(event.contexts_global, np.eye(2))
        np.testing.assert_array_equal(event.contexts_local, [[5.0], [6.0]])


def test_a_dropped_decision_is_logged_without_reward(tmp_path):
    with EventLog(tmp_path / "log") as log:
        client = BanditClient(Softmax(), 1, seed=0, log=log)
        client.choose(None, [[5.0], [6.0]])
        client.expire()
    (event,) = read_events(tmp_path / "log")
    assert event.reward is None
    assert event.expired


def test_estimates_worked_by_hand():
    # weights q/p of the logged actions: 0.8/0.5, 0.2/0.5, 0.8/0.25, 0.2/0.5
    events = [
        event_of(1, 1.0),
        event_of(0, 1.0),
        event_of(1, 0.0, (0.75, 0.25)),
        event_of(0, 0.5),
        event_of(1, None),
    ]
    result = estimate(events, lambda _: [0.2, 0.8], least=0)
    w, r = np.array([1.6, 0.4, 3.2, 0.4]), np.array([1.0, 1.0, 0.0, 0.5])
    assert result.ips.mean == pytest.approx(2.2 / 4)
    assert result.snips.mean == pytest.approx(2.2 / 5.6)
    assert result.logged.mean == pytest.approx(2.5 / 4)
    square = [0.04 / 0.5 + 0.64 / 0.5] * 3 + [0.04 / 0.75 + 0.64 / 0.25]
    assert result.effective == pytest.approx(4 / np.mean(square))
    assert result.mean_weight == pytest.approx(1.4)
    assert (result.events, result.left_out, result.clients) == (4, 1, 1)
    t = 3.182446305  # of Student, 3 degrees of freedom
    assert result.ips.half == pytest.approx(t * np.std(w * r, ddof=1) / 2)
    without = [(2.2 - w[i] * r[i]) / (5.6 - w[i]) for i in range(4)]
    assert result.snips.half == pytest.approx(t * np.std(without) * np.sqrt(3))


def log_for_two():
    """Return our estimates for a log of three actions, and the log as arrays with obp's names."""
    rng = np.random.default_rng(16)
    contexts = rng.normal(size=(90, 3, 2)).astype(np.float32)
    scores = contexts @ np.array([1.0, -0.5])
    logged, wanted = (np.exp(scale * scores) for scale in (0.5, -1.0))
    logged, wanted = (odds / odds.sum(1, keepdims=True) for odds in (logged, wanted))
    action = np.array([rng.choice(3, p=odds) for odds in logged])
    taken = np.arange(90), action
    reward = (rng.random(90) < 1 / (1 + np.exp(-scores[taken]))).astype(float)
    events = [
        Event(n % 15, n + 1, contexts[n], np.empty((3, 0), "f4"), action[n], logged[n], reward[n])
        for n in map(int, range(90))
    ]
    models = [
        _predict_rewards(contexts[taken], contexts[:, b], reward, np.arange(90) % 15)[1]
        for b in range(3)
    ]
    log = {
        "reward": reward,
        "action": action,
        "pscore": logged[taken],
        "action_dist": wanted[:, :, None],
        "estimated_rewards_by_reg_model": np.stack(models, 1)[:, :, None],
    }
    return estimate(events, lambda event: wanted[event.id - 1], least=0), log


def test_estimates_are_those_of_open_bandit_pipeline():
    """Values of obp 0.5.7's estimators on this log; obp itself needs Python < 3.11."""
    found, _ = log_for_two()
    assert found.ips.mean == pytest.approx(0.389760335, abs=1e-7)
    assert found.snips.mean == pytest.approx(0.359998803, abs=1e-7)
    assert found.dr.mean == pytest.approx(0.400220026, abs=1e-7)


def test_estimates_follow_the_formulas_that_open_bandit_pipeline_documents():
    found, log = log_for_two()
    rows, reward = np.arange(90), log["reward"]
    wanted, model = log["action_dist"][:, :, 0], log["estimated_rewards_by_reg_model"][:, :, 0]
    w = wanted[rows, log["action"]] / log["pscore"]
    direct = (wanted * model).sum(axis=1)
    doubly_robust = direct + w * (reward - model[rows, log["action"]])
    assert found.ips.mean == pytest.approx((w * reward).mean(), abs=1e-7)
    assert found.snips.mean == pytest.approx((w * reward).sum() / w.sum(), abs=1e-7)
    assert found.dr.mean == pytest.approx(doubly_robust.mean(), abs=1e-7)


def test_intervals_are_wider_where_rare_actions_happen_to_be_missing():
    """Taken with 0.9 and 0.1, wanted with 0.5 each: w is 5/9 or 5, and w^2 is 2.78 on average."""
    every, t = np.arange(100), 1.984217  # of Student, 99 degrees of freedom
    for rare, factor in (
        (every % 10 == 0, 1.0),
        (every % 12 == 0, np.sqrt(2.7778 / (0.09 * 25 + 0.91 * 25 / 81))),
    ):
        w, r = np.where(rare, 5.0, 5 / 9), every % 2.0
        square = np.full(100, 0.25 / 0.9 + 0.25 / 0.1)
        found = evaluate(Weighed(w, square, r, np.zeros(100, int), 0 * w, 0 * w))
        assert found.ips.half == pytest.approx(factor * t * (w * r).std(ddof=1) / 10, rel=1e-4)
        assert found.dr == pytest.approx(found.ips)  # the model of the reward says 0


def test_what_a_client_repeats_tells_nothing_new():
    rng = np.random.default_rng(0)
    once = [
        event_of(int(rng.random() < 0.5), float(rng.random() < 0.6), id_=1, client=f"user {i}")
        for i in range(60)
    ]
    again = [
        event_of(e.action, e.reward, id_=t, client=e.client) for t in range(1, 6) for e in once
    ]
    apart = [event_of(e.action, e.reward, id_=i + 1) for i, e in enumerate(again)]
    results = [estimate(events, lambda _: [0.3, 0.7]) for events in (once, again, apart)]
    for name in ("ips", "snips", "logged"):
        single, repeated, independent = (getattr(result, name) for result in results)
        assert repeated == pytest.approx(single)
        assert independent.half < 0.6 * single.half
    assert [result.clients for result in results] == [60, 60, 1]


def test_a_log_that_cannot_tell_is_refused():
    rare = [event_of(0, 1.0, (0.99, 0.01), id_=t) for t in range(1, 101)]
    result = estimate(rare, lambda _: [0.0, 1.0])
    assert np.isnan([*result.ips, *result.snips, *result.dr]).all()
    assert result.refusal == (
        "the log hardly ever took the actions that this policy prefers: its 100 decisions are "
        "worth 1 of the policy's own, and an estimate needs 30"
    )
    assert result.logged.mean == 1.0
    # It says that it took each action with 1/2, and always took the first.
    wrong = [event_of(0, 1.0, id_=t) for t in range(1, 201)]
    result = estimate(wrong, lambda _: [0.1, 0.9])
    assert "mean weight of the log's decisions is 0.20 and must be near 1" in result.refusal
    assert estimate(wrong, lambda _: [0.0, 1.0], least=0).refusal  # no weight at all


def test_a_good_model_of_the_reward_leaves_dr_little_to_doubt():
    rng = np.random.default_rng(0)
    events = []
    for _ in range(400):
        x = rng.normal(size=(2, 3)).astype(np.float32)
        action = int(rng.random() < 0.2)
        reward = float(x[action] @ [1.0, -1.0, 0.5] + 10 + 0.01 * rng.normal())
        events.append(event_of(action, reward, (0.8, 0.2), x=x))
    result = estimate(events, lambda _: [0.1, 0.9])
    assert abs(result.dr.mean - 10) < result.dr.half
    assert result.dr.half < 0.6 * result.snips.half < 0.1 * result.ips.half


def test_the_model_of_the_reward_never_learns_from_the_event_it_predicts():
    own = np.eye(8)  # a feature of its own for every event: only its own reward could tell
    predicted, _ = _predict_rewards(own, own, np.arange(8.0), np.zeros(8, int))
    assert len(np.unique(predicted.round(6))) == 2
    # Nor from other events of the same client, where there are many clients.
    client = np.repeat(np.arange(20), 4)
    own = np.eye(20)[client]
    predicted, _ = _predict_rewards(own, own, client.astype(float), client)
    assert len(np.unique(predicted.round(6))) == 2


@pytest.mark.parametrize("clients", [20, 1])
@pytest.mark.parametrize("sharp", [True, False])
def test_intervals_cover_the_truth(clients, sharp):
    """A few logs of `make bench-off-policy`: three standard errors below 92% they would fail."""
    refused, covered = load("../benchmarks/off_policy").coverage(clients, 400, 0.5, sharp, logs=100)
    assert refused <= 0.01
    assert (covered > 0.92 - 3 * 0.027).all()
    assert (covered < 1).any()  # wider than they need to be they would always cover


def test_thin_logs_are_refused():
    refused, _ = load("../benchmarks/off_policy").coverage(20, 400, 0.05, True, logs=20)
    assert refused == 1


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("method", ["independent", "central", "fedres"])
def test_replaying_a_learner_on_its_own_log_gives_its_own_probabilities(method, kind):
    rng = np.random.default_rng(3)
    widths = {"independent": (0, 5), "central": (3, 0), "fedres": (3, 2)}[method]
    server, logs = BanditServer(widths[0]), []
    clients = [
        BanditClient(SquareCB(), widths[1], widths[0], client=i, seed=i, log=logs.append)
        for i in range(2)
    ]
    events = []
    for _ in range(20):
        for client in clients:
            x = rng.normal(size=(rng.integers(1, 4), 5)).astype(np.float32)
            make = sparse.csr_array if kind == "sparse" else np.asarray
            views = {"independent": (None, x), "central": (x[:, :3], None)}.get(
                method, (x[:, :3], x[:, 3:])
            )
            decision = client.choose(*(None if v is None else make(v) for v in views))
            client.reward(decision.id, float(x[decision.action, 0]))
            client.confirm(server.apply(client.uploads()))
            for other in clients:
                other.refresh(server.publish())
            logged = logs.pop()
            events.append(
                Event(
                    logged.client,
                    logged.id,
                    make(x[:, :3]),
                    make(x[:, 3:]),
                    logged.action,
                    logged.probabilities,
                    logged.reward,
                    turn=logged.turn,
                )
            )
    learner = ReplayLearner(SquareCB(), method)
    for event in events:
        np.testing.assert_allclose(learner(event), event.probabilities, rtol=1e-3)
    result = evaluate_log(events, SquareCB(), method)
    assert result.ips.mean == pytest.approx(result.logged.mean, rel=1e-3)
    assert result.effective == pytest.approx(40, rel=1e-3)
    assert result.mean_weight == pytest.approx(1, rel=1e-3)


def test_replay_tells_methods_apart_where_clients_differ(tmp_path):
    rng = np.random.default_rng(4)
    with EventLog(tmp_path / "events.jsonl") as log:
        for t in range(1, 301):
            for client in (0, 1):
                x = rng.normal(size=(2, 1)).astype(np.float32)
                action = int(rng.integers(2))
                likes = x[action, 0] * (1 if client else -1)
                log(Event(client, t, x, x, action, np.array([0.5, 0.5]), float(likes > 0)))
    central = evaluate_log(tmp_path / "events.jsonl", Greedy(), "central")
    for method in ("independent", "fedres"):
        result = evaluate_log(tmp_path / "events.jsonl", Greedy(), method)
        for name in ("ips", "snips", "dr"):
            good, poor = getattr(result, name), getattr(central, name)
            assert abs(good.mean - 0.75) < 2 * good.half  # who always takes the better gets 3/4
            assert good.mean - good.half > poor.mean + poor.half


def test_clients_may_differ_in_width():
    events = [
        Event(i, t, np.eye(2, dtype=np.float32), np.ones((2, 1 + i), np.float32), t % 2, half, 1.0)
        for t, half in zip(range(1, 9), [np.array([0.5, 0.5])] * 8, strict=True)
        for i in (0, 1)
    ]
    assert evaluate_log(events, Softmax()).events == 16


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: estimate([], lambda _: [0.5, 0.5]), "0 events"),
        (lambda: estimate([event_of(0, 1.0)], lambda _: [0.5, 0.5]), "at least 2"),
        (lambda: estimate([event_of(0, 1.0)] * 2, lambda _: [1.0]), "each of its 2 actions"),
        (lambda: estimate([event_of(0, 1.0)] * 2, lambda _: [0.9, 0.9]), "probability for"),
        (
            lambda: estimate([event_of(0, 1.0, (1.0, 0.0))] * 2, lambda _: [0.4, 0.6]),
            "decision 1 of client 0 the log gives action 1 probability 0, the target 0.6",
        ),
        (lambda: ReplayLearner(Greedy(), "both"), "unknown method 'both'"),
        (
            lambda: joint_policy(Greedy(), np.float32([1, 0]), {7: np.float32([])})(event_of(0, 1)),
            "client 0 of the log has no local model",
        ),
        (
            lambda: joint_policy(Greedy(), np.ones(3, "f4"), {0: np.float32([])})(event_of(0, 1)),
            "contexts_global has 1 features, the global model 2",
        ),
    ],
)
def test_what_cannot_be_estimated_is_told(run, message):
    with pytest.raises(ValueError, match=message):
        run()

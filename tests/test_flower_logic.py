"""Both sides of a Flower run, without Flower: a server and clients in one process."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from fedres.core.compiled import compiled
from fedres.core.losses import LOGISTIC, SQUARED
from fedres.core.messages import GlobalModel, Upload
from fedres.core.models import LinearModel, batch_of
from fedres.core.parties import Client, Server
from fedres.core.primitives import view_of
from fedres.core.receipts import number_of
from fedres.core.rule import Rule
from fedres.core.sgd import ALIGNMENTS, Linear, Many
from fedres.core.steps import Adaptive
from fedres.core.views import client_rows
from fedres.flower import run_folder
from fedres.flower.app_settings import AppSettings
from fedres.flower.client_state import ClientState
from fedres.flower.jury import Jury
from fedres.flower.memory import STATE
from fedres.flower.row_by_row import apply_rows
from fedres.flower.run_folder import CHECKPOINT, give_order, read_log, read_run
from fedres.flower.server_state import ServerState, TaskUnderWay
from fedres.flower.wire import Reply, Sent, Task

SETTINGS = AppSettings(
    3, 2, rows_per_message=4, passes=0, rounds=5, feature_limit=5.0, bind_names=False
)
BOUND = replace(SETTINGS, bind_names=True)


@pytest.fixture(autouse=True, scope="module")
def no_wait_for_the_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(run_folder, "SYNCHRONOUS", "OFF")
        yield


class Rows:
    """Samples in memory; `passes` times, or for ever."""

    def __init__(self, x_global, x_local, y, passes=0, key=""):
        self.parts, self.passes, self.key = (x_global, x_local, y), passes, key

    def take(self, position, count):
        n = len(self.parts[2])
        end = position + count if not self.passes else min(position + count, n * self.passes)
        wanted = np.arange(position, max(end, position)) % n
        return tuple(part[wanted] for part in self.parts)


CLASSES = {"classes": '["a", "b", "c"]', "loss": "logistic"}


def some_classes(seed=0, n=30, widths=(3, 2)):
    rows = some_rows(seed, n, widths)
    x_global, x_local, _ = rows.parts
    rows.parts = x_global, x_local, np.float32((x_global + x_local[:, :1]).argmax(axis=1))
    return rows


def some_rows(seed=0, n=30, widths=(3, 2), passes=0):
    rng = np.random.default_rng(seed)
    x_global, x_local = (rng.normal(size=(n, w)).clip(-5, 5).astype(np.float32) for w in widths)
    y = np.sign(x_global.sum(1) + x_local[:, 0]).astype(np.float32)
    return Rows(x_global, x_local, y, passes)


def make(tmp_path, names="abc", settings=SETTINGS, passes=0):
    server = ServerState(settings, tmp_path / "run")
    clients = {
        node: ClientState(settings, name, folder(tmp_path, name), some_rows(node, passes=passes))
        for node, name in enumerate(names)
    }
    return server, clients


def folder(tmp_path, name):
    path = tmp_path / name
    path.mkdir(exist_ok=True)
    return path


def restarted(client, tmp_path):
    return ClientState(client.settings, client.memory.client, client.folder, client.source)


def round_(server, clients, drop=()):
    """Everyone answers once; replies of tasks to nodes in `drop` never arrive."""
    for node, task in server.tasks(clients):
        reply = clients[node].work(Task.unpack(*task.pack()))
        if node in drop:
            server.lost(task.task)
        else:
            server.receive(task.task, *reply.pack())
    server.save()


def consistent(server, clients):
    """Every upload was applied once, in full, and none that was confirmed is missing."""
    lines = read_log(server.folder)
    pairs = [(line["client"], line["number"]) for line in lines]
    assert len(pairs) == len(set(pairs))
    for client in clients.values():
        memory = client.memory
        member = server.members[memory.client]
        applied = {number for name, number in pairs if name == memory.client}
        assert member.applied == len(applied)
        missing = set(range(memory.next)) - applied
        assert missing <= set(memory.outbox)
        assert (
            member.rows + sum(len(Upload.unpack(memory.outbox[k].upload, 3).y) for k in missing)
            == memory.position
        )


# The arithmetic


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC], ids=lambda loss: loss.name)
@pytest.mark.parametrize("radius", [None, 1.0])
def test_the_compiled_server_equals_the_plain_one(radius, loss, sparse):
    x, _, y = some_rows(n=50).parts
    x = csr_array(np.where(x > 0, x, 0)) if sparse else x
    rule = Rule(Adaptive(0.5), loss, radius=radius)
    fast, plain, one_by_one = (
        LinearModel(3, rule, rule.step),
        LinearModel(3, rule, rule.step),
        Server(rule, 3),
    )
    terms, residual = rule.terms(np.ones(1, np.float32)), np.random.default_rng(1).normal(size=50)
    for model, work in ((fast, compiled(apply_rows, Linear, Many)), (plain, apply_rows)):
        flight = batch_of(y)
        flight.sent[:] = residual
        work(terms, model.on(view_of(x)), flight)
    for k in range(50):
        one = slice(k, k + 1)
        one_by_one.apply(Upload(0, k, 0, x[one], residual[one].astype(np.float32), y[one]))
    for model in (fast, plain):
        np.testing.assert_array_equal(model.weights, one_by_one.global_.weights)
        np.testing.assert_array_equal(model.squares, one_by_one.global_.squares)
        assert model.reach == one_by_one.global_.reach


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("bits", [2, 32])
def test_a_run_is_that_of_client_and_server(tmp_path, bits, alignment, loss):
    settings = AppSettings(
        3, 2, rows_per_message=4, passes=0, rounds=9, residual_bits=bits, alignment=alignment,
        loss=loss, eta=0.3,
    )  # fmt: skip
    server, clients = make(tmp_path, "ab", settings)
    rule = settings.rule
    reference = Server(rule, 3)
    twins = {node: Client(rule, 3, 2, client=node) for node in clients}
    for _ in range(6):
        tasks = server.tasks(clients)
        published = reference.publish()
        for node, task in tasks:
            client, twin = clients[node], twins[node]
            twin.refresh(published)
            x_global, x_local, y = client.source.take(client.memory.position, 4)
            uploads, losses = [], []
            for i in range(4):
                sample = x_global[i : i + 1], x_local[i : i + 1], y[i : i + 1]
                losses.append(rule.loss.value(twin.predict(*sample[:2]), sample[2])[0])
                uploads.append(twin.observe(*sample))
            reply = client.work(task)
            assert reply.sent[-1].loss == pytest.approx(np.mean(losses), abs=1e-6)
            server.receive(task.task, *reply.pack())
            for upload in uploads:
                reference.apply(upload)
    assert server.global_.weights.any()
    np.testing.assert_array_equal(server.global_.weights, reference.global_.weights)
    for node, twin in twins.items():
        assert twin.local.weights.any()
        np.testing.assert_array_equal(clients[node].memory.local.weights, twin.local.weights)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("bits", [2, 32])
def test_a_run_with_classes_is_that_of_client_and_server_once_a_class(tmp_path, bits, alignment):
    settings = AppSettings(
        3, 2, rows_per_message=4, passes=0, rounds=9, residual_bits=bits, alignment=alignment,
        eta=0.3, **CLASSES,
    )  # fmt: skip
    server, clients = make(tmp_path, "ab", settings)
    for node, client in clients.items():
        client.source = some_classes(node)
    rule, outputs = settings.rule, range(3)
    references = [Server(rule, 3) for _ in outputs]
    twins = {node: [Client(rule, 3, 2, client=node) for _ in outputs] for node in clients}
    for round_number in range(6):
        if round_number == 3:  # all of it survives
            clients = {node: restarted(client, tmp_path) for node, client in clients.items()}
            server.save()
            server = ServerState(replace(settings, resume=True), tmp_path / "run")
        tasks = server.tasks(clients)
        published = [reference.publish() for reference in references]
        for node, task in tasks:
            client = clients[node]
            x_global, x_local, y = client.source.take(client.memory.position, 4)
            uploads, losses, scores = [[] for _ in outputs], [], []
            for k in outputs:
                twin = twins[node][k]
                twin.refresh(published[k])
                for i in range(4):
                    one = slice(i, i + 1)
                    label = np.where(y[one] == k, np.float32(1), np.float32(-1))
                    scores.append(twin.predict(x_global[one], x_local[one])[0])
                    losses.append(rule.loss.value(scores[-1], label)[0])
                    uploads[k].append(twin.observe(x_global[one], x_local[one], label))
            reply = client.work(task)
            assert reply.sent[-1].loss == pytest.approx(np.mean(losses), abs=1e-6)
            right = np.reshape(scores, (3, 4)).argmax(axis=0) == y
            assert reply.sent[-1].accuracy == right.mean()
            server.receive(task.task, *reply.pack())
            for k in outputs:
                for upload in uploads[k]:
                    references[k].apply(upload)
    assert not any(member.refused for member in server.members.values())
    for k in outputs:
        assert server.global_.each[k].weights.any()
        np.testing.assert_array_equal(server.global_.each[k].weights, references[k].global_.weights)
        for node, twin in twins.items():
            assert twin[k].local.weights.any()
            own = clients[node].memory.local.each[k].weights
            np.testing.assert_array_equal(own, twin[k].local.weights)


def test_a_liar_about_classes_is_held_back_and_the_honest_are_not(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(8, 5))
    settings = AppSettings(
        8, 2, rows_per_message=40, passes=0, rounds=99, bind_names=False,
        classes=json.dumps(list("abcde")), loss="logistic",
    )  # fmt: skip
    server, clients = make(tmp_path, "abcde", settings)
    for node, client in clients.items():
        x = rng.normal(size=(400, 8)).astype(np.float32).clip(-3, 3)
        y = (x @ truth).argmax(axis=1)
        y = (y + 1) % 5 if node == 4 else y
        client.source = Rows(x, rng.normal(size=(400, 2)).astype(np.float32), np.float32(y))
    # What the liar claims of itself is nobody's concern, nor does it adapt.
    for _ in range(12):
        round_(server, clients)
        clients[4].memory.local.weights[:] = 0
    held = {name: member.held_back / member.applied for name, member in server.members.items()}
    assert held["e"] > 0.8
    assert max(held[name] for name in "abcd") < 0.1


def test_aligned_clients_learn_when_the_server_has(tmp_path):
    settings = AppSettings(
        3, 2, rows_per_message=4, passes=0, rounds=5, alignment="aligned", eta=0.1
    )
    server, clients = make(tmp_path, "a", settings)
    (_, task), _ = server.tasks([0])
    reply = clients[0].work(task)
    assert not clients[0].memory.local.weights.any()
    server.receive(task.task, *reply.pack())
    clients[0] = restarted(clients[0], tmp_path)
    (later,) = server.tasks([0])
    clients[0].work(later[1])
    weights, squares = np.zeros(3), np.zeros(3)
    _, x_local, y = clients[0].source.take(0, 4)
    for x, label in zip(x_local, y, strict=True):
        gradient = -2 * label * np.append(x, 1.0)  # all were predicted to be 0
        squares += gradient**2
        weights -= 0.1 * gradient / np.sqrt(squares)
    np.testing.assert_allclose(clients[0].memory.local.weights, weights, atol=1e-6)
    for _ in range(3):
        round_(server, clients)
    consistent(server, clients)


def test_a_model_no_longer_held_is_refused(tmp_path):
    settings = AppSettings(
        3, 2, rows_per_message=4, passes=0, rounds=99, alignment="asymmetric", history=2
    )
    server, clients = make(tmp_path, "ab", settings)
    late = next(task for node, task in server.tasks(clients) if node == 1)
    reply = clients[1].work(late)
    server.flights.clear()
    for _ in range(2):
        round_(server, {0: clients[0]})
    server.flights[late.task] = TaskUnderWay(1, 32)
    server.receive(late.task, *reply.pack())
    assert server.members["b"].refused == {"model too old": 1}


# Nothing twice, nothing lost


def test_a_task_delivered_twice_changes_nothing(tmp_path):
    server, clients = make(tmp_path)
    task = server.tasks([0])[0][1]
    first = clients[0].work(task)
    before = (clients[0].folder / STATE).read_bytes()
    again = restarted(clients[0], tmp_path).work(task)
    assert again == first
    assert (clients[0].folder / STATE).read_bytes() == before


def test_a_reply_that_comes_twice_is_applied_once(tmp_path):
    server, clients = make(tmp_path)
    task = server.tasks([0])[0][1]
    reply = clients[0].work(task)
    server.receive(task.task, *reply.pack())
    weights = server.global_.weights.copy()
    server.receive(task.task, *reply.pack())
    other = server.tasks([0])[0][1]
    server.receive(other.task, *reply.pack())
    np.testing.assert_array_equal(server.global_.weights, weights)
    assert server.members["a"].repeated == 1
    assert len(server._news) + len(read_log(server.folder)) == 1


def test_a_lost_reply_is_sent_again(tmp_path):
    server, clients = make(tmp_path)
    round_(server, clients, drop={1})
    assert "b" not in server.members
    round_(server, clients)
    round_(server, clients)
    consistent(server, clients)
    assert server.members["b"].confirmed == clients[1].memory.next == 6


def test_a_late_upload_is_said_to_be_late_by_the_rounds_that_it_missed(tmp_path):
    server, clients = make(tmp_path)
    slow = None
    for _ in range(3):
        for node, task in server.tasks(clients):
            if node == 2:
                slow = slow or task
            else:
                server.receive(task.task, *clients[node].work(task).pack())
    met = server.version
    assert met == server.members["a"].applied + server.members["b"].applied > 6
    server.receive(slow.task, *clients[2].work(slow).pack())
    server.save()
    (line,) = [line for line in read_log(server.folder) if line["client"] == "c"]
    assert (line["made_with"], line["made"]) == (0, met + 1)
    assert line["lag"] == round(met / 3, 4) == round(server.members["c"].lag, 4)


def test_an_upload_under_way_is_not_sent_again(tmp_path):
    server, clients = make(tmp_path, "a")
    (_, one), (_, two) = server.tasks([0])
    first, second = clients[0].work(one), clients[0].work(two)
    assert [sent.number for sent in second.sent] == [1]
    server.receive(one.task, *first.pack())
    (_, three) = server.tasks([0])[0]
    assert three.waiting == (two.task,)
    assert [sent.number for sent in clients[0].work(three).sent] == [2]


def test_uploads_are_confirmed_only_from_the_disk(tmp_path):
    server, clients = make(tmp_path, "a")
    (_, task), _ = server.tasks([0])
    server.receive(task.task, *clients[0].work(task).pack())
    killed = ServerState(AppSettings(**{**vars_of(SETTINGS), "resume": True}), tmp_path / "run")
    assert killed.members == {}
    confirming = server.tasks([0])[0][1]
    assert confirming.have == 1
    resumed = ServerState(AppSettings(**{**vars_of(SETTINGS), "resume": True}), tmp_path / "run")
    assert resumed.members["a"].confirmed == 1
    np.testing.assert_array_equal(resumed.global_.weights, server.global_.weights)


def vars_of(settings):
    return {name.replace("-", "_"): value for name, value in settings.to_config().items()}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["round", "lose", "kill client", "kill server", "new id", "repeat"]),
            st.integers(0, 2),
        ),
        max_size=12,
    )
)
def test_whatever_happens_uploads_count_once(tmp_path_factory, happenings):
    tmp_path = tmp_path_factory.mktemp("run")
    server, clients = make(tmp_path)
    for what, who in happenings:
        if what == "round":
            round_(server, clients)
        elif what == "lose":
            round_(server, clients, drop={list(clients)[who]})
        elif what == "kill client":
            node = list(clients)[who]
            clients[node] = restarted(clients[node], tmp_path)
        elif what == "kill server":
            # In the middle: replies were received, and are not in the checkpoint.
            for node, task in server.tasks(clients):
                server.receive(task.task, *clients[node].work(task).pack())
            resume = AppSettings(**{**vars_of(SETTINGS), "resume": True})
            server = ServerState(resume, tmp_path / "run")
        elif what == "new id":
            node = list(clients)[who]
            clients[max(clients) + 1] = clients.pop(node)
        else:
            for node, task in server.tasks(clients):
                clients[node].work(task)
                server.receive(task.task, *restarted(clients[node], tmp_path).work(task).pack())
                clients[node] = restarted(clients[node], tmp_path)
    round_(server, clients)
    round_(server, clients)
    consistent(server, clients)
    for client in clients.values():
        assert server.members[client.memory.client].confirmed == client.memory.next
        assert not server.members[client.memory.client].refused


def test_a_server_put_back_from_a_backup_loses_what_came_after_and_nothing_else(tmp_path):
    server, clients = make(tmp_path, "ab")
    round_(server, clients)
    server._checkpoint.close()
    backup = (tmp_path / "run" / CHECKPOINT).read_bytes()
    server = ServerState(replace(SETTINGS, resume=True), tmp_path / "run")
    for _ in range(5):
        round_(server, clients)
    server._checkpoint.close()
    (tmp_path / "run" / CHECKPOINT).write_bytes(backup)
    server = ServerState(replace(SETTINGS, resume=True), tmp_path / "run")
    for _ in range(3):
        round_(server, clients)
    for client in clients.values():
        member = server.members[client.memory.client]
        assert (member.confirmed, member.beyond) == (client.memory.next, [])
        # Those not yet confirmed were made with a model that nobody has any more.
        assert member.refused == {"model from the future": 2}
        assert member.applied == 2 + 6
    lines = read_log(server.folder)
    assert len({(line["client"], line["number"]) for line in lines}) == len(lines) == 16


def test_a_client_that_lost_its_state_is_heard_again(tmp_path):
    server, clients = make(tmp_path, "a")
    for _ in range(3):
        round_(server, clients)
    (clients[0].folder / STATE).unlink()
    clients[0] = restarted(clients[0], tmp_path)
    used = server.members["a"].applied
    round_(server, clients)
    assert server.members["a"].applied > used


def test_a_new_training_begins_afresh(tmp_path):
    server, clients = make(tmp_path, "a")
    round_(server, clients)
    other = ServerState(SETTINGS, tmp_path / "other")
    reply = clients[0].work(other.tasks([0])[0][1])
    assert [sent.number for sent in reply.sent] == [0]
    assert clients[0].memory.position == 4


def test_a_client_says_when_its_rows_are_used_up(tmp_path):
    settings = AppSettings(**(vars_of(SETTINGS) | {"rounds": 0, "passes": 1}))
    server, clients = make(tmp_path, "ab", settings, passes=1)
    for _ in range(20):
        round_(server, clients)
        if server.finished():
            break
    assert server.finished() == "no more rows"
    assert clients[0].memory.position == 30
    assert server.tasks(clients) == []
    consistent(server, clients)


def test_clients_come_and_go(tmp_path):
    server, clients = make(tmp_path)
    round_(server, {0: clients[0]})
    round_(server, clients)
    tasks = server.tasks([0, 1])
    assert {node for node, _ in tasks} == {0, 1}
    assert {flight.node for flight in server.flights.values()} == {0, 1}
    round_(server, clients)
    consistent(server, clients)


def test_at_most_two_messages_are_under_way_to_a_node(tmp_path):
    server, _ = make(tmp_path)
    assert len(server.tasks([0, 1])) == 4
    assert server.tasks([0, 1]) == []
    server.lost(next(iter(server.flights)))
    assert len(server.tasks([0, 1])) == 1


# When to stop


def test_stops_after_rounds(tmp_path):
    server, clients = make(tmp_path)
    while not server.finished():
        round_(server, clients)
    assert server.finished() == "rounds"
    assert 5 <= server.progress.rounds < 7 + 1e-6


def test_stops_after_seconds_those_before_a_resume_included(tmp_path):
    settings = vars_of(SETTINGS) | {"rounds": 0, "seconds": 10}
    now = [0.0]
    server = ServerState(AppSettings(**settings), tmp_path / "run", clock=lambda: now[0])
    now[0] = 6.0
    server.save()
    again = ServerState(
        AppSettings(**(settings | {"resume": True})), tmp_path / "run", clock=lambda: now[0]
    )
    assert again.finished() is None
    now[0] = 10.0
    assert again.finished() == "seconds"


def test_stops_without_improvement(tmp_path):
    settings = AppSettings(**(vars_of(SETTINGS) | {"rounds": 0, "patience": 3}))
    server, clients = make(tmp_path, settings=settings)
    for _ in range(500):
        round_(server, clients)
        if server.finished():
            break
    assert server.finished() == "no improvement"
    assert server.progress.rounds - server.progress.best_round >= 3


@pytest.mark.parametrize("resumed", [False, True])
def test_a_client_whose_table_grew_goes_on(tmp_path, resumed):
    settings = AppSettings(**(vars_of(SETTINGS) | {"rounds": 0, "passes": 1}))
    now = [0.0]
    _, clients = make(tmp_path, "ab", settings, passes=1)
    clients[1].source.passes = 0  # has rows as long as it is asked
    server = ServerState(settings, tmp_path / "timed", clock=lambda: now[0])
    while not server.members.done:
        round_(server, clients)
    round_(server, clients)
    grown = some_rows(7)
    parts = zip(clients[0].source.parts, grown.parts, strict=True)
    clients[0].source.parts = tuple(np.concatenate(pair) for pair in parts)
    assert {node for node, _ in server.tasks([0])} == set()
    if resumed:
        resume = replace(settings, resume=True)
        server = ServerState(resume, tmp_path / "timed", clock=lambda: now[0])
    else:
        now[0] += 301
    for _ in range(20):
        round_(server, clients)
    assert server.members["a"].rows == 60
    consistent(server, clients)


def test_a_client_that_vanished_is_waited_for_only_so_long(tmp_path):
    settings = AppSettings(**(vars_of(SETTINGS) | {"rounds": 20, "passes": 1}))
    now = [0.0]
    _, clients = make(tmp_path, "abc", settings, passes=1)
    server = ServerState(settings, tmp_path / "timed", clock=lambda: now[0])
    round_(server, clients)
    vanished = clients.pop(2)
    while server.members.working != {"c"}:
        round_(server, clients)
    assert server.tasks(clients) == []
    assert server.finished() is None
    now[0] = 599.0
    assert server.finished() is None
    clients[2] = vanished
    round_(server, clients)
    del clients[2]
    now[0] = 1100.0
    assert server.finished() is None  # it was there again
    now[0] = 1200.0
    assert server.finished() == "no more rows of those who are there"
    server.reason = server.finished()
    server.finish()
    assert read_run(server.folder)["absent"] == ["c"]


def test_a_run_whose_clients_all_vanish_ends(tmp_path):
    now = [0.0]
    _, clients = make(tmp_path, "ab")
    server = ServerState(SETTINGS, tmp_path / "timed", clock=lambda: now[0])
    assert server.finished() is None
    now[0] = 1e6  # nobody has come yet: that is no reason
    assert server.finished() is None
    round_(server, clients)
    now[0] += 601
    assert server.finished() == "everyone is absent"


def test_a_run_waits_for_the_first_answer_of_a_new_node_but_not_for_ever(tmp_path):
    settings = AppSettings(**(vars_of(SETTINGS) | {"rounds": 0, "passes": 1}))
    now = [0.0]
    _, clients = make(tmp_path, "ab", settings, passes=1)
    server = ServerState(settings, tmp_path / "timed", clock=lambda: now[0])
    slow = clients.pop(1)
    while not server.members.done:
        for node, task in server.tasks([0, 1]):
            if node == 0:
                server.receive(task.task, *clients[0].work(task).pack())
    assert server.finished() is None
    late = [task for task, flight in server.flights.items() if flight.node == 1]
    now[0] = 601.0
    assert server.finished() == "no more rows"
    now[0] = 500.0
    server.receive(late[0], *slow.work(Task(server.session, late[0], server._side.packed())).pack())
    assert server.members["b"].applied == 1
    assert server.finished() is None


@pytest.mark.parametrize("answer", [None, Reply("b")])
def test_a_client_that_is_there_and_sends_nothing_does_not_hold_up_the_end(tmp_path, answer):
    settings = AppSettings(**(vars_of(SETTINGS) | {"rounds": 0, "passes": 1}))
    now = [0.0]
    _, clients = make(tmp_path, "ab", settings, passes=1)
    server = ServerState(settings, tmp_path / "timed", clock=lambda: now[0])
    round_(server, clients)
    while not server.finished() and now[0] < 5000:
        for node, task in server.tasks([0, 1]):
            reply = clients[0].work(task) if node == 0 else answer
            if reply:
                server.receive(task.task, *reply.pack())
        now[0] += 10
    assert server.finished() == "no more rows of those who are there"
    assert server.absent() == ["b"]
    assert now[0] > 600


# Defence


def upload(number=0, client="a", rows=2, version=0, **changes):
    values = {
        "x_global": np.zeros((rows, 3), np.float32),
        "residual": np.zeros(rows, np.float32),
        "y": np.ones(rows, np.float32),
        "bits": 32,
        "span": SETTINGS.rule.residual_span,
    } | changes
    return Upload(number_of(client), number, version, **values).pack()


BAD = {
    "schema version": b"\x09" + upload()[1:],
    "wrong size": upload()[:-1],
    "too large": upload() + b"\0" * 10_000,
    "not finite": upload(x_global=np.full((2, 3), np.nan, np.float32)),
    "label": upload(y=np.float32([1, 7])),
    "feature too large": upload(x_global=np.full((2, 3), 5.1, np.float32)),
    "too many rows": upload(rows=5),
    "other residual bits": upload(bits=2),
    "model from the future": upload(version=99),
    "wrong counter": upload(number=3),
    "residual": upload(residual=np.float32([0, 1e38])),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_upload_is_refused_counted_and_changes_nothing(tmp_path, reason):
    server, clients = make(tmp_path, "a")
    task = server.tasks([0])[0][1]
    weights, squares = server.global_.weights.copy(), server.global_.squares.copy()
    server.receive(task.task, *Reply("a", (Sent(0, 0.1, BAD[reason]),)).pack())
    assert server.members["a"].refused == {reason: 1}
    assert (server.version, server.members["a"].applied) == (0, 0)
    np.testing.assert_array_equal(server.global_.weights, weights)
    np.testing.assert_array_equal(server.global_.squares, squares)
    assert server.global_.reach == (0, 0)
    # It is not asked for again, and the run goes on.
    assert server.tasks([0])[0][1].have == 1
    server.flights.clear()
    clients[0].memory.next = 1
    round_(server, clients)
    assert server.members["a"].applied == 2


def test_labels_that_the_loss_cannot_take_are_refused(tmp_path):
    settings = AppSettings(**(vars_of(SETTINGS) | {"loss": "logistic"}))
    server, _ = make(tmp_path, "a", settings)
    bad = upload(y=np.float32([1, 0.5]), span=settings.rule.residual_span)
    task = server.tasks([0])[0][1]
    server.receive(task.task, *Reply("a", (Sent(0, 0.1, bad),)).pack())
    assert server.members["a"].refused == {"label": 1}


def test_a_client_is_ignored_after_too_many_refusals(tmp_path):
    server, _ = make(tmp_path, "a")
    number = 0
    while server.tasks([0]) or server.flights:
        task = next(iter(server.flights))
        server.receive(task, *Reply("a", (Sent(number, 0.1, b"bad"),)).pack())
        number += 1
    assert server.members["a"].refused == {"wrong size": SETTINGS.refusals}
    assert server.members["a"].ignored
    resumed = ServerState(AppSettings(**{**vars_of(SETTINGS), "resume": True}), tmp_path / "run")
    assert resumed.members["a"].ignored


@pytest.mark.parametrize(
    "head",
    [
        None,
        3,
        "",
        "[]",
        "{" * 5000,
        json.dumps({"client": "a", "sent": [[0, 0.1, 99]], "done": False, "first": 0, "error": ""}),
        json.dumps({"client": "a", "sent": [[-1, 0.1, 4]], "done": False, "first": 0, "error": ""}),
        json.dumps(
            {"client": "a", "sent": [[True, 0.1, 4]], "done": False, "first": 0, "error": ""}
        ),
        json.dumps({"client": "a", "sent": [], "done": 1, "first": 0, "error": ""}),
        json.dumps({"client": "a", "sent": [], "done": False, "first": 0, "error": "<b>"}),
    ],
)
def test_a_broken_head_is_refused(tmp_path, head):
    server, _ = make(tmp_path, "a")
    task = server.tasks([0])[0][1]
    server.receive(task.task, head, b"body")
    assert server.strangers == {"broken head": 1}
    assert server.members == {}


@pytest.mark.parametrize("name", ["a" * 101, "\x1b[2J"])
def test_an_unfit_name_is_called_so(tmp_path, name):
    server, _ = make(tmp_path, "a")
    server.receive(server.tasks([0])[0][1].task, *Reply(name).pack())
    assert server.strangers == {"unfit name": 1}


def test_a_node_cannot_take_many_names(tmp_path):
    server, _ = make(tmp_path, "a")
    for name in ("a", "b"):
        task = next(iter(server.flights), None) or server.tasks([0])[0][1].task
        server.receive(task, *Reply(name).pack())
    assert list(server.members) == ["a"]
    assert server.strangers == {"changed its name": 1}


@pytest.mark.parametrize("resumed", [False, True])
def test_an_impostor_can_neither_end_nor_ban_another_client(tmp_path, resumed):
    server, clients = make(tmp_path, "ab", BOUND)
    round_(server, clients)
    if resumed:
        server = ServerState(AppSettings(**{**vars_of(BOUND), "resume": True}), tmp_path / "run")
    number = server.members["a"].confirmed
    for reply in (
        Reply("a", done=True),
        Reply("a", error="OSError"),
        *(Reply("a", (Sent(number + k, 0.1, b"bad"),)) for k in range(30)),
    ):
        server.flights["t"] = TaskUnderWay(666, 32)
        server.receive("t", *reply.pack())
    assert server.strangers == {"name of another node": 32}
    assert server.tasks([666]) == []
    member = server.members["a"]
    assert (member.done, member.ignored, member.refused, member.faults) == (False, False, {}, {})
    round_(server, clients)
    assert member.applied == 4
    consistent(server, clients)


def test_two_nodes_of_one_name_are_told_apart_and_of_it(tmp_path, caplog):
    for bound in (BOUND, SETTINGS):
        run = tmp_path / str(bound.bind_names)
        run.mkdir()
        server, clients = make(run, "ab", bound)
        other = ClientState(bound, "a", folder(run, "another-a"), some_rows(9))
        for _ in range(3):
            round_(server, {**clients, 2: other})
        assert server.strangers["name of another node"] >= 2
        assert "forgive" in caplog.text
        consistent(server, clients)


def test_a_restarted_node_without_a_key_waits_until_the_old_one_is_given_up(tmp_path):
    now = [0.0]
    _, clients = make(tmp_path, "a")
    server = ServerState(SETTINGS, tmp_path / "timed", clock=lambda: now[0])
    round_(server, clients)
    clients[5] = clients.pop(0)
    for _ in range(60):  # Flower still counts the old node among those that are there
        for node, task in server.tasks([0, 5]):
            if node == 5:
                server.receive(task.task, *clients[5].work(task).pack())
        now[0] += 1
    assert 2 <= server.strangers["name of another node"] < SETTINGS.refusals
    now[0] += 300
    for _ in range(2):
        round_(server, clients)
    assert server.members["a"].node == 5
    consistent(server, clients)


def test_a_forgiven_name_is_free_for_another_node(tmp_path):
    server, clients = make(tmp_path, "a", BOUND)
    round_(server, clients)
    clients = {5: clients[0]}
    round_(server, clients)
    assert server.members["a"].applied == 2
    give_order(tmp_path / "run", "forgive", "a")
    for _ in range(2):
        round_(server, clients)
    assert server.members["a"].node == 5
    consistent(server, clients)


@pytest.mark.parametrize("before", ["a", "a" * 101])
def test_nobody_is_banned_for_a_name_that_somebody_then_mends(tmp_path, before):
    now = [0.0]
    _, clients = make(tmp_path, "ab", BOUND)
    server = ServerState(BOUND, tmp_path / "timed", clock=lambda: now[0])
    round_(server, clients)
    tried = 0
    while now[0] < 3600:  # a new machine for clinic a, or one whose name is too long
        for _, task in server.tasks([5]):
            tried += 1
            server.receive(task.task, *Reply(before).pack())
        now[0] += 1
    assert BOUND.refusals < tried < 100
    give_order(tmp_path / "timed", "forgive", "a")
    for _ in range(2):
        round_(server, {5: clients[0]})
    assert server.members["a"].node == 5
    assert server.members["a"].applied == 6
    consistent(server, {5: clients[0]})


def test_a_client_cannot_send_more_uploads_than_it_was_asked_for(tmp_path):
    server, clients = make(tmp_path, "ab")
    round_(server, clients)
    task = server.tasks([0, 1])[0][1]
    many = tuple(Sent(2 + k, 0.1, upload(2 + k)) for k in range(500))
    server.receive(task.task, *Reply("a", many).pack())
    # Those of before a restart of the server are let in; a run of 5 rounds would be over with more.
    assert server.members["a"].applied == 2 + 1 + 16
    assert server.members["a"].refused == {}


def test_a_client_cannot_fill_the_checkpoint_with_names_of_faults(tmp_path):
    server, _ = make(tmp_path, "a")
    for kind in ["x" * 101, *(f"Error{k}" for k in range(100))]:
        server.flights["t"] = TaskUnderWay(0, 32)
        server.receive("t", *Reply("a", error=kind).pack())
    faults = server.members["a"].faults
    assert server.strangers == {"broken head": 1}
    assert len(faults) == 21
    assert sum(faults.values()) == 100
    assert faults["others"] == 80


def test_faults_of_a_client_make_it_rest_and_nothing_more(tmp_path):
    now = [0.0]
    _, clients = make(tmp_path, "ab")
    server = ServerState(SETTINGS, tmp_path / "timed", clock=lambda: now[0])
    round_(server, clients)
    waits = []
    for _ in range(40):  # a full disk, for hours
        for _, task in server.tasks([0]):
            server.receive(task.task, *Reply("a", error="OSError").pack())
        assert server.tasks([0]) == []
        began = now[0]
        while not server.tasks([0]):
            now[0] += 1
        server.flights.clear()
        waits.append(now[0] - began)
    assert waits[0] < waits[2] < waits[4]
    assert max(waits) <= 300
    member = server.members["a"]
    assert (member.ignored, member.refused, member.strikes) == (False, {}, 0)
    assert member.faults["OSError"] >= 40
    used = member.applied
    round_(server, clients)  # there is room on the disk again
    assert member.applied > used
    assert len(server.tasks([0])) == 2


def test_a_client_with_lasting_faults_does_not_hold_up_the_end(tmp_path):
    settings = AppSettings(**(vars_of(SETTINGS) | {"rounds": 0, "passes": 1}))
    now = [0.0]
    _, clients = make(tmp_path, "ab", settings, passes=1)
    server = ServerState(settings, tmp_path / "timed", clock=lambda: now[0])
    while not server.finished() and now[0] < 5000:
        for node, task in server.tasks(clients):
            reply = Reply("b", error="OSError") if node else clients[0].work(task)
            server.receive(task.task, *reply.pack())
        now[0] += 10
    assert server.finished() == "no more rows of those who are there"
    assert server.absent() == ["b"]


def test_a_task_that_a_process_died_of_is_not_sent_again_at_once(tmp_path):
    server, _ = make(tmp_path, "a")
    for _, task in server.tasks([0]):
        server.failed(task.task)
    assert server.tasks([0]) == []


def test_refusals_are_forgotten_by_good_work(tmp_path):
    server, _ = make(tmp_path, "a")
    for number in range(1000):
        sent = Sent(number, 0.1, upload(number) if number % 20 else upload(number)[:-1])
        server.flights["t"] = TaskUnderWay(0, 32)
        server.receive("t", *Reply("a", (sent,)).pack())
    assert server.members["a"].refused == {"wrong size": 50}
    assert not server.members["a"].ignored


def test_forgiven_clients_are_heard_again_and_removed_ones_no_more(tmp_path):
    server, clients = make(tmp_path, "ab")
    round_(server, clients)
    server.members["a"].strikes, server.members["a"].ignored = 20.0, True
    server._note_change("a")
    server.save()
    give_order(tmp_path / "run", "forgive", "a")
    give_order(tmp_path / "run", "remove", "b")
    used = {name: member.applied for name, member in server.members.items()}
    for _ in range(2):
        round_(server, clients)
    assert server.members["a"].applied > used["a"]
    assert server.members["b"].applied == used["b"]
    # Orders are carried out once, and hold through a resume.
    resume = AppSettings(**{**vars_of(SETTINGS), "resume": True})
    resumed = ServerState(resume, tmp_path / "run")
    assert resumed._checkpoint.orders() == []
    assert [resumed.members[name].ignored for name in "ab"] == [False, True]
    with pytest.raises(ValueError, match="knows no client 'z', but a, b"):
        give_order(tmp_path / "run", "forgive", "z")


def test_a_forgiven_client_need_not_rest(tmp_path):
    server, clients = make(tmp_path, "ab")
    round_(server, clients)
    server.failed(server.tasks([0])[0][1].task)
    server.flights.clear()
    assert server.tasks([0]) == []
    give_order(tmp_path / "run", "forgive", "a")
    assert {node for node, _ in server.tasks([0])} == {0}


def test_a_changed_byte_of_a_state_is_noticed(tmp_path):
    server, clients = make(tmp_path, "a")
    round_(server, clients)
    path = clients[0].folder / STATE
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"checksum differs.*empty local model"):
        restarted(clients[0], tmp_path)


@pytest.mark.parametrize("attack", ["flipped labels", "steepest", "all features", "against"])
def test_one_hostile_client_in_ten_does_not_carry_the_model_away(
    tmp_path, digits, without_it, attack
):
    assert others_loss(tmp_path, digits, attack) <= 1.05 * without_it


@pytest.fixture(scope="module")
def without_it(tmp_path_factory, digits):
    return others_loss(tmp_path_factory.mktemp("honest"), digits, "none")


def others_loss(tmp_path, federation, attack):
    """Mean progressive loss of nine clients, the tenth being absent or hostile."""
    settings = AppSettings(32, 32, rows_per_message=20, passes=0, rounds=99, feature_limit=1.0)
    server = ServerState(settings, tmp_path / "run")
    clients = {}
    for i in range(10):
        first, last = federation.train.row_start[i : i + 2]
        order = np.random.default_rng(i).permutation(last - first)
        views = (
            client_rows(view, federation.train.row_start, i)[order]
            for view in (federation.train.x_global, federation.train.x_local)
        )
        source = Rows(*views, federation.train.y[first:last][order])
        clients[i] = ClientState(settings, f"c{i}", folder(tmp_path, f"c{i}"), source)
    losses, sent = [], 0
    for _ in range(12):
        for node, task in server.tasks(range(9 if attack == "none" else 10)):
            if node < 9:
                reply = clients[node].work(task)
                losses += [one.loss for one in reply.sent[-1:]]
            else:
                evil = poison(attack, clients[9].source.take(20 * sent, 20), task)
                packed = Upload(
                    number_of("c9"), sent, 0, *evil, 32, settings.rule.residual_span
                ).pack()
                reply = Reply("c9", (Sent(sent, 0.1, packed),))
                sent += 1
            server.receive(task.task, *reply.pack())
    if attack != "none":
        assert server.members["c9"].applied == sent  # the checks alone let all of it pass
        assert server.members["c9"].held_back > 0.8 * sent
    return np.mean(losses)


def poison(attack, samples, task):
    x, _, y = samples
    far = np.float32(1000)
    if attack == "flipped labels":
        return x, np.zeros_like(y), -y
    if attack == "steepest":  # the residual makes every prediction as wrong as can be
        return x, -far * y, y
    if attack == "all features":
        return np.ones_like(x), np.full_like(y, -far), np.ones_like(y)
    weights = GlobalModel.unpack(task.model, 0).weights[:-1]
    return np.tile(np.sign(weights), (len(y), 1)), np.full_like(y, far), -np.ones_like(y)


def one_hostile(server, clients, rounds):
    """Rounds in which the last client flips its labels; how often that was held back."""
    evil = max(clients)
    name = clients[evil].memory.client
    for _ in range(rounds):
        for node, task in server.tasks(clients):
            if node != evil:
                reply = clients[node].work(task)
            else:
                number = server.members[name].confirmed if name in server.members else 0
                x, _, y = clients[evil].source.take(4 * number, 4)
                packed = upload(number, name, x_global=x, residual=-9 * y, y=y)
                reply = Reply(name, (Sent(number, 0.1, packed),))
            server.receive(task.task, *reply.pack())
        server.save()
    return server.members[name].held_back


def test_the_jury_remembers_through_a_resume(tmp_path):
    server, clients = make(tmp_path, "abcd")
    assert one_hostile(server, clients, 8) > 8
    resumed = ServerState(replace(SETTINGS, resume=True), tmp_path / "run")
    before, used = resumed.global_.weights.copy(), resumed.members["d"].held_back
    number = resumed.members["d"].confirmed
    sent = Sent(number, 0.1, upload(number, "d", x_global=np.full((2, 3), 5, np.float32),
                                    residual=np.full(2, -9, np.float32)))  # fmt: skip
    resumed.flights["t"] = TaskUnderWay(3, 32)
    resumed.receive("t", *Reply("d", (sent,)).pack())
    assert resumed.members["d"].held_back == used + 1
    np.testing.assert_array_equal(resumed.global_.weights, before)
    for name, rows in server._side.jury.heard.items():
        for mine, kept in zip(rows, resumed._side.jury.heard[name], strict=True):
            if name != "d":
                np.testing.assert_array_equal(mine, kept)


def test_two_honest_clients_are_jury_enough_and_off_is_off(tmp_path):
    held = {}
    for jury in ("own-history", "off"):
        (tmp_path / jury).mkdir()
        server, clients = make(tmp_path / jury, "abc", replace(SETTINGS, jury=jury))
        held[jury] = one_hostile(server, clients, 10)
        assert server.members["a"].held_back + server.members["b"].held_back <= 2
    assert held["off"] == 0
    assert held["own-history"] > 15


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC], ids=lambda loss: loss.name)
def test_the_jury_compares_with_the_best_constant_of_each_output(loss):
    wanted = np.float32([[1, -1, -1, -1, -1], [1, 1, 1, -1, 1]])
    best = Jury(loss)._constant(wanted)
    losses = [loss.value(best + np.float32(step), wanted).mean(axis=1) for step in (-0.1, 0, 0.1)]
    assert (losses[1] < losses[0]).all()
    assert (losses[1] < losses[2]).all()


def test_the_jury_keeps_64_rows_and_nothing_else():
    jury = Jury(SQUARED)
    for rows in (10, 5000, 3):
        x = np.random.default_rng(rows).random((rows, 3), np.float32)
        jury.hear("a", Upload(0, 0, 0, x, x[:, 0], x[:, 1]))
        kept = jury.heard["a"]
        assert [len(part) for part in kept] == [min(rows, 64) if rows != 3 else 64] * 3
        assert all(part.base is None for part in kept)
        np.testing.assert_array_equal(kept.x_global[-3:], x[-3:])
    for k in range(300):
        jury.hear(f"c{k}", Upload(0, 0, 0, x, x[:, 0], x[:, 1]))
    assert len(jury.heard) == 200


# Bad input on the client


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_global": np.full((4, 3), np.nan, np.float32)}, "not finite"),
        ({"x_local": np.zeros((4, 7), np.float32)}, "the settings say"),
        ({"y": np.float32([1, 1, 1, 9])}, "label-high"),
    ],
)
def test_a_bad_batch_is_an_error_and_nothing_is_learned(tmp_path, change, words):
    server, clients = make(tmp_path, "a")
    values = dict(zip(("x_global", "x_local", "y"), clients[0].source.take(0, 4), strict=True))
    good, clients[0].source = clients[0].source, Rows(*(values | change).values())
    task = server.tasks([0])[0][1]
    with pytest.raises(ValueError, match=words):
        clients[0].work(task)
    assert clients[0].memory.position == 0
    assert not clients[0].memory.local.weights.any()
    assert not (clients[0].folder / STATE).exists()
    clients[0].source = good
    assert clients[0].work(task).sent


def test_features_are_clipped_before_they_leave(tmp_path):
    server, clients = make(tmp_path, "a")
    clients[0].source.parts[0][:] = 99
    reply = clients[0].work(server.tasks([0])[0][1])
    assert Upload.unpack(reply.sent[0].upload, 3).x_global.max() == 5.0


def test_a_state_folder_belongs_to_one_client(tmp_path):
    server, clients = make(tmp_path, "a")
    round_(server, clients)
    with pytest.raises(ValueError, match="of client 'a', not of 'z'"):
        ClientState(SETTINGS, "z", clients[0].folder, clients[0].source)


def test_a_broken_state_is_an_error(tmp_path):
    server, clients = make(tmp_path, "a")
    round_(server, clients)
    (clients[0].folder / STATE).write_bytes(b"junk")
    with pytest.raises(ValueError, match="not a state that fedres wrote"):
        restarted(clients[0], tmp_path)


def test_a_run_is_not_overwritten_and_resumes_only_what_is_there(tmp_path):
    server, _ = make(tmp_path, "a")
    server.save()
    with pytest.raises(ValueError, match="holds a run"):
        ServerState(SETTINGS, tmp_path / "run")
    with pytest.raises(ValueError, match="no checkpoint"):
        ServerState(AppSettings(**{**vars_of(SETTINGS), "resume": True}), tmp_path / "empty")
    other = AppSettings(**{**vars_of(SETTINGS), "resume": True, "width_global": 9})
    with pytest.raises(ValueError, match="resume with the settings"):
        ServerState(other, tmp_path / "run")


def test_a_damaged_checkpoint_is_noticed(tmp_path):
    server, clients = make(tmp_path, "a")
    round_(server, clients)
    server._checkpoint.close()
    path = tmp_path / "run" / CHECKPOINT
    content, weights = path.read_bytes(), server.global_.weights.tobytes()
    assert weights in content
    path.write_bytes(content.replace(weights, weights[:-1] + bytes([weights[-1] ^ 1])))
    resume = AppSettings(**{**vars_of(SETTINGS), "resume": True})
    with pytest.raises(ValueError, match=r"a checksum differs.*backup"):
        ServerState(resume, tmp_path / "run")
    path.write_bytes(b"junk" * 5000)
    with pytest.raises(ValueError, match="damaged"):
        ServerState(resume, tmp_path / "run")


def test_a_server_killed_before_its_first_checkpoint_begins_again(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CHECKPOINT).write_bytes(b"")
    server, clients = make(tmp_path, "a")
    round_(server, clients)
    assert read_run(tmp_path / "run")["version"] == len(read_log(tmp_path / "run")) == 2


def test_the_cost_of_a_reply_is_that_of_its_client_alone(tmp_path, monkeypatch):
    server, clients = make(tmp_path)
    for _ in range(2):
        round_(server, clients)
    saved = []
    monkeypatch.setattr(server._checkpoint, "save", lambda *parts, **_: saved.append(parts))
    (_, task) = server.tasks([1])[0]
    server.receive(task.task, *clients[1].work(task).pack())
    server.save()
    _, _, members, lines, *_ = saved[-1]
    assert list(members) == ["b"]
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"width-global": 3}, "width-local is missing"),
        ({"width-global": 3, "width-local": "2"}, "whole number"),
        ({"width-global": 3, "width-local": 2, "speed": 9}, "unknown setting 'speed'"),
        ({"width-global": 3, "width-local": 2, "rows-per-message": 70_000}, "65535"),
        ({"width-global": 3, "width-local": 2, "label-low": 1.0}, "label-low"),
        ({"width-global": 3, "width-local": 2, "alignment": "soon"}, "alignment"),
        ({"width-global": 3, "width-local": 2, "jury": "on"}, "own-history, off"),
        ({"width-global": 3, "width-local": 2, "rounds": 0, "passes": 0}, "never stop"),
        ({"width-global": 3, "width-local": 2, "eta": 0.0}, "eta must be positive"),
        ({"width-global": 3, "width-local": 2, "rounds": -1}, "negative"),
        ({"width-global": 3, "width-local": 2, "log-level": "LOUD"}, "DEBUG, INFO"),
        ({"width-global": 3, "width-local": 2, "classes": '["a"]'}, "2 to 1000 different"),
        ({"width-global": 3, "width-local": 2, "classes": "a,b"}, "JSON list"),
        ({"width-global": 3, "width-local": 2, "classes": '["a", "b", "c"]'}, "logistic"),
    ],
)
def test_bad_settings(config, words):
    with pytest.raises(ValueError, match=words):
        AppSettings.from_config(config)

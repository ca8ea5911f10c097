"""Messages that nobody honest sends: each is refused, and the run goes on."""

import json
import os
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedres.core.messages import Upload
from fedres.core.receipts import number_of
from fedres.flower import checks, run_folder
from fedres.flower.app_settings import AppSettings
from fedres.flower.log import LOG
from fedres.flower.server_state import ServerState, TaskUnderWay
from fedres.flower.wire import Reply, Sent

MESSAGES = 20_000
SETTINGS = AppSettings(3, 2, rows_per_message=4, passes=0, rounds=10**9, residual_bits=2)
SEVERAL = replace(SETTINGS, classes='["a", "b", "c"]', loss="logistic")
HUGE = "9" * 400


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(run_folder, "SYNCHRONOUS", "OFF")
    monkeypatch.setattr(LOG, "disabled", True)  # a warning for each of very many


def a_server(tmp_path, **changes):
    return ServerState(replace(SETTINGS, **changes), tmp_path / "run")


def receive(server, head, body, node=0):
    server.flights["t"] = TaskUnderWay(node, 32)
    server.receive("t", head, body)


def packed(number=0, client="a", rows=2, sparse=False, seed=0, settings=SETTINGS, **changes):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-9, 9, (rows, 3)).astype(np.float32)
    values = {
        "x_global": csr_array(np.where(x > 0, x, 0)) if sparse else x,
        "residual": np.zeros((rows, settings.outputs), np.float32),
        "y": rng.choice(np.float32([0, 1, 2] if settings.classes else [-1, 1]), rows),
        "bits": 2,
        "span": settings.rule.residual_span,
    } | changes
    return Upload(number_of(client), number, 0, **values).pack()


def head_of(*sent, client='"a"', done="false", first="0", error='""'):
    told = f'"client": {client}, "done": {done}, "first": {first}, "error": {error}'
    return f'{{{told}, "sent": [{", ".join(sent)}]}}'


# One attack each


def test_a_number_beyond_floats_is_refused_and_the_run_goes_on(tmp_path):
    server, good = a_server(tmp_path), packed()
    receive(server, head_of(f"[0, {HUGE}, {len(good)}, null]"), good)
    assert server.strangers == {"broken head": 1}
    receive(server, *Reply("a", (Sent(0, 0.5, good),)).pack(), node=1)
    assert server.version == 1


def test_an_error_while_an_upload_is_used_is_a_refusal_that_changes_nothing(tmp_path, monkeypatch):
    server = a_server(tmp_path)
    weights = server.global_.weights.copy()

    def half_way(*_):
        server.global_.weights[:] = 7
        raise MemoryError

    monkeypatch.setattr(server._side, "_learn", half_way)
    receive(server, *Reply("a", (Sent(0, 0.5, packed()),)).pack())
    assert server.members["a"].refused == {"error on the server: MemoryError": 1}
    np.testing.assert_array_equal(server.global_.weights, weights)
    assert server.version == 0


def test_a_feature_cannot_be_sent_many_times_in_a_row(tmp_path):
    server = a_server(tmp_path, feature_limit=1.0)
    often = csr_array((np.ones(6, np.float32), np.array([0, 0, 0, 0, 0, 0]), [0, 6]), shape=(1, 3))
    one = {"residual": np.zeros(1, np.float32), "y": np.ones(1, np.float32)}
    receive(server, *Reply("a", (Sent(0, 0.5, packed(x_global=often, **one)),)).pack())
    assert server.members["a"].refused == {"not canonical": 1}
    assert not server.global_.weights.any()


def test_features_out_of_order_and_bits_left_over_are_refused(tmp_path):
    server = a_server(tmp_path)
    turned = csr_array((np.ones(2, np.float32), np.array([2, 0]), [0, 2, 2]), shape=(2, 3))
    left_over = bytearray(packed(client="b"))
    left_over[16 + 8] |= 1  # two residuals of two bits leave four bits of their byte
    for node, (name, upload) in enumerate(
        {"a": packed(x_global=turned), "b": bytes(left_over)}.items()
    ):
        receive(server, *Reply(name, (Sent(0, 0.5, upload),)).pack(), node)
        assert server.members[name].refused == {"not canonical": 1}


def test_rows_of_rising_features_pass_whatever_the_row_before_ended_with(tmp_path):
    server = a_server(tmp_path)
    rising = csr_array((np.ones(3, np.float32), np.array([1, 2, 0]), [0, 2, 3]), shape=(2, 3))
    receive(server, *Reply("a", (Sent(0, 0.5, packed(x_global=rising)),)).pack())
    assert server.version == 1


def test_reading_stops_at_the_ban(tmp_path, monkeypatch):
    server = a_server(tmp_path, refusals=3)
    looked_at = []
    monkeypatch.setattr(
        "fedres.flower.server_state.checked",
        lambda sent, *rest: looked_at.append(sent) or checks.checked(sent, *rest),
    )
    receive(server, *Reply("a", tuple(Sent(k, 0.5, b"bad") for k in range(500))).pack())
    assert len(looked_at) == 3
    assert server.members["a"].ignored


@pytest.mark.parametrize("loss", [1e300, 4.1, -0.1, np.inf, np.nan])
def test_a_loss_that_no_prediction_has_is_refused(tmp_path, loss):
    server = a_server(tmp_path)
    receive(server, *Reply("a", (Sent(0, loss, packed()),)).pack())
    assert server.members["a"].refused == {"loss": 1}
    assert server.progress.best == np.inf


def test_the_worst_honest_losses_pass():
    for loss, worst in (("squared", 4.0), ("logistic", 50.0)):
        settings = AppSettings(3, 2, loss=loss)
        assert worst <= checks.largest_loss(settings) < 1.01 * worst


@pytest.mark.parametrize("label", [-1.0, 0.5, 3.0])
def test_a_class_that_there_is_not_is_refused(tmp_path, label):
    server = ServerState(SEVERAL, tmp_path / "run")
    wrong = packed(settings=SEVERAL, y=np.float32([0, label]))
    receive(server, *Reply("a", (Sent(0, 0.5, wrong, 0.5),)).pack())
    assert server.members["a"].refused == {"label": 1}
    assert not server.global_.weights.any()


@pytest.mark.parametrize("right", [1.5, -0.1, np.nan])
def test_an_accuracy_that_nothing_has_is_a_broken_head(tmp_path, right):
    server = ServerState(SEVERAL, tmp_path / "run")
    receive(server, *Reply("a", (Sent(0, 0.5, packed(settings=SEVERAL), right),)).pack())
    assert server.strangers == {"broken head": 1}


# And very many


def scrambled(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        what = rng.random()
        if what < 0.6 and data:
            data[rng.randrange(len(data))] = rng.randrange(256)
        elif what < 0.8:
            del data[rng.randrange(len(data) + 1) :]
        else:
            data += rng.randbytes(rng.randrange(1, 9))
    return bytes(data)


ODD = (
    "null",
    "true",
    '""',
    "[]",
    "{}",
    HUGE,
    "-1",
    "1e999",
    "NaN",
    '"\\u0000"',
    "0.5",
    f'"{HUGE}"',
)


def hostile(rng, upload, number, right):
    """A head and a body, one or both of them broken; `right` is what is claimed of classes."""
    kind, odd = rng.random(), rng.choice(ODD)
    upload = upload[:8] + number.to_bytes(4, "little") + upload[12:]
    if kind < 0.5:  # a sound head around a broken upload
        broken = scrambled(rng, upload)
        return head_of(f"[{number}, 0.5, {len(broken)}, {right}]"), broken
    size = len(upload)
    sound = f"[{number}, 0.5, {size}, {right}]"
    if kind < 0.8:
        heads = (
            head_of(f"[{odd}, 0.5, {size}, {right}]"),
            head_of(f"[{number}, {odd}, {size}, {right}]"),
            head_of(f"[{number}, 0.5, {odd}, {right}]"),
            head_of(f"[{number}, 0.5, {size}, {odd}]"),
            head_of(f"[{number}, 0.5, {size}]"),
            head_of(odd),
            head_of(sound, client=odd),
            head_of(sound, done=odd),
            head_of(sound, error=odd),
            head_of(sound, first=odd),
            head_of(sound, sound),
            odd,
        )
        return rng.choice(heads), upload
    if kind < 0.95:
        text = scrambled(rng, head_of(sound).encode())
        return text.decode("utf-8", "replace"), upload
    return rng.choice((None, 3, b"{}", [], "[" * 60_000)), rng.choice((None, 3, "text", upload))


@pytest.mark.parametrize("settings", [SETTINGS, SEVERAL], ids=["numbers", "classes"])
def test_20000_hostile_messages_are_refused_and_nothing_else_happens(tmp_path, settings):
    server = ServerState(replace(settings, refusals=10**9), tmp_path / "run")
    rng, right = random.Random(0), "0.5" if settings.classes else "null"
    uploads = [packed(sparse=k % 2 == 0, seed=k, settings=settings) for k in range(50)]
    limit, largest = settings.feature_limit, 0.0
    for _ in range(MESSAGES):
        before, used = server.global_.weights.copy(), server.version
        known = server.members.get("a")
        head, body = hostile(rng, rng.choice(uploads), known.confirmed if known else 0, right)
        receive(server, head, body)
        if server.version == used:
            np.testing.assert_array_equal(server.global_.weights, before)
            continue
        # What was broken was such that it is an upload again: then it is one to the last bit.
        upload = Upload.unpack(body, 3, settings.rule.residual_span, settings.outputs)
        assert upload.pack() == body
        values = (
            upload.x_global if isinstance(upload.x_global, np.ndarray) else upload.x_global.data
        )
        largest = max(largest, np.abs(values).max(initial=0))
    assert np.isfinite(server.global_.weights).all()
    for model in server.global_.each:
        assert np.linalg.norm(model.weights) <= settings.radius * 1.001
    assert largest <= limit
    reasons = server.strangers + sum(
        (Counter(member.refused) for member in server.members.values()), Counter()
    )
    assert not [reason for reason in reasons if reason.startswith("error on the server")]
    assert reasons.total() + server.version > 0.9 * MESSAGES
    assert server.version < 0.25 * MESSAGES, reasons
    server.save()
    assert json.dumps(list(server.members))

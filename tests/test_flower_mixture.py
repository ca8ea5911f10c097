"""Clients of Flower that mix: nothing more is sent, nothing is lost, and predictions are mixed."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedres import load_model
from fedres.core.mixture import mix, mix_rows, new_mixture
from fedres.core.parties import Client
from fedres.flower.model_folder import write_personal
from fedres.flower.own_mixture import OwnMixture
from fedres.tables.encoder import Encoder
from test_flower_logic import CLASSES, SETTINGS, Rows, make, restarted, round_, some_classes

MIXES = replace(SETTINGS, mix=True)


@pytest.mark.parametrize("more", [{}, {"alignment": "late"}, {"loss": "logistic"}, CLASSES])
def test_nothing_of_it_is_sent(tmp_path, more):
    uploads = []
    for settings in (replace(SETTINGS, **more), replace(MIXES, **more)):
        server, clients = make(tmp_path / str(settings.mix), settings=settings)
        if "classes" in more:
            for node, client in clients.items():
                client.source = some_classes(node)
        for _ in range(4):
            round_(server, clients)
        uploads.append([one.upload for c in clients.values() for one in c.memory.outbox.values()])
    assert uploads[0] == uploads[1]


def test_what_is_kept_goes_on(tmp_path):
    server, clients = make(tmp_path, settings=MIXES)
    for _ in range(3):
        round_(server, clients)
    again = restarted(clients[0], tmp_path)
    before, after = clients[0].memory.own.arrays(), again.memory.own.arrays()
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])
    assert again.memory.own.labels.tolist() == [again.memory.position]
    clients[1].settings = SETTINGS  # who no longer mixes forgets, and may begin again
    assert restarted(clients[1], tmp_path).memory.own is None


def test_it_is_the_mixture_of_what_each_expert_said(tmp_path):
    server, clients = make(tmp_path, "a", MIXES)
    heard, learn = [], OwnMixture.learn

    def hear(self, x_global, x_local, flights, joint):
        mixed = learn(self, x_global, x_local, flights, joint)
        x = np.column_stack([x_global, x_local])
        heard.append((x, flights[0].seen, joint[0], flights[0].label, mixed[0]))
        return mixed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OwnMixture, "learn", hear)
        for _ in range(5):
            round_(server, clients)
    x, shared, both, labels, mixed = map(np.concatenate, zip(*heard, strict=True))
    client, alone = Client(MIXES.rule, 0, 5), []
    for k in range(len(x)):
        alone.append(client.predict(x[[k], :0], x[[k]])[0])
        client.observe(x[[k], :0], x[[k]], labels[[k]])
    expected, mixture = np.empty_like(mixed), new_mixture(0, (-1.0, 1.0), 1, 3)
    mix(mixture, np.stack([alone, shared, both]), labels, expected)
    np.testing.assert_array_equal(mixed, expected)
    np.testing.assert_array_equal(clients[0].memory.own.trust[0, 1], mixture.moving[:, 0])


@pytest.mark.parametrize("classes", ["", '["no", "yes"]', '["a", "b", "c"]'])
def test_what_a_client_leaves_behind_predicts_mixed(tmp_path, classes):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("abc"))
    encoder = Encoder.fit(frame, global_=["a", "b"], local=["b", "c"])
    described = {"columns": list("abc"), "encoder": encoder.to_dict()}
    loss = "logistic" if classes else "squared"
    settings = replace(
        MIXES, width_global=2, width_local=2, features=json.dumps(described), classes=classes,
        loss=loss, client_column="who",
    )  # fmt: skip
    x_global, x_local = encoder.transform(frame)
    y = np.sign(frame.a + frame.c).to_numpy(np.float32)
    if settings.outputs > 1:
        y = frame.to_numpy().argmax(axis=1).astype(np.float32)
    server, clients = make(tmp_path, "a", settings)
    clients[0].source = Rows(x_global, x_local, y)
    for _ in range(10):
        round_(server, clients)
    memory = clients[0].memory
    write_personal(tmp_path / "model", settings, memory)
    model = load_model(tmp_path / "model")
    trust = [model._models.trust_of(0)[k] for k in range(settings.outputs)]
    np.testing.assert_array_equal(trust, memory.own.trust.sum(axis=1))
    everything = np.column_stack([x_global, x_local[:, 1]])
    held = memory.global_.weights.reshape(settings.outputs, -1)
    for k, alone in enumerate(memory.own.alone.each):
        shared = x_global @ held[k, :-1] + held[k, -1]
        said = np.stack(
            [alone.f(everything), shared, shared + memory.local.each[k].f(x_local)]
        ).astype(np.float32)
        expected, mixture = np.empty(40, np.float32), memory.own.mixtures[k]
        mix_rows(mixture, np.zeros(40, np.int64), said, expected)
        rows = model._models.rows(x_global, x_local, np.zeros(40, np.int64), new=False)
        model._models.between(-1.0, 1.0)
        np.testing.assert_allclose(model._models.predict(rows)[k], expected, rtol=1e-4, atol=1e-5)
    assert len(model.predict(frame, client=np.full(40, "a"))) == 40

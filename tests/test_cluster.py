"""Tables in shards: the same encoder, rows and weights as in memory."""

import os
import signal
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import check_random_state

from fedres import FedResClassifier, FedResRegressor
from fedres.cluster import shard_bayes, shard_sgd
from fedres.cluster.client_keys import keys_of
from fedres.cluster.client_sample import some_rows
from fedres.cluster.local_parts import read_part
from fedres.cluster.shards import Layout, ShardWriter, open_shards
from fedres.cluster.sketches import TableSketch
from fedres.tables.columns import Number
from fedres.tables.empirical_bayes import Variances, solve_all
from fedres.tables.encoder import Encoder
from fedres.tables.online_models import ModelShape, OnlineModels
from fedres.tables.sgd_tuning import Trial, tune_and_train
from fedres.tables.weight_groups import Groups

FEATURES = ["age", "size", "day", "genres", "city", "code"]


def events(rows=600, clients=40, seed=0, items=5):
    """Numbers, dates, lists and texts, some of them missing; clients that differ."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, clients, rows)
    frame = pd.DataFrame(
        {
            "user": [f"u{i}" for i in user],
            "age": rng.normal(40, 9, rows).round(2),
            "size": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
            "day": pd.Timestamp("2024-05-01") + pd.to_timedelta(rng.integers(0, 99, rows), "D"),
            "genres": rng.choice(["Drama", "Action|Drama", "", "War"], rows),
            "city": rng.choice(["Rome", "Oslo", None], rows),
            "code": rng.integers(0, items, rows),
        }
    )
    own = rng.normal(size=(clients, 2))
    frame["y"] = (
        frame.age / 9 + own[user, 0] + own[user, 1] * (frame.genres == "War")
        + (frame.city == "Rome") + rng.normal(size=rows) / 2
    )  # fmt: skip
    return frame


def sketched(frame, parts=3, categorical=("code",)):
    """A sketch of a table in several parts, one of them seen elsewhere."""
    sketches = [TableSketch("user", "y", None, FEATURES, categorical) for _ in range(parts)]
    for sketch, numbers in zip(sketches, np.array_split(np.arange(len(frame)), parts), strict=True):
        for half in np.array_split(numbers, 2):
            sketch.see("events", frame.iloc[half])
    for other in sketches[1:]:
        sketches[0].merge(other)
    return sketches[0]


def dealt(frame, folder, shards, encoder=None, labels=None):
    """The shards of a table."""
    sketch = sketched(frame)
    learned = sketch.columns()
    encoder = encoder or Encoder.fit(
        frame[FEATURES], categorical=["code"], local=["genres", "age"], learned=learned
    )
    labels = labels or sketch.labels.scaled()
    folder.mkdir(exist_ok=True)
    with ShardWriter(
        folder, Layout(encoder, labels, sketch.most_in_a_row(), sketch.whole_ids), shards
    ) as writer:
        for numbers in np.array_split(np.arange(len(frame)), 4):
            part = frame.iloc[numbers]
            writer.add(keys_of(part.user, sketch.whole_ids), part.y.to_numpy(), part[FEATURES])
    return open_shards(folder)


def test_sketches_that_merge_give_the_encoder_that_all_rows_give():
    frame = events()
    sketch = sketched(frame)
    learned = Encoder.fit(frame[FEATURES], categorical=["code"], learned=sketch.columns())
    whole = Encoder.fit(frame[FEATURES], categorical=["code"])
    assert learned.global_ == whole.global_
    assert learned.local == whole.local
    for ours, theirs in zip(learned.columns, whole.columns, strict=True):
        if isinstance(theirs, Number):
            np.testing.assert_allclose([ours.mean, ours.scale], [theirs.mean, theirs.scale], 1e-12)
            assert ours.missing == theirs.missing
        else:
            assert ours == theirs
    assert (sketch.rows, sketch.clients.count) == (600, frame.user.nunique())
    labels = FedResRegressor()._learn_labels(frame.y.to_numpy(), None)
    np.testing.assert_allclose(
        list(sketch.labels.scaled().to_dict().values())[:4], list(labels.to_dict().values())[:4]
    )


def test_numbers_whose_squares_overflow_have_a_spread():
    sketch = TableSketch("user", "y", None, ["x"])
    frame = pd.DataFrame({"user": 1, "y": 1.0, "x": [1e300, -1e300, 3e300]})
    sketch.see("f", frame[:1])
    sketch.see("f", frame[1:])
    whole = Number.learn("x", frame.x)
    np.testing.assert_allclose(sketch.columns()["x"].scale, whole.scale, 1e-12)
    np.testing.assert_allclose(sketch.columns()["x"].mean, whole.mean, 1e-12)


def test_shards_hold_all_rows_of_their_clients_as_they_are_encoded(tmp_path):
    frame = events()
    shards = dealt(frame, tmp_path, 3)
    assert sum(shard.rows for shard in shards) == len(frame)
    ids = [shard.clients().tolist() for shard in shards]
    assert sorted(id_ for mine in ids for id_ in mine) == sorted(frame.user.unique())
    for shard, mine in zip(shards, ids, strict=True):
        rows, data = frame[frame.user.isin(mine)], shard.encoded()
        assert [mine[i] for i in data.client] == rows.user.tolist()
        x_global, x_local = shard.layout.encoder.transform(rows[FEATURES])
        np.testing.assert_array_equal(data.x_global, x_global)
        np.testing.assert_array_equal(data.x_local, x_local)
        np.testing.assert_array_equal(
            data.y, shard.layout.labels.targets(rows.y.to_numpy(np.float64))
        )


def local_weights(shards):
    """The weights of all clients by column, of the first output."""
    found = {}
    for shard in shards:
        part = read_part(shard)
        for i, id_ in enumerate(shard.clients().tolist()):
            mine = slice(*part["start"][i : i + 2])
            found[id_] = dict(
                zip(part["columns"][mine].tolist(), part["weights"][mine, 0].tolist(), strict=True)
            )
    return found


@pytest.mark.parametrize("local", [["genres", "age"], ["code", "genres"]])
def test_sgd_on_one_shard_has_the_bits_of_sgd_in_memory(tmp_path, local):
    frame = events(items=30)  # so that a view of the second is CSR
    encoder = Encoder.fit(frame[FEATURES], categorical=["code"], local=local)
    (shard,) = dealt(frame, tmp_path, 1, encoder)
    labels = shard.layout.labels
    shape = ModelShape(encoder.width_global, encoder.width_local)
    best = Trial(0.3, 10.0, 2)
    data = shard.encoded()._replace(y=labels.targets(frame.y.to_numpy()))
    rng = check_random_state(0)
    memory, *_ = tune_and_train(shape, data, best.eta, best.shrinkage, best.passes, rng)
    problem = shard_sgd.SgdProblem(encoder, shape._replace(shrinkage=best.shrinkage), 1)
    global_ = shard_sgd.train([shard], problem, best, check_random_state(0))
    np.testing.assert_array_equal(global_.weights, memory.w_global)
    np.testing.assert_array_equal(global_.squares, memory.squares_global)
    part, whole = read_part(shard), memory.pack(len(shard.clients()))[1]
    for name, array in whole.items():
        np.testing.assert_array_equal(part[name], array)


def test_a_server_told_of_rows_has_the_bits_of_one_that_saw_them_learned(tmp_path):
    frame = events()
    (shard,) = dealt(frame, tmp_path, 1)
    encoder = shard.layout.encoder
    shape = ModelShape(encoder.width_global, encoder.width_local, shrinkage=10.0)
    problem = shard_sgd.SgdProblem(encoder, shape, 1)
    opened = shard_sgd.open_shard(shard, problem, shard_sgd.new_global(problem))
    server = OnlineModels(shape._replace(width_local=None))
    x_global = shard.encoded().x_global
    whole = np.random.default_rng(0).permutation(shard.rows).astype(np.int32)
    for order in np.array_split(whole, 5):
        own = opened.models.learn_and_tell(opened.rows, opened.y, order)
        told = server.rows(x_global[order], np.empty((len(order), 0)), np.zeros(len(order), int))
        y = np.ascontiguousarray(opened.y[:, order])
        server.apply_told(told, y, np.arange(len(order), dtype=np.int32), own)
    np.testing.assert_array_equal(server.w_global, opened.models.w_global)
    direct = shard_sgd.open_shard(shard, problem, shard_sgd.new_global(problem))
    direct.models.learn(direct.rows, direct.y, whole)
    np.testing.assert_array_equal(direct.models.w_global, opened.models.w_global)
    np.testing.assert_array_equal(direct.models.w_local, opened.models.w_local)


def dying(work):
    """The same work, but the first process that has done it for shard 1 dies and cannot say so."""

    def done_and_dead(shard, *known, **others):
        found = work(shard, *known, **others)
        if shard.number == 1 and not shard.path("death").exists():
            shard.path("death").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return done_and_dead


@cache
def fitted(task):
    """A table of few clients, and its model in memory."""
    frame = events(rows=900, clients=20)
    kind = FedResRegressor if task == "numbers" else FedResClassifier
    if task == "classes":
        frame["y"] = np.where(frame.y > frame.y.mean(), "high", "low")
    model = kind(categorical_features=["code"], local_features=["genres", "age"], client="user")
    return frame, model.fit(frame.drop(columns="y"), frame.y)


def in_shards(task, folder, shards=3):
    """The same table in shards, and the problem that its model has solved."""
    frame, model = fitted(task)
    known = model._posterior
    variances = [
        Variances(of, noise, of) for of, noise in zip(known.variances, known.noise, strict=True)
    ]
    settings = model._models.settings
    problem = shard_bayes.BayesProblem(model.encoder_, settings, known.groups, variances)
    return dealt(frame, folder, shards, model.encoder_, model._labels), problem, model


@pytest.mark.parametrize("task", ["numbers", "classes"])
@pytest.mark.parametrize("widest", [1500, 4])
def test_bayes_on_shards_finds_the_weights_of_bayes_in_memory(tmp_path, task, widest, monkeypatch):
    shards, problem, model = in_shards(task, tmp_path)
    monkeypatch.setattr("fedres.tables.arrow.WIDEST_SOLVED", widest)
    monkeypatch.setattr("fedres.tables.arrow.WIDEST_BLOCK", widest)
    w_global = shard_bayes.solve(shards, problem, n_jobs=2)
    np.testing.assert_allclose(w_global[0], model._models.w_global[0], atol=1e-4)
    ours = local_weights(shards)
    assert ours.keys() == {*model.clients_}
    for number, id_ in enumerate(model.clients_):
        columns, weights = model._models.client(number)
        theirs = dict(zip(columns.tolist(), weights[0].tolist(), strict=True))
        assert ours[id_] == pytest.approx(theirs, abs=1e-4)


def test_a_column_that_varies_in_one_shard_alone_counts_in_all(tmp_path):
    frame = events(rows=300, clients=12)
    number = frame.user.str[1:].astype(int)
    frame["age"] = np.where(number == 3, frame.age, 30.0 + number)
    shards = dealt(frame, tmp_path, 3)
    encoder = shards[0].layout.encoder
    shape = ModelShape(encoder.width_global, encoder.width_local)
    groups = Groups.of(encoder.global_columns, encoder.local_columns)
    known = Variances(np.full(len(groups.names), 0.1), 0.5, np.ones(len(groups.names)))
    data = some_rows(shards, encoder, len(frame))
    _, (whole,) = solve_all(shape, data, groups, [known], 0)
    problem = shard_bayes.BayesProblem(encoder, shape, groups, [known])
    np.testing.assert_allclose(shard_bayes.solve(shards, problem)[0], whole.w_global, atol=1e-6)

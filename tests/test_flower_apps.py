"""Around the logic of a Flower run: rows, apps, the loop over Flower's grid, folders, commands."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from urllib.request import urlopen

import numpy as np
import pandas as pd
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.logger import update_console_handler
from flwr.supercore.task_identity import TaskIdentity
from rich.console import Console
from rich.markup import render
from typer.testing import CliRunner

from fedres.cli.flower import app as commands
from fedres.core.files import HOLDER, locked
from fedres.core.messages import Upload
from fedres.flower import client_app, launch, run_folder, server_app, slow_client_app
from fedres.flower.app_folder import digits_settings, read_app, settings_like, write_app
from fedres.flower.app_labels import labels
from fedres.flower.app_settings import AppSettings
from fedres.flower.digits import tables
from fedres.flower.flwr_command import Flwr
from fedres.flower.launch import progress_table, write_report
from fedres.flower.local_cluster import free_port
from fedres.flower.log import LOG, set_level
from fedres.flower.members import Member
from fedres.flower.memory import STATE, Memory
from fedres.flower.metrics import metrics_server
from fedres.flower.model_folder import write_global
from fedres.flower.own_columns import own_settings
from fedres.flower.replay import replay
from fedres.flower.run_folder import read_log, read_run
from fedres.flower.samples import ROWS, open_source
from fedres.flower.server_state import ServerState
from fedres.tables.encoder import Encoder
from fedres.tables.stored_estimator import load_model


@pytest.fixture(autouse=True, scope="module")
def no_wait():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(run_folder, "SYNCHRONOUS", "OFF")
        patch.setattr(server_app, "PAUSE", 0.0)
        for name in ("run_id", "node_id", "task_id"):  # as in a process that Flower started
            patch.setattr(TaskIdentity, f"_{name}", 1)
        yield


@pytest.fixture
def shop(tmp_path):
    """A table of two shops, and an app made from it."""
    rng = np.random.default_rng(0)
    price, rain = rng.normal(10, 3, 60), rng.random(60)
    frame = pd.DataFrame({"price": price, "rain": rain, "day": rng.choice(["Mon", "Sun"], 60)})
    frame["shop"] = np.repeat(["north", "south"], 30)
    frame["sales"] = 500 + 20 * price - 80 * rain * (frame["shop"] == "south")
    frame["at"] = rng.permutation(60)
    frame.to_csv(tmp_path / "shops.csv", index=False)
    settings = settings_like(
        tmp_path / "shops.csv",
        label="sales",
        client="shop",
        time="at",
        local=["rain"],
        global_=["*"],
    )
    return replace(settings, rows_per_message=10, folder=str(tmp_path / "run"))


# Rows


def test_rows_of_a_table_are_the_clients_own_in_order_of_time(tmp_path, shop):
    source = open_source(shop, {"data": str(tmp_path / "shops.csv")}, "south", tmp_path)
    x_global, x_local, y = source.take(0, 100)
    frame = pd.read_csv(tmp_path / "shops.csv").query("shop == 'south'").sort_values("at")
    assert x_global.shape == (30, 4)  # price, rain, Mon, Sun
    assert x_local.shape == (30, 1)
    np.testing.assert_allclose(y * shop.label_scale + shop.label_mean, frame["sales"], rtol=1e-5)
    np.testing.assert_array_equal(source.take(12, 5)[0], x_global[12:17])
    assert len(source.take(30, 5)[2]) == 0


def test_passes_go_round(tmp_path, shop):
    node = {"data": str(tmp_path / "shops.csv")}
    whole = open_source(shop, node, "north", tmp_path).take(0, 30)
    twice = open_source(replace(shop, passes=2), node, "north", tmp_path)
    np.testing.assert_array_equal(twice.take(25, 10)[2], np.roll(whole[2], 5)[:10])
    assert len(twice.take(55, 10)[2]) == 5
    for_ever = open_source(replace(shop, passes=0), node, "north", tmp_path)
    np.testing.assert_array_equal(for_ever.take(3000, 90)[2], np.tile(whole[2], 3))


def test_a_table_is_read_again_only_if_it_changed(tmp_path, shop, monkeypatch):
    node, table = {"data": str(tmp_path / "shops.csv")}, tmp_path / "shops.csv"
    first = open_source(shop, node, "north", tmp_path).take(0, 1)[2]
    made = (tmp_path / ROWS).stat().st_mtime_ns
    open_source(replace(shop, rounds=3), node, "north", tmp_path)
    assert (tmp_path / ROWS).stat().st_mtime_ns == made
    frame = pd.read_csv(table)
    frame.assign(sales=frame["sales"] + 50).to_csv(table, index=False)
    assert open_source(shop, node, "north", tmp_path).take(0, 1)[2] > first


@pytest.mark.parametrize("change", ["grown", "turned", "changed"])
def test_a_table_may_grow_but_its_used_rows_must_stay(tmp_path, shop, change):
    table = tmp_path / "shops.csv"
    node = {"data": str(table), "state": str(tmp_path), "client": "north"}
    settings = replace(shop, time_column="", passes=1)
    state = run_in_process(settings, {1: node})
    assert state.members["north"].rows == 30
    frame = pd.read_csv(table)
    if change == "grown":
        frame = pd.concat([frame, frame[:15]])
    elif change == "turned":
        frame = frame[::-1]
    else:
        frame.loc[7, "sales"] += 1
    frame.to_csv(table, index=False)
    state = run_in_process(replace(settings, resume=True), {1: node}, until_faults=1)
    assert state.members["north"].rows == (45 if change == "grown" else 30)
    assert bool(state.members["north"].faults) == (change != "grown")


def test_sparse_rows_survive_the_file(tmp_path):
    words = [" ".join(map(str, row)) for row in np.arange(3000).reshape(1000, 3)]
    frame = pd.DataFrame({"word": words, "y": np.tile([0, 1], 500)})
    frame.to_csv(tmp_path / "words.csv", index=False)
    settings = settings_like(
        tmp_path / "words.csv", label="y", local=[], global_=["*"], allow_ids=True
    )
    source = open_source(settings, {"data": str(tmp_path / "words.csv")}, "a", tmp_path)
    x_global, x_local, _ = source.take(10, 7)
    assert x_local.shape == (7, 0)
    assert not isinstance(x_global, np.ndarray)
    assert x_global.sum() == 7
    assert (x_global.argmax(axis=1) == source.take(0, 1000)[0].argmax(axis=1)[10:17]).all()


def test_rows_by_a_function(tmp_path, monkeypatch):
    module = SimpleNamespace(
        rows=lambda position: (([k, 1], [2 * k], k % 2) for k in range(position, 8))
    )
    monkeypatch.setitem(sys.modules, "my_rows", module)
    source = open_source(AppSettings(2, 1), {"data": "my_rows:rows"}, "a", tmp_path)
    x_global, x_local, y = source.take(5, 10)
    assert x_global.tolist() == [[5, 1], [6, 1], [7, 1]]
    assert x_local.tolist() == [[10], [12], [14]]
    assert y.tolist() == [1, 0, 1]
    assert [part.shape for part in source.take(8, 10)] == [(0, 2), (0, 1), (0,)]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({}, "has no data"),
        ({"data": "/no/table.csv"}, "no table /no/table.csv"),
        ({"data": "no_module:rows"}, "neither a table nor a function"),
    ],
)
def test_bad_data(tmp_path, shop, node, words):
    with pytest.raises(ValueError, match=words):
        open_source(shop, node, "north", tmp_path)


def test_a_client_that_a_table_does_not_know(tmp_path, shop):
    with pytest.raises(ValueError, match="no rows of 'west'"):
        open_source(shop, {"data": str(tmp_path / "shops.csv")}, "west", tmp_path)


def test_a_class_that_the_app_does_not_know():
    with pytest.raises(ValueError, match="'maybe'"):
        labels(AppSettings(1, 1, classes='["no", "yes"]'), ["yes", "maybe"])


def test_labels_are_the_same_however_they_are_written():
    settings = AppSettings(1, 1, classes='["0", "1"]')
    for y in ([0, 1], [0.0, 1.0], ["0", "1.0"], np.array([0, 1], np.float32)):
        assert labels(settings, y).tolist() == [-1, 1]
    words = AppSettings(1, 1, classes='["01", "1"]')
    assert labels(words, ["01", "1"]).tolist() == [-1, 1]


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_damaged_rows_are_made_again(tmp_path, shop, damage):
    node = {"data": str(tmp_path / "shops.csv")}
    whole = open_source(shop, node, "north", tmp_path).take(0, 30)[2]
    content = (tmp_path / ROWS).read_bytes()
    (tmp_path / ROWS).write_bytes(content[:-40] if damage is None else damage)
    np.testing.assert_array_equal(open_source(shop, node, "north", tmp_path).take(0, 30)[2], whole)


# Apps


def test_settings_of_an_app_follow_from_the_sample(tmp_path, shop):
    assert (shop.width_global, shop.width_local, shop.loss) == (4, 1, "squared")
    frame = pd.read_csv(tmp_path / "shops.csv")
    assert shop.label_mean == pytest.approx(frame["sales"].mean())
    scaled = (frame["sales"] - shop.label_mean) / shop.label_scale
    assert shop.label_low < scaled.min() < scaled.max() < shop.label_high
    write_app(tmp_path / "app", shop)
    assert read_app(tmp_path / "app") == shop
    assert "fedres flower run" in (tmp_path / "app" / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "words"), [("my_app", "letters, digits and hyphens"), ("app", "already")]
)
def test_folders_that_cannot_be_apps(tmp_path, name, words):
    write_app(tmp_path / "app", AppSettings(1, 1))
    with pytest.raises(ValueError, match=words):
        write_app(tmp_path / name, AppSettings(1, 1))


def test_a_folder_without_an_app(tmp_path):
    with pytest.raises(ValueError, match="fedres flower init"):
        read_app(tmp_path)


@pytest.mark.parametrize(
    ("y", "words"), [([1, 2, 3], "by --task"), (["a", "a", "a"], "nothing to learn")]
)
def test_samples_with_unfit_labels(tmp_path, y, words):
    pd.DataFrame({"x": [1, 2, 3], "y": y}).to_csv(tmp_path / "sample.csv", index=False)
    with pytest.raises(ValueError, match=words):
        settings_like(tmp_path / "sample.csv", label="y", global_=["*"])


@pytest.fixture
def patients(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"patient": [f"p{k:03}" for k in range(300)], "age": rng.random(300)})
    frame["number"] = rng.permutation(300)
    frame["ill"] = rng.integers(0, 2, 300)
    frame.to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path / "patients.csv"


def test_what_the_server_sees_must_be_said(patients):
    with pytest.raises(ValueError, match="--global"):
        settings_like(patients, label="ill")


@pytest.mark.parametrize(
    "views",
    [
        {"global_": ["*"]},
        {"global_": ["age"], "local": ["patient"]},  # its categories would travel all the same
        {"global_": ["number"], "local": ["age"]},
    ],
)
def test_columns_that_look_like_ids_are_refused_unless_allowed(patients, views):
    with pytest.raises(ValueError, match=r"looks like an id .*--allow-ids"):
        settings_like(patients, label="ill", **views)
    settings_like(patients, label="ill", **views, allow_ids=True)


def test_a_number_of_ones_own_may_be_local_and_no_id_travels(patients):
    settings = settings_like(patients, label="ill", global_=["age"], local=["number"])
    assert "p007" not in settings.features


def test_init_by_command(tmp_path, shop):
    run = CliRunner().invoke
    done = run(commands, ["init", str(tmp_path / "digits")])
    assert done.exit_code == 0, done.output
    assert read_app(tmp_path / "digits") == digits_settings()
    command = ["init", str(tmp_path / "shops"), "--like", str(tmp_path / "shops.csv")]
    options = ["--label", "sales", "--client", "shop", "--time", "at", "--local", "rain"]
    options += ["--global", "*"]
    done = run(commands, command + options)
    assert done.exit_code == 0, done.output
    assert replace(read_app(tmp_path / "shops"), rows_per_message=10, folder=shop.folder) == shop
    assert "The server sees, row by row: price, rain, day; the label" in done.output
    parts = ["--label", "sales", "--local", "rain,day", "--global", "price"]
    run(commands, ["init", str(tmp_path / "parts"), *command[2:], *parts])
    widths = read_app(tmp_path / "parts")
    assert (widths.width_global, widths.width_local) == (1, 3)
    run(commands, ["init", str(tmp_path / "own"), "--widths", "10,3"])
    assert read_app(tmp_path / "own") == AppSettings(10, 3)
    assert isinstance(run(commands, command).exception, ValueError)
    wrong = run(commands, ["init", str(tmp_path / "x"), "--widths", "ten"])
    assert "two numbers" in str(wrong.exception)
    neither = run(commands, ["run", str(tmp_path / "digits")])
    assert "either --superlink NAME or --local N" in str(neither.exception)


@pytest.mark.parametrize(
    ("y", "options", "classes"),
    [
        (["a", "b", "c"], [], ["a", "b", "c"]),
        ([2, 0, 1], ["--task", "classes"], ["0", "1", "2"]),
        ([2, 0, 1], ["--labels", "0,1,2,3"], ["0", "1", "2", "3"]),
        ([2, 0, 1], ["--task", "numbers"], []),
        ([0.5, 0.25, 0.75], [], []),
    ],
)
def test_init_says_whether_labels_are_classes(tmp_path, y, options, classes):
    pd.DataFrame({"x": [1, 2, 3], "y": y}).to_csv(tmp_path / "t.csv", index=False)
    command = ["init", str(tmp_path / "app"), "--like", str(tmp_path / "t.csv"), "--label", "y"]
    done = CliRunner().invoke(commands, [*command, "--global", "x", *options])
    assert done.exit_code == 0, done.exception
    settings = read_app(tmp_path / "app")
    assert list(settings.class_names) == classes
    assert settings.loss == ("logistic" if classes else "squared")
    said = f"{len(classes)} classes: " if classes else "Labels are numbers."
    assert said in done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--task", "counts"], "numbers or classes"),
        (["--labels", "a,b"], "of --like or --widths"),
        (["--widths", "2,1", "--task", "classes"], "name all classes"),
        (["--widths", "2,1", "--task", "numbers", "--labels", "a,b"], "not numbers"),
        (["--widths", "2,1", "--labels", "a,a,b"], "different texts"),
    ],
)
def test_init_with_labels_that_do_not_fit(tmp_path, options, words):
    done = CliRunner().invoke(commands, ["init", str(tmp_path / "app"), *options])
    assert words in str(done.exception)


def test_a_class_of_the_sample_that_labels_do_not_name(tmp_path):
    pd.DataFrame({"x": [1, 2, 3], "y": ["a", "b", "c"]}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="'c', and the classes are 'a', 'b'"):
        settings_like(tmp_path / "t.csv", label="y", global_=["x"], classes=["a", "b"])


def test_classes_by_a_function(tmp_path, monkeypatch):
    module = SimpleNamespace(rows=lambda at: (([k], [1], "abc"[k]) for k in range(at, 3)))
    monkeypatch.setitem(sys.modules, "my_rows", module)
    settings = AppSettings(1, 1, classes='["c", "b", "a"]', loss="logistic")
    source = open_source(settings, {"data": "my_rows:rows"}, "a", tmp_path)
    assert source.take(0, 9)[2].tolist() == [2, 1, 0]


# Flower's loop, on a grid of this process


class FakeGrid:
    """Nodes that answer in this process, some of them late."""

    def __init__(self, settings, nodes, late=0):
        self.settings, self.nodes, self.late = settings, nodes, late
        self.waiting, self.now, self.pushed = {}, 0, 0

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            self.pushed += 1
            ids.append(f"m{self.pushed}")
            self.waiting[ids[-1]] = (self.now + self.late, message)
        return ids

    def pull_messages(self, ids):
        self.now += 1
        ready = [i for i in ids if self.waiting[i][0] <= self.now]
        return [self.answer(i, self.waiting.pop(i)[1]) for i in ready]

    def answer(self, id_, message):
        node = self.nodes[message.metadata.dst_node_id]
        message.metadata.__dict__["_message_id"] = id_
        if node == "broken":
            return Message(Error(code=1, reason="it broke"), reply_to=message)
        context = Context(1, 1, node, RecordDict(), self.settings.to_config())
        return client_app.train(message, context)


def run_in_process(settings, nodes, late=0, until_faults=None):
    """Run to the end; or until so many faults, without a clock that a slow machine could miss."""
    state = ServerState(settings, Path(settings.folder))
    finished = state.finished

    def seen():
        faults = sum(sum(member.faults.values()) for member in state.members.values())
        return finished() or ("faults" if until_faults and faults >= until_faults else None)

    state.finished = seen
    server_app.serve(FakeGrid(settings, nodes, late), state)
    state.finish()
    return state


@pytest.mark.parametrize("late", [0, 3])
def test_a_run_over_a_grid(tmp_path, shop, late):
    table = str(tmp_path / "shops.csv")
    nodes = {
        node: {"data": table, "state": str(tmp_path / "state"), "client": name}
        for node, name in ((5, "north"), (7, "south"))
    }
    nodes[9] = "broken"
    settings = replace(shop, passes=0, rounds=6)
    state = run_in_process(settings, nodes, late)
    assert sorted(state.members) == ["north", "south"]
    assert state.reason == "rounds"
    write_global(state.folder / "model", settings, state.global_.weights)
    frame = pd.read_csv(table)
    shared = load_model(state.folder / "model")
    assert shared.clients_ == []
    assert shared.predict(frame.drop(columns=["sales", "at"])).shape == (60,)
    sources = {}
    for name in ("north", "south"):
        folder = tmp_path / "state" / name
        sources[name] = open_source(settings, nodes[5], name, folder)
        personal = load_model(folder / "model")
        own = frame[frame["shop"] == name].drop(columns=["sales", "at"])
        predicted = personal.predict(own)
        # Exactly what both models add up to, in units of the label.
        memory = Memory.load(folder, name, settings)
        x_global, x_local = Encoder.from_dict(settings.table["encoder"]).transform(own)
        weights = memory.global_.weights
        joint = x_global @ weights[:-1] + weights[-1] + memory.local.f(x_local)[0]
        np.testing.assert_allclose(
            predicted, joint * settings.label_scale + settings.label_mean, rtol=1e-4
        )
    published, _ = replay(settings, read_log(state.folder), sources)
    np.testing.assert_allclose(published[-1].weights, state.global_.weights, atol=1e-4)


@pytest.fixture
def two_clinics(tmp_path):
    """Two tables that share age and the label; the app knows nothing of what else they have."""
    rng = np.random.default_rng(1)
    age = rng.normal(50, 10, 120)
    sample = pd.DataFrame({"age": age, "ill": np.tile([0, 1], 60)})
    sample.to_csv(tmp_path / "sample.csv", index=False)
    settings = settings_like(tmp_path / "sample.csv", label="ill", global_=["age"], local=[])
    pulse, ward = rng.normal(70, 8, 120), rng.choice(["3", "4", "5"], 120)
    hill = pd.DataFrame({"age": age, "pulse": pulse, "ward": ward})
    hill["ill"] = (pulse + 8 * (hill["ward"] == "4") > 72).astype(int)
    lake = pd.DataFrame({"dose": rng.random(120), "age": age, "note": "none"})
    lake["ill"] = (lake["dose"] > 0.5).astype(int)
    for name, frame in (("hill", hill), ("lake", lake)):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    nodes = {
        k: {"data": str(tmp_path / f"{name}.csv"), "state": str(tmp_path), "client": name}
        for k, name in enumerate(("hill", "lake"))
    }
    nodes[0] |= {"local": "pulse,ward", "categorical": "ward"}
    nodes[1] |= {"local": "d*"}
    folder = str(tmp_path / "run")
    return replace(settings, rows_per_message=40, passes=4, folder=folder), nodes


def test_local_columns_differ_from_client_to_client(tmp_path, two_clinics):
    settings, nodes = two_clinics
    assert settings.width_local == 0
    state = run_in_process(settings, nodes)
    assert not any(member.refused or member.faults for member in state.members.values())
    sources, width = {}, {"hill": 1 + 3, "lake": 1}
    for node, name in enumerate(width):
        own = own_settings(settings, nodes[node], name, tmp_path / name)
        assert own.width_local == width[name]
        sources[name] = open_source(own, nodes[node], name, tmp_path / name)
        model = load_model(tmp_path / name / "model")
        frame = pd.read_csv(tmp_path / f"{name}.csv", dtype={"ward": str})
        assert model.score(frame.drop(columns="ill"), frame["ill"]) > 0.9
    published, clients = replay(settings, read_log(state.folder), sources)
    np.testing.assert_array_equal(published[-1].weights, state.global_.weights)
    for node, name in enumerate(width):
        own = own_settings(settings, nodes[node], name, tmp_path / name)
        memory = Memory.load(tmp_path / name, name, own)
        np.testing.assert_array_equal(memory.local.weights, clients[name].local.weights)
    # Of private columns the server knows neither values nor names.
    told = (state.folder / run_folder.CHECKPOINT).read_bytes()
    assert not [word for word in (b"pulse", b"ward", b"dose") if word in told]


def test_other_local_columns_in_one_run_are_an_error_until_the_reset(tmp_path, two_clinics, caplog):
    settings, nodes = two_clinics
    run_in_process(replace(settings, passes=1), nodes)
    more = nodes | {1: nodes[1] | {"local": "dose,note"}}
    again = replace(settings, resume=True)
    state = run_in_process(again, more, until_faults=1)
    assert set(state.members["lake"].faults) == {"ValueError"}
    assert f"fedres flower reset {tmp_path / 'lake'}" in caplog.text
    rows = state.members["lake"].rows
    assert CliRunner().invoke(commands, ["reset", str(tmp_path / "lake")]).exit_code == 0
    state = run_in_process(again, more)
    assert state.members["lake"].rows == rows + 4 * 120
    assert (tmp_path / "lake" / "old-state.safetensors").exists()


def test_a_damaged_state_offers_the_reset_which_works(tmp_path, shop, caplog):
    node = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": "north"}
    run_in_process(shop, {1: node})
    (tmp_path / "north" / STATE).write_bytes(b"damaged")
    again = replace(shop, resume=True)
    run_in_process(again, {1: node}, until_faults=1)
    command = f"fedres flower reset {tmp_path / 'north'}"
    assert command in caplog.text
    done = CliRunner().invoke(commands, command.split()[2:])
    assert "old-state.safetensors" in " ".join(done.output.split())
    assert run_in_process(again, {1: node}).members["north"].rows == 60
    wrong = CliRunner().invoke(commands, ["reset", str(tmp_path)])
    assert "holds no state" in str(wrong.exception)


def test_a_client_has_a_model_before_its_first_row_and_goes_on_with_it(tmp_path, shop):
    table = tmp_path / "north.csv"
    frame = pd.read_csv(tmp_path / "shops.csv").query("shop == 'north'").drop(columns="shop")
    frame[:0].to_csv(table, index=False)
    south = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": "south"}
    nodes = {1: south, 2: {"data": str(table), "state": str(tmp_path), "client": "north"}}
    state = run_in_process(shop, nodes)
    assert (state.reason, state.members["north"].applied) == ("no more rows", 0)
    write_global(tmp_path / "shared", shop, state.global_.weights)
    rows = frame.drop(columns=["sales", "at"]).assign(shop="north")
    personal, shared = load_model(tmp_path / "north" / "model"), load_model(tmp_path / "shared")
    np.testing.assert_array_equal(personal.predict(rows), shared.predict(rows))
    frame.to_csv(table, index=False)
    state = run_in_process(replace(shop, resume=True), nodes)
    assert state.members["north"].rows == 30
    learned = load_model(tmp_path / "north" / "model").predict(rows)
    errors = [np.abs(p - frame["sales"]).mean() for p in (learned, personal.predict(rows))]
    assert errors[0] < errors[1]


def test_the_global_model_of_a_run_under_way(tmp_path, shop):
    state = ServerState(shop, Path(shop.folder))
    node = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": "north"}
    post = server_app.Post(FakeGrid(shop, {1: node}), state)
    before = CliRunner().invoke(commands, ["model", shop.folder, str(tmp_path / "shared")])
    assert "there is no run" in str(before.exception)
    post.send()
    post.collect()
    state.save()  # and goes on
    done = CliRunner().invoke(commands, ["model", shop.folder, str(tmp_path / "shared")])
    assert "after 2 uploads" in done.output, done.exception
    model = load_model(tmp_path / "shared")
    frame = pd.read_csv(tmp_path / "shops.csv").drop(columns=["sales", "at"])
    x_global, _ = Encoder.from_dict(shop.table["encoder"]).transform(frame)
    weights = state.global_.weights
    expected = (x_global @ weights[:-1] + weights[-1]) * shop.label_scale + shop.label_mean
    np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-5)
    state._checkpoint.describe(AppSettings(4, 1).to_config())
    wrong = CliRunner().invoke(commands, ["model", shop.folder, str(tmp_path / "shared")])
    assert "from a function" in str(wrong.exception)


def test_own_widths_of_a_function(tmp_path, monkeypatch):
    module = SimpleNamespace(rows=lambda at: (([k], [1, k, 2], 0.5) for k in range(at, 3)))
    monkeypatch.setitem(sys.modules, "my_rows", module)
    node = {"data": "my_rows:rows", "width-local": 3}
    settings = own_settings(AppSettings(1, 1), node, "a", tmp_path)
    assert open_source(settings, node, "a", tmp_path).take(0, 9)[1].shape == (3, 3)


def test_the_models_left_behind_clip_features_as_the_node_did(tmp_path, shop):
    table = str(tmp_path / "shops.csv")
    node = {"data": table, "state": str(tmp_path / "state"), "client": "north"}
    settings = replace(shop, feature_limit=0.5)
    state = run_in_process(settings, {1: node})
    write_global(state.folder / "model", settings, state.global_.weights)
    far = pd.DataFrame({"price": [1e4, 9.0], "rain": [0.3, 1.0], "day": "Sun", "shop": "north"})
    x_global, x_local = Encoder.from_dict(settings.table["encoder"]).transform(far)
    assert (abs(x_global) > 0.5).any(axis=1).all()
    memory = Memory.load(tmp_path / "state" / "north", "north", settings)
    weights = memory.global_.weights
    shared = x_global.clip(-0.5, 0.5) @ weights[:-1] + weights[-1]
    for folder, joint in (
        (state.folder, shared),
        (tmp_path / "state" / "north", shared + memory.local.f(x_local)[0]),
    ):
        np.testing.assert_allclose(
            load_model(folder / "model").predict(far),
            joint * settings.label_scale + settings.label_mean,
            rtol=1e-5,
        )


def test_what_leaves_a_client_is_uploads_and_nothing_else(tmp_path, shop):
    node = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": "north"}
    state = ServerState(shop, tmp_path / "run")
    (_, task), _ = state.tasks([1])
    head, body = task.pack()
    content = RecordDict({"fedres": ConfigRecord({"head": head, "body": body})})
    message = Message(content, dst_node_id=1, message_type="train")
    context = Context(1, 1, node, RecordDict(), shop.to_config())
    reply = client_app.train(message, context)
    assert list(reply.content) == ["fedres"]
    record = reply.content["fedres"]
    assert set(record) == {"head", "body"}
    assert set(json.loads(record["head"])) == {"client", "sent", "done", "first", "error"}
    sent = Upload.unpack(record["body"], shop.width_global)
    assert len(sent.pack()) == len(record["body"])
    assert list(context.state) == []


def test_only_the_slow_app_waits(tmp_path, shop, monkeypatch):
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    node = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": "north"}
    context = Context(1, 1, node | {"wait": 3.0}, RecordDict(), shop.to_config())
    for app, seconds in ((client_app, []), (slow_client_app, [3.0])):
        state = ServerState(shop, tmp_path / app.__name__)
        head, body = state.tasks([1])[0][1].pack()
        content = RecordDict({"fedres": ConfigRecord({"head": head, "body": body})})
        reply = app.train(Message(content, dst_node_id=1, message_type="train"), context)
        assert json.loads(reply.content["fedres"]["head"])["error"] == ""
        assert waited == seconds


def test_a_wait_that_is_no_number_is_not_told_to_the_server(tmp_path, shop, monkeypatch, caplog):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    node = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": "north"}
    context = Context(1, 1, node | {"wait": "patient 17"}, RecordDict(), shop.to_config())
    head, body = ServerState(shop, tmp_path / "run").tasks([1])[0][1].pack()
    content = RecordDict({"fedres": ConfigRecord({"head": head, "body": body})})
    reply = slow_client_app.train(Message(content, dst_node_id=1, message_type="train"), context)
    assert json.loads(reply.content["fedres"]["head"])["sent"]
    assert "patient 17" not in str(reply.content)
    assert "patient 17" in caplog.text


def test_what_a_kill_left_half_written_is_removed(tmp_path, shop):
    node = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": "north"}
    (tmp_path / "north").mkdir()
    (tmp_path / "north" / "state-0123456789abcdef.part").write_bytes(b"half")
    run_in_process(shop, {1: node})
    assert list((tmp_path / "north").glob("*.part")) == []


def test_words_of_errors_stay_on_the_client(tmp_path, shop, caplog):
    frame = pd.read_csv(tmp_path / "shops.csv")
    frame.loc[3, "sales"] = 1e9
    frame.to_csv(tmp_path / "bad.csv", index=False)
    node = {"data": str(tmp_path / "bad.csv"), "state": str(tmp_path), "client": "north"}
    state = run_in_process(replace(shop, passes=0), {1: node}, until_faults=2)
    assert state.members["north"].faults["ValueError"] >= 2
    assert "1000000000" not in json.dumps(read_run(state.folder))
    assert Memory.load(tmp_path / "north", "north", shop).position == 0


@pytest.fixture
def levels_as_before():
    yield
    LOG.setLevel("INFO")
    update_console_handler(level="INFO", timestamps=False)


@pytest.mark.usefixtures("levels_as_before")
@pytest.mark.parametrize(
    ("level", "there", "missing"),
    [
        ("DEBUG", ["upload 0 of north: 10 rows", "sends uploads [0]", "Traceback"], []),
        (
            "INFO",
            ["round 1, mean loss", "is node 1", "could not answer"],
            ["upload 0", "Traceback"],
        ),
        ("WARNING", ["ValueError; asked again"], ["round 1"]),
        ("ERROR", ["could not answer: there is no table"], ["asked again"]),
    ],
)
def test_logs_have_levels(tmp_path, shop, caplog, level, there, missing):
    good = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": "north"}
    bad = good | {"client": "south", "data": "/no/table.csv"}
    settings = replace(shop, log_level=level, passes=0, rounds=2)
    set_level(level)  # as the server's process does
    run_in_process(settings, {1: good, 2: bad})
    for words in there:
        assert words in caplog.text
    for words in missing:
        assert words not in caplog.text


def test_a_node_without_a_state_folder_says_so(tmp_path, shop):
    with pytest.raises(ValueError, match="no state folder"):
        client_app.state_folder({}, shop, "north")
    simulated = replace(shop, data="digits")
    assert client_app.state_folder({}, simulated, "a/b").name == "a_b"
    assert client_app.client_name({"partition-id": 3}, 77) == "client-3"
    assert client_app.client_name({}, 77) == "node-77"


def test_digits_as_built_in_data(tmp_path):
    settings = replace(digits_settings(), rounds=4, folder=str(tmp_path / "run"))
    nodes = {k: {"partition-id": k, "num-partitions": 3} for k in range(3)}
    state = run_in_process(settings, nodes)
    assert sorted(state.members) == ["client-0", "client-1", "client-2"]
    test = tables(3)[1].test
    personal = load_model(tmp_path / "run" / "clients" / "client-1" / "model")
    assert personal.score(test.drop(columns="label"), test["label"]) > 0.85


def test_ten_digits_are_ten_classes(tmp_path):
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    frame = pd.DataFrame(pixels, columns=[f"p{i}" for i in range(64)]).assign(digit=digit)
    frame["desk"] = np.where(np.arange(len(frame)) % 2, "left", "right")
    frame[:800].to_csv(tmp_path / "digits.csv", index=False)
    settings = settings_like(
        tmp_path / "digits.csv", label="digit", client="desk", task="classes",
        global_=["p1?", "p2?", "p3?"], local=["p*"],
    )  # fmt: skip
    settings = replace(settings, rows_per_message=200, passes=2, folder=str(tmp_path / "run"))
    nodes = {
        node: {"data": str(tmp_path / "digits.csv"), "state": str(tmp_path), "client": name}
        for node, name in enumerate(("left", "right"))
    }
    state = run_in_process(settings, nodes)
    assert not any(member.refused or member.held_back for member in state.members.values())
    assert 0.85 < state.members["left"].accuracy <= 1
    write_global(state.folder / "model", settings, state.global_.weights)
    test = frame[1200:]
    shared = load_model(state.folder / "model")
    personal = load_model(tmp_path / "left" / "model")
    assert shared.classes_.tolist() == personal.classes_.tolist() == list(range(10))
    accuracies = [
        model.score(test.drop(columns="digit"), test["digit"], **options)
        for model, options in ((shared, {"client": False}), (personal, {"client": ["left"] * 597}))
    ]
    assert accuracies[1] > 0.75
    assert accuracies[0] > 0.5  # half of the pixels, and a part of each sum at that
    sources = {
        name: open_source(settings, nodes[0], name, tmp_path / name) for name in ("left", "right")
    }
    published, clients = replay(settings, read_log(state.folder), sources, output=7)
    np.testing.assert_array_equal(published[-1].weights, state.global_.each[7].weights)
    own = Memory.load(tmp_path / "left", "left", settings).local.each[7].weights
    np.testing.assert_array_equal(clients["left"].local.weights, own)
    done = CliRunner().invoke(commands, ["status", str(state.folder)])
    assert f"{state.members['left'].accuracy:.0%}" in done.output
    assert max(map(len, done.output.splitlines())) <= 80
    page = write_report(state.folder, settings).read_text()
    assert "classes right" in page
    assert f"{state.members['left'].accuracy:.1%}" in page
    assert "Classes predicted" in page


ORPHAN = """
import subprocess, sys, time
from pathlib import Path
work = '''
import sys, time
from pathlib import Path
from fedres.core.files import locked
from fedres.flower.server_app import end_with_parent
end_with_parent(0.1)
with locked(Path(sys.argv[1]), signed=True):
    print("locked", flush=True)
    time.sleep(60)
'''
subprocess.run([sys.executable, "-c", work, sys.argv[1]])
"""


def test_an_orphan_gives_the_lock_up_and_a_holder_is_named(tmp_path):
    command = [sys.executable, "-c", ORPHAN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as superlink:
        assert superlink.stdout.readline() == b"locked\n"
        holder = (tmp_path / HOLDER).read_text()
        with pytest.raises(ValueError, match=f"{holder} is at work"), locked(tmp_path, 0.1):
            pass
        superlink.kill()
        began = time.monotonic()
        with locked(tmp_path, patience=20, signed=True):
            assert time.monotonic() - began < 20
            assert (tmp_path / HOLDER).read_text() == f"process {os.getpid()}"


def test_the_demo_ends_at_sigterm_where_sigint_is_ignored(monkeypatch):
    """As a shell ignores it for what it starts in the background."""

    def ended(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        raise AssertionError("SIGTERM was ignored")

    monkeypatch.setattr("fedres.flower.demo.demo", ended)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = CliRunner().invoke(commands, ["demo"])
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
    assert done.exit_code != 0
    assert not isinstance(done.exception, AssertionError)


# Seeing it


def test_progress_and_report(tmp_path, shop, monkeypatch):
    name = r"north[/]<1>$\q$"  # no markup of terminals, pages or plots is obeyed
    node = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": name}
    frame = pd.read_csv(tmp_path / "shops.csv").assign(shop=name)
    frame.to_csv(tmp_path / "shops.csv", index=False)
    state = run_in_process(shop, {1: node})
    state.members[name].refused = {"label": 3}
    state.members.changed.add(name)
    state.finish()
    table = progress_table(read_run(state.folder))
    assert table.row_count == 1
    Console(quiet=True).print(table)
    assert [render(cell).plain for cell in table.columns[0].cells] == [name]
    page = write_report(state.folder, shop).read_text()
    for words in (
        "no more rows",
        r"north[/]&lt;1&gt;$\q$",
        "<td>label</td><td>3</td>",
        "Measured delays",
    ):
        assert words in page
    assert name not in page
    assert not re.search(r"(src|href)=.https?:", page)  # it opens without a network


@pytest.mark.parametrize("accuracy", [None, 1.0])
def test_the_table_of_clients_has_80_columns_at_most(accuracy):
    member = Member(applied=1234, loss=0.3456, accuracy=accuracy, lag=12.0, done=True)
    member.held_back, member.refused = 1234, {"label": 999}
    facts = {"members": {"the clinic of a long name": asdict(member)}, "rounds": 12.0}
    facts |= {"seconds": 99.0, "reason": "", "strangers": {}, "clients": 1}
    wide = Console(file=io.StringIO(), width=200)
    wide.print(progress_table(facts))
    assert max(map(len, wide.file.getvalue().rstrip().splitlines())) <= 80


def test_status_and_metrics(tmp_path, shop):
    node = {"data": str(tmp_path / "shops.csv"), "state": str(tmp_path), "client": "north"}
    state = run_in_process(shop, {1: node})
    state.members["north"].refused = {'a "reason"': 3}
    state.members.changed.add("north")
    state.finish()
    done = CliRunner().invoke(commands, ["status", str(state.folder)])
    assert done.exit_code == 0, done.output
    for words in ("north", "done", "no more rows", "held", "refused", "faults"):
        assert words in done.output
    assert max(map(len, done.output.splitlines())) <= 80
    for missing in (["status"], ["metrics"], ["forgive", "a"]):
        command = [missing[0], str(tmp_path / "none"), *missing[1:]]
        assert "there is no run" in str(CliRunner().invoke(commands, command).exception)
    with metrics_server(state.folder, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        Thread(target=server.serve_forever, daemon=True).start()
        with urlopen(f"http://127.0.0.1:{server.server_address[1]}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        server.shutdown()
    assert 'fedres_client_rows{client="north"} 30.0' in lines
    assert not [line for line in lines if line.startswith("fedres_client_accuracy")]
    assert 'fedres_client_refused{client="north",reason="a \\"reason\\""} 3' in lines
    assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in lines)


class FakeFlwr:
    def __init__(self, then):
        self.then, self.stopped = then, []

    def run(self, _app, settings, _options):
        self.settings = settings
        return "1"

    def status(self, _run):
        return self.then(self)

    def log(self, run):
        return f"ValueError: run {run} out of\ndisk"

    def stop(self, run):
        self.stopped.append(run)


def test_launch_ends_with_the_run(tmp_path, shop, monkeypatch):
    monkeypatch.setattr(launch, "LOOK", 0.01)
    monkeypatch.setattr(launch, "ASK", 0.0)
    write_app(tmp_path / "app", shop)

    def finish(flwr):
        state = ServerState(
            AppSettings.from_config(shop.to_config() | flwr.settings), tmp_path / "run"
        )
        state.reason = "rounds"
        state.finish()
        return "finished:completed"

    flwr = FakeFlwr(finish)
    done = launch.launch(flwr, tmp_path / "app", {"rounds": 3})
    assert done.rounds == flwr.settings["rounds"] == 3
    with pytest.raises(ValueError, match="go on with --resume"):
        launch.launch(flwr, tmp_path / "app", {})
    with pytest.raises(ValueError, match="leave out --resume"):
        launch.launch(flwr, tmp_path / "app", {"resume": True, "folder": str(tmp_path / "none")})


def test_launch_says_why_a_run_failed_and_stops_it_on_ctrl_c(tmp_path, shop, monkeypatch):
    monkeypatch.setattr(launch, "LOOK", 0.01)
    monkeypatch.setattr(launch, "ASK", 0.0)
    write_app(tmp_path / "app", shop)
    failed = FakeFlwr(lambda _: "finished:failed")
    with pytest.raises(ValueError, match=r"ended early \(finished:failed\): .*out of disk"):
        launch.launch(failed, tmp_path / "app", {})
    ServerState(shop, Path(shop.folder)).save()
    resumed = {"resume": True}
    with pytest.raises(ValueError, match=r"\(finished:failed\); --resume goes on with it: .*disk"):
        launch.launch(failed, tmp_path / "app", resumed)

    def interrupt(_):
        raise KeyboardInterrupt

    flwr = FakeFlwr(interrupt)
    with pytest.raises(KeyboardInterrupt):
        launch.launch(flwr, tmp_path / "app", resumed)
    assert flwr.stopped == ["1"]


def test_launch_outlives_a_superlink_that_gives_no_answer(tmp_path, shop, monkeypatch):
    monkeypatch.setattr(launch, "LOOK", 0.01)
    monkeypatch.setattr(launch, "ASK", 0.0)
    write_app(tmp_path / "app", shop)
    answers = iter([ValueError("`flwr list` failed: Connection refused"), "running", "finish"])

    def status(flwr):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        if answer == "finish":
            state = ServerState(shop, tmp_path / "run")
            state.reason = "rounds"
            state.finish()
        return answer

    told = Console(record=True, quiet=False, file=io.StringIO())
    launch.launch(FakeFlwr(status), tmp_path / "app", {}, console=told)
    assert "Connection refused" in told.export_text()


def test_launch_gives_up_where_nothing_gives_a_sign_of_life(tmp_path, shop, monkeypatch):
    for name, seconds in (("LOOK", 0.01), ("ASK", 0.0), ("GIVE_UP", 0.05)):
        monkeypatch.setattr(launch, name, seconds)
    write_app(tmp_path / "app", shop)

    def no_answer(_):
        raise ValueError("`flwr list` failed: Connection refused")

    quiet = Console(quiet=True)
    with pytest.raises(ValueError, match="go on with --resume"):
        launch.launch(FakeFlwr(no_answer), tmp_path / "app", {}, console=quiet)


@pytest.mark.parametrize(
    ("printed", "words"),
    [('{"runs": []}', "does not know run 7"), ("", "answered"), ("{broken", "answered")],
)
def test_a_status_that_cannot_be_read_is_one_sentence(monkeypatch, printed, words):
    monkeypatch.setattr(Flwr, "call", lambda *_: printed)
    with pytest.raises(ValueError, match=words):
        Flwr("server").status("7")


def test_a_folder_with_the_superlinks_name_is_not_taken_for_an_app(tmp_path, shop, monkeypatch):
    write_app(tmp_path / "clinics", shop)
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink.clinics]\naddress = "127.0.0.1:{free_port()}"\ninsecure = true\n'
    )
    # It gets as far as the superlink, which is not there.
    with pytest.raises(ValueError, match=r"(?i)connect|unavailable|refused"):
        Flwr("clinics", home).status("7")


def test_the_simulation_runtime_needs_data_in_the_app(tmp_path, shop):
    write_app(tmp_path / "app", shop)
    with pytest.raises(ValueError, match="set data"):
        launch.launch_here(tmp_path / "app", {}, nodes=2)
    with pytest.raises(ValueError, match="at least one node"):
        launch.launch_here(tmp_path / "app", {}, nodes=0)

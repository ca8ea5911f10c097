"""Folders whose digests are right and whose content is not that of a model: all are refused."""

import hashlib
import json
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedres import FedResClassifier, FedResRegressor, load_model
from fedres.cli import app, main
from fedres.cluster.batch_models import BatchModel
from fedres.reading.table_files import TableFiles
from fedres.tables.storage import open_folder, write

GROUPS = ("global", "local", "clients", "posterior", "mixture", "shared")
RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "user": RNG.integers(0, 6, 300).astype(str),
        "a": RNG.normal(size=300),
        "b": RNG.normal(size=300),
        "item": RNG.choice(list("uvwxyz"), 300),
    }
)
Y = RNG.normal(size=300)


def rated(clients):
    """Return rows of clients who like items by two factors, and what they say of them."""
    user, item = np.divmod(np.arange(clients * 30), 30)
    likes = RNG.normal(size=(clients, 2)) @ RNG.normal(size=(2, 30))
    frame = pd.DataFrame({"user": user, "item": [f"item {i}" for i in item]})
    return frame, likes[user, item] + 0.1 * RNG.normal(size=len(user))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return folders of models, and the rows that they predict."""
    folder = tmp_path_factory.mktemp("models")
    linear = FedResRegressor(client="user").fit(ROWS, Y)
    assert linear._posterior is not None
    linear.save(folder / "linear")
    linear.partial_fit(ROWS.assign(user="new"), Y).save(folder / "learned")
    FedResRegressor(client="user", solver="sgd").fit(ROWS, Y).save(folder / "sgd")
    FedResRegressor(client="user", method="mixture").partial_fit(ROWS, Y).save(folder / "mixture")
    FedResClassifier(client="user").fit(ROWS, np.where(Y > 0, "yes", "no")).save(folder / "classes")
    FedResRegressor(client="user", latent=2, item="item").fit(*rated(40)).save(folder / "tastes")
    ROWS.to_csv(folder / "rows.csv", index=False)
    return folder


def rewritten(source, target, change):
    """Write a model anew, with digests that fit, after a change of its facts and arrays."""
    stored = open_folder(source)
    groups = {name: stored.group(name) for name in GROUPS if name in stored}
    meta = json.loads(json.dumps(stored.meta))
    change(meta, groups)
    write(target, meta, groups)


def ways_to_load(folder, rows):
    """Yield all ways to load clients of a model."""
    yield lambda: load_model(folder)
    stored = open_folder(folder)
    is_text = "ids_text" in stored.arrays("clients")
    for client in range(6):
        yield lambda client=client: load_model(folder, client=str(client) if is_text else client)
    yield lambda: list(
        BatchModel(folder).batches(TableFiles.find(str(rows)), ["user", "a", "b", "item"])
    )


def refused(folders, name, target, change):
    """Return how the ways to load a changed model end: a sentence, or None if it is loaded."""
    rewritten(folders / name, target, change)
    said = []
    for load in ways_to_load(target, folders / "rows.csv"):
        try:
            load()
            said.append(None)
        except ValueError as error:
            said.append(str(error))
    assert "\n" not in "".join(filter(None, said))
    return said


def test_honest_folders_are_loaded_in_all_ways(folders, tmp_path):
    for name in ("linear", "learned", "sgd", "mixture", "classes", "tastes"):
        said = refused(folders, name, tmp_path / name, lambda *_: None)
        assert set(said) == {None}, name


def setting(name, value):
    return lambda meta, _: meta["settings"].__setitem__(name, value)


def array(group, name, change):
    def of(_, groups):
        groups[group][name] = change(groups[group][name].copy())

    return of


def at(i, value):
    def change(values):
        values[i] = value
        return values

    return change


def hashed(bits, times=1):
    """Return a change that makes columns of categories of more features than weights."""

    def change(meta, _):
        column = {"kind": "hashed", "name": "b", "bits": bits, "missing": False}
        columns = meta["encoder"]["columns"]
        columns[1] = column
        columns += [{**column, "name": f"b{i}"} for i in range(times - 1)]
        meta["encoder"]["local"] = list(range(len(columns)))
        meta["settings"]["width_local"] = 2**31

    return change


SHARED = [  # what every way to load reads
    ("linear", setting("width_global", 2 * 10**9)),
    ("linear", setting("width_global", 0)),
    ("linear", setting("width_global", None)),
    ("linear", setting("width_local", 10**9)),
    ("linear", setting("width_local", None)),
    ("linear", hashed(30)),
    ("linear", hashed(18, times=100)),
    ("linear", lambda meta, _: meta["encoder"].update({"local": [0] * 10**4})),
    ("linear", array("global", "weights", lambda a: a[:, :1])),
    ("linear", array("global", "weights", lambda a: np.concatenate([a, a]))),
    ("linear", array("global", "weights", lambda a: a.astype(np.int32))),
    ("linear", array("global", "squares", lambda a: a[:, :1])),
    ("linear", array("global", "squares", lambda a: np.full_like(a, np.nan))),
    ("linear", array("global", "variance", lambda a: a[:, :1])),
    ("linear", array("global", "root", lambda a: a[:, :1])),
    ("linear", array("global", "root", lambda a: a[:, :, :1])),
    ("linear", array("global", "shared", lambda a: a[:, :1])),
    ("linear", array("global", "shared", lambda a: np.full_like(a, np.inf))),
    ("mixture", array("global", "alone_weights", lambda a: a[:, :1])),
    ("mixture", array("global", "alone_squares", lambda a: a[:, :1])),
    ("mixture", lambda meta, _: meta["mixture"].update(own=[10**9])),
    ("mixture", lambda meta, _: meta["mixture"].update(own=[0] * 10**5)),
    ("mixture", lambda meta, _: meta["mixture"].update(own=None)),
    ("tastes", array("global", "factors", lambda a: a[:1])),
    ("tastes", array("global", "factors", lambda a: a[:, :1])),
    ("classes", lambda meta, _: meta["labels"].update(classes=["a", "b", "c"])),
    ("classes", lambda meta, _: meta["labels"].update(classes=[["a"], ["b"]])),
    ("linear", lambda meta, _: meta["posterior"].update(noise=[])),
    ("linear", lambda meta, _: meta["posterior"].update(variances=[[1.0]])),
    ("linear", lambda meta, _: meta["posterior"].update(errors=[[0.0]])),
]
LOCAL = [  # what a client reads, of which the first one's is changed
    ("sgd", array("local", "start", at(1, -(2**40)))),
    ("sgd", array("local", "start", at(1, 2**40))),
    ("sgd", array("local", "start", lambda a: a.astype(np.float64))),
    ("sgd", array("local", "columns", at(0, 2**30))),
    ("sgd", array("local", "columns", at(0, -1))),
    ("sgd", array("local", "columns", at(1, 0))),
    ("sgd", array("local", "columns", lambda a: a.astype(np.float32))),
    ("sgd", array("local", "weights", at(0, np.nan))),
    ("sgd", array("local", "squares", at(0, np.inf))),
    ("sgd", array("local", "weights", lambda a: a[:, :0])),
    ("linear", array("posterior", "start", at(1, -(2**40)))),
    ("linear", array("posterior", "start", at(1, 1))),
    ("linear", array("posterior", "first_cell", lambda a: a + 2**40)),
    ("linear", array("posterior", "first_cell", at(1, 1))),
    ("linear", array("posterior", "columns", at(0, 1))),
    ("linear", array("posterior", "columns", at(0, 2**30))),
    ("linear", array("posterior", "cells", at(0, np.nan))),
    ("linear", array("posterior", "across", at(0, np.inf))),
    ("linear", array("posterior", "root_local", lambda a: a[:, :, :1])),
    ("mixture", array("mixture", "columns", at(0, 2**30))),
    ("mixture", array("mixture", "trust", lambda a: a[:, :1])),
    ("mixture", array("mixture", "trust", at(0, np.nan))),
    ("mixture", array("mixture", "labels", at(0, np.nan))),
    ("mixture", array("mixture", "start", at(1, 2**40))),
]
WHOLE = [  # what only a whole model reads
    ("sgd", array("local", "start", lambda _: np.array([0, 6 * 10**8]))),
    ("sgd", array("local", "start", lambda a: a[:-1])),
    ("sgd", array("local", "weights", lambda a: a[:-1])),
    ("mixture", array("mixture", "trust", lambda a: a[:0])),
    ("sgd", array("clients", "ids_row", np.zeros_like)),
    ("tastes", array("clients", "ids_row", np.zeros_like)),
    ("sgd", array("clients", "ids_start", lambda a: np.tile(a[[0, -1]], 4)[: len(a)])),
    ("sgd", array("clients", "ids_row", lambda a: a[:-1])),
]


@pytest.mark.parametrize(("name", "change"), SHARED)
def test_what_all_clients_share_is_of_one_shape(folders, name, change, tmp_path):
    assert None not in refused(folders, name, tmp_path / "model", change)


@pytest.mark.parametrize(("name", "change"), LOCAL)
def test_what_a_client_has_is_inside_its_arrays(folders, name, change, tmp_path):
    said = refused(folders, name, tmp_path / "model", change)
    assert said[0] is not None  # the whole model
    assert any(said[1:7])  # one client
    assert said[7] is not None  # a batch of rows of all clients


@pytest.mark.parametrize(("name", "change"), WHOLE)
def test_what_only_a_whole_model_has_is_inside_its_arrays(folders, name, change, tmp_path):
    assert refused(folders, name, tmp_path / "model", change)[0] is not None


def test_clients_of_a_batch_share_nothing(folders, tmp_path):
    def change(_, groups):
        start = groups["local"]["start"]
        groups["local"]["start"] = np.tile(start[[0, -1]], len(start))[: len(start)]

    assert refused(folders, "sgd", tmp_path / "model", change)[7] is not None


def test_long_classes_take_no_more_memory_than_they_have_letters(folders, tmp_path):
    rewritten(
        folders / "classes",
        tmp_path / "model",
        lambda meta, _: meta["labels"].update(dtype=f"<U{2**28}"),
    )
    assert load_model(tmp_path / "model").classes_.nbytes < 100


def test_commands_say_it_in_one_sentence(folders, tmp_path):
    rewritten(folders / "linear", tmp_path / "model", setting("width_global", 0))
    for command in ("predict", "inspect"):
        arguments = [tmp_path / "model", *[folders / "rows.csv"] * (command == "predict")]
        done = CliRunner().invoke(app, [command, *map(str, arguments)])
        assert isinstance(done.exception, ValueError)
        assert "the global model has 0 features" in str(done.exception)


def with_header(source, target, change):
    """Copy a model and change the header of a file of arrays, with digests that fit."""
    shutil.copytree(source, target)
    path = target / "model.json"
    index = json.loads(path.read_text())
    entry = index["groups"]["global"]
    data = (target / entry["file"]).read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    header, data = change(json.loads(data[8:length]), data[length:])
    text = json.dumps(header).encode()
    text = len(text).to_bytes(8, "little") + text
    (target / entry["file"]).write_bytes(text + data)
    entry.update(
        bytes=len(text + data),
        header_sha256=hashlib.sha256(text).hexdigest(),
        sha256=hashlib.sha256(text + data).hexdigest(),
    )
    del index["sha256"]
    rest = json.dumps(index).encode()[1:]
    digest = hashlib.sha256(rest).hexdigest().encode()
    path.write_bytes(b'{"sha256": "%s",\n%s' % (digest, rest))


def many(header, data):
    """Many arrays of the same bytes."""
    last = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    return header | {f"more {i}": last for i in range(10)}, data


def gap(header, data):
    return header, data + bytes(8)


def short(header, data):
    header["weights"]["shape"] = [1, 1]
    return header, data


def negative(header, data):
    header["weights"]["shape"] = [-1, -header["weights"]["shape"][1]]
    return header, data


@pytest.mark.parametrize("change", [many, gap, short, negative])
def test_arrays_fill_their_file_and_share_nothing(folders, change, tmp_path):
    with_header(folders / "sgd", tmp_path / "model", change)
    with pytest.raises(ValueError, match=r"its arrays overlap|it has bytes of no array"):
        open_folder(tmp_path / "model")


def test_deeply_nested_json_is_refused(folders, tmp_path):
    shutil.copytree(folders / "sgd", tmp_path / "model")
    (tmp_path / "model" / "model.json").write_text("[" * 10**5)
    with pytest.raises(ValueError, match="damaged or not that of a model"):
        load_model(tmp_path / "model")


def test_names_do_not_command_the_terminal(folders, tmp_path, capsys, monkeypatch):
    escape = "\x1b[2J\x1b]0;owned\x07"

    def change(meta, _):
        meta["chosen"]["columns_"] = {"client": f"{escape}user"}
        meta["encoder"]["columns"][0]["name"] = f"{escape}a"

    rewritten(folders / "linear", tmp_path / "model", change)
    monkeypatch.setattr(sys, "argv", ["fedres", "inspect", str(tmp_path / "model")])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.count(r"\x1b[2J\x1b]0;owned\x07") >= 3
    monkeypatch.setattr(sys, "argv", ["fedres", "inspect", f"{tmp_path}/{escape}"])
    with pytest.raises(SystemExit):
        main()
    assert r"\x1b[2J" in capsys.readouterr().err

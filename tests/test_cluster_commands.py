"""fit, evaluate and predict on tables of several files, from end to end."""

import json
import pickle
import re
import signal
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from typer.testing import CliRunner

import fedres
from fedres.cluster import shard_bayes, shard_sgd
from fedres.cluster.checkpoint import kept
from fedres.cluster.fit_parts import ColumnRoles, fit_parts
from fedres.cluster.memory import count_shards, parse_size
from fedres.cluster.shards import Layout
from fedres.reading.table_files import TableFiles
from fedres.tables.client_ids import ClientWarning
from test_cluster import dying, events
from test_table_commands import app, run

pytestmark = pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
COLUMNS = ["--client", "user", "--label", "y", "--categorical", "code", "--local", "genres,age"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table in three files and in one, a model of each, and rows that they never saw."""
    folder = tmp_path_factory.mktemp("large")
    frame = events(rows=1500, clients=60)
    new = events(rows=300, clients=70, seed=0)
    parts = folder / "parts"
    parts.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_parquet(parts / f"day-{number}.parquet", index=False)
    frame.to_parquet(folder / "whole.parquet", index=False)
    fresh = folder / "new"
    fresh.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(new)), 2)):
        new.iloc[part].to_parquet(fresh / f"day-{number}.parquet", index=False)
    new.to_parquet(folder / "new.parquet", index=False)
    run("fit", folder / "whole.parquet", *COLUMNS, "--shared", "linear", "--out", folder / "one")
    return folder


@pytest.fixture(scope="module")
def large(folder):
    """What is printed when the table is fitted in three shards."""
    found = fit_parts(
        TableFiles.find(str(folder / "parts"), ["code", "user"]),
        ColumnRoles("user", "y"),
        folder / "model",
        memory=2 * 10**9,
        parameters={"categorical_features": ["code"], "local_features": ["genres", "age"]},
        shards=3,
    )
    assert found.shards == 3
    return found


def test_the_folder_of_a_table_in_shards_predicts_what_that_of_one_in_memory_does(folder, large):
    one, other = (fedres.load_model(folder / name) for name in ("one", "model"))
    assert {*one.clients_} == {*other.clients_}
    assert one.encoder_.names_local == other.encoder_.names_local
    np.testing.assert_allclose(one.global_model_.weights, other.global_model_.weights, atol=1e-4)
    for id_ in one.clients_:
        theirs, ours = one.local_models_[id_], other.local_models_[id_]
        assert [*theirs.names] == [*ours.names]
        np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-4)
        assert ours.constant == pytest.approx(theirs.constant, abs=1e-4)
    new = pd.read_parquet(folder / "new.parquet").drop(columns="y")
    np.testing.assert_allclose(one.predict(new), other.predict(new), atol=1e-3)


def test_one_client_is_read_from_the_folder_of_many(folder, large):
    whole = fedres.load_model(folder / "model")
    own = fedres.load_model(folder / "model", client="u7")
    assert own.local_models_["u7"].table().equals(whole.local_models_["u7"].table())


def test_evaluate_says_of_batches_what_it_says_of_a_table(folder, large, capsys):
    whole = json.loads(run("evaluate", folder / "model", folder / "new.parquet", "--json"))
    parts = json.loads(run("evaluate", folder / "model", folder / "new", "--json"))
    small = json.loads(
        run("evaluate", folder / "model", folder / "new.parquet", "--memory", "1GB", "--json")
    )
    assert parts == pytest.approx(whole)
    assert small == pytest.approx(whole)
    assert whole["unseen_clients"] > 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predict_writes_of_batches_what_it_writes_of_a_table(folder, large, tmp_path, ending):
    read = pd.read_csv if ending == "csv" else pd.read_parquet
    outs = [tmp_path / f"{name}.{ending}" for name in ("whole", "parts")]
    run("predict", folder / "model", folder / "new.parquet", "--out", outs[0])
    run("predict", folder / "model", folder / "new", "--out", outs[1])
    whole, parts = map(read, outs)
    pd.testing.assert_frame_equal(whole, parts)


def test_inspect_shows_a_model_that_was_fitted_in_shards(folder, large):
    assert json.loads(run("inspect", folder / "model", "--json"))["clients"] == 60
    with pytest.raises(AttributeError, match="fitted in shards, which keep no variances"):
        fedres.load_model(folder / "model").predict_interval(
            pd.read_parquet(folder / "new.parquet").drop(columns="y")
        )


def test_predict_says_that_there_are_no_intervals(folder, large):
    words = fails("predict", folder / "model", folder / "new", "--interval", "0.9")
    assert "keeps no variances" in words


def test_fit_reads_csv_files_and_says_what_memory_it_took(folder, tmp_path):
    frame = pd.read_parquet(folder / "whole.parquet").assign(
        user=lambda t: t.user.str[1:].astype(int), y=lambda t: np.where(t.y > 5, "high", "low")
    )
    for number in range(2):
        frame.iloc[number::2].to_csv(tmp_path / f"day-{number}.csv", index=False)
    found = json.loads(
        run("fit", tmp_path / "day-*.csv", *COLUMNS, "--time", "day", "--out", tmp_path / "model",
            "--json")
    )  # fmt: skip
    assert found["held_out"] == "last rows of each client"
    assert found["rows"] == 1500
    assert found["peak_memory_bytes"] > 10**7
    model = fedres.load_model(tmp_path / "model")
    assert model.classes_.tolist() == ["high", "low"]
    assert {*model.clients_} == {*frame.user}


def test_sgd_in_shards_learns(folder, tmp_path):
    found = json.loads(
        run("fit", folder / "whole.parquet", *COLUMNS, "--solver", "sgd", "--memory", "2GB",
            "--method", "fedres", "--out", tmp_path / "model", "--json")
    )  # fmt: skip
    measured = json.loads(run("evaluate", tmp_path / "model", folder / "whole.parquet", "--json"))
    assert measured["rmse"] < 0.8 * found["methods"]["constant"]["rmse"]
    one = fedres.load_model(folder / "one")
    again = one.set_params(
        solver="sgd", shared="linear", **{k: found[k] for k in ("eta", "shrinkage", "passes")}
    ).fit(
        pd.read_parquet(folder / "whole.parquet").drop(columns="y"),
        pd.read_parquet(folder / "whole.parquet").y,
    )
    other = fedres.load_model(tmp_path / "model")
    np.testing.assert_allclose(
        again.global_model_.weights, other.global_model_.weights, rtol=1e-4, atol=1e-6
    )


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize(
    ("solver", "label", "fatal"),
    [
        ("bayes", "y", (shard_bayes, "advance")),
        ("bayes", "genres", (shard_bayes, "advance")),
        ("sgd", "y", (shard_sgd, "learn_shard")),
    ],
)
def test_a_fit_that_was_killed_goes_on(folder, tmp_path, monkeypatch, solver, label, fatal):
    work, calls = getattr(*fatal), []

    def counted(*known, **others):
        calls.append(known)
        return work(*known, **others)

    def fit(name):
        fit_parts(
            TableFiles.find(str(folder / "parts"), ["code", "user"]),
            ColumnRoles("user", label),
            tmp_path / name / "model",
            memory=2 * 10**9,
            method="fedres",
            parameters={"local_features": ["age"], "solver": solver},
            shards=3,
            n_jobs=1,
        )

    def made_again(*_, **__):
        pytest.fail("what was finished is made again")

    monkeypatch.setattr(*fatal, counted)
    fit("undisturbed")
    all_calls, calls[:] = len(calls), []
    monkeypatch.setattr(*fatal, dying(work))
    child = get_context("fork").Process(target=fit, args=("killed",))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert [path.name[:14] for path in (tmp_path / "killed").iterdir()] == [".model-shards-"]
    monkeypatch.setattr(*fatal, counted)
    for name in ("prepare_parts", "compare_on_table"):
        monkeypatch.setattr(f"fedres.cluster.fit_parts.{name}", made_again)
    fit("killed")
    assert 0 < len(calls) < all_calls
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["model"]
    whole, gone_on = (
        json.loads((tmp_path / name / "model" / "model.json").read_bytes())["groups"]
        for name in ("undisturbed", "killed")
    )
    assert [one["sha256"] for one in whole.values()] == [one["sha256"] for one in gone_on.values()]


def fails(*arguments):
    with pytest.raises(ValueError, match=r".") as error:
        run(*arguments)
    return str(error.value)


def test_mistakes_are_told_in_a_sentence(folder, tmp_path):
    fit = ["--client", "user", "--label", "y", "--out", tmp_path / "model"]
    parts = folder / "parts"
    assert "there is no file" in fails("fit", tmp_path / "none-*.parquet", *fit)
    assert "holds no files to read" in fails("fit", tmp_path, *fit)
    assert "no size of memory" in fails("fit", parts, *fit, "--memory", "much")
    assert "too little: give" in fails("fit", parts, *fit, "--memory", "100MB")
    assert "--shared trees needs all rows" in fails("fit", parts, *fit, "--shared", "trees")
    assert "no column 'z' for the label" in fails("fit", parts, *fit[:2], "--label", "z", *fit[4:])
    assert "both column 'y'" in fails("fit", parts, "--client", "y", *fit[2:])
    frame = pd.read_parquet(folder / "whole.parquet")
    for name, other, words in (
        ("kinds", frame.assign(age="old"), "b.parquet: write it alike in all"),
        ("labels", frame.assign(y=[f"t{k}" for k in range(len(frame))]), "different texts"),
        ("clients", frame.assign(user=frame.user.where(frame.index > 0)), "for its client"),
        ("empty", frame[:0], "column names and no rows"),
    ):
        part = tmp_path / name
        part.mkdir()
        other.to_parquet(part / "b.parquet")
        if name == "kinds":
            frame.to_parquet(part / "a.parquet")
        assert words in fails("fit", part, *fit)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "a.parquet").write_bytes(b"PAR1 and nothing else")
    assert "damaged" in fails("fit", tmp_path / "damaged", *fit)
    assert not (tmp_path / "model").exists()
    assert not list(tmp_path.glob(".model-shards-*"))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_fit_that_stopped_with_an_error_goes_on(folder, tmp_path, monkeypatch, error):
    def stop(*_, **__):
        raise error

    fit = ["fit", folder / "parts", *COLUMNS, "--memory", "2GB", "--out", tmp_path / "model"]
    with monkeypatch.context() as broken:
        broken.setattr("fedres.cluster.fit_parts.write_model", stop)
        stopped = CliRunner().invoke(app, [str(one) for one in fit])
    assert stopped.exit_code
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith(".model-shards-")
    assert f"kept in {kept}: the same command goes on from there" in stopped.output
    other = tmp_path / ".model-shards-other"
    other.mkdir()
    for name in ("prepare_parts", "compare_on_table"):
        monkeypatch.setattr(f"fedres.cluster.fit_parts.{name}", stop)
    again = CliRunner().invoke(app, [str(one) for one in fit])
    assert again.exit_code == 0
    assert f"going on from {kept}" in again.output
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


PLAIN = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text()
ARRAYS = arrays(
    st.sampled_from([np.float64, np.float32, np.int64]), st.integers(0, 4), elements=st.just(3)
)


class Pair(NamedTuple):
    first: Any
    second: Any


@given(
    st.recursive(
        PLAIN | ARRAYS,
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text(), inner) | st.builds(Pair, inner, inner)
        ),
    )
)
def test_finished_steps_are_read_as_they_were(value):
    with TemporaryDirectory() as folder:
        made = kept(Path(folder) / "step", lambda: value, [Pair])
        again = kept(Path(folder) / "step", pytest.fail, [Pair])
    for found in (made, again):
        assert repr(found) == repr(value)


def test_a_finished_step_is_no_code(tmp_path):
    (tmp_path / "step").write_bytes(pickle.dumps(print))
    with pytest.raises(ValueError, match=f"damaged.*or remove {tmp_path} to begin anew"):
        kept(tmp_path / "step", dict)
    kept(tmp_path / "pair", lambda: Pair(1, 2), [Pair])
    with pytest.raises(KeyError):
        kept(tmp_path / "pair", dict)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_leaves_no_half_table(folder, large, tmp_path, monkeypatch, ending):
    def full(*_):
        raise OSError(27, "File too large")

    out = tmp_path / f"scored.{ending}"
    out.write_text("what was there before")
    monkeypatch.setattr("fedres.core.files.os.fsync", full)
    for table in (folder / "whole.parquet", folder / "parts"):
        with pytest.raises(OSError, match="File too large") as error:
            run("predict", folder / "model", table, "--out", out)
        assert error.value.filename == str(out)
        assert [path.name for path in tmp_path.iterdir()] == [out.name]
        assert out.read_text() == "what was there before"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "the disk of"),
        (MemoryError(), "there is less memory than the 2.00 GB"),
    ],
)
def test_a_full_disk_and_full_memory_are_told(folder, tmp_path, monkeypatch, error, words):
    def full(*_):
        raise error

    monkeypatch.setattr("fedres.cluster.shards.ShardWriter.add", full)
    out = tmp_path / "model"
    told = fails("fit", folder / "parts", *COLUMNS, "--memory", "2GB", "--out", out)
    assert told.startswith(words)
    assert not list(tmp_path.iterdir())


def test_less_memory_makes_more_shards(large):
    most = {"genres": 2, "city": 1, "code": 1}
    layout = Layout(large.model.encoder_, large.model._labels, most, are_numbers=False)
    counts = [
        count_shards(layout, 10**7, 10**6, parse_size(size), 2) for size in ("8GB", "4GB", "2GB")
    ]
    assert counts[0] < counts[1] < counts[2]
    with pytest.raises(ValueError, match="too little for 1,000,000,000,000 rows"):
        count_shards(layout, 10**12, 10**11, parse_size("2GB"), 2)


def test_rows_of_unknown_clients_in_batches_raise_one_warning(folder, large, tmp_path):
    frame = pd.read_parquet(folder / "new.parquet").head(40)
    users = frame.user.to_numpy(object)
    users[:3], users[3] = "new one" if isinstance(users[0], str) else 10**6, None
    frame.assign(user=users).to_csv(tmp_path / "some.csv", index=False)
    frame.drop(columns="user").to_csv(tmp_path / "nobody.csv", index=False)
    out = tmp_path / "out.csv"
    with pytest.warns(ClientWarning) as told:
        run("predict", folder / "model", tmp_path / "some.csv", "--memory", "1GB", "--out", out)
    unknown, missing = (str(one.message) for one in told)
    assert re.match(r"\d+ of 40 rows name clients that the model does not know, such as", unknown)
    assert missing.startswith("1 of 40 rows name no client: these rows are predicted by the")
    arguments = ["predict", folder / "model", tmp_path / "nobody.csv", "--memory", "1GB"]
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert "nobody.csv names no client (column user): all rows are predicted" in done.stderr


def test_a_model_fitted_by_bayes_in_shards_refuses_to_go_on(folder, large):
    model = fedres.load_model(folder / "model")
    frame = pd.read_parquet(folder / "new.parquet")
    rows = frame[frame.user.isin(model.clients_)].head(5)
    X = rows.drop(columns="y")
    before = model.predict(X)
    with pytest.raises(ValueError, match="cannot go on learning: it was fitted by solver='bayes'"):
        model.partial_fit(X, rows.y)
    with pytest.raises(ValueError, match="fit it anew, or in shards with --solver sgd"):
        model.learn_one(X.iloc[0].to_dict(), 1.0)
    np.testing.assert_array_equal(model.predict(X), before)

import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

import fedres
from fedres.core import source
from fedres.simulation import parallel
from fedres.simulation.parallel import count_cores
from fedres.simulation.run_store import ROOMS, RunStore
from fedres.simulation.sweep import Case, run_cases

WHAT = {"clients": [5, 10], "delays": [0, 6], "seeds": 3, "rounds": 40}


def outcome(table):
    """All but the time it took."""
    return table.drop(columns="seconds")


def test_one_row_a_run_and_the_same_on_any_number_of_cores():
    one = fedres.sweep("digits", n_jobs=1, **WHAT)
    two = fedres.sweep("digits", n_jobs=2, **WHAT)
    assert len(one) == 3 * 2 * 2 * 3
    assert (one.problem == "").all()
    pd.testing.assert_frame_equal(outcome(one), outcome(two))
    run = fedres.simulate(
        fedres.federate("digits", 10, seed=2), "fedres", rounds=40, delay=6, seed=2
    )
    row = one.query("method == 'fedres' and clients == 10 and delay == 6 and seed == 2").iloc[0]
    assert row.accuracy == pytest.approx(run.accuracy)
    assert row.bytes_up == run.bytes_up


def test_the_same_rows_from_ray(tmp_path):
    pytest.importorskip("ray")
    code = f"""
import fedres, ray
table = fedres.sweep("digits", backend="ray", **{WHAT!r})
ray.shutdown()
table.to_json({str(tmp_path / "ray.json")!r})
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
    ray = pd.read_json(tmp_path / "ray.json")
    here = fedres.sweep("digits", n_jobs=1, **WHAT)
    columns = ["method", "clients", "delay", "seed", "accuracy", "loss", "bytes_up"]
    pd.testing.assert_frame_equal(
        ray[columns], here[columns].astype(ray[columns].dtypes.to_dict()), rtol=1e-6
    )


@pytest.mark.filterwarnings("ignore:Failed to inspect CPU affinity")
def test_cores_are_counted_where_the_system_does_not_say_which_are_ours(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS and Windows
    assert 1 <= count_cores(None) <= os.cpu_count()
    assert fedres.compare(seeds=1, rounds=5).seeds == 1


def test_only_cores_that_are_ours_are_counted():
    code = (
        "import os; os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1]); "
        "from fedres.simulation.parallel import count_cores; print(count_cores(None))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize(
    "name",
    [
        "core/losses.py",
        "core/steps.py",
        "simulation/run.py",
        "simulation/sweep.py",
        "report/plots.py",
    ],
)
def test_results_of_other_code_are_not_reused(name, tmp_path, monkeypatch):
    package = Path(fedres.__file__).parent
    copy = shutil.copytree(package, tmp_path / "fedres", ignore=shutil.ignore_patterns("*.nb*"))
    monkeypatch.setattr(source, "__file__", str(copy / "core" / "source.py"))
    digest = partial(source.digest_of_code.__wrapped__, *ROOMS)
    before = digest()
    assert before == source.digest_of_code(*ROOMS) == digest()
    (copy / name).write_bytes((copy / name).read_bytes()[:-1] + b" ")
    assert (digest() == before) == name.startswith("report")  # which shows runs and makes none


def test_what_is_stored_is_not_run_again(tmp_path):
    store = tmp_path / "runs.sqlite"
    first = fedres.sweep("digits", store=store, **WHAT)
    assert first.attrs["new"]["client_rounds"] > 0
    again = fedres.sweep("digits", store=store, **WHAT)
    assert again.attrs["new"]["client_rounds"] == 0
    pd.testing.assert_frame_equal(first, again)  # seconds too: they come from the store
    more = fedres.sweep("digits", store=store, **(WHAT | {"seeds": 4}))
    assert more.attrs["new"]["client_rounds"] == first.attrs["new"]["client_rounds"] / 3


def test_independent_is_run_once_whatever_the_delay():
    table = fedres.sweep("digits", methods=["independent"], clients=[5], delays=[0, 5, 9], seeds=1)
    assert table.attrs["new"]["client_rounds"] == 5 * 500
    assert table.accuracy.nunique() == 1


LONG = {"clients": [35], "delays": [0, 20, 80], "seeds": 40, "rounds": 3000, "n_jobs": 2}


def stored(path):
    if not path.exists():
        return 0
    try:
        with sqlite3.connect(path) as base:
            return base.execute("SELECT count(*) FROM runs").fetchone()[0]
    except sqlite3.OperationalError:  # not yet made, or being written
        return 0


def test_a_killed_sweep_resumes_to_the_identical_table(tmp_path):
    store = tmp_path / "runs.sqlite"
    command = f"import fedres; fedres.sweep('digits', store={str(store)!r}, **{LONG!r})"
    process = subprocess.Popen([sys.executable, "-c", command], start_new_session=True)
    deadline = time.monotonic() + 60
    while stored(store) < 20 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = stored(store)
    assert 20 <= done < 40 * (1 + 3 + 3)
    resumed = fedres.sweep("digits", store=store, **LONG)
    assert 0 < resumed.attrs["new"]["client_rounds"] < 35 * 3000 * 280
    whole = fedres.sweep("digits", **LONG)
    pd.testing.assert_frame_equal(outcome(resumed), outcome(whole))


def test_two_sweeps_may_share_a_store(tmp_path):
    store = tmp_path / "runs.sqlite"
    code = (
        "import fedres, sys; fedres.sweep('digits', clients=[5], seeds=12, rounds=50, "
        f"delays=[0, 4], store={str(store)!r}, n_jobs=1)"
    )
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    again = fedres.sweep("digits", clients=[5], seeds=12, rounds=50, delays=[0, 4], store=store)
    assert again.attrs["new"]["client_rounds"] == 0


def test_a_foreign_file_is_not_taken_for_a_store(tmp_path):
    path = tmp_path / "runs.sqlite"
    path.write_text("something else entirely, and long enough to be read as a page" * 50)
    with pytest.raises(ValueError, match="is not a store of runs"):
        RunStore(path)
    assert path.read_text().startswith("something else")
    with pytest.raises(ValueError, match="is not a store of runs"):
        RunStore(tmp_path)  # a folder


def test_what_cannot_be_is_a_row_that_says_so():
    table = fedres.sweep("digits", clients=[10, 500], seeds=1, rounds=20)
    impossible = table[table.clients == 500]
    assert impossible.accuracy.isna().all()
    assert impossible.problem.str.contains("at most 36 clients are possible").all()
    assert table[table.clients == 10].accuracy.notna().all()


def test_every_setting_has_its_own_key(tmp_path):
    (tmp_path / "other.csv").write_text("x,label\n1,0\n2,1\n")
    base = Case("digits", 5, 0, "fedres")
    others = {
        "data": str(tmp_path / "other.csv"), "clients": 7, "seed": 7, "method": "fedres-erm",
        "delay": 7, "alignment": "aligned", "step": "sgd", "eta": 0.25, "rounds": 7,
        "residual_bits": 16, "local": "all", "local_eta": 0.25, "batch": 7, "ridge": 0.5,
        "labels": (0.0, 1.0), "clip": False, "scale": "0..1",
    }  # fmt: skip
    assert set(others) == set(vars(base))
    keys = {replace(base, **{name: value}).key() for name, value in others.items()}
    assert len(keys | {base.key()}) == len(others) + 1
    assert replace(base).key() == base.key()


def test_methods_are_asked_only_for_what_they_know():
    table = fedres.sweep(
        "digits", ["fedres", "fedres-erm"], [3], seeds=1, rounds=8, residual_bits=[2, 32]
    )
    assert table.accuracy.notna().all()
    assert table[table.method == "fedres-erm"].bytes_up.nunique() == 1
    with pytest.raises(ValueError, match=r"fedres does not know ridge=0\.5"):
        run_cases([Case("digits", 3, 0, "fedres", rounds=8, ridge=0.5)], RunStore(None), n_jobs=1)


@pytest.mark.parametrize(
    ("method", "option", "message"),
    [
        (
            "independent",
            {"local_step": fedres.Adaptive(0.1)},
            "leave it out, or .* .fedres, mixture.$",
        ),
        ("independent", {"alignment": "late"}, "does not know alignment='late'"),
        ("independent", {"delay": 3}, "sends no messages that could be late: Delay"),
        (
            "central",
            {"residual_bits": 4},
            "use a method that does .fedres, mixture, fictitious-play.",
        ),
    ],
)
def test_what_a_method_does_not_know_is_a_mistake(method, option, message, digits):
    with pytest.raises(ValueError, match=message):
        fedres.simulate(digits, method, rounds=2, **option)


def test_mistakes():
    with pytest.raises(ValueError, match="unknown method 'x'"):
        fedres.sweep("digits", methods=["x"])
    with pytest.raises(ValueError, match="unknown backend 'x': choose one of joblib, ray"):
        fedres.sweep("digits", backend="x")
    with pytest.raises(ValueError, match="nothing to run"):
        run_cases([], RunStore(None))


def test_where_a_bar_cannot_move_there_are_lines(capsys, monkeypatch):
    monkeypatch.setattr(parallel, "SECONDS_A_LINE", 0.0)
    assert list(parallel.with_bar(iter("abc"), 3, "counting")) == ["a", "b", "c"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"counting: {n} of 3" for n in (1, 2, 3)]
    assert lines[-1] == "counting: 3 of 3, 0 s left"


def test_a_store_runs_nothing_twice_and_keeps_what_was_done_before_an_error(tmp_path):
    store = RunStore(tmp_path / "runs.sqlite")
    with pytest.raises(ValueError, match="math domain"):
        store.map(math.sqrt, [4.0, 9.0, -1.0], n_jobs=1)
    assert len(store._base.execute("SELECT key FROM runs").fetchall()) == 2
    assert store.map(math.sqrt, [9.0, 4.0], n_jobs=1) == [3.0, 2.0]

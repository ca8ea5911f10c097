import json
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import fedres
from fedres.cli import app, main
from fedres.cli.table_options import refuse_missing
from fedres.simulation.parallel import working


def fedres_command(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from fedres.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=None,
    )


def test_compare_prints_a_table_and_writes_a_report(tmp_path):
    page = tmp_path / "report.html"
    done = fedres_command("compare", "--seeds", "3", "--rounds", "60", "--report", str(page))
    assert done.returncode == 0, done.stderr
    assert "Independent" in done.stdout
    assert "FedRes" in done.stdout
    html = page.read_text()
    assert html.count("<svg") == 4
    for fetched in ("<link", "<script", "src=", "@import", 'href="http'):
        assert fetched not in html


def test_compare_as_json():
    done = fedres_command("compare", "--seeds", "2", "--rounds", "30", "--delay", "4", "--json")
    found = json.loads(done.stdout)
    assert (found["data"], found["clients"], found["seeds"]) == ("digits", 10, 2)
    for method, delay in {"independent": 0, "central": 4, "fedres": 4, "mixture": 4}.items():
        runs = [
            fedres.simulate(
                fedres.federate("digits", 10, seed, local="all"),
                method,
                rounds=30,
                delay=delay,
                seed=seed,
            )
            for seed in range(2)
        ]
        accuracy, loss = ([getattr(run, of) for run in runs] for of in ("accuracy", "loss"))
        one = found["methods"].pop(method)
        assert one["accuracy_per_seed"] == accuracy
        assert one["accuracy"] == pytest.approx(np.mean(accuracy))
        # two values: Student's 12.706 times half their distance
        assert one["accuracy_interval"] == pytest.approx(12.7062 * np.ptp(accuracy) / 2, rel=1e-5)
        assert one["loss"] == pytest.approx(np.mean(loss))
        assert (one["bytes_up"], one["bytes_down"]) == (runs[0].bytes_up, runs[0].bytes_down)
    assert found["methods"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clients", "0"], "clients must be at least 1, not 0"),
        (["--clients", "1000"], "clients are possible"),
        (["--delay", "-1"], "delay must not be negative"),
        (["--alignment", "left"], "choose one of aligned, asymmetric, arrival"),
        (["--data", "nothing"], "nothing"),
        (["--seeds", "2", "--rounds", "5", "--report", "/no/such/folder/page.html"], "/no/such"),
        (["--jobs", "0"], "n_jobs must be at least 1"),
        (["--data", __file__], "test_cli.py is a table: name its --client and --label"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(arguments, message):
    done = fedres_command("compare", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--solver", "foo"], "unknown solver 'foo': choose one of auto, bayes, sgd"),
        (["--shared", "foo"], "unknown shared 'foo': choose one of linear, trees, auto"),
        (["--task", "foo"], "unknown task 'foo': choose one of numbers, classes"),
        (["--item", "a"], "--item needs --latent, such as --latent 8"),
        (["--latent", "3"], "--latent needs --item, the column that names the item of a row"),
        (["--latent", "0", "--item", "a"], "--latent must be 1 or more, not 0"),
        (["--seed", "-1"], "--seed must be 0 or more, not -1"),
        (["--report", "/no/such/folder/page.html"], "cannot write /no/such/folder/page.html: "),
    ],
)
@pytest.mark.parametrize("command", ["fit", "compare"])
def test_options_are_checked_before_the_table_is_read(
    command, options, message, tmp_path, capsys, monkeypatch
):
    table, model = tmp_path / "table.csv", tmp_path / "model"
    table.write_text("not a table")
    model.mkdir()
    (model / "model.json").write_text('{"format": 1}')
    monkeypatch.setattr("fedres.tables.storage.refuse_foreign", lambda _: None)
    rest = ["--out", model] if command == "fit" else []
    arguments = [table] if command == "fit" else ["--data", table]
    arguments = [command, *arguments, "--client", "u", "--label", "y", *rest, *options]
    monkeypatch.setattr("sys.argv", ["fedres", *map(str, arguments)])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert said.startswith(f"fedres: {message}")
    assert "will be replaced" not in said


def test_reports_are_checked_before_any_work(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").touch()
    for arguments, message in [
        (["bandit", "--report", tmp_path / "no" / "page.html"], "cannot write"),
        (["compare", "--report", tmp_path / "no" / "page.html"], "cannot write"),
        (["reproduce", "--out", tmp_path / "file"], "cannot write to"),
        (["predict", tmp_path, tmp_path, "--interval", "90"], "--interval must be between 0 and 1"),
    ]:
        monkeypatch.setattr("fedres.cli.table_options.refuse_missing", lambda *_: None)
        monkeypatch.setattr("sys.argv", ["fedres", *map(str, arguments)])
        with pytest.raises(SystemExit):
            main()
        assert capsys.readouterr().err.startswith(f"fedres: {message}")


def test_long_work_is_told_of_in_a_pipe(capsys, monkeypatch):
    monkeypatch.setattr("fedres.simulation.parallel.SECONDS_A_LINE", 0.05)
    with working("training on all rows"):
        time.sleep(0.3)
    with working("reading"):
        pass
    time.sleep(0.2)
    assert capsys.readouterr().err == "training on all rows ...\n"


@pytest.mark.parametrize("command", [[], ["data"], ["data", "list"], ["flower"], ["fit"]])
def test_help_has_an_example(command):
    assert "Example: fedres " in CliRunner().invoke(app, [*command, "--help"]).stdout


def imported(code, heavy):
    """Which of these modules are there after the code ran in a new process."""
    code = f"import sys; {code}\nprint(*sorted({set(heavy)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_start_up_imports_nothing_heavy():
    heavy = ["numba", "numpy", "scipy", "matplotlib", "pandas", "sklearn", "flwr", "ray", "river"]
    assert imported("import fedres.cli, fedres", [*heavy, "vowpalwabbit"]) == []


def test_the_first_run_does_not_wait_for_what_it_does_not_use():
    heavy = ["sklearn", "pandas", "matplotlib", "joblib", "scipy.sparse", "scipy.special"]
    assert imported("import fedres; fedres.load_data('digits')", heavy) == []
    run = "import fedres; fedres.simulate(fedres.federate('digits', 10), rounds=5)"
    assert imported(run, heavy) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit none.csv --client a --label b --out model", "there is no file none.csv: give"),
        ("evaluate saved none.parquet", "there is no file none.parquet: give"),
        ("predict saved none.csv", "there is no file none.csv: give"),
        ("evaluate model saved", "model holds no model: there is no model.json in it"),
        ("predict model saved", "model holds no model: there is no model.json in it"),
        ("inspect model", "model holds no model: there is no model.json in it"),
    ],
)
def test_a_missing_path_is_reported_before_heavy_imports(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "model.json").touch()
    code = f"""
import fedres.cli
sys.argv = ["fedres", *{arguments.split()!r}]
sys.stderr = sys.stdout
try:
    fedres.cli.main()
except SystemExit as exit_:
    print(exit_.code)
"""
    said = imported(code, ["numpy", "scipy", "pandas", "sklearn", "pyarrow", "numba", "lightgbm"])
    assert " ".join(said).startswith(f"fedres: {message}")
    assert said[-1] == "2"  # the exit code is last: no heavy module follows it


@pytest.mark.parametrize("name", ["-", "is*.csv", "s3://bucket/day.parquet", "folder", "is.csv"])
def test_names_that_are_left_to_the_reader(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "is.csv").touch()
    refuse_missing(name)


def test_help_has_an_example_and_version_prints():
    assert "Example: fedres compare" in fedres_command("compare", "--help").stdout
    assert fedres_command("--version").stdout.strip()[0].isdigit()

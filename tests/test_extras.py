"""Optional libraries: the plain install says in a sentence what is missing, before any work."""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import fedres
from fedres.cli import main
from fedres.core.extras import MissingExtraError, require

EXTRAS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def pretend(monkeypatch, **versions):
    """Let libraries have other versions, or none."""
    real = metadata.version

    def version(name):
        found = versions.get(name.replace("-", "_"), "as it is")
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return real(name) if found == "as it is" else found

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize("extra", ["flower", "ray", "river", "vw"])
def test_an_extra_that_is_missing_is_named_with_all_that_it_needs(monkeypatch, extra):
    names = [re.split("[<>=]", line)[0] for line in EXTRAS[extra]]
    pretend(monkeypatch, **{name.replace("-", "_"): None for name in names})
    with pytest.raises(MissingExtraError) as error:
        require(extra, "this")
    told = str(error.value)
    assert told.startswith(f"this needs {names[0]}")
    assert ", and it is not installed: run pip install '" in told
    for name in names:
        assert f"'{name}" in told
    assert "\n" not in told


def test_a_version_that_does_not_work_is_named(monkeypatch):
    pretend(monkeypatch, flwr="9.0.0", tomli_w="1.2.0")
    with pytest.raises(MissingExtraError, match=r"flwr<.*>=.*, and flwr 9\.0\.0 is installed"):
        require("flower", "this")


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["flower", "init", "app"], "tomli_w"),
        (["flower", "demo"], "flwr"),
        (["flower", "run", "app", "--superlink", "s"], "flwr"),
        (["fit", "t.csv", "--client=a", "--label=b", "--out=m", "--backend=ray"], "ray"),
    ],
)
def test_commands_need_one_sentence_for_what_is_missing(
    monkeypatch, tmp_path, capsys, arguments, missing
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    pretend(monkeypatch, **{missing: None})
    monkeypatch.setattr(sys, "argv", ["fedres", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert re.fullmatch(r"fedres: .* needs .*, and it is not installed: run pip install .*\n", told)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_python_raises_import_errors(monkeypatch):
    pretend(monkeypatch, vowpalwabbit=None, ray=None, river=None)
    with pytest.raises(ImportError, match="VowpalLearner needs"):
        fedres.learners.VowpalLearner()
    with pytest.raises(ImportError, match="register_with_river needs"):
        fedres.register_with_river()
    with pytest.raises(ImportError, match="Ray backend needs"):
        fedres.sweep("digits", seeds=1, rounds=2, backend="ray")

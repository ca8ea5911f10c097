"""The commands of the README work as typed, and tests need nothing that a checkout lacks."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
LINES = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]
SETUP = [
    "git clone <address of this repository> fedres",
    "cd fedres",
    "make demo",
    "make test",
    "pip install .",
    "pip install '.[flower]'",
]
SLOW = ["fedres flower demo"]  # a minute; see test_flower_loopback.py


def without_data():
    return {name: value for name, value in os.environ.items() if name != "FEDRES_DATA"}


def test_readme_begins_with_the_two_commands_and_is_short():
    assert BLOCKS[0] == ("", "".join(f"{line}\n" for line in SETUP[:4]))
    assert len(README.split()) <= 900
    assert {kind for kind, _ in BLOCKS} == {"", "python"}  # Python blocks are doctests


def test_commands_of_the_readme_work_in_an_empty_folder(tmp_path):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**without_data(), "PATH": path}
    commands = [line for line in LINES if line not in (*SETUP, *SLOW)]
    assert len(commands) + len(SETUP) + len(SLOW) == len(LINES)
    for command in commands:
        assert command.startswith("fedres ")
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)


def test_make_demo_ends_with_commands_of_the_readme():
    makefile = (ROOT / "Makefile").read_text()
    printed = re.findall(r'^\t@echo "  (fedres [^"#]*?) *(?:#.*)?"$', makefile, re.MULTILINE)
    assert len(printed) == 3
    known = [line.replace(" --rows 20000", "").removesuffix(" --json") for line in LINES]
    assert {*printed} <= {*known}


def test_tests_read_data_sets_from_the_folder_that_the_user_names_alone():
    outside = "/".join(["shared", "datasets"])
    files = [ROOT / "Makefile", *(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert [file.name for file in files if outside in file.read_text()] == []
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*pytest_, "-m", "needs_data", "tests/test_data_sets.py"],
        cwd=ROOT,
        env=without_data(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "set FEDRES_DATA to a folder with the paper's data sets" in done.stdout
    assert " passed" not in done.stdout


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_test_data_asks_for_the_folder():
    recipe = subprocess.run(
        ["make", "--dry-run", "--assume-old=.venv/dev", "test-data"],
        cwd=ROOT,
        env=without_data(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    check = next(line for line in recipe.splitlines() if line.startswith("test -n"))
    done = subprocess.run(
        ["sh", "-c", check], env=without_data(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == "set FEDRES_DATA to a folder with the paper's data sets\n"

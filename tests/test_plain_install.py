"""What a plain install can do by itself; `make test-plain` runs this without any extra."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedres
from fedres.core.extras import MissingExtraError, require

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "FEDRES_DATA"},
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}


def run(command, folder):
    return subprocess.run(
        command.split(), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def test_a_model_with_trees_is_saved_read_and_predicts_the_same(tmp_path):
    rng = np.random.default_rng(0)
    x, user = rng.uniform(-2, 2, (4000, 3)), rng.integers(0, 40, 4000)
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(user=user)
    frame["y"] = np.sign(x[:, 0] * x[:, 1]) + rng.normal(size=40)[user] + rng.normal(size=4000) / 5
    frame.to_csv(tmp_path / "t.csv", index=False)
    fitted = run("fedres fit t.csv --client user --label y --out model --json", tmp_path)
    assert fitted.returncode == 0, fitted.stderr
    assert json.loads(fitted.stdout)["shared"] == "trees"
    predicted = run("fedres predict model t.csv --out scored.csv", tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    scored = pd.read_csv(tmp_path / "scored.csv")
    again = fedres.load_model(tmp_path / "model").predict(scored[["a", "b", "c"]], scored["user"])
    np.testing.assert_allclose(scored["prediction"], again, rtol=1e-6)
    assert np.mean((again - scored["y"]) ** 2) < 0.2


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("flower", "fedres flower demo"),
        ("flower", "fedres flower init app"),
        ("flower", "fedres flower run app --superlink here"),
        ("ray", "fedres fit t.csv --client a --label b --out model --backend ray"),
    ],
)
def test_a_missing_extra_is_one_sentence(tmp_path, extra, command):
    try:
        require(extra, "this")
    except MissingExtraError:
        (tmp_path / "t.csv").write_text("a,b\n1,2\n")
        done = run(command, tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert ", and it is not installed: run pip install '" in done.stderr
    else:
        pytest.skip(f"{extra} is installed: make test-plain runs this without it")

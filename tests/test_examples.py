"""The examples run, and show what their pages say."""

import importlib.util
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fedres_helps_between_the_extremes(tmp_path):
    out = tmp_path / "plot.png"
    middle, alike, *_ = load("when_it_helps").main(3, differences=(0.2, 0.0), rows=(30,), out=out)
    means = {method: np.mean(losses) for method, losses in middle.items()}
    assert means["fedres"] < 0.75 * min(means["independent"], means["central"])
    assert np.mean(alike["central"]) < np.mean(alike["fedres"])
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_model_of_ratings_gains_by_learning_on():
    errors = load("ratings").main(60, 80, 3000)
    assert errors["learning from each rating as it comes"] < errors["as saved"]


def test_recommendations_are_made_logged_and_judged(tmp_path):
    log = tmp_path / "events.jsonl"
    earned = load("recommend").main(clients=8, rounds=60, log=log)
    assert {"independent", "central", "fedres", "Greedy (estimated)"} < set(earned)
    logged = len(log.read_text().splitlines())
    # all but those whose click is still on its way
    assert 8 * (60 - 2 * 5 - 1) <= logged <= 8 * 60


def test_the_api_reference_is_that_of_the_docstrings():
    make_api = load("../docs/make_api")
    assert make_api.PAGE.read_text(encoding="utf-8") == make_api.page()

"""The examples run, and show what their pages say."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.filterwarnings("ignore::fedres.tables.client_ids.ClientWarning")
def test_a_model_of_ratings_gains_by_learning_on():
    errors = load("ratings").main(60, 80, 3000)
    assert errors["learning from each rating as it comes"] < errors["as saved"]


def test_recommendations_are_made_logged_and_judged(tmp_path):
    path = tmp_path / "events.jsonl"
    earned = load("recommend").main(clients=8, rounds=200, log=path)
    assert earned["fedres"] > max(earned["independent"], 0.54)  # a guess earns 0.45
    events = [json.loads(line) for line in path.read_text().splitlines()]
    # all but those whose click is still on its way, and none twice
    assert 8 * (200 - 2 * 5 - 1) <= len(events) <= 8 * 200
    assert len({(event["client"], event["id"]) for event in events}) == len(events)
    rewards = [event["reward"] for event in events]
    assert np.mean(rewards) == pytest.approx(earned["fedres"], abs=0.03)  # some clicks were lost
    assert earned["SquareCB (estimated)"] == pytest.approx(np.mean(rewards), abs=0.05)
    assert earned["Greedy (estimated)"] > np.mean(rewards)


def test_the_api_reference_is_that_of_the_docstrings():
    make_api = load("../docs/make_api")
    assert make_api.PAGE.read_text(encoding="utf-8") == make_api.page()

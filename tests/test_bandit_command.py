"""`fedres bandit`: the study, its report, and logs there and back."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fedres.bandits.by_name import LOGGER, POLICIES, choose_policies, environments
from fedres.bandits.logs import read_events
from fedres.bandits.policies import EpsilonGreedy
from fedres.bandits.run_log import events_of
from fedres.bandits.simulator import simulate_bandit
from fedres.bandits.study import Outcome, Steps, Study, study
from fedres.bandits.targets import ReplayLearner
from fedres.cli.bandit import bandit
from fedres.simulation.settings import SGD_METHODS

PAGE = Path(__file__).parents[1] / "docs" / "bandits.md"

app = typer.Typer()
app.command()(bandit)

TINY = ["--data", "synthetic", "--clients", "4", "--rounds", "40", "--seeds", "2", "--delay", "2"]


def run(*arguments, fails=False):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if fails:
        assert isinstance(result.exception, ValueError | OSError)
        return str(result.exception)
    assert result.exit_code == 0, result.output
    return result.stdout


def made_up(rewards, regrets=((1.0, 1.0),), tuned=0.0):
    """A study with given final rewards a seed, by method."""
    outcomes = {
        ("greedy", method): Outcome(
            Steps(0.1, 0.1),
            tuned,
            np.array(values)[:, None],
            np.array(regrets),
            *np.zeros((2, 1, 1)),
        )
        for method, values in zip(SGD_METHODS, rewards, strict=True)
    }
    seeds = len(rewards[0])
    policies = {"greedy": POLICIES["greedy"]}
    return Study(
        "synthetic", True, policies, 4, 0, 0, 100, seeds, np.array([10, 100]), (4,), (0,), outcomes
    )


def test_the_table_the_verdict_and_where_the_report_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    out = run(*TINY, "--policy", "squarecb,greedy")
    assert "…" not in out  # everything fits
    for word in ("squarecb", "greedy", "Independent", "Central", "FedRes", "On synthetic, FedRes"):
        assert word in out
    page = (tmp_path / "bandit.html").read_text()
    assert str(tmp_path / "bandit.html") in out.replace("\n", "")
    assert page.count("<svg") == 4
    assert "--data synthetic --policy squarecb,greedy --clients 4" in page
    for fetched in ("<link", "<script", "src=", "@import", 'href="http'):
        assert fetched not in page


def test_json_has_every_policy_and_method_and_no_file_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = json.loads(run(*TINY, "--policy", "softmax,linucb", "--json", "--jobs", 1))
    cells = [(one["policy"], one["method"]) for one in found["results"]]
    assert cells == [(p, m) for p in ("softmax", "linucb") for m in SGD_METHODS]
    for one in found["results"]:
        assert (one["eta"] is None) == (one["policy"] == "linucb")  # second-order: no steps
        assert one["reward"] == pytest.approx(np.mean(one["reward_per_seed"]))
        assert one["reward_curve"][-1] == pytest.approx(one["reward"])
        assert one["regret_curve"][-1] == pytest.approx(one["regret"])
        assert len(one["regret_by_clients"]) == len(found["points_clients"])
        at = found["points_delay"].index(found["delay"])
        assert one["regret_by_delay"][at] == pytest.approx(one["regret"])
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_those_of_the_simulator_whatever_the_cores():
    size = {"clients": 4, "rounds": 40, "seeds": 2, "delay": 2}
    found = study("synthetic", ["squarecb"], n_jobs=1, **size)
    again = study("synthetic", ["squarecb"], n_jobs=2, **size)
    assert found.to_dict() == again.to_dict()
    outcome = found.outcomes["squarecb", "independent"]
    from fedres.core.steps import Adaptive

    alone = simulate_bandit(
        environments("synthetic", differ=True)(4, 1), POLICIES["squarecb"], "independent",
        rounds=40, reward_delay=5, step=Adaptive(outcome.steps.eta, clip=False), seed=1,
    )  # fmt: skip
    assert outcome.reward[1] == pytest.approx(alone.reward)
    assert outcome.regret[1] == pytest.approx(alone.regret_by_round.mean())


def test_verdicts_say_more_less_noise_and_one_seed():
    more = made_up(([0.1, 0.2], [0.5, 0.9], [0.3, 0.4]))
    assert "earns more than independent (+0.200 ± 0.000" in more.verdict()
    assert "within noise of central" in more.verdict()
    assert "earns less than central" in made_up(([0, 1], [1, 2], [0, 1])).verdict()
    assert "over one seed differs from independent" in made_up(([0.0], [0.0], [0.0])).verdict()


def test_the_headline_takes_the_policy_that_was_best_on_other_seeds():
    lucky, better = made_up(([0, 0], [0, 0], [9, 9])), made_up(([0, 0], [0, 0], [1, 1]), tuned=2.0)
    moved = {("softmax", method): outcome for (_, method), outcome in better.outcomes.items()}
    both = replace(
        lucky,
        policies={name: POLICIES[name] for name in ("greedy", "softmax")},
        outcomes=lucky.outcomes | moved,
    )
    assert both.best_policy() == "softmax"
    assert "with softmax, the policy that earned FedRes most on other seeds" in both.verdict()


def test_the_exponent_is_the_slope_over_the_last_tenfold():
    falls = made_up(([0, 0], [0, 0], [0, 0]), regrets=[[1.0, 0.1], [2.0, 0.2]])
    assert falls.exponent("greedy", "fedres").mean == pytest.approx(-1)
    none = made_up(([0, 0], [0, 0], [0, 0]), regrets=[[1.0, 0.0], [2.0, 0.2]])
    assert np.isnan(none.exponent("greedy", "fedres").mean)


def test_explore_every_is_a_number_or_that_of_theorem_3():
    chosen = choose_policies(["epsilon-greedy", "greedy"], "7")
    assert chosen["epsilon-greedy"] == EpsilonGreedy(explore_every=7)
    # (10^10 / (1 + 1))^(1/5), all constants and K being 1
    chosen = choose_policies(["epsilon-greedy"], "theory", 10**10, 1, 1)
    assert chosen["epsilon-greedy"] == EpsilonGreedy(explore_every=87)


def test_estimates_from_a_written_log_cover_the_truth(tmp_path, monkeypatch):
    log = tmp_path / "events.jsonl"
    said = run("--data", "synthetic", "--clients", 20, "--rounds", 50, "--write-log", log)
    assert "1,000 decisions" in said
    found = json.loads(run("--log", log, "--evaluate", "--policy", "squarecb", "--json"))
    assert (found["events"], found["left_out"]) == (1000, 0)

    world = environments("synthetic", differ=True)(20, 0)
    for one in found["results"]:
        learner = ReplayLearner(POLICIES[one["policy"]], one["method"])
        truth = np.mean(
            [
                learner(event)
                @ world.mean[event.client, world.actions(0, event.client, event.id).row]
                for event in read_events(log)
            ]
        )
        for estimate in ("ips", "snips", "dr"):
            # 1.5 times as wide, an interval of 95% fails once in 300
            assert abs(one[estimate]["mean"] - truth) < 1.5 * one[estimate]["half"], (one, truth)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    table = run("--log", "events.jsonl", "--evaluate", "--policy", "greedy")
    _, _, shown, *_ = (
        PAGE.read_text(encoding="utf-8").split("--evaluate --policy greedy\n", 1)[1].split("```", 3)
    )
    for line in shown.strip("\n").splitlines():
        assert line.rstrip() in table  # what the page shows is what its commands print


RATED = ["--client", "user", "--action", "film", "--reward", "stars>=4"]


@pytest.fixture
def ratings(tmp_path, monkeypatch):
    """Users who like one of two genres each; one rated a film twice, one rated only one film."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = ["user,film,genre,stars"]
    for user in range(8):
        for film in rng.permutation(40)[:20]:
            likes = film % 2 == user % 2
            genre = "drama" if film % 2 else "comedy"
            rows.append(f"u{user},f{film},{genre},{4 + rng.integers(2) if likes else 2}")
    first = rows[1].rsplit(",", 1)[0]
    rows += [f"{first},1", "lone,f1,drama,5"]
    (tmp_path / "ratings.csv").write_text("\n".join(rows) + "\n")
    return ["--table", "ratings.csv", *RATED]


def test_a_table_of_ones_own(ratings, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    size = ["--rounds", 60, "--seeds", 2, "--delay", 2, "--policy", "squarecb", "--jobs", 1]
    out = run(*ratings, *size, "--clients", 100)
    assert "8 clients, 160 rewards. 1 clients with a single action are left out." in out
    assert re.search(r"film +categories", out)
    assert "ratings.csv: 8 clients, 60 rounds" in out
    page = (tmp_path / "bandit.html").read_text()
    assert "up to 10 of its own rows of ratings.csv" in page
    assert "--table ratings.csv --client user --action film --reward" in page
    found = json.loads(run(*ratings, *size, "--offers", 4, "--json"))
    earned = {one["method"]: one["reward"] for one in found["results"]}
    assert earned["fedres"] > earned["central"] + 0.1  # tastes differ
    assert found["points_clients"] == [5, 8]


def test_rewards_of_a_table_may_be_numbers(ratings):
    rated = [*ratings[:-1], "stars"]
    out = run(*rated, "--rounds", 5, "--seeds", 1, "--policy", "greedy", "--jobs", 1)
    assert "Rewards from 1 to 5 are 0 to 1." in out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--reward", "genre"], "column 'genre' of ratings.csv has '[a-z]+' and is no number"),
        (["--reward", "stars>=0"], "every reward in ratings.csv is 1: there is nothing to learn"),
        (["--action", "title"], "no column 'title' for the action"),
        (["--client", "who"], "no column 'who' for the client"),
        (["--data", "digits"], "--table is a world of its own: leave --data out"),
        (["--offers", "1"], "offers must be at least 2"),
    ],
)
def test_mistakes_with_tables_are_one_sentence(ratings, change, says):
    message = run(*ratings, *change, "--json", fails=True)
    assert re.search(says, message)
    assert "\n" not in message


@pytest.mark.parametrize("data", ["synthetic", "digits"])
def test_recorded_events_are_what_the_run_did(data):
    world = environments(data, differ=True)(3, 0)
    played = simulate_bandit(world, LOGGER, rounds=4, keep_decisions=True, seed=5)
    events = list(events_of(played))
    assert len(events) == 12
    for event in events:
        assert event.action == played.actions[event.client, event.id - 1]
        assert event.reward == played.rewards[event.client, event.id - 1]
        assert event.probabilities.sum() == pytest.approx(1)
        assert event.contexts_global.shape[0] == len(event.probabilities)
    unkept = simulate_bandit(world, LOGGER, rounds=1)
    with pytest.raises(ValueError, match="keep_decisions"):
        next(events_of(unkept))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "ucb"], "unknown policy 'ucb': choose of epsilon-greedy"),
        (["--data", "nowhere"], "nowhere"),
        (["--data", "synthetic", "--rounds", "0"], "rounds must be at least 1, not 0"),
        (["--data", "synthetic", "--clients", "0"], "clients must be at least 1"),
        (["--data", "synthetic", "--seeds", "0"], "seeds must be at least 1"),
        ([*TINY, "--delay", "-1"], "must not be negative"),
        ([*TINY, "--explore-every", "often"], "explore_every must be"),
        ([*TINY, "--explore-every", "0"], "explore_every must be"),
        ([*TINY, "--policy", "greedy", "--explore-every", "5"], "is for epsilon-greedy"),
        (["--report", "no/such/folder.html"], "cannot write no/such"),
        (["--log", "events.jsonl"], "go together"),
        (["--evaluate"], "go together"),
        (
            ["--log", "empty.jsonl", "--evaluate", "--data", "letter", "--clients", "3"],
            "--evaluate takes what it needs from --log: leave --data, --clients out",
        ),
        (["--log", "empty.jsonl", "--evaluate", "--no-permute"], "leave --permute out"),
        (["--write-log", "new.jsonl", "--policy", "greedy"], "leave --policy out"),
        (["--client", "user"], "--client is for --table"),
        (["--table", "absent.csv", *RATED], "there is no file absent.csv"),
        (["--table", "absent.csv"], "--table needs --client, --action and --reward"),
        (["--log", "absent.jsonl", "--evaluate"], "absent.jsonl"),
        (["--log", "empty.jsonl", "--evaluate"], "empty.jsonl has no events"),
        (["--log", "broken.jsonl", "--evaluate"], "broken.jsonl, line 1 is no event"),
        (["--write-log", "empty.jsonl"], "empty.jsonl exists"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "broken.jsonl").write_text("{}\n")
    message = run(*arguments, fails=True)
    assert re.search(says, message) or says in message
    assert "\n" not in message

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from fedres.paper.claims import above, judge_claims
from fedres.paper.protocol import FIGURES, SYNTHETIC, StepSizes, cases, possible_clients
from fedres.paper.reproduction import reproduce
from fedres.paper.tuning import TUNING_SEEDS
from fedres.report.reproduction_figures import draw
from fedres.report.reproduction_page import write_reproduction
from fedres.simulation.intervals import Interval

SWEPT = [figure for figure in FIGURES if figure not in SYNTHETIC]


@pytest.fixture(scope="module")
def small():
    return reproduce(["digits"], SWEPT, seeds=3, n_jobs=2)


@pytest.mark.usefixtures("users_style")
def test_all_figures_on_a_bare_machine(small, tmp_path):
    page = write_reproduction(small, tmp_path)
    html = page.read_text()
    assert small.many == {"digits": 35}  # fifty are not possible
    for name in ("overall", "clients", "delay", "clients-delay-20", "clients-delay-80", "bits"):
        for ending in ("png", "svg", "csv"):
            assert (tmp_path / "figures" / f"{name}.{ending}").stat().st_size > 200
    assert html.count("<svg") == 9
    for fetched in ("<link", "<script", "src=", "@import", 'href="http'):
        assert fetched not in html
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert {form: len(found) for form, found in claims.items()} == {"aligned": 5, "arrival": 5}


def test_a_claim_is_judged_by_the_runs_of_its_figure(small, tmp_path):
    write_reproduction(small, tmp_path)
    claims = json.loads((tmp_path / "claims.json").read_text())["arrival"]
    near = next(claim for claim in claims if "near winner" in claim["statement"])
    for finding in near["findings"]:
        clients = finding["where"].removeprefix("digits, P = ")
        runs = small.table.query(f"figure == 'overall' and clients == {clients}")
        by_seed = runs.pivot(index="seed", columns="scheme", values="accuracy")
        better = by_seed[["independent", "central"]].mean().idxmax()
        gains = (by_seed["arrival"] - by_seed[better]).to_numpy()
        mean, half = gains.mean(), 4.302653 * gains.std(ddof=1) / np.sqrt(3)  # Student, 2 degrees
        assert finding["difference"] == pytest.approx([mean, half], rel=1e-5)
        low, high = mean - half + 0.01, mean + half + 0.01  # within a point of the better
        expected = "holds" if low > 0 else "does not hold" if high < 0 else "undecided"
        assert finding["verdict"] == expected
    assert len(near["findings"]) == 2


@pytest.mark.usefixtures("users_style")
def test_a_figure_says_with_how_many_clients_it_was_made(small):
    panel = next(figure for name, _, figure, _ in draw(small) if name == "delay").axes[0]
    assert panel.get_title() == "digits, P = 35"


def test_figures_do_not_use_seeds_that_steps_were_tuned_on(small):
    assert not set(small.table.seed) & set(TUNING_SEEDS)


def test_numbers_behind_a_figure_are_those_of_its_runs(small, tmp_path):
    write_reproduction(small, tmp_path)
    numbers = pd.read_csv(tmp_path / "figures" / "delay.csv")
    row = numbers.query("scheme == 'arrival' and delay == 80").iloc[0]
    runs = small.table.query("figure == 'delay' and scheme == 'arrival' and delay == 80")
    assert row.accuracy == pytest.approx(runs.accuracy.mean(), rel=1e-5)
    assert row.seeds == 3


def test_every_figure_has_cases():
    sizes = StepSizes(
        dict.fromkeys(("independent", "central", "fedres"), 0.5),
        dict.fromkeys((5, 10, 35), (0.01, 0.001, 0.02, 0.002)),
    )
    for figure in SWEPT:
        assert list(cases(figure, "digits", sizes, many=35, seeds=1))


def test_possible_clients():
    assert possible_clients("digits", 50) == 35
    assert possible_clients("digits", 10) == 10


def made_up(gap, seeds=20):
    """A table in which Independent beats Central by a gap on letter, at P = 50."""
    rng = np.random.default_rng(0)
    level = rng.normal(0.8, 0.05, seeds)
    rows = [
        {"figure": "overall", "data": "letter", "scheme": scheme, "clients": 50, "delay": 0,
         "seed": seed, "accuracy": level[seed] + shift + rng.normal(0, 0.001)}
        for scheme, shift in (("independent", gap), ("central", 0.0), ("aligned", 0.0))
        for seed in range(seeds)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("gap", "verdict"), [(0.05, "holds"), (-0.05, "does not hold"), (0.0, "undecided")]
)
def test_claims_are_judged_by_paired_differences(gap, verdict):
    claims = judge_claims(made_up(gap), "aligned")
    claim = next(claim for claim in claims if claim.statement.startswith("Independent outperforms"))
    assert claim.verdict == verdict
    # paired: the spread of the level, ten times the gap, is not in the interval
    assert claim.findings[0].difference.half < 0.002


def test_above():
    assert above(Interval(0.02, 0.01), 0.0) == "holds"
    assert above(Interval(0.02, 0.01), 0.05) == "does not hold"
    assert above(Interval(0.02, 0.03), 0.0) == "undecided"


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from fedres.cli import main; main()", "reproduce", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_writes_a_report_and_resumes(tmp_path):
    arguments = ["--figure", "delay", "--data", "digits", "--seeds", "2", "--out", str(tmp_path)]
    first = command(*arguments)
    assert first.returncode == 0, first.stderr
    assert "million client-rounds" in first.stdout
    assert (tmp_path / "report.html").exists()
    assert "nothing had to be computed anew" in command(*arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--figure", "9"], "unknown figure '9': choose one of overall"),
        (["--seeds", "1"], "seeds must be at least 2"),
        (["--data", "nowhere"], "nowhere"),
        (["--backend", "slurm", "--data", "digits"], "unknown backend 'slurm'"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message, tmp_path):
    done = command(*arguments, "--out", str(tmp_path))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr

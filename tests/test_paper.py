import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import dump_svmlight_file

from fedres.core.steps import Adaptive
from fedres.paper.claims import judge_claims
from fedres.paper.protocol import FIGURES, SYNTHETIC, StepSizes, case_of, cases, possible_clients
from fedres.paper.readings import READING_SEEDS_FROM, READINGS, find_reading
from fedres.paper.reproduction import reproduce
from fedres.paper.rulings import holm, rule
from fedres.paper.tuning import TUNING_SEEDS
from fedres.report.claim_figures import readings_figure
from fedres.report.reproduction_figures import draw
from fedres.report.reproduction_page import write_reproduction
from fedres.simulation.engine import simulate
from fedres.simulation.run_store import RunStore
from fedres.simulation.scaling import scaled_data
from fedres.simulation.split import federate, relabelled
from fedres.simulation.sweep import dataset, run_cases

SWEPT = [figure for figure in FIGURES if figure not in SYNTHETIC]


@pytest.fixture(scope="module")
def small():
    return reproduce(["digits"], SWEPT, seeds=3, n_jobs=2, reading="library")


@pytest.fixture(scope="module")
def written(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    write_reproduction(small, folder)
    return folder


def test_all_figures_on_a_bare_machine(small, written):
    html = (written / "report.html").read_text()
    assert small.many == {"digits": 35}  # fifty are not possible
    for name in ("overall", "clients", "delay", "clients-delay-20", "clients-delay-80", "bits"):
        for ending in ("png", "svg", "csv"):
            assert (written / "figures" / f"{name}.{ending}").stat().st_size > 200
    assert html.count("<svg") == 11
    for fetched in ("<link", "<script", "src=", "@import", 'href="http'):
        assert fetched not in html
    claims = json.loads((written / "claims.json").read_text())
    assert {form: len(found) for form, found in claims.items()} == {
        "aligned": 5,
        "arrival": 5,
        "late": 5,
    }


def test_a_claim_is_judged_by_the_runs_of_its_figure(small, written):
    claims = json.loads((written / "claims.json").read_text())["arrival"]
    near = next(claim for claim in claims if "near winner" in claim["statement"])
    for finding in near["findings"]:
        clients = finding["where"].removeprefix("digits, P = ")
        runs = small.table.query(f"figure == 'overall' and clients == {clients}")
        by_seed = runs.pivot(index="seed", columns="scheme", values="accuracy")
        better = by_seed[["independent", "central"]].mean().idxmax()
        gains = (by_seed["arrival"] - by_seed[better]).to_numpy()
        mean, half = gains.mean(), 4.302653 * gains.std(ddof=1) / np.sqrt(3)  # Student, 2 degrees
        assert finding["difference"] == pytest.approx([mean, half], rel=1e-5)
        chance = stats.ttest_rel(by_seed["arrival"] + 0.01, by_seed[better]).pvalue
        assert finding["chance"] == pytest.approx(chance)
    assert len(near["findings"]) == 2


@pytest.mark.usefixtures("users_style")
def test_a_figure_says_with_how_many_clients_it_was_made(small):
    panel = next(figure for name, _, figure, _ in draw(small) if name == "delay").axes[0]
    assert panel.get_title() == "digits, P = 35"


def test_figures_do_not_use_seeds_that_steps_were_tuned_on(small):
    assert not set(small.table.seed) & set(TUNING_SEEDS)


def test_numbers_behind_a_figure_are_those_of_its_runs(small, written):
    numbers = pd.read_csv(written / "figures" / "delay.csv")
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
        if figure not in ("readings", "newcomers"):
            assert list(cases(figure, "digits", sizes, 35, 1, READINGS["library"]))


def test_possible_clients():
    assert possible_clients("digits", 50) == 35
    assert possible_clients("digits", 10) == 10


def made_up(gap, seeds=20, sets=("letter",), figure="overall", clients=(50,), samples=(30,)):
    """A table in which Independent beats Central, and FedRes at the most clients that at others."""
    rng = np.random.default_rng(0)
    level = rng.normal(0.8, 0.05, seeds)
    rows = [
        {"figure": figure, "data": name, "scheme": scheme, "clients": p, "delay": 0, "seed": seed,
         "samples": n, "accuracy": level[seed] + shift + rng.normal(0, 0.001) + p / 10_000}
        for name in sets
        for p, n in zip(clients, samples, strict=True)
        for scheme, shift in (("independent", gap), ("central", 0.0), ("aligned", 0.0))
        for seed in range(seeds)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def find(claims, beginning):
    return next(claim for claim in claims if claim.statement.startswith(beginning))


@pytest.mark.parametrize(
    ("gap", "verdict"), [(0.05, "holds"), (-0.05, "does not hold"), (0.0, "undecided")]
)
def test_claims_are_judged_by_paired_differences(gap, verdict):
    claim = find(judge_claims(made_up(gap), "aligned"), "Independent outperforms")
    assert claim.verdict == verdict
    # paired: the spread of the level, ten times the gap, is not in the interval
    assert claim.findings[0].difference.half < 0.002
    assert claim.sets == "1 of 4 sets run"


def test_of_a_claim_on_all_its_sets_nothing_is_said():
    table = made_up(0.05, sets=("letter", "pendigits", "shuttle", "covtype", "digits"))
    claim = find(judge_claims(table), "Independent outperforms")
    assert claim.sets == ""
    assert [finding.where for finding in claim.findings] == [
        "letter", "pendigits", "shuttle", "covtype"
    ]  # fmt: skip


@pytest.mark.parametrize(("samples", "verdict"), [((30, 30), "holds"), ((30, 12), "confounded")])
def test_more_clients_with_fewer_samples_are_confounded(samples, verdict):
    table = made_up(0.0, sets=("mnist",), figure="clients", clients=(5, 100), samples=samples)
    claim = find(judge_claims(table), "On sensorless and mnist performance improves")
    assert claim.verdict == claim.findings[0].verdict == verdict
    said = "N falls from 30 at P = 5 to 12 at P = 100" if verdict == "confounded" else ""
    assert claim.findings[0].confounded == said


def test_typically_means_most():
    assert rule(["holds", "holds", "does not hold"], "most") == "holds"
    assert rule(["holds", "holds", "does not hold"], "all") == "does not hold"
    assert rule(["holds", "undecided", "does not hold"], "most") == "undecided"
    assert rule(["does not hold", "undecided"], "any") == "undecided"
    assert rule(["does not hold", "confounded"], "any") == "does not hold"
    assert rule(["confounded"], "all") == "confounded"


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm(chances):
    rejected = holm(chances)
    by_rank = sorted(chances)
    count = sum(rejected)
    assert all(p <= 0.05 / (len(chances) - k) for k, p in enumerate(by_rank[:count]))
    if count < len(chances):
        assert by_rank[count] > 0.05 / (len(chances) - count)
        assert max((p for p, r in zip(chances, rejected, strict=True) if r), default=0) <= min(
            p for p, r in zip(chances, rejected, strict=True) if not r
        )


def test_many_differences_need_more_than_one_interval():
    """One of twenty intervals excludes the bound by chance: the verdict does not go by that."""
    table = made_up(0.0, sets=("letter", "pendigits", "shuttle", "covtype"), seeds=12)
    nudge = 0.00095 * (table.data == "letter") * (table.scheme == "independent")
    claims = judge_claims(table.assign(accuracy=table.accuracy + nudge))
    finding = find(claims, "Independent outperforms").findings[0]
    assert abs(finding.difference.mean) > finding.difference.half
    assert finding.verdict == "undecided"


def test_readings_change_what_is_run():
    base, other = READINGS["library"], find_reading("library", labels="1/2", clip=False)
    rows = run_cases(
        [case_of(one, "digits", 5, 0, "arrival", 0, 0.1) for one in (base, other)],
        RunStore(None),
        n_jobs=1,
    )
    assert rows.accuracy[0] != rows.accuracy[1]
    federation = relabelled(federate("digits", 5), (1.0, 2.0))
    run = simulate(federation, rounds=500, step=Adaptive(0.1, clip=False))
    assert run.accuracy == rows.accuracy[1]
    assert other.name == "library, labels 1/2, clip off"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": "big"}, "step must be 'tuned' or a positive number, not 'big'"),
        ({"labels": "2/3"}, "unknown labels '2/3'"),
        ({"scale": "given,letter=log"}, "unknown scale 'log'"),
        ({"late": "never"}, "unknown late 'never'"),
    ],
)
def test_readings_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        find_reading("library", **change)


def test_the_readings_figure_is_of_their_runs(small):
    figure, numbers = readings_figure(small)
    assert [len(axes.texts) for axes in figure.axes] == [len(READINGS)] * 3
    assert small.missing.keys() == set()
    of = small.table.query("figure == 'readings' and reading == 'labels-12' and delay == 0")
    assert set(of.seed) == set(range(READING_SEEDS_FROM, READING_SEEDS_FROM + 3))
    assert set(of.labels) == {(1.0, 2.0)}
    assert set(of.eta) == {0.1}
    by_seed = of.pivot(index="seed", columns="method", values="accuracy")
    row = numbers.query("reading == 'labels-12' and difference == 'Central less Independent'").iloc[
        0
    ]
    assert row.points == pytest.approx(100 * (by_seed.central - by_seed.independent).mean())
    late = small.table.query("figure == 'readings' and reading == 'late-gradients'")
    assert set(late[late.method == "fedres"].alignment) == {"aligned"}


def test_newcomers_begin_with_what_others_have_learned(small):
    table = small.studies["newcomers"].set_index(["line", "samples"]).accuracy
    assert table["fedres", 20] > table["independent", 20]
    assert table["fedres", 5] > table["together", 5]


def test_scales(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRES_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 1000, (2200, 48))
    for name, x in (("sensorless2200", raw / 1000), ("sensorless2200.raw", raw)):
        with (tmp_path / f"{name}.train.libsvm").open("w") as file:
            dump_svmlight_file(x, np.arange(2200) % 11, file.name, zero_based=False)
    np.testing.assert_allclose(
        scaled_data("sensorless", "raw").x, 1000 * scaled_data("sensorless").x, rtol=1e-5
    )
    ends = scaled_data("sensorless", "-1..1").x
    np.testing.assert_allclose([ends.min(0), ends.max(0)], [[-1] * 48, [1] * 48], atol=1e-6)
    assert not READINGS["nearest"].missing("sensorless")
    (tmp_path / "sensorless2200.raw.train.libsvm").unlink()
    dataset.cache_clear()
    assert "sensorless2200.raw.train.libsvm" in READINGS["nearest"].missing("sensorless")


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
        (["--reading", "mine"], "unknown reading 'mine': choose one of library"),
        (["--data", "nowhere"], "nowhere"),
        (["--backend", "slurm", "--data", "digits"], "unknown backend 'slurm'"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message, tmp_path):
    done = command(*arguments, "--out", str(tmp_path))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_has_a_place_for_every_table(small, written):
    """And the tables are those of the run."""
    tables = json.loads((written / "tables.json").read_text())
    page = (Path(__file__).parents[1] / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert set(re.findall("<!-- table: (.+?) -->", page)) == set(tables)
    runs = small.table.query("figure == 'readings' and reading == 'vw' and delay == 0")
    by_seed = 100 * runs.pivot(index="seed", columns="method", values="accuracy")
    line = next(line for line in tables["gains"].split("\n") if line.startswith("| vw |"))
    shared = (by_seed.central - by_seed.independent).mean()
    assert line.startswith(f"| vw | {shared:+.1f} ± ")

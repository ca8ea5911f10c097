from functools import wraps

import numpy as np
import pytest

from fedres.core.sgd import ALIGNMENTS
from fedres.core.steps import Sgd
from fedres.paper import appendix_c as module
from fedres.paper.appendix_c import METHODS, appendix_c, marks
from fedres.paper.regret_study import RADIUS, Play, Point, measure, regret, slope, synthetic
from fedres.paper.reproduction import reproduce
from fedres.report.theory_figures import appendix_c_figures, regret_figure, rules_figure
from fedres.simulation.engine import simulate
from fedres.simulation.run_store import RunStore


@pytest.mark.usefixtures("users_style")
def test_appendix_c():
    table = appendix_c(rollouts=6, n_jobs=2)
    assert len(table) == 6 * len(METHODS) * len(marks())
    end = table[table["round"] == 20_000].groupby("method")[["loss", "first", "second"]].median()
    assert end.loss["fedres-erm"] < 1e-3 < end.loss["fedres"] < 2e-2 < end.loss["fictitious-play"]
    for method in ("fedres", "fedres-erm"):
        assert end["first"][method] == pytest.approx(0, abs=1e-3)
        assert end["second"][method] == pytest.approx(1, abs=1e-3)
    assert end["second"]["fictitious-play"] < 0.9  # stuck
    loss, path = appendix_c_figures(table)
    assert len(loss[2].axes) == 1
    assert len(path[2].axes) == 3
    begins = table[table["round"] == 0]
    assert (begins["first"].eq(1) & begins["second"].eq(0)).all()
    numbers = loss[3].set_index(["method", "round", "statistic"]).loc["fedres", 20_000]
    of = table[(table["round"] == 20_000) & (table.method == "fedres")].loss
    assert numbers.loss["mean"] == pytest.approx(of.mean())
    assert numbers.loss[0.5] == pytest.approx(of.median())


@pytest.mark.usefixtures("users_style")
def test_regret_falls_with_rounds_and_delay_matters_less_and_less():
    points = [
        Point("delay", rounds, delay=tau) for rounds in (250, 1000, 4000) for tau in (0, 10, 50)
    ]
    points += [Point("batch", rounds, batch=10) for rounds in (250, 1000, 4000)]
    points += [Point("clients", 500, clients=clients) for clients in (1, 4, 16)]
    points += [Point("delay", rounds, delay=10, alignment="arrival") for rounds in (250, 1000)]
    points += [
        Point("lag", 250, delay=tau, alignment=rule) for tau in (0, 50) for rule in ALIGNMENTS
    ]
    everything = regret(3, points, n_jobs=2)
    at_once, lagged = (
        everything[(everything.axis == "lag") & (everything.delay == tau)] for tau in (0, 50)
    )
    # Without delay the rules are one, but for late examples, which meet the new global model.
    others = at_once[at_once.alignment != "late"]
    assert others.groupby("seed").regret.nunique().eq(1).all()
    lag = lagged.groupby("alignment").regret.mean()
    assert lag["arrival"] < lag["aligned"]
    figure, numbers = rules_figure(everything)
    assert [axes.get_title() for axes in figure.axes] == ["Delay 10", "T = 250"]
    assert set(numbers.alignment) == set(ALIGNMENTS)
    table = everything[everything.alignment == "aligned"]
    plain = table[(table.axis == "delay") & (table.delay == 0)]
    assert -0.75 < slope(plain, "rounds").mean < -0.35
    mean = table[table.axis == "delay"].groupby(["delay", "rounds"]).regret.mean()
    ratio = [mean[50, rounds] / mean[0, rounds] for rounds in (250, 1000, 4000)]
    assert ratio[0] > ratio[1] > ratio[2] > 1
    shared = table[table.axis == "clients"].groupby("clients").regret.mean()
    assert shared[1] > shared[4] > shared[16]
    figure, numbers = regret_figure(everything)
    assert len(figure.axes) == 3
    assert np.isfinite(numbers.regret).all()


def test_runs_on_the_same_samples_have_their_own_regret():
    plays = Play(0, 1, "aligned", 0.05), Play(8, 5, "late", 0.2)
    found = measure(((3, 200, 4), plays))
    for play, value in zip(plays, found, strict=True):
        run = simulate(
            synthetic(3, 200, 4), "fedres", rounds=200, delay=play.delay, batch=play.batch,
            alignment=play.alignment, step=Sgd(play.eta), radius=RADIUS, constant=False,
            shuffle=False,
        )  # fmt: skip
        assert value == pytest.approx(run.regret()[-1], rel=1e-6)
    assert found[0] != pytest.approx(found[1], rel=0.01)


def test_without_data_sets_and_from_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROUNDS", 200)
    calls, whole = [], module.rollout

    @wraps(whole)
    def counted(seed):
        calls.append(seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(seed)

    monkeypatch.setattr(module, "rollout", counted)
    store = RunStore(tmp_path / "runs.sqlite")
    options = {"figures": ["appendix-c"], "seeds": 3, "store": store, "n_jobs": 1}
    with pytest.raises(KeyboardInterrupt):
        reproduce(**options)
    first, again = (reproduce(**options) for _ in range(2))
    assert calls == [0, 1, 1, 2]  # what was finished before the stop is not run again
    assert first.data == ()
    assert again.studies["appendix-c"].equals(first.studies["appendix-c"])

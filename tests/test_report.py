"""Tables, figures and pages: one seed has no interval, and the user's own style stays."""

import json
from dataclasses import replace

import numpy as np
import pytest

import fedres
from fedres.bandits.study import study
from fedres.report import bandit_page, comparison_table, flower_page, page, plots, verdict_page
from fedres.tables.column_notes import ColumnReading

MEMBER = {"applied": 1, "rows": 2, "loss": 0.5, "repeated": 0, "held_back": 0, "refused": {},
          "bytes_up": 1_234_567, "bytes_down": 20, "ignored": False, "done": True}  # fmt: skip
LINE = {"client": "ann", "seconds": 1.0, "loss": 0.5, "accuracy": 0.5, "lag": 0.5, "rows": 2}


@pytest.fixture(scope="module")
def compared():
    return fedres.compare(seeds=1, rounds=20)


@pytest.fixture(scope="module")
def studied():
    return study("synthetic", ["greedy"], clients=3, rounds=40, seeds=1)


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    return fedres.compare(x, client=np.arange(60) % 6, label=y)


def test_one_seed_has_no_interval(compared, studied, tmp_path, capsys):
    comparison_table.print_comparison(compared)
    bandit_page.print_study(studied)
    page.write_comparison(compared, tmp_path / "compare.html")
    bandit_page.write_study(studied, tmp_path / "bandit.html")
    printed = capsys.readouterr().out
    assert f"{compared.outcomes['fedres'].accuracy[0]:.3f} " in printed
    texts = [path.read_text() for path in tmp_path.iterdir()]
    for text in (printed, *texts):
        assert "± nan" not in text
        assert "(nan" not in text
    for found in (compared.to_dict(), studied.to_dict()):
        json.dumps(found, allow_nan=False)
    assert compared.to_dict()["methods"]["fedres"]["accuracy_interval"] is None


DRAWINGS = {
    **{
        f"compare, {name}": lambda results, name=name: getattr(plots, f"{name}_plot")(results[0])
        for name in ("accuracy", "loss", "clients", "bytes")
    },
    "bandit": lambda results: bandit_page.bandit_figures(results[1])["final"],
    "verdict, errors": lambda results: verdict_page.errors_plot(results[2]),
    "verdict, rows": lambda results: verdict_page.rows_plot(results[2]),
    "verdict, clients": lambda results: verdict_page.clients_plot(results[2], "central"),
    "flower, loss": lambda _: flower_page.loss_plot([LINE], ["ann"]),
    "flower, accuracy": lambda _: flower_page.accuracy_plot([LINE], ["ann"]),
    "flower, delay": lambda _: flower_page.delay_plot([LINE], ["ann"]),
    "flower, bytes": lambda _: flower_page.bytes_plot({"ann": MEMBER}),
    "flower, arrivals": lambda _: flower_page.arrivals_plot([LINE], ["ann"]),
}


@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.usefixtures("users_style")
def test_drawing_leaves_the_style_of_the_user_alone(name, compared, studied, judged):
    figure = DRAWINGS[name]((compared, studied, judged))
    assert not figure.axes[0].spines["top"].get_visible()  # drawn in our style
    assert "<svg" in plots.to_svg(figure)


def page_of(verdict, readings, model, folder):
    verdict_page.write_verdict(verdict, folder / "page.html", "t.csv", readings, model)
    return (folder / "page.html").read_text()


def test_a_page_of_a_verdict(judged, tmp_path):
    because = {"method": "fedres", "shared_because": "Shared model: trees, with 9% less loss"}
    readings = [ColumnReading("age", "number", 1, "both", "3 missing")]
    html = page_of(judged, readings, because, tmp_path)
    assert "<dt>shared model</dt><dd>trees, with 9% less loss</dd>" in html
    assert '<td class="text">number</td><td>1</td><td class="text">both</td>' in html
    # All clients have as many rows: there is nothing to compare.
    assert len(judged.by_training_rows("central")) == 1
    assert "For whom it pays" not in html
    assert "For whom it pays" in page_of(replace(judged, new=judged), readings, because, tmp_path)


@pytest.mark.usefixtures("users_style")
def test_pages_leave_the_style_of_the_user_alone(judged, tmp_path):
    verdict_page.write_verdict(judged, tmp_path / "verdict.html", "a table", [], {})


def test_numbers_at_axes_are_plain(compared):
    """Texts are not read as mathematics, which is what log axes have by themselves."""
    axes = plots.loss_plot(compared).axes[0]
    assert axes.get_xscale() == "log"
    labels = [tick.get_text() for tick in axes.get_xticklabels(which="both")]
    assert "10" in labels
    assert not any("$" in label for label in labels)

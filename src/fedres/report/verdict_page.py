"""A verdict as a page, and its figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedres.report.columns_table import COLUMN_HEADS, columns_in_words
from fedres.report.names import COLOURS
from fedres.report.page import write_page
from fedres.report.plots import draw_band, one_panel, styled
from fedres.report.verdict_table import NOTE
from fedres.tables.column_notes import ColumnReading
from fedres.tables.table_comparison import METHODS, ComparedMethod, Example, TableComparison
from fedres.tables.verdict_words import LABELS, WORDS, shown

AGAINST: tuple[ComparedMethod, ...] = ("central", "independent")
QUESTIONS = {"central": "does personalisation pay?", "independent": "does sharing pay?"}
GREY = "#94a3b8"
SIDES = {
    "shared": ("shared part", COLOURS["central"]),
    "client": ("client's own part", COLOURS["independent"]),
}
MOST_BARS = 8  # of each side; smaller parts are one


def write_verdict(
    verdict: TableComparison,
    path: Path,
    data: str,
    columns: Sequence[ColumnReading],
    model: Mapping[str, Any],
) -> None:
    """Write a verdict as a page; `model` is what is to be said of a model that was trained."""
    several = len(verdict.by_training_rows(AGAINST[0])) > 1
    figures = [
        errors_plot(verdict),
        *([rows_plot(verdict)] if several else []),
        *(clients_plot(verdict, m) for m in AGAINST),
        *(example_plot(verdict, example) for example in verdict.examples),
    ]
    write_page(
        path,
        "verdict.html",
        figures,
        verdict=verdict,
        data=data,
        protocol=verdict.protocol(),
        heads=verdict.table().heads,
        rows=verdict.table().rows,
        new_rows=[] if verdict.new is None else verdict.new.table().rows,
        note=NOTE,
        column_heads=COLUMN_HEADS,
        columns=columns_in_words(columns),
        model=_facts(model),
    )


def _facts(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be said of a model, by name; sentences without the name they begin with."""
    told = {"shared_because": "Shared model: ", "tastes_because": "Tastes: "}
    return {
        prefix.strip(": ").lower() if (prefix := told.get(name, "")) else name: (
            str(value).removeprefix(prefix) if prefix else value
        )
        for name, value in model.items()
        if value not in (None, 0)
    }


@styled
def errors_plot(verdict: TableComparison) -> Figure:
    """The error of each method, with intervals."""
    figure, axes = one_panel()
    error = verdict.metrics[0]
    for at, method in enumerate(METHODS):
        score = verdict.score(method, error)
        colour = COLOURS.get(method, GREY)
        axes.errorbar(at, score.mean, score.half, fmt="o", capsize=6, lw=2, color=colour)
        axes.annotate(shown(score), (at, score.mean), (10, -3), textcoords="offset points")
    axes.set_xticks(range(len(METHODS)), [LABELS[method] for method in METHODS])
    axes.set_xlim(-0.4, len(METHODS) - 0.2)
    axes.set(ylabel=f"{WORDS[error]} (smaller is better)")
    axes.set(title="Error on held-out rows, with 95% intervals over clients")
    return figure


@styled
def rows_plot(verdict: TableComparison) -> Figure:
    """What FedRes gains, for clients of few training rows up to many."""
    figure, axes = one_panel()
    for method in AGAINST:
        groups = verdict.by_training_rows(method)
        at = np.arange(len(groups))
        mean, half = np.array([group.gain for group in groups]).T
        label = f"against {LABELS[method]}: {QUESTIONS[method]}"
        draw_band(axes, at, mean, half, COLOURS[method], marker="o", ms=4, label=label)
    axes.axhline(0, color="black", lw=0.8)
    labels = [
        f"{one.low}{'' if one.high == one.low + 1 else '+'}\n({one.clients:,})" for one in groups
    ]
    axes.set_xticks(at, labels)
    axes.set(xlabel="training rows of a client (below: how many clients)")
    axes.set(ylabel=f"{WORDS[verdict.metrics[0]]} gained by FedRes")
    axes.set(title="For whom it pays: above 0 FedRes is better (95% bands)")
    axes.legend()
    return figure


@styled
def clients_plot(verdict: TableComparison, method: ComparedMethod) -> Figure:
    """A histogram of what clients gain."""
    figure, axes = one_panel()
    gains, counts = verdict.gains_of_clients(method), verdict.counts(method)
    # A few clients with a row or two would stretch the axis.
    edge = float(np.quantile(np.abs(gains), 0.99)) or 1.0
    bins = np.linspace(-edge, edge, 42)
    axes.hist(gains.clip(-edge, edge), bins=bins.tolist(), color=COLOURS[method])
    axes.axvline(0, color="black", lw=0.8)
    gained = f"{WORDS[verdict.metrics[0]]} gained by FedRes (outermost: and beyond)"
    title = f"Against {LABELS[method]}, {counts.gain:,} clients gain and {counts.lose:,} lose"
    axes.set(xlabel=gained, ylabel="clients", title=title)
    return figure


@styled
def example_plot(verdict: TableComparison, example: Example) -> Figure:
    """What one prediction is made of: bars of the shared part, the client's own, and their sum."""
    figure, axes = one_panel()
    bars = [bar for side in SIDES for bar in largest_parts(example, side)]
    end, named = 0.0, set()
    for at, (side, _, part) in enumerate(bars):
        name, colour = SIDES[side]
        axes.barh(at, part, left=end, color=colour, label=None if name in named else name)
        named.add(name)
        place = (max(end, end + part), at)
        axes.annotate(
            f"{part:+.3g}",
            place,
            (4, -3),
            textcoords="offset points",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )
        end += part
        axes.plot([end, end], [at, at + 1], color="black", lw=0.6, alpha=0.5)
    at = len(bars)
    axes.plot(end, at, "D", color=COLOURS["fedres"], label="their sum")
    if example.interval is not None:
        low, high = example.interval
        axes.plot([low, high], [at, at], color=COLOURS["fedres"], lw=2.5, label="90% interval")
    label = f", label {example.label}"
    if verdict.task == "numbers":
        axes.axvline(float(example.label), color="black", ls="--", lw=1, label="true label")
        label = ""
    axes.set_yticks(range(at + 1), [*(name for _, name, _ in bars), "sum"])
    axes.set_ylim(at + 0.6, -0.6)
    axes.margins(x=0.12)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("in units of the label" if label == "" else "log odds of the second class")
    axes.set_title(f"{example.why} (client {example.client}{label})")
    figure.legend(loc="outside lower center", ncols=5, fontsize=8)
    return figure


def largest_parts(example: Example, side: str) -> list[tuple[str, str, float]]:
    """The parts of one side that matter, in their order, and the sum of all others."""
    parts = [part for part in example.parts if part[0] == side and part[2]]
    kept = sorted(parts, key=lambda part: -abs(part[2]))[:MOST_BARS]
    rest = [part for part in parts if part not in kept]
    others = [(side, f"{len(rest)} others", sum(part for *_, part in rest))] if rest else []
    return [part for part in parts if part in kept] + others

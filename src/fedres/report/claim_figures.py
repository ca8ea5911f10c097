"""Figures of paired differences: what claims test, and what depends on a reading."""

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedres.paper.claims import TYPE_1, TYPE_2
from fedres.paper.protocol import SCHEMES
from fedres.paper.reproduction import Reproduction
from fedres.paper.rulings import Claim
from fedres.report.plots import styled
from fedres.simulation.intervals import Interval, interval

if TYPE_CHECKING:
    import pandas as pd

VERDICTS = {
    "holds": "#15803d",
    "does not hold": "#b91c1c",
    "undecided": "#a16207",
    "confounded": "#94a3b8",
}
Cells = dict[tuple[str, str], Interval]  # per reading and data set


@styled
def differences_figure(claims: dict[str, list[Claim]], title: str) -> tuple[Figure, "pd.DataFrame"]:
    """A row a claim, a panel a form of FedRes, a dot with its interval a difference."""
    import pandas as pd

    first = next(iter(claims.values()))
    height = 0.62 * len(first) + 1.6
    figure = Figure(figsize=(4.6 + 3.0 * len(claims), height), layout="constrained")
    panels = figure.subplots(1, len(claims), sharey=True, squeeze=False)[0]
    rows = []
    for axes, (form, found) in zip(panels, claims.items(), strict=True):
        for at, claim in enumerate(found):
            spread = np.linspace(-0.32, 0.32, len(claim.findings)) if claim.findings[1:] else [0.0]
            for shift, one in zip(spread, claim.findings, strict=True):
                margin = 100 * (one.difference.mean - claim.bound)
                half = 100 * one.difference.half
                colour = VERDICTS[one.verdict]
                axes.errorbar(margin, at + shift, xerr=half, fmt="o", ms=2.6, lw=0.8, color=colour)
                rows.append(
                    {"form": form, "section": claim.section, "claim": claim.statement,
                     "where": one.where, "difference": one.difference.mean,
                     "half": one.difference.half, "bound": claim.bound, "p": one.chance,
                     "verdict": one.verdict}
                )  # fmt: skip
            axes.axhspan(at - 0.5, at + 0.5, color="#f8fafc" if at % 2 else "white", zorder=0, lw=0)
        axes.axvline(0, color="black", lw=0.8)
        axes.set_xscale("symlog", linthresh=5)
        ticks = (-20, -5, -2, 0, 2, 5, 20)
        axes.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
        axes.set(title=SCHEMES[form].label, xlabel="points above the bound")
        axes.grid(axis="y", visible=False)
    labels = [fill(f"{claim.section}  {claim.statement}", 62) for claim in first]
    panels[0].set_yticks(range(len(first)), labels, fontsize=7.5)
    panels[0].set_ylim(len(first) - 0.5, -0.5)
    handles = [
        Line2D([], [], marker="o", ls="", color=colour, label=word)
        for word, colour in VERDICTS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    figure.suptitle(f"{title}\n(95% intervals; verdicts by Holm)", fontweight="bold")
    return figure, pd.DataFrame(rows)


@styled
def readings_figure(result: Reproduction) -> tuple[Figure, "pd.DataFrame"]:
    """Rows readings, columns sets; a panel of cells a difference, coloured by it."""
    import pandas as pd

    found = reading_differences(result)
    names = [reading.name for reading in result.readings]
    columns = sorted(result.data, key=lambda name: (name in TYPE_1, name not in TYPE_2))
    figure = Figure(
        figsize=(2.6 + 1.15 * len(columns), 1.8 + 1.14 * len(names)), layout="constrained"
    )
    for axes, (title, (cells, most)) in zip(figure.subplots(3, 1), found.items(), strict=True):
        _cells(axes, names, columns, cells, most)
        axes.set_title(title, loc="left")
        labels = [fill(result.title_of(name), 12) for name in columns]
        axes.set_xticks(range(len(columns)), labels)
    says = ["\n(paper: +)" if name in TYPE_1 else "\n(paper: -)" for name in columns]
    shown = [
        name + (say if name in (*TYPE_1, *TYPE_2) else "")
        for name, say in zip(columns, says, strict=True)
    ]
    figure.axes[0].set_xticks(range(len(columns)), shown)
    figure.suptitle(
        f"{len(names)} readings of the paper, found by search (points, 95% intervals over "
        f"{result.seeds} seeds\nthat no step was tuned on; bold where the interval excludes 0)",
        fontweight="bold",
    )
    rows = [
        {"difference": title, "reading": reading, "data": data, "points": 100 * one.mean,
         "half": 100 * one.half}
        for title, (cells, _) in found.items()
        for (reading, data), one in cells.items()
    ]  # fmt: skip
    return figure, pd.DataFrame(rows)


def reading_differences(result: Reproduction) -> dict[str, tuple[Cells, float]]:
    """The differences that readings are compared by, and where each colour scale ends."""
    table = result.table[(result.table.figure == "readings") & result.table.accuracy.notna()]
    shared: Cells = {}
    gains: Cells = {}
    lost: Cells = {}
    groups: Any = table.groupby(["reading", "data"], sort=False)
    for (reading, data), part in groups:
        none = part[part.delay == 0].pivot(index="seed", columns="method", values="accuracy")
        best = none[["independent", "central"]].mean().idxmax()
        late = part[part.delay > 0].set_index("seed").accuracy
        shared[reading, data] = interval(none.central - none.independent)
        gains[reading, data] = interval(none.fedres - none[best])
        lost[reading, data] = interval(late - none.fedres)
    return {
        "Central less Independent": (shared, 0.1),
        "FedRes less the better of the two": (gains, 0.05),
        "FedRes at a delay of 200 less FedRes without": (lost, 0.1),
    }


def _cells(axes: Axes, names: list[str], columns: list[str], cells: Cells, most: float) -> None:
    means = np.full((len(names), len(columns)), np.nan)
    for (reading, data), found in cells.items():
        means[names.index(reading), columns.index(data)] = found.mean
    axes.imshow(means, cmap="RdBu", vmin=-most, vmax=most, alpha=0.75, aspect="auto")
    for i, name in enumerate(names):
        for j, data in enumerate(columns):
            one = cells.get((name, data))
            text = "not here" if one is None else f"{100 * one.mean:+.1f}\n± {100 * one.half:.1f}"
            dark = one is not None and abs(one.mean) > 0.8 * most
            sure = one is not None and abs(one.mean) > one.half
            axes.text(
                j, i, text, ha="center", va="center", fontsize=7.5, linespacing=0.95,
                color="white" if dark else "black", fontweight="bold" if sure else "normal",
            )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)

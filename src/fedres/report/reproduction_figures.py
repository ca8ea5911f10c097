"""The figures of a reproduction, and the numbers behind them."""

from collections.abc import Iterator
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedres.paper.newcomers import LABELS as JOINING
from fedres.paper.protocol import FIGURES, SCHEMES
from fedres.paper.reproduction import Reproduction
from fedres.report.claim_figures import differences_figure, readings_figure
from fedres.report.names import COLOURS
from fedres.report.plots import draw_band, styled
from fedres.report.theory_figures import appendix_c_figures, regret_figure, rules_figure
from fedres.simulation.intervals import interval

if TYPE_CHECKING:
    import pandas as pd

LINES: dict[str, dict[str, Any]] = {
    "independent": {"color": COLOURS["independent"], "marker": "s"},
    "central": {"color": COLOURS["central"], "marker": "^"},
    "aligned": {"color": "#9333ea", "marker": "D", "linestyle": "--"},
    "arrival": {"color": COLOURS["fedres"], "marker": "o"},
    "late": {"color": "#db2777", "marker": "X"},
    "gradients": {"color": "#7f1d1d", "marker": "*", "linestyle": "--"},
    "arrival-2": {"color": "#0d9488", "marker": "v"},
    "erm": {"color": "#15803d", "marker": "P"},
}
AXES = {"clients": "clients", "delay": "delay", "bits": "residual_bits", "bytes": "megabytes"}
AXIS_LABELS = {
    "clients": "number of clients",
    "delay": "round-trip delay (rounds)",
    "residual_bits": "bits a residual",
    "megabytes": "megabytes sent in a run, up and down",
}
Drawn = tuple[str, str, Figure, "pd.DataFrame"]


@styled
def draw(result: Reproduction) -> list[Drawn]:
    """Name, title, figure and numbers of everything that was run."""
    return list(_draw(result))


def _draw(result: Reproduction) -> Iterator[Drawn]:
    if any(result.claims.values()):
        title = (
            "What the claims test: differences paired by seed, less the bound they should exceed"
        )
        yield "differences", title, *differences_figure(result.claims, title)
    for name in result.figures:
        title = FIGURES[name]
        if name == "appendix-c":
            yield from appendix_c_figures(result.studies[name])
            continue
        if name == "regret":
            yield name, title, *regret_figure(result.studies[name])
            rules = "Measured regret of the four rules: the comparison that the paper leaves open"
            yield "regret-rules", rules, *rules_figure(result.studies[name])
            continue
        if name == "readings":
            yield name, title, *readings_figure(result)
            continue
        if name == "newcomers":
            numbers = result.studies[name]
            yield name, title, _newcomers(result, numbers, title), numbers
            continue
        numbers = summarise(result.table[result.table.figure == name])
        if name in AXES:
            yield name, title, _panels(result, numbers, AXES[name], title), numbers
        elif name == "clients-delay":
            for delay in (20, 80):
                part = numbers[numbers.delay == delay]
                full = f"{title}: round trip of {delay} rounds"
                yield f"{name}-{delay}", full, _panels(result, part, "clients", full), part
        else:
            yield name, title, _by_set(result, numbers, title), numbers


def summarise(table: "pd.DataFrame") -> "pd.DataFrame":
    """Mean accuracy with its 95% interval over seeds, a row a point."""
    keys = ["data", "scheme", "clients", "delay", "residual_bits", "batch"]
    groups = table[table.accuracy.notna()].groupby(keys, sort=False)
    numbers = groups.agg(
        accuracy=("accuracy", "mean"),
        half=("accuracy", lambda values: interval(values).half),
        seeds=("accuracy", "count"),
        samples=("samples", "mean"),
        megabytes=("bytes_up", "mean"),
        down=("bytes_down", "mean"),
    ).reset_index()
    numbers["megabytes"] = (numbers.megabytes + numbers.pop("down")) / 1e6
    return numbers


def _by_set(result: Reproduction, numbers: "pd.DataFrame", title: str) -> Figure:
    """A column a data set, a dot a scheme; P = 50 above, P = 10 below."""
    figure = Figure(figsize=(10, 6.6), layout="constrained")
    schemes = [name for name in SCHEMES if name in set(numbers.scheme)]
    for axes, few in zip(figure.subplots(2, 1), (False, True), strict=True):
        labels, usual = [], 10 if few else 50
        for at, name in enumerate(result.data):
            mine = numbers[numbers.data == name]
            clients = mine.clients.min() if few else mine.clients.max()
            other = "" if clients == usual else f", P = {clients}"
            labels.append(fill(result.title_of(name) + other, 16))
            for k, scheme in enumerate(schemes):
                row = mine[(mine.clients == clients) & (mine.scheme == scheme)][:1]
                x = [at + 0.16 * (k - (len(schemes) - 1) / 2)] * len(row)
                look = {"fmt": LINES[scheme]["marker"], "color": LINES[scheme]["color"]}
                axes.errorbar(x, row.accuracy, row.half, capsize=3, ms=5, **look)
        axes.set_xticks(range(len(result.data)), labels)
        axes.set_ylabel("test accuracy")
        axes.set_title(f"P = {usual} clients", loc="left")
        axes.grid(axis="x", visible=False)
    _legend(figure, schemes)
    figure.suptitle(f"{title} (95% intervals over {result.seeds} seeds)", fontweight="bold")
    return figure


def _newcomers(result: Reproduction, numbers: "pd.DataFrame", title: str) -> Figure:
    """A panel a data set, a line with its band a way to begin."""
    figure, grid = _grid(result)
    looks = {
        "fedres": LINES["arrival"],
        "central": LINES["central"],
        "independent": LINES["independent"],
        "together": {"color": "#9333ea", "linestyle": "--"},
    }
    for axes, name in zip(grid.flat, result.data, strict=False):
        for line, look in looks.items():
            part = numbers[(numbers.data == name) & (numbers.line == line)]
            drawn = {"ls": look.get("linestyle", "-"), "lw": 1.5, "label": JOINING[line]}
            draw_band(axes, part.samples, part.accuracy, part.half, look["color"], 0.18, **drawn)
        axes.set(xlabel="samples since joining", title=result.title_of(name))
        axes.set(xscale="log", xticks=[1, 2, 5, 10, 20, 60])
        axes.set_xticklabels(["1", "2", "5", "10", "20", "60"])
        axes.minorticks_off()
        if axes in grid[:, 0]:
            axes.set_ylabel("accuracy so far")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    figure.suptitle(f"{title} (95% bands over {result.seeds} seeds)", fontweight="bold")
    return figure


def _grid(result: Reproduction) -> tuple[Figure, Any]:
    """An empty panel a data set."""
    columns = min(4, len(result.data))
    rows = ceil(len(result.data) / columns)
    figure = Figure(figsize=(3.1 * columns + 0.6, 2.7 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in list(grid.flat)[len(result.data) :]:
        axes.set_visible(False)
    return figure, grid


def _panels(result: Reproduction, numbers: "pd.DataFrame", x: str, title: str) -> Figure:
    """A panel a data set, a line with its band a scheme."""
    figure, grid = _grid(result)
    schemes = [name for name in SCHEMES if name in set(numbers.scheme)]
    for axes, name in zip(grid.flat, result.data, strict=False):
        mine = numbers[numbers.data == name]
        for scheme in schemes:
            part = mine[mine.scheme == scheme].sort_values(x)
            if len(part) == 1 and x == "residual_bits":  # Central sends no residual
                part = part.loc[part.index.repeat(2)].assign(residual_bits=[1, 32])
            line = LINES[scheme] | {"ms": 3.5, "lw": 1.5}
            draw_band(axes, part[x], part.accuracy, part.half, line.pop("color"), 0.18, **line)
        if x == "residual_bits":
            axes.set_xscale("log", base=2)
            axes.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
        fixed = "" if x == "clients" else f", P = {mine.clients.max()}"
        axes.set(xlabel=AXIS_LABELS[x], title=result.title_of(name) + fixed)
        if axes in grid[:, 0]:
            axes.set_ylabel("test accuracy")
    _legend(figure, schemes)
    figure.suptitle(f"{title} (95% bands over {result.seeds} seeds)", fontweight="bold")
    return figure


def _legend(figure: Figure, schemes: list[str]) -> None:
    handles = [Line2D([], [], label=SCHEMES[scheme].label, **LINES[scheme]) for scheme in schemes]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(schemes))

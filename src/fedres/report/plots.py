"""Plots as figures; the page turns them into SVG."""

import io
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from fedres.report.names import COLOURS, NAMES
from fedres.simulation.comparison import MARGIN, SimulatedComparison
from fedres.simulation.intervals import band, interval

STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "font.size": 9.5,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.hashsalt": "fedres",
    "text.parse_math": False,  # names of clients and columns are texts, whatever is in them
}
styled = mpl.rc_context(STYLE)  # for functions that draw or save: the user's own style stays


@styled
def accuracy_plot(result: SimulatedComparison) -> Figure:
    """Test accuracy of each method: mean, interval, and every seed."""
    figure, axes = one_panel()
    for at, (method, outcome) in enumerate(result.outcomes.items()):
        mean, half = interval(outcome.accuracy)
        spread = np.linspace(-0.14, 0.14, len(outcome.accuracy))
        axes.scatter(at + spread, outcome.accuracy, s=9, alpha=0.35, color=COLOURS[method], lw=0)
        axes.errorbar(at, mean, half, fmt="o", capsize=6, lw=2, color=COLOURS[method])
        axes.annotate(f"{mean:.3f}", (at, mean), (14, -3), textcoords="offset points")
    axes.set_xticks(range(len(result.outcomes)), [NAMES[method] for method in result.outcomes])
    axes.set_xlim(-0.5, len(result.outcomes) - 0.4)
    title = "Test accuracy: mean with 95% interval, a dot a seed"
    axes.set(ylabel="test accuracy (share of rows)", title=title)
    return figure


@styled
def loss_plot(result: SimulatedComparison) -> Figure:
    """Average progressive loss over rounds."""
    figure, axes = one_panel()
    for method, outcome in result.outcomes.items():
        mean, half = band(outcome.curves)
        rounds = np.arange(1, len(mean) + 1)
        draw_band(axes, rounds, mean, half, COLOURS[method], label=NAMES[method], lw=1.8)
    axes.set(xlabel="round (samples seen by each client)")
    log_scale(axes, "x")
    axes.set(ylabel="average squared loss so far")
    axes.set(title="Progressive loss, with 95% bands over seeds")
    axes.legend()
    return figure


@styled
def clients_plot(result: SimulatedComparison) -> Figure:
    """How many clients lose more than alone, and by how much."""
    figure, axes = one_panel()
    axes.axvspan(100 * MARGIN, 1000, color="#dc2626", alpha=0.06, lw=0)
    axes.axvline(0, color="black", lw=0.8)
    for method in ("central", "fedres", "mixture"):
        excess = np.sort(100 * result.excess_over_alone(method).ravel())
        share = np.arange(1, len(excess) + 1) / len(excess)
        hurt = result.worse_off(method)
        label = f"{NAMES[method]}: {hurt:.0%} worse off"
        axes.plot(excess, 100 * share, color=COLOURS[method], lw=1.8, label=label)
    axes.set_xlim(-100, 100)
    title = f"Clients hurt: over {MARGIN:.0%} more loss than alone (shaded)"
    axes.set(title=title, xlabel="progressive loss over that of Independent (% more)")
    axes.set(ylabel="clients with at most that (%), all seeds")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


@styled
def bytes_plot(result: SimulatedComparison) -> Figure:
    """What each method sends."""
    figure, axes = one_panel()
    at = np.arange(len(result.outcomes))
    colours = [COLOURS[method] for method in result.outcomes]
    for offset, side, alpha in ((-0.2, "up", 0.9), (0.2, "down", 0.5)):
        sent = [getattr(outcome, f"bytes_{side}") / 1e6 for outcome in result.outcomes.values()]
        bars = axes.bar(at + offset, sent, 0.38, color=colours, alpha=alpha)
        axes.bar_label(bars, [side if amount else "" for amount in sent], padding=2)
    axes.set_xticks(at, [NAMES[method] for method in result.outcomes])
    title = "Sent to the server (up) and to all clients (down)"
    axes.set(ylabel="megabytes in one run", title=title)
    return figure


@styled
def to_svg(figure: Figure) -> str:
    """The figure as an SVG element."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def draw_band(
    axes: Axes, x: Any, mean: Any, half: Any, colour: str, alpha: float = 0.2, **line: Any
) -> None:
    """A line with a band of so much above and below it."""
    axes.plot(x, mean, color=colour, **line)
    axes.fill_between(x, mean - half, mean + half, color=colour, alpha=alpha, lw=0)


def log_scale(axes: Axes, sides: Literal["x", "y", "xy"]) -> None:
    """Logarithmic axes with plain numbers: the usual ones need mathematics in texts."""
    for side in sides:
        axes.set(**{f"{side}scale": "log"})
        axis: Axis = getattr(axes, f"{side}axis")
        axis.set_major_formatter(LogFormatter())
        axis.set_minor_formatter(LogFormatter())


def one_panel() -> tuple[Figure, Axes]:
    """An empty figure."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    return figure, figure.subplots()

"""Figures of a bandit study."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedres.bandits.study import Study
from fedres.core.types import F64
from fedres.report.names import COLOURS, NAMES
from fedres.report.plots import draw_band, log_scale, styled
from fedres.simulation.intervals import band, interval
from fedres.simulation.settings import SGD_METHODS, Method

MARKERS = {"independent": "s", "central": "^", "fedres": "o"}


@styled
def bandit_figures(result: Study) -> dict[str, Figure]:
    """All figures, by name."""
    return {
        "final": _final(result),
        "reward": _over_rounds(result, "reward", "Average reward over rounds"),
        "regret": _over_rounds(
            result, "regret", "Average regret against the best pair of models", " (reward)"
        ),
        "points": _points(result),
    }


def _final(result: Study) -> Figure:
    """What a decision earns, by policy and method."""
    figure = Figure(figsize=(10.8, 4.0), layout="constrained")
    axes = figure.subplots()
    for at, policy in enumerate(result.policies):
        for offset, method in zip((-0.2, 0.0, 0.2), SGD_METHODS, strict=True):
            rewards, x = result.outcomes[policy, method].reward, at + offset
            mean, half = interval(rewards)
            spread = np.linspace(-0.05, 0.05, len(rewards))
            axes.scatter(x + spread, rewards, s=8, alpha=0.3, color=COLOURS[method], lw=0)
            axes.errorbar(x, mean, half, fmt=MARKERS[method], capsize=4, color=COLOURS[method])
            axes.annotate(f"{mean:.3f}", (x, mean), (5, 3), textcoords="offset points", size=8)
    axes.set_xticks(range(len(result.policies)), list(result.policies))
    axes.set_xlim(-0.5, len(result.policies) - 0.4)
    axes.grid(axis="x", visible=False)
    title = f"Reward of all {result.rounds:,} rounds: mean with 95% interval, a dot a seed"
    axes.set(ylabel="average reward of a decision", title=title)
    _legend(figure)
    return figure


def _over_rounds(result: Study, what: str, title: str, unit: str = "") -> Figure:
    """An average so far, a panel a policy; regret where models can be right, with guides."""
    guided = what == "regret" and result.realizable
    figure, (row,) = _panels(result, title, 1)
    for axes, policy in zip(row, result.policies, strict=True):
        for method in SGD_METHODS:
            fit = result.exponent(policy, method) if guided else None
            label = f"T^({fit:.2f})" if fit and not np.isnan(fit.mean) else None
            found = getattr(result.outcomes[policy, method], f"{what}s")
            _band(axes, result.checkpoints, found, method, label)
        axes.set(xlabel="round (decisions of each client)", title=policy)
        log_scale(axes, "xy" if guided else "x")
        if guided:
            _guides(axes, result, policy)
            axes.legend(fontsize=7.5, loc="lower left")
    row[0].set_ylabel(f"average {what} so far{unit}")
    return figure


def _guides(axes: Axes, result: Study, policy: str) -> None:
    """Slopes of -1/5, Theorem 3's, and -1/2 through the regret of FedRes at T / 10."""
    rounds = result.checkpoints[result.checkpoints * 10 >= result.rounds]
    start = np.searchsorted(result.checkpoints, rounds[0])
    regret = result.outcomes[policy, "fedres"].regrets[:, start].mean()
    for power, style in ((5, ":"), (2, "--")):
        line = regret * (rounds[0] / rounds) ** (1 / power)
        axes.plot(rounds, line, color="black", lw=1, ls=style, label=f"slope -1/{power}")


def _points(result: Study) -> Figure:
    """Average regret of whole runs against P and against the delay of messages."""
    seeds = len(result.outcomes[result.best_policy(), "fedres"].by_clients)
    figure, grid = _panels(result, "Average regret against clients and delay", 2, seeds)
    for column, policy in enumerate(result.policies):
        clients, delay = grid[0][column], grid[1][column]
        for method in SGD_METHODS:
            found = result.outcomes[policy, method]
            _band(clients, result.points_clients, found.by_clients, method, marked=True)
            _band(delay, result.points_delay, found.by_delay, method, marked=True)
        log_scale(clients, "x")
        clients.set_xticks(result.points_clients, [str(p) for p in result.points_clients])
        clients.minorticks_off()
        clients.set(xlabel="number of clients", title=f"{policy}, round-trip delay {result.delay}")
        delay.set(xlabel="round-trip delay of messages (rounds)")
        delay.set(title=f"{policy}, {result.clients} clients")
    for row in grid:
        row[0].set_ylabel("average regret (reward)")
    return figure


def _panels(
    result: Study, title: str, rows: int, seeds: int | None = None
) -> tuple[Figure, list[list[Axes]]]:
    columns = len(result.policies)
    size = (max(3.6 * columns, 5.6), 2.9 * rows + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    bands = f"95% bands over {seeds or result.seeds} seeds"
    figure.suptitle(f"{title}: {result.data} ({bands})", fontweight="bold")
    _legend(figure)
    return figure, [list(row) for row in grid]


def _band(
    axes: Axes,
    x: Sequence[int] | np.ndarray,
    values: F64,
    method: Method,
    label: str | None = None,
    *,
    marked: bool = False,
) -> None:
    mean, half = band(values)
    marker = MARKERS[method] if marked else None
    draw_band(axes, x, mean, half, COLOURS[method], lw=1.7, marker=marker, ms=4, label=label)


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], color=COLOURS[method], marker=MARKERS[method], ms=4, label=NAMES[method])
        for method in SGD_METHODS
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))

"""Figures of appendix C and of measured regret."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedres.paper.regret_study import amortised, slope
from fedres.report.names import COLOURS
from fedres.report.plots import draw_band, log_scale, styled
from fedres.simulation.intervals import interval

if TYPE_CHECKING:
    import pandas as pd

NAMES = {
    "fedres": ("FedRes.SGD, adaptive step", COLOURS["fedres"]),
    "fedres-erm": ("FedRes.ERM", "#15803d"),
    "fictitious-play": ("Fictitious play", "#b91c1c"),
}
RULES = {
    "aligned": ("#9333ea", "D"),
    "asymmetric": ("#0d9488", "v"),
    "late": ("#d97706", "s"),
    "arrival": (COLOURS["fedres"], "o"),
}
SHADES = ("#2563eb", "#0d9488", "#9333ea")


@styled
def appendix_c_figures(table: "pd.DataFrame") -> list[tuple[str, str, Figure, "pd.DataFrame"]]:
    """Figure 6, the average loss, and Figure 7, the path of the global model."""
    rollouts = table.seed.nunique()
    groups = table.astype({"loss": float}).groupby(["method", "round"])[["loss", "first", "second"]]
    wide: Any = groups.quantile(np.array([0.1, 0.5, 0.9])).unstack()
    for column, mean in groups.mean().items():
        wide[column, "mean"] = mean
    numbers = wide.stack(future_stack=True)
    numbers = numbers.rename_axis(index=["method", "round", "statistic"]).reset_index()
    shown = f"median with 10% to 90%, and mean (dotted), of {rollouts} rollouts"

    figures = []
    title = "Figure 6: average loss of the three algorithms of appendix C"
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    axes = figure.subplots()
    for method, (label, colour) in NAMES.items():
        _curve(axes, wide.loc[method, "loss"].dropna(), label, colour)
    log_scale(axes, "xy")
    axes.set(ylabel="average squared loss so far")
    axes.set(title=f"{title}\n({shown})")
    axes.legend()
    figures.append(("appendix-c-loss", title, figure, numbers))

    title = "Figure 7: the path of the global model, which should go from (1, 0) to (0, 1)"
    figure = Figure(figsize=(11, 3.9), layout="constrained")
    for axes, (method, (label, _)) in zip(
        figure.subplots(1, 3, sharey=True), NAMES.items(), strict=True
    ):
        _curve(axes, wide.loc[method, "first"], "first component: 1 to 0", "#2563eb")
        _curve(axes, wide.loc[method, "second"], "second component: 0 to 1", "#dc2626")
        axes.plot([0, 0], [1, 0], "k.", ms=7, clip_on=False, zorder=5, label="where it begins")
        axes.set_xscale("symlog", linthresh=1)
        ticks = [0, *(10**k for k in range(5) if 10**k <= table["round"].max())]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set(title=label, ylim=(-1.3, 2.0), xlim=(0, None))
    figure.axes[0].set_ylabel("weight")
    figure.axes[0].legend(loc="lower right")
    figure.suptitle(f"{title}\n({shown})", fontweight="bold")
    figures.append(("appendix-c-path", title, figure, numbers))
    return figures


def _curve(axes: Axes, part: Any, label: str, colour: str) -> None:
    axes.plot(part.index, part[0.5], color=colour, label=label, lw=1.8)
    axes.plot(part.index, part["mean"], color=colour, lw=1.1, ls=":")
    axes.fill_between(part.index, part[0.1], part[0.9], color=colour, alpha=0.15, lw=0)
    axes.set(xlabel="round")


@styled
def regret_figure(table: "pd.DataFrame") -> tuple[Figure, "pd.DataFrame"]:
    """Regret against T and P, and what delays and batches cost as T grows."""
    table = table[table.alignment == "aligned"]
    numbers = _means(table)
    figure = Figure(figsize=(12.5, 4.3), layout="constrained")
    by_rounds, ratio, by_clients = figure.subplots(1, 3)
    delays = table[table.axis == "delay"]
    for colour, (tau, part) in zip(SHADES, delays.groupby("delay"), strict=True):
        label = f"delay {tau}: slope {slope(part, 'rounds'):.3f}"
        measured = numbers[(numbers.axis == "delay") & (numbers.delay == tau)]
        _band(by_rounds, measured, "rounds", label, colour)
    base = numbers[(numbers.axis == "delay") & (numbers.delay == 0)]
    by_rounds.plot(
        base.rounds,
        1.6 * base.regret.iloc[0] * np.sqrt(base.rounds.iloc[0] / base.rounds),
        color="black", lw=1, ls=":", label="slope -1/2 (Theorem 2)",
    )  # fmt: skip
    title = "Regret against T (P = 10)"
    by_rounds.set(xlabel="rounds T", ylabel="average regret", title=title)

    none = delays[delays.delay == 0].set_index(["rounds", "seed"]).regret
    lines: list[tuple[str, Any, str]] = [
        (f"delay {tau}", delays[delays.delay == tau], SHADES[k])
        for k, tau in enumerate(sorted(delays.delay.unique()))
        if tau
    ]
    batches = table[table.axis == "batch"]
    lines += [
        (f"batches of {b}", batches[batches.batch == b], colour)
        for b, colour in zip(sorted(batches.batch.unique()), ("#d97706", "#b91c1c"), strict=False)
    ]
    for label, part, colour in lines:
        relative = (part.set_index(["rounds", "seed"]).regret / none).groupby("rounds")
        found = [interval(values) for _, values in relative]
        ratio.errorbar(
            list(relative.groups), [one.mean for one in found], [one.half for one in found],
            color=colour, label=label, marker="o", ms=3.5, capsize=3,
        )  # fmt: skip
    ratio.axhline(1, color="black", lw=1, ls=":")
    title = "What delay and batches cost"
    ratio.set(xlabel="rounds T", ylabel="regret / regret without", title=title)

    clients = numbers[numbers.axis == "clients"]
    _band(by_clients, clients, "clients", "measured", SHADES[0])
    shape = amortised(clients.clients.to_numpy(float))
    by_clients.plot(
        clients.clients, shape * clients.regret.iloc[0] / shape[0],
        color="black", lw=1, ls=":", label="shape of Theorem 2",
    )  # fmt: skip
    title = "Regret against P (T = 1000)"
    by_clients.set(xlabel="clients P", ylabel="average regret", title=title)
    for axes in figure.axes:
        log_scale(axes, "xy")
        axes.legend(fontsize=8)
    seeds = table.seed.nunique()
    figure.suptitle(f"Regret, measured (95% intervals over {seeds} seeds)", fontweight="bold")
    return figure, numbers


@styled
def rules_figure(table: "pd.DataFrame") -> tuple[Figure, "pd.DataFrame"]:
    """Regret of the four rules against T, at each delay, and against the delay."""
    none = table[(table.axis == "delay") & (table.delay == 0)]
    delays = sorted(table[table.alignment != "aligned"].query("axis == 'delay'").delay.unique())
    longest = table[table.alignment != "aligned"].query("axis == 'delay'").rounds.max()
    parts = [
        (f"Delay {tau}", "rounds", table[(table.axis == "delay") & (table.delay == tau)])
        for tau in delays
    ]
    lag = table[table.axis == "lag"]
    rounds = int(lag.rounds.iloc[0])
    parts.append((f"T = {rounds:,}", "delay", lag))
    figure = Figure(figsize=(4.2 * len(parts), 4.4), layout="constrained")
    for axes, (title, x, part) in zip(figure.subplots(1, len(parts)), parts, strict=True):
        means = _means(part[part.rounds <= longest])
        for rule, (colour, marker) in RULES.items():
            mine = means[means.alignment == rule].sort_values(x)
            name = f"{rule} (Theorem 2)" if rule == "aligned" else rule
            numbers = mine[x], mine.regret, mine.half
            draw_band(axes, *numbers, colour, marker=marker, label=name, ms=4)
        log_scale(axes, "y")
        axes.set(title=title, ylabel="average regret")
        if x == "rounds":
            base = _means(none[none.rounds <= longest])
            axes.plot(base.rounds, base.regret, color="black", lw=1, ls=":", label="without delay")
            log_scale(axes, "x")
            axes.set(xlabel="rounds T")
        else:
            axes.set(xlabel="round-trip delay (rounds)")
            axes.set_xscale("symlog", linthresh=5)
        ticks = sorted(means[x].unique())
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
        axes.xaxis.minorticks_off()
        axes.set_xlim(-0.5 if x == "delay" else None, 1.2 * ticks[-1])
    figure.axes[0].legend(fontsize=8)
    seeds = table.seed.nunique()
    figure.suptitle(
        f"Regret of the four rules, plain SGD, P = 10 (95% bands over {seeds} seeds)",
        fontweight="bold",
    )
    return figure, _means(table[(table.axis == "lag") | table.delay.isin(delays)])


def _means(table: "pd.DataFrame") -> "pd.DataFrame":
    """Mean regret with its interval, a row a point."""
    keys = ["axis", "alignment", "rounds", "clients", "delay", "batch", "eta"]
    means = table.groupby(keys, sort=False).regret.agg(
        regret="mean", half=lambda values: interval(values).half, seeds="count"
    )
    return means.reset_index()


def _band(axes: Axes, part: "pd.DataFrame", x: str, label: str, colour: str) -> None:
    draw_band(axes, part[x], part.regret, part.half, colour, label=label, marker="o", ms=3.5)

"""The report of a run on Flower."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.filesize import decimal

from fedres.report.page import write_page
from fedres.report.plots import one_panel, styled

Facts = Mapping[str, Any]
Line = Mapping[str, Any]


def write_run(facts: Facts, lines: Sequence[Line], settings: Facts, path: Path) -> None:
    """Write a run as a page: what the server knew at its end, and every upload it applied."""
    members = dict(sorted(facts["members"].items()))
    clients = [
        {
            "name": name,
            "uploads": f"{member['applied']:,}",
            "rows": f"{member['rows']:,}",
            "loss": f"{member['loss']:.4f}",
            "right": "" if member["accuracy"] is None else f"{member['accuracy']:.1%}",
            "late": f"{np.mean(_of(lines, name, 'lag') or 0):.1f}",
            "repeated": member["repeated"],
            "held_back": f"{member['held_back'] / max(1, member['applied']):.0%}",
            "refused": sum(member["refused"].values()),
            "up": decimal(member["bytes_up"]),
            "down": decimal(member["bytes_down"]),
            "state": "ignored" if member["ignored"] else "no more rows" if member["done"] else "",
        }
        for name, member in members.items()
    ]
    refused = [
        (name, reason, count)
        for name, member in members.items()
        for reason, count in [
            *member["refused"].items(),
            *((f"fault of the client: {kind}", count) for kind, count in member["faults"].items()),
        ]
    ] + [("unknown", reason, count) for reason, count in facts["strangers"].items()]
    of_classes = any(member["accuracy"] is not None for member in members.values())
    plots = [
        loss_plot(lines, list(members)),
        *([accuracy_plot(lines, list(members))] if of_classes else []),
        delay_plot(lines, list(members)),
        bytes_plot(members),
        arrivals_plot(lines, list(members)),
    ]
    write_page(
        path,
        "flower.html",
        plots,
        facts=facts,
        rows=sum(line["rows"] for line in lines),
        up=decimal(sum(member["bytes_up"] for member in members.values())),
        down=decimal(sum(member["bytes_down"] for member in members.values())),
        clients=clients,
        of_classes=of_classes,
        refused=refused,
        settings=settings,
    )


@styled
def loss_plot(lines: Sequence[Line], clients: Sequence[str]) -> Figure:
    """Progressive loss of every upload over time."""
    figure, axes = _over_time(lines, clients, "loss")
    axes.set(ylabel="mean loss of an upload's rows")
    axes.set(title="Progressive loss: each row before it was learned from")
    return figure


@styled
def accuracy_plot(lines: Sequence[Line], clients: Sequence[str]) -> Figure:
    """Progressive accuracy of every upload over time."""
    figure, axes = _over_time(lines, clients, "accuracy")
    axes.set(ylabel="share of an upload's rows", ylim=(0, 1.02))
    axes.set(title="Classes predicted: each row before it was learned from")
    return figure


def _over_time(lines: Sequence[Line], clients: Sequence[str], what: str) -> tuple[Figure, Axes]:
    figure, axes = one_panel()
    for name, colour in zip(clients, _colours(len(clients)), strict=True):
        at, values = _of(lines, name, "seconds"), _of(lines, name, what)
        axes.plot(at, values, "o-", ms=3, lw=0.8, color=colour, label=name)
    _few_names(axes, clients)
    axes.set(xlabel="seconds since the run began")
    return figure, axes


@styled
def delay_plot(lines: Sequence[Line], clients: Sequence[str]) -> Figure:
    """How many rounds went by from a model to the upload that was made with it."""
    figure, axes = one_panel()
    lags = [_of(lines, name, "lag") for name in clients]
    longest = max((max(own, default=0) for own in lags), default=0)
    bins = np.arange(0, np.ceil(longest) + 1.5, 0.5).tolist()
    axes.hist(lags, bins=bins, stacked=True, color=_colours(len(clients)), label=list(clients))
    _few_names(axes, clients)
    title = "Measured delays: a round is an upload from everyone"
    axes.set(xlabel="round trip (rounds)", ylabel="uploads", title=title)
    return figure


@styled
def bytes_plot(members: Mapping[str, Facts]) -> Figure:
    """What every client sent and was sent."""
    figure, axes = one_panel()
    at = np.arange(len(members))
    for offset, side, alpha in ((-0.2, "up", 0.9), (0.2, "down", 0.5)):
        sent = [member[f"bytes_{side}"] / 1e6 for member in members.values()]
        axes.bar(at + offset, sent, 0.38, color="#2563eb", alpha=alpha, label=side)
    axes.set_xticks(at, list(members) if len(members) <= 12 else [""] * len(members))
    axes.legend()
    axes.set(ylabel="megabytes", title="Sent to the server (up) and to each client (down)")
    return figure


@styled
def arrivals_plot(lines: Sequence[Line], clients: Sequence[str]) -> Figure:
    """When each client's uploads came."""
    figure, axes = one_panel()
    for k, (name, colour) in enumerate(zip(clients, _colours(len(clients)), strict=True)):
        at = _of(lines, name, "seconds")
        axes.plot(at, [k] * len(at), "|", ms=14, color=colour)
    axes.set_yticks(range(len(clients)), clients if len(clients) <= 12 else [""] * len(clients))
    axes.set_ylim(-0.6, len(clients) - 0.4)
    title = "When uploads came: nobody is waited for"
    axes.set(xlabel="seconds since the run began", title=title)
    return figure


def _of(lines: Sequence[Line], client: str, what: str) -> list[float]:
    return [line[what] for line in lines if line["client"] == client]


def _few_names(axes: Axes, clients: Sequence[str]) -> None:
    if 1 <= len(clients) <= 12:
        axes.legend()


def _colours(count: int) -> list[Any]:
    return [mpl.colormaps["viridis"](k) for k in np.linspace(0.0, 0.85, max(1, count))][:count]

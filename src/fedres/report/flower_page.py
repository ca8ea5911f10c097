"""The report of a run on Flower."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.filesize import decimal

from fedres.report.page import render
from fedres.report.plots import one_panel, styled, to_svg

Facts = Mapping[str, Any]
Line = Mapping[str, Any]


def write_run(facts: Facts, lines: Sequence[Line], settings: Facts, path: Path) -> None:
    """Write a run as a page.

    Parameters
    ----------
    facts
        What the server knew at the end.
    lines
        An upload that was applied each, in that order.
    settings
        What the run agreed on.
    path
        Where to.
    """
    members = dict(sorted(facts["members"].items()))
    clients = [
        {
            "name": name,
            "uploads": f"{member['applied']:,}",
            "rows": f"{member['rows']:,}",
            "loss": f"{member['loss']:.4f}",
            "late": f"{_late(lines, name):.1f}",
            "repeated": member["repeated"],
            "held_back": member["held_back"],
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
        for reason, count in member["refused"].items()
    ] + [("unknown", reason, count) for reason, count in facts["strangers"].items()]
    plots = [
        loss_plot(lines, list(members)),
        delay_plot(lines, list(members)),
        bytes_plot(members),
        arrivals_plot(lines, list(members)),
    ]
    page = render(
        "flower.html",
        facts=facts,
        rows=sum(line["rows"] for line in lines),
        up=decimal(sum(member["bytes_up"] for member in members.values())),
        down=decimal(sum(member["bytes_down"] for member in members.values())),
        clients=clients,
        refused=refused,
        settings=settings,
        figures=[Markup(to_svg(plot)) for plot in plots],
    )
    path.write_text(page, encoding="utf-8")


@styled
def loss_plot(lines: Sequence[Line], clients: Sequence[str]) -> Figure:
    """Progressive loss of every upload over time."""
    figure, axes = one_panel()
    for name, colour in zip(clients, _colours(len(clients)), strict=True):
        own = [line for line in lines if line["client"] == name]
        at = [line["seconds"] for line in own]
        axes.plot(at, [line["loss"] for line in own], "o-", ms=3, lw=0.8, color=colour, label=name)
    _few_names(axes, clients)
    axes.set_xlabel("seconds since the run began")
    axes.set_ylabel("mean loss of an upload's rows")
    axes.set_title("Progressive loss: each row before it was learned from")
    return figure


@styled
def delay_plot(lines: Sequence[Line], clients: Sequence[str]) -> Figure:
    """How many rounds went by from a model to the upload that was made with it."""
    figure, axes = one_panel()
    lags = [[line["lag"] for line in lines if line["client"] == name] for name in clients]
    longest = max((max(own, default=0) for own in lags), default=0)
    bins = np.arange(0, np.ceil(longest) + 1.5, 0.5).tolist()
    axes.hist(lags, bins=bins, stacked=True, color=_colours(len(clients)), label=list(clients))
    _few_names(axes, clients)
    axes.set_xlabel("round trip (rounds)")
    axes.set_ylabel("uploads")
    axes.set_title("Measured delays: a round is an upload from everyone")
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
    axes.set_ylabel("megabytes")
    axes.set_title("Sent to the server (up) and to each client (down)")
    return figure


@styled
def arrivals_plot(lines: Sequence[Line], clients: Sequence[str]) -> Figure:
    """When each client's uploads came."""
    figure, axes = one_panel()
    for k, (name, colour) in enumerate(zip(clients, _colours(len(clients)), strict=True)):
        at = [line["seconds"] for line in lines if line["client"] == name]
        axes.plot(at, [k] * len(at), "|", ms=14, color=colour)
    axes.set_yticks(range(len(clients)), clients if len(clients) <= 12 else [""] * len(clients))
    axes.set_ylim(-0.6, len(clients) - 0.4)
    axes.set_xlabel("seconds since the run began")
    axes.set_title("When uploads came: nobody is waited for")
    return figure


def _late(lines: Sequence[Line], client: str) -> float:
    own = [line["lag"] for line in lines if line["client"] == client]
    return float(np.mean(own)) if own else 0.0


def _few_names(axes: Axes, clients: Sequence[str]) -> None:
    if 1 <= len(clients) <= 12:
        axes.legend()


def _colours(count: int) -> list[Any]:
    return [mpl.colormaps["viridis"](k) for k in np.linspace(0.0, 0.85, max(1, count))][:count]

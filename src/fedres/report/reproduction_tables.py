"""The tables of a reproduction, also as Markdown for pages that quote them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fedres.paper.protocol import BASELINES, SCHEMES, forms
from fedres.paper.readings import VW_DEFAULT_ETA, Reading
from fedres.paper.reproduction import Reproduction
from fedres.report.claim_figures import reading_differences
from fedres.report.comparison_table import claim_rows
from fedres.simulation.intervals import Interval, interval


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as Markdown.

    Examples
    --------
    >>> print(markdown(["set", "rows"], [("letter", 15_000)]))
    | set | rows |
    | --- | --- |
    | letter | 15000 |
    """
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def markdown_tables(result: Reproduction) -> dict[str, str]:
    """By name, the tables of what was run."""
    tables = {}
    if rows := list(summary(result)):
        schemes = schemes_of(result)
        tables["summary"] = markdown(
            ["data set", "P", *(SCHEMES[scheme].label for scheme in schemes)],
            [
                (
                    result.title_of(row["data"]),
                    row["clients"],
                    *(_bold(row["cells"].get(one, ""), one == row["best"]) for one in schemes),
                )
                for row in rows
            ],
        )
    if claims := claim_rows(result):
        tables["claims"] = markdown(["section", "claim", *result.claims], claims)
    if "readings" in result.figures:
        shared, gains, lost = (cells for cells, _ in reading_differences(result).values())

        def by_reading(cell: Callable[[tuple[str, str]], str]) -> str:
            rows = [
                (one.name, *(cell((one.name, name)) for name in result.data))
                for one in result.readings
            ]
            return markdown(["reading", *map(result.title_of, result.data)], rows)

        tables["readings"] = markdown(
            ["reading", "labels", "clipped", "step", "features", "late"],
            map(_reading, result.readings),
        )
        tables["gains"] = by_reading(
            lambda at: f"{_points(shared[at])} / {_points(gains[at])}" if at in shared else ""
        )
        tables["lost"] = by_reading(lambda at: _points(lost[at]) if at in lost else "")
    return tables


def schemes_of(result: Reproduction) -> tuple[str, ...]:
    """The schemes that are compared everywhere."""
    return (*BASELINES, *forms(result.reading))


def summary(result: Reproduction) -> Iterator[dict[str, Any]]:
    """Accuracy without delay at the most clients, a row a data set."""
    for name in result.data if result.claims else ():
        table = result.table
        mine = table[(table.data == name) & (table.delay == 0) & (table.residual_bits == 32)]
        mine = mine[mine.figure.isin(["overall", "delay", "clients"])]
        mine = mine[mine.clients == result.many[name]].drop_duplicates(["scheme", "seed"])
        cells: dict[str, Interval] = {
            str(scheme): interval(part.accuracy) for scheme, part in mine.groupby("scheme")
        }
        if cells:
            best = max(cells, key=lambda scheme: cells[scheme].mean)
            yield {"data": name, "clients": result.many[name], "cells": cells, "best": best}


def _reading(reading: Reading) -> tuple[str, ...]:
    step = f"{reading.step:g} for all" if reading.step != "tuned" else "tuned for each scheme"
    features = reading.scale.removeprefix("given,").replace("given", "as given")
    return (
        f"`{reading.name}`",
        reading.labels,
        "yes" if reading.clip else "no",
        step + (", VW's default" if reading.step == VW_DEFAULT_ETA else ""),
        features.replace("=", " ").replace(",", ", "),
        reading.late.replace("arrival", "messages"),
    )


def _points(difference: Interval) -> str:
    return f"{difference.times(100):+.1f}"


def _bold(cell: object, bold: bool) -> str:
    return f"**{cell}**" if bold else str(cell)

"""A bandit study as a page, and as a table in the terminal; and what a log says of policies."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fedres.bandits.by_name import PERMUTED
from fedres.bandits.estimates import FEW_CLIENTS, Evaluation
from fedres.bandits.study import ETAS, LOCAL_ETAS, TUNING_SEEDS, Study
from fedres.report.bandit_figures import bandit_figures
from fedres.report.names import NAMES
from fedres.report.page import write_page
from fedres.report.terminal_table import terminal_table
from fedres.simulation.intervals import interval
from fedres.simulation.settings import Method

COLUMNS = ("policy", "method", "reward", "FedRes gains", "regret")


def write_study(result: Study, path: Path, again: str | None = None) -> None:
    """Write a study as a page that opens offline; `again` are the options that name its data."""
    write_page(
        path,
        "bandit.html",
        bandit_figures(result).values(),
        result=result,
        again=again or f"--data {result.data}",
        columns=[*COLUMNS, *(["regret falls as T^"] if result.realizable else [])],
        rows=_rows(result),
        grid={"etas": ETAS, "local": LOCAL_ETAS, "seeds": TUNING_SEEDS},
        permuted=PERMUTED,
    )


def print_study(result: Study) -> None:
    """Print what every policy earned with every method, and the verdict."""
    title = (
        f"{result.data}: {result.clients} clients, {result.rounds} rounds, round-trip delay "
        f"{result.delay}, reward delay {result.reward_delay}, {result.seeds} seeds"
    )
    console = Console(highlight=False)
    console.print(_table(title, COLUMNS, _rows(result)))
    console.print(result.verdict())
    if result.realizable:
        fit = result.exponent(result.best_policy(), "fedres")
        if not np.isnan(fit.mean):
            fall = f"Its average regret falls as T^({fit:.2f}) at the end."
            console.print(fall)
    console.print(
        "Averages of all decisions, with 95% intervals over seeds; gains of FedRes are paired by "
        f"seed. Regret is against the best {'offered' if result.offers else 'pair of models'}.",
        style="dim",
    )


def print_evaluations(log: Path, found: dict[tuple[str, Method], Evaluation]) -> None:
    """Print what a log says policies would have earned."""
    first = next(iter(found.values()))
    rows = [
        [
            policy,
            NAMES[method],
            *(
                "refused" if result.refusal else str(one)
                for one in (result.ips, result.snips, result.dr)
            ),
            f"{result.effective:,.0f}",
        ]
        for (policy, method), result in found.items()
    ]
    console = Console(highlight=False)
    columns = ("policy", "method", "IPS", "SNIPS", "doubly robust", "worth")
    console.print(_table("What each policy would have earned, estimated", columns, rows))
    unknown = f" ({first.left_out:,} more have no known reward)" if first.left_out else ""
    console.print(
        f"In {log} its own policy earned {first.logged} in {first.events:,} decisions{unknown}.",
    )
    for (policy, method), result in found.items():
        if result.refusal:
            console.print(f"No estimate for {policy}, {NAMES[method]}: {result.refusal}.")
    about = f"clients like these {first.clients}" if first.clients >= FEW_CLIENTS else "its clients"
    console.print(
        f"95% intervals about {about}. Policies learn while the log is replayed. Worth: how many "
        "decisions of its own the log is worth to a policy.",
        style="dim",
    )


def _rows(result: Study) -> list[list[str]]:
    rows = []
    for (policy, method), outcome in result.outcomes.items():
        gain = result.gain_over(policy, method)
        row = [
            policy,
            NAMES[method],
            str(interval(outcome.reward)),
            "" if method == "fedres" else f"{gain:+.3f}",
            str(interval(outcome.regret)),
        ]
        if result.realizable:
            fit = result.exponent(policy, method)
            row.append("" if np.isnan(fit.mean) else f"{fit:.2f}")
        rows.append(row)
    return rows


def _table(title: str, columns: Sequence[str], rows: list[list[str]]) -> Table:
    """The first columns of rows; a policy is named only where it begins."""
    named = [row[0] if before[0] != row[0] else "" for before, row in pairwise([[""], *rows])]
    shown = [[name, *row[1 : len(columns)]] for name, row in zip(named, rows, strict=True)]
    return terminal_table(columns, shown, ("policy", "method"), title=title, close=True)

"""Results as a table in the terminal."""

from rich.console import Console
from rich.filesize import decimal

from fedres.paper.reproduction import Reproduction
from fedres.report.names import NAMES
from fedres.report.terminal_table import terminal_table
from fedres.simulation.comparison import SimulatedComparison


def print_comparison(result: SimulatedComparison) -> None:
    """Print a comparison and its verdict."""
    table = terminal_table(
        ("method", "accuracy", "loss", "hurt", "sent up", "sent down"),
        comparison_rows(result),
        ("method",),
        title=f"{result.data}: {result.clients} clients, {result.rounds} rounds, round-trip delay "
        f"{result.delay}, {result.seeds} seeds",
    )
    console = Console(highlight=False)
    console.print(table)
    console.print(result.verdict())
    console.print(result.hurt())
    console.print(
        "Test accuracy and progressive loss with 95% intervals over seeds; clients hurt: over "
        "2% more loss than alone; bytes of one run.",
        style="dim",
    )


def comparison_rows(result: SimulatedComparison) -> list[list[str]]:
    """What each method reached, and what it cost."""
    return [
        [
            NAMES[method],
            str(result.score(method, "accuracy")),
            str(result.score(method, "loss")),
            "" if method == "independent" else f"{result.worse_off(method):.1%}",
            decimal(outcome.bytes_up),
            decimal(outcome.bytes_down),
        ]
        for method, outcome in result.outcomes.items()
    ]


def print_claims(result: Reproduction) -> None:
    """Print the verdict on every claim, for each form of FedRes."""
    rows = claim_rows(result)
    console = Console(highlight=False)
    if rows:
        columns = ("section", "claim", *result.claims)
        coloured = [(*row[:2], *map(_coloured, row[2:])) for row in rows]
        table = terminal_table(columns, coloured, columns, title="Claims of the paper")
        table.columns[1].no_wrap = False
        console.print(table)
    if result.data:
        console.print(f"{result.cost}.")


def claim_rows(result: Reproduction) -> list[tuple[str, ...]]:
    """Every claim: its section, itself, and the verdict on each form of FedRes."""
    return [
        (
            claims[0].section,
            claims[0].statement + (f" ({claims[0].sets})" if claims[0].sets else ""),
            *(claim.verdict for claim in claims),
        )
        for claims in zip(*result.claims.values(), strict=True)
    ]


def _coloured(verdict: str) -> str:
    colour = {"holds": "green", "does not hold": "red", "undecided": "yellow"}.get(verdict, "dim")
    return f"[{colour}]{verdict}[/{colour}]"

"""Results as a table in the terminal."""

from rich.console import Console

from fedres.paper.reproduction import Reproduction
from fedres.report.terminal_table import terminal_table
from fedres.simulation.comparison import SimulatedComparison


def print_comparison(result: SimulatedComparison) -> None:
    """Print a comparison and its verdict."""
    heads, rows, _ = result.table()
    table = terminal_table(heads, rows, ("method",), title=result.title())
    console = Console(highlight=False)
    console.print(table)
    console.print(result.verdict())
    console.print(result.hurt())
    console.print(
        "Test accuracy and progressive loss with 95% intervals over seeds; clients hurt: over "
        "2% more loss than alone; bytes of one run.",
        style="dim",
    )


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

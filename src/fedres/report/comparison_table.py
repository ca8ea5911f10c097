"""Results as a table in the terminal."""

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from fedres.paper.reproduce import Reproduction
from fedres.report.names import NAMES
from fedres.simulation.comparison import SimulatedComparison
from fedres.simulation.intervals import interval


def print_comparison(result: SimulatedComparison) -> None:
    """Print a comparison and its verdict."""
    table = Table(
        title=f"{result.data}: {result.clients} clients, {result.rounds} rounds, round-trip delay "
        f"{result.delay}, {result.seeds} seeds",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("method")
    for column in ("accuracy", "loss", "sent up", "sent down", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for method, outcome in result.outcomes.items():
        table.add_row(
            NAMES[method],
            str(interval(outcome.accuracy)),
            str(interval(outcome.loss)),
            decimal(outcome.bytes_up),
            decimal(outcome.bytes_down),
            f"{outcome.seconds:.3f}",
        )
    console = Console()
    console.print(table)
    console.print(result.verdict(), highlight=False)
    console.print(
        "Test accuracy and progressive loss with 95% intervals over seeds; bytes of one run, "
        "seconds of all.",
        style="dim",
        highlight=False,
    )


def print_claims(result: Reproduction) -> None:
    """Print the verdict on every claim, for both forms of FedRes."""
    table = Table(title="Claims of the paper", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("section", no_wrap=True)
    table.add_column("claim")
    for form in result.claims:
        table.add_column(form, no_wrap=True)
    for claims in zip(*result.claims.values(), strict=True):
        table.add_row(
            claims[0].section, claims[0].statement, *(_coloured(claim.verdict) for claim in claims)
        )
    console = Console()
    if table.row_count:
        console.print(table)
    if result.data:
        console.print(f"{result.cost}.", highlight=False)


def _coloured(verdict: str) -> str:
    colour = {"holds": "green", "does not hold": "red"}.get(verdict, "yellow")
    return f"[{colour}]{verdict}[/{colour}]"

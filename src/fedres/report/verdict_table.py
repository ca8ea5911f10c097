"""A verdict as a table in the terminal."""

from rich.console import Console

from fedres.report.terminal_table import terminal_table
from fedres.tables.table_comparison import TableComparison

NOTE = (
    '± is a 95% interval over clients. "FedRes gains": how much smaller the error of FedRes is on '
    'the same rows. "Clients better" and "worse": the share of clients whose error is smaller or '
    "larger with FedRes; in brackets, those whose own 95% interval confirms the harm."
)


def print_verdict(verdict: TableComparison, data: str) -> None:
    """Print what each method reaches on held-out rows, and the verdict."""
    heads, rows, _ = verdict.table()
    columns = [column.replace(" ", "\n") for column in heads]
    # A terminal has no room for both intervals.
    short = [[*row[:2], row[2].split(" ")[0], *row[3:]] for row in rows]
    console = Console(highlight=False)
    console.print(f"{data}: {verdict.protocol()}", markup=False)
    console.print(terminal_table(columns, short, ("method",), close=True))
    console.print(verdict.verdict())
    console.print(NOTE, style="dim")

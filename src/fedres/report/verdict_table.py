"""A verdict as a table in the terminal."""

from rich.console import Console

from fedres.report.terminal_table import terminal_table
from fedres.tables.table_comparison import METHODS, ComparedMethod, TableComparison
from fedres.tables.verdict_words import LABELS, WORDS, part, shown

NOTE = (
    "± is a 95% interval over clients. FedRes gains what its error is smaller by on the same rows, "
    "and such a share of clients is better or worse off by it; in brackets, those clearly worse "
    "off: their own held-out rows tell by a 95% interval."
)


def print_verdict(verdict: TableComparison, data: str) -> None:
    """Print what each method reaches on held-out rows, and the verdict."""
    columns = [column.replace(" ", "\n") for column in heads(verdict)]
    # A terminal has no room for both intervals.
    short = [[*row[:2], row[2].split(" ")[0], *row[3:]] for row in rows(verdict)]
    console = Console(highlight=False)
    console.print(f"{data}: {protocol(verdict)}", markup=False)
    console.print(terminal_table(columns, short, ("method",), close=True))
    console.print(verdict.verdict())
    console.print(NOTE, style="dim")


def protocol(verdict: TableComparison) -> str:
    """What was trained on and what was held out, in words."""
    which = "the last" if verdict.by_time else "random ones"
    new = verdict.new
    also = "" if new is None else f", and {len(new.client):,} of {len(new.rows_of):,} new clients"
    return (
        f"trained on {verdict.training_rows:,} rows, judged on {len(verdict.client):,} held out "
        f"({which} of each client), of {len(verdict.rows_of):,} clients{also}"
    )


def heads(verdict: TableComparison) -> list[str]:
    """The columns of the table."""
    first, second = (WORDS[metric] for metric in verdict.metrics)
    return ["method", first, second, "FedRes gains", "clients better", "clients worse"]


def rows(verdict: TableComparison) -> list[list[str]]:
    """The table: a row a method."""
    return [_row(verdict, method) for method in METHODS]


def _row(verdict: TableComparison, method: ComparedMethod) -> list[str]:
    row = [LABELS[method], *(shown(verdict.score(method, metric)) for metric in verdict.metrics)]
    if method == "fedres":
        return [*row, "", "", ""]
    counts, clients = verdict.counts(method), len(verdict.rows_of)
    worse = f"{part(counts.lose, clients)} ({part(counts.lose_clearly, clients)})"
    return [*row, shown(verdict.gain_over(method)), part(counts.gain, clients), worse]

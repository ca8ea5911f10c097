"""A verdict as a table in the terminal."""

from rich import box
from rich.console import Console
from rich.table import Table

from fedres.tables.table_comparison import METHODS, ComparedMethod, TableComparison
from fedres.tables.verdict_words import LABELS, WORDS, part, shown

NOTE = (
    "± is a 95% interval over clients. FedRes gains what its error is smaller by on the same rows, "
    "and such a share of clients is better or worse off by it; in brackets, those clearly worse "
    "off: their own held-out rows tell by a 95% interval."
)


def print_verdict(verdict: TableComparison, data: str) -> None:
    """Print what each method reaches on held-out rows, and the verdict."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("method", no_wrap=True)
    for column in heads(verdict)[1:]:
        table.add_column(column.replace(" ", "\n"), justify="right", no_wrap=True)
    for method, error, other, *gain in rows(verdict):
        # A terminal has no room for both intervals.
        table.add_row(method, error, other.split(" ")[0], *gain)
    console = Console()
    console.print(f"{data}: {protocol(verdict)}\n", highlight=False, markup=False)
    console.print(table)
    console.print(f"\n{verdict.verdict()}", highlight=False)
    console.print(NOTE, style="dim", highlight=False)


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
    return [
        [LABELS[method], *_scores(verdict, method), *_gain(verdict, method)] for method in METHODS
    ]


def _scores(verdict: TableComparison, method: ComparedMethod) -> list[str]:
    return [shown(verdict.score(method, metric)) for metric in verdict.metrics]


def _gain(verdict: TableComparison, method: ComparedMethod) -> list[str]:
    if method == "fedres":
        return ["", "", ""]
    counts, clients = verdict.counts(method), len(verdict.rows_of)
    return [
        shown(verdict.gain_over(method)),
        part(counts.gain, clients),
        f"{part(counts.lose, clients)} ({part(counts.lose_clearly, clients)})",
    ]

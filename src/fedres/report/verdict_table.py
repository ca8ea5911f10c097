"""A verdict as a table in the terminal."""

from rich.console import Console

from fedres.report.names import NAMES
from fedres.report.terminal_table import terminal_table
from fedres.tables.table_comparison import METHODS, ComparedMethod, TableComparison
from fedres.tables.verdict_words import WORDS, shown

LABELS = {"constant": "Constant", **NAMES}
NOTE = (
    "± is a 95% interval over clients. FedRes gains what its error is smaller by on the same rows, "
    "and so many clients are better or worse off by it; in brackets, those whose own held-out rows "
    "tell by a 95% interval."
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
    which = "the last rows" if verdict.by_time else "random rows of each client"
    unseen = int((verdict.training_rows_of == 0).sum())
    also = f", {unseen:,} of them without training rows" if unseen else ""
    return (
        f"trained on {verdict.training_rows:,} rows, judged on {len(verdict.client):,} held out "
        f"({which}), of {len(verdict.rows_of):,} clients{also}"
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
    counts = verdict.counts(method)
    better = f"{counts.gain:,} ({counts.gain_clearly:,})"
    worse = f"{counts.lose:,} ({counts.lose_clearly:,})"
    return [*row, shown(verdict.gain_over(method)), better, worse]

"""How columns were read, as a table in the terminal."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedres.tables.column_notes import ColumnReading

COLUMN_HEADS = ("column", "kind", "features", "seen by", "note")
SHOWN = 20


def print_columns(columns: Sequence[ColumnReading]) -> None:
    """Print how each column was read, and those with a note first if they are many."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("column", max_width=24, overflow="fold")
    table.add_column("kind", no_wrap=True)
    table.add_column("features", no_wrap=True, justify="right")
    table.add_column("seen by", no_wrap=True)
    table.add_column("note", style="yellow")
    for row in columns_in_words(columns):
        table.add_row(*map(escape, row))
    console = Console()
    console.print(table)
    console.print()


def columns_in_words(columns: Sequence[ColumnReading]) -> list[list[str]]:
    """The table: a row a column; of very many, those with a note and how many others there are."""
    noted = sorted(columns, key=lambda column: not column.note)[:SHOWN]
    first = set(columns if len(columns) <= SHOWN else noted)
    rows = [
        [column.name, column.kind, f"{column.features:,}", column.seen_by, column.note]
        for column in columns
        if column in first
    ]
    others = Counter(column.kind for column in columns if column not in first)
    if others:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in others.most_common())
        rows.append(["...", "", "", "", f"and {others.total():,} more columns: {kinds}"])
    return rows

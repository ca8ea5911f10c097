"""Tables in the terminal, all of one look."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table

from fedres.core.display import printable

WIDEST_WHOLE = 12  # characters of a name that are not split


def terminal_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Sequence[str],
    *,
    title: str | None = None,
    close: bool = False,
) -> Table:
    """A table whose columns of `words` begin at the left; its numbers end at the right.

    In a narrow terminal cells wrap: a number that is cut would be read as another one.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0) if close else (0, 1)
    rows = list(rows)
    for at, column in enumerate(columns):
        if column in words:
            longest = max((len(row[at]) for row in rows), default=0)
            table.add_column(column, no_wrap=longest <= WIDEST_WHOLE, overflow="fold")
        else:
            table.add_column(column, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    return table

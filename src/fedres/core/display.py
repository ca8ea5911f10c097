"""Results as aligned text for `repr` and as HTML for notebooks.

A result describes itself once, as paragraphs and tables, and both forms are made of that.
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from textwrap import fill
from typing import NamedTuple

WIDTH = 98  # characters of a line of text
WIDEST_CELL = 48  # characters of a cell in text; HTML has room for all
MOST_ROWS = 10
# Characters that command a terminal, or turn the direction of what follows.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Grid(NamedTuple):
    """A table of texts.

    Attributes
    ----------
    heads
        Names of the columns.
    rows
        Cells, one sequence per row.
    words
        How many columns at the left are words, aligned left; the others are numbers.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


class Displayed:
    """Base of classes that show paragraphs and tables in a terminal and in a notebook."""

    @abstractmethod
    def _display(self) -> Iterable[str | Grid]:
        """Return the paragraphs and tables that describe the object."""

    def __repr__(self) -> str:
        return as_text(self._display())

    def _repr_html_(self) -> str:
        return as_html(self._display())


def printable(text: str) -> str:
    r"""Return a text that a terminal shows and does not obey, such as a name from a file.

    Examples
    --------
    >>> print(printable("\x1b[2Jann"))
    \x1b[2Jann
    """
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def as_text(parts: Iterable[str | Grid]) -> str:
    """Return paragraphs and tables as plain text.

    Examples
    --------
    >>> print(as_text(["Two clients", Grid(["client", "rows"], [["ann", "12"], ["bob", "7"]])]))
    Two clients
    client  rows
    ann       12
    bob        7
    """
    lines: list[str] = []
    for part in parts:
        lines += map(_wrapped, part.split("\n")) if isinstance(part, str) else [_aligned(part)]
    return "\n".join(lines)


def as_html(parts: Iterable[str | Grid]) -> str:
    """Return paragraphs and tables as HTML in which every text is escaped.

    Examples
    --------
    >>> as_html(["a < b"])
    '<div><p>a &lt; b</p></div>'
    """
    shown = [
        f"<p>{escape(part)}</p>".replace("\n", "<br>") if isinstance(part, str) else _table(part)
        for part in parts
    ]
    return f"<div>{''.join(shown)}</div>"


def first_rows(rows: Sequence[Sequence[str]], most: int = MOST_ROWS) -> list[Sequence[str]]:
    """Return the first rows, and if some are left out a last row that counts them.

    Examples
    --------
    >>> first_rows([["ann", "1"], ["bob", "2"], ["cyd", "3"]], most=1)
    [['ann', '1'], ['... 2 more', '']]
    """
    if len(rows) <= most:
        return list(rows)
    rest = [f"... {len(rows) - most:,} more", *[""] * (len(rows[0]) - 1)]
    return [*rows[:most], rest]


def _wrapped(line: str) -> str:
    return fill(line, WIDTH, subsequent_indent="  ", break_long_words=False)


def _aligned(grid: Grid) -> str:
    lines = [[_short(cell) for cell in line] for line in (grid.heads, *grid.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < grid.words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _short(cell: str) -> str:
    """Return the cell on one line, cut where it is too long."""
    line = " ".join(cell.split())
    return line if len(line) <= WIDEST_CELL else line[: WIDEST_CELL - 3] + "..."


def _table(grid: Grid) -> str:
    def cells(line: Sequence[str], tag: str) -> str:
        sides = ("left" if at < grid.words else "right" for at in range(len(line)))
        return "".join(
            f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>'
            for side, cell in zip(sides, line, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in grid.rows)
    head = f"<thead><tr>{cells(grid.heads, 'th')}</tr></thead>"
    return f'<div style="overflow-x: auto"><table>{head}<tbody>{body}</tbody></table></div>'

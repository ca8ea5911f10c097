"""Which rows of a table to train on, and which to hold out."""

import numpy as np

from fedres.core.types import I64
from fedres.tables.cell_values import factorise
from fedres.tables.read_table import Table


def hold_out(table: Table, share: float = 0.2, seed: int = 0) -> tuple[I64, I64]:
    """Hold out rows of each client: the last ones where there is a time, otherwise random ones.

    Every client keeps a row to train on. Only where there is a time, clients who come last, with
    their first row in the last part of all rows, are new: all of their rows are held out.

    Parameters
    ----------
    table
        The rows, sorted by time if they have one.
    share
        The share of a client's rows to hold out; half as large is the last part of all rows.
    seed
        Decides which rows, where there is no time, and how many of small clients.

    Returns
    -------
    train, held_out
        Numbers of rows, rising.

    Examples
    --------
    >>> import pandas as pd
    >>> client = np.array([7, 7, 7, 7, 7, 8, 8, 8, 8, 8])
    >>> hold_out(Table(pd.DataFrame(index=range(10)), client=client), share=0.4, seed=0)
    (array([2, 3, 4, 5, 7, 8]), array([0, 1, 6, 9]))
    >>> hold_out(Table(pd.DataFrame(index=range(10)), client=client, time=np.arange(10.0)), 0.4)
    (array([0, 1, 2, 5, 6, 7]), array([3, 4, 8, 9]))
    """
    if not 0 < share < 1:
        raise ValueError(f"the share of rows held out must be between 0 and 1, not {share}")
    rows = len(table)
    if rows < 2:
        raise ValueError(f"{rows} rows are too few to train on some and hold out others: give more")
    client = np.zeros(rows, np.int64) if table.client is None else factorise(table.client)[0]
    counts, by_time = np.bincount(client), table.time is not None
    if counts.max() == 1:
        raise ValueError(
            f"each of the {rows:,} clients has one row, and needs one to learn from and another to "
            "be judged by: see that the column of clients is the right one"
        )
    rng = np.random.default_rng(seed)
    is_new = np.zeros(len(counts), bool)
    if by_time:
        first = np.unique(client, return_index=True)[1]
        is_new = first >= rows - int(rows * share / 2)
        is_new &= counts[~is_new].max() > 1  # there are others to judge
    # Rounded up or down by chance, so that rows of small clients are held out as well.
    held = np.floor(counts * share + rng.random(len(counts)))
    largest = np.where(is_new, 0, counts).argmax()
    held[largest] = max(1, held[largest])
    held = np.where(is_new, counts, np.minimum(held, counts - 1))
    order = -np.arange(rows) if by_time else rng.random(rows)
    in_order = np.lexsort((order, client))
    place = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    is_held = np.empty(rows, bool)
    is_held[in_order] = place < held[client[in_order]]
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)

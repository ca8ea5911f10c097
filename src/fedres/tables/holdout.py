"""Which rows of a table to train on, and which to hold out."""

import numpy as np
from numpy.typing import NDArray

from fedres.core.types import I64
from fedres.tables.cell_values import factorise
from fedres.tables.read_table import Table


def hold_out(table: Table, share: float = 0.2, seed: int = 0) -> tuple[I64, I64]:
    """Hold out rows: the last ones where there is a time, otherwise random ones of each client.

    Where chance decides, every client keeps a row to train on.

    Parameters
    ----------
    table
        The rows, sorted by time if they have one.
    share
        The share of rows to hold out.
    seed
        Decides which rows, where there is no time.

    Returns
    -------
    train, held_out
        Numbers of rows, rising.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame(index=range(6)), client=np.array([7, 7, 7, 7, 7, 8]))
    >>> hold_out(table, share=0.4, seed=0)
    (array([2, 3, 4, 5]), array([0, 1]))
    """
    if not 0 < share < 1:
        raise ValueError(f"the share of rows held out must be between 0 and 1, not {share}")
    rows = len(table)
    is_held = np.zeros(rows, bool)
    if table.time is not None:
        is_held[rows - max(1, int(rows * share)) :] = True
    elif rows:
        no_client = np.zeros(rows, np.int64)
        client = no_client if table.client is None else factorise(table.client)[0]
        is_held = _some_of_each(client, share, np.random.default_rng(seed))
    if is_held.all() or not is_held.any():
        raise ValueError(f"{rows} rows are too few to train on some and hold out others: give more")
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def _some_of_each(client: I64, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    counts = np.bincount(client)
    # Rounded up or down by chance, so that rows of small clients are held out as well.
    held = np.floor(counts * share + rng.random(len(counts)))
    held[counts.argmax()] = max(1, held[counts.argmax()])
    held = np.minimum(held, counts - 1)
    shuffled = np.lexsort((rng.random(len(client)), client))
    place = np.arange(len(client)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_held = np.empty(len(client), bool)
    is_held[shuffled] = place < held[client[shuffled]]
    return is_held

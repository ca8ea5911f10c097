"""The digits that come with scikit-learn, as tables of clients."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedres.core.views import client_rows
from fedres.simulation.split import federate

if TYPE_CHECKING:
    import pandas as pd

PIXELS = tuple(f"pixel{i}" for i in range(64))
# The two halves of the picture, like squares of a chess board.
GLOBAL = tuple(name for i, name in enumerate(PIXELS) if (i // 8 + i) % 2)
LOCAL = tuple(name for i, name in enumerate(PIXELS) if not (i // 8 + i) % 2)


class Tables(NamedTuple):
    """Rows to learn from, and rows to test on."""

    train: "pd.DataFrame"
    test: "pd.DataFrame"


def tables(clients: int) -> list[Tables]:
    """A client each: pixels, and whether the digit is one of three (1) or another one (-1).

    Examples
    --------
    >>> tables(3)[0].train.shape
    (240, 65)
    """
    import pandas as pd

    federation = federate("digits", clients=clients, seed=0, samples=120, local="all")
    found = []
    for i in range(clients):
        parts = []
        for rows in (federation.train, federation.test):
            assert rows is not None
            first, last = rows.row_start[i], rows.row_start[i + 1]
            frame = pd.DataFrame(client_rows(rows.x_local, rows.row_start, i), columns=PIXELS)
            frame["label"] = rows.y[first:last].astype(int)
            order = np.random.default_rng(i).permutation(last - first)
            parts.append(frame.iloc[order].reset_index(drop=True))
        found.append(Tables(*parts))
    return found

"""What each column adds to a prediction: as part of the shared model, and as the client's own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedres.core.types import F64, I64, Matrix
from fedres.tables.columns import Column, Tastes
from fedres.tables.csr_sides import only
from fedres.tables.online_models import OnlineModels

Parts = dict[tuple[str, str], F64]


def linear_parts(
    models: OnlineModels,
    columns: tuple[Sequence[Column], Sequence[Column | Tastes]],
    views: tuple[Matrix, Matrix],
    client: I64,
) -> Parts:
    """The parts of the scores of rows, by side and column; each side's constant comes first.

    Parameters
    ----------
    models
        Of one output.
    columns, views
        Of the global side and of the local one.
    client
        The number of each row's client, -1 for one that is not known.

    Examples
    --------
    >>> from fedres.tables.columns import Number
    >>> from fedres.tables.online_models import ModelShape
    >>> models = OnlineModels(ModelShape(1, None))
    >>> models.w_global[:] = 2, 1  # a slope and the constant
    >>> x, age = np.float32([[3.0]]), Number("age", 40.0, 0.1, missing=False)
    >>> linear_parts(models, ([age], []), (x, x[:, :0]), np.array([-1]))
    {('shared', 'constant'): array([1.]), ('shared', 'age'): array([6.])}
    """

    def score(seen: Sequence[Any], client: I64) -> F64:
        rows = models.rows(seen[0], seen[1], client, new=False)
        return np.asarray(models.predict(rows)[0], np.float64)

    nothing = [only(view, np.zeros(0, np.int64)) for view in views]
    nobody = np.full_like(client, -1)
    shared = score(nothing, nobody)
    constant = score(nothing, client)
    parts: Parts = {}
    for side, name in enumerate(("shared", "client")):
        widths = (models.settings.width_global, models.settings.width_local)
        if widths[side] is None:
            continue
        parts[name, "constant"] = constant - shared if side else shared
        first = 0
        for column in columns[side]:
            seen = list(nothing)
            seen[side] = only(views[side], np.arange(first, first + column.width))
            parts[name, column.name] = score(seen, client) - constant
            first += column.width
    return parts

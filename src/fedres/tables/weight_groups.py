"""Which weights share a variance."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedres.core.types import F32, F64, I32, I64
from fedres.tables.columns import Category, Column, Number, Tastes


class Groups(NamedTuple):
    """Which weights share a variance.

    Attributes
    ----------
    names
        Of each group: ``shared`` or ``client``, and the column.
    of_global, of_local
        The group of each feature, the constant's last; that of the global constant is -1.
    """

    names: list[tuple[str, str]]
    of_global: I64
    of_local: I64

    @classmethod
    def of(cls, shared: Sequence[Column] | None, own: Sequence[Column | Tastes] | None) -> "Groups":
        """Groups of the columns of both sides; None for a side without a model.

        Examples
        --------
        >>> age, sex = Number("age", 0.0, 1.0, False), Number("sex", 0.0, 1.0, False)
        >>> Groups.of([age, sex], [age]).names
        [('shared', 'numbers'), ('client', 'age'), ('client', 'constant')]
        """
        names: list[tuple[str, str]] = []
        sides = []
        for side, columns, alone in (
            ("shared", shared, Category),
            ("client", own, Category | Number | Tastes),
        ):
            features: list[int] = []
            together = -1
            for column in columns or ():
                if isinstance(column, alone) or together < 0:
                    names.append((side, column.name if isinstance(column, alone) else "numbers"))
                if not isinstance(column, alone) and together < 0:
                    together = len(names) - 1
                group = len(names) - 1 if isinstance(column, alone) else together
                features += [group] * column.width
            sides.append(features)
        of_global, of_local = sides
        of_global += [-1] * (shared is not None)
        if own is not None:
            names.append(("client", "constant"))
            of_local.append(len(names) - 1)
        return cls(names, np.array(of_global, np.int64), np.array(of_local, np.int64))


def group_sums(group: I64 | I32, values: F64 | F32, count: int) -> F64:
    """Sums of values by group, so many groups."""
    return np.asarray(np.bincount(group, values, count), np.float64)

"""Multiclass data sets by name."""

from dataclasses import dataclass

import numpy as np

from fedres.types import F32, I64


@dataclass(frozen=True)
class Dataset:
    """A multiclass data set.

    Attributes
    ----------
    name
        How it is called in tables and figures.
    x, y
        Rows of features and their classes.
    x_test, y_test
        Its own test rows, or None: then a third of the rows is held out when it is federated.
    """

    name: str
    x: F32
    y: I64
    x_test: F32 | None = None
    y_test: I64 | None = None


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Dataset("digits", (bunch.data / 16).astype(np.float32), bunch.target.astype(np.int64))


SETS = {"digits": _digits}


def load(name: str) -> Dataset:
    """Return the data set of that name.

    Examples
    --------
    >>> load("digits").x.shape
    (1797, 64)
    """
    if name not in SETS:
        raise ValueError(f"unknown data set {name!r}: choose one of {', '.join(SETS)}")
    return SETS[name]()

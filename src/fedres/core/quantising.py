"""Residuals in a few bits: each is sent as the number of one of 2^bits equal cells."""

from typing import Any

import numpy as np


def cell_of(residual: Any, bits: int, low: Any, high: Any) -> Any:
    """The number of the cell that a residual falls into; those outside go to the nearest."""
    cells = np.float32(1 << bits)
    cell = np.floor((residual - low) / (high - low) * cells)
    return np.minimum(np.maximum(cell, np.float32(0)), cells - np.float32(1))


def middle_of(cell: Any, bits: int, low: Any, high: Any) -> Any:
    """The value that a residual in a cell has on arrival."""
    return low + (cell + np.float32(0.5)) * ((high - low) / np.float32(1 << bits))


def quantise(residual: Any, bits: int, low: Any, high: Any) -> Any:
    """What residuals are on arrival: the middle of their cell.

    Examples
    --------
    >>> quantise(np.float32([-0.9, 0.1, 7.0]), 2, np.float32(-1), np.float32(1))
    array([-0.75,  0.25,  0.75], dtype=float32)
    """
    return middle_of(cell_of(residual, bits, low, high), bits, low, high)

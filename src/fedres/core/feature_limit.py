"""Features of a limited size: what a row can do to a model is then limited, too."""

import numpy as np

from fedres.core.types import Matrix


def clipped(x: Matrix, limit: float) -> Matrix:
    """Features brought into the range from -limit to limit.

    Examples
    --------
    >>> clipped(np.float32([[3, -0.5]]), 1.0)
    array([[ 1. , -0.5]], dtype=float32)
    """
    if isinstance(x, np.ndarray):
        return np.clip(x, np.float32(-limit), np.float32(limit))
    x = x.copy()
    np.clip(x.data, -limit, limit, out=x.data)
    return x

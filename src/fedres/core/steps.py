"""How a model moves along a gradient. The arithmetic is in `fedres.core.primitives`."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class Sgd:
    """Plain gradient descent, w <- w - eta * gradient.

    The server sums the gradients of all clients in a round and takes one step: its `eta` has to
    shrink as clients join.

    Parameters
    ----------
    eta
        Step size.

    Examples
    --------
    >>> Sgd(0.5)
    Sgd(eta=0.5)
    """

    eta: float
    adaptive: ClassVar[bool] = False
    clip: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_eta(self.eta)


@dataclass(frozen=True)
class Adaptive:
    """Vowpal Wabbit's ``--adaptive``: G_j += g_j^2, then w_j -= eta * g_j / sqrt(G_j).

    Gradients are applied one message at a time.

    Parameters
    ----------
    eta
        Step size; what VW calls ``-l``.
    clip
        Whether predictions are clipped to the range of labels seen so far (with 0), as VW does.
        Where all labels are alike, clipping hides errors, and with them what models learn from.

    Examples
    --------
    >>> Adaptive(0.1)
    Adaptive(eta=0.1, clip=True)
    """

    eta: float = 0.5
    clip: bool = True
    adaptive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_eta(self.eta)


Step = Sgd | Adaptive


def _check_eta(eta: float) -> None:
    if not 0 < eta < np.inf:
        raise ValueError(f"eta must be a positive number, not {eta}")

"""How a model moves along a gradient, and the projection on a ball."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedres.core.types import F32

# The running sums of squares begin at the smallest normal number, so that a feature that was
# always zero divides zero by something.
SMALLEST = np.finfo(np.float32).tiny


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
    >>> w, squares = np.zeros(2, np.float32), np.zeros(2, np.float32)
    >>> Sgd(0.5).move(w, squares, np.float32([1.0, -2.0]))
    >>> w
    array([-0.5,  1. ], dtype=float32)
    """

    eta: float
    adaptive: ClassVar[bool] = False
    clip: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_eta(self.eta)

    def move(self, w: F32, squares: F32, gradient: F32, weight: float = 1.0) -> None:
        """Move w in place; `squares` is not used."""
        w -= np.float32(self.eta) * np.float32(weight) * gradient


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
    >>> w, squares = np.zeros(2, np.float32), np.full(2, SMALLEST, np.float32)
    >>> Adaptive(0.5).move(w, squares, np.float32([1.0, -20.0]))
    >>> w
    array([-0.5,  0.5], dtype=float32)
    """

    eta: float = 0.5
    clip: bool = True
    adaptive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_eta(self.eta)

    def move(self, w: F32, squares: F32, gradient: F32, weight: float = 1.0) -> None:
        """Move w and the running sums of squares in place."""
        squares += np.float32(weight) * gradient**2
        w -= np.float32(self.eta) * np.float32(weight) * gradient / np.sqrt(squares)


Step = Sgd | Adaptive


def _check_eta(eta: float) -> None:
    if not 0 < eta < np.inf:
        raise ValueError(f"eta must be a positive number, not {eta}")


def project(w: F32, radius: float | None) -> None:
    """Pi_D: move w in place to the nearest point of the ball of that radius.

    Examples
    --------
    >>> w = np.float32([3.0, 4.0])
    >>> project(w, 1.0)
    >>> w
    array([0.6, 0.8], dtype=float32)
    """
    if radius is not None and (norm := np.linalg.norm(w)) > radius:
        w *= np.float32(radius / norm)

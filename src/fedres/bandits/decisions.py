"""Contexts, decisions, and the scores they are made by."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedres.core.models import linear
from fedres.core.types import F32, F64, Matrix
from fedres.core.views import as_matrix

Contexts: TypeAlias = Matrix | ArrayLike | None  # a row an action; None for no features


@dataclass(frozen=True, eq=False)
class Decision:
    """An action that a client chose.

    Attributes
    ----------
    id
        What its reward is given by: the client and a number that it never uses again, not even
        after a restart without its state.
    turn
        The client's own count of decisions, from 1.
    action
        The row of the contexts that was chosen.
    probabilities
        With which each action could have been chosen.
    explores
        Whether it is pure exploration.
    time
        When it was made, in seconds of the client's clock.
    model
        The epoch and the version of the global model it was made with.
    """

    id: str
    turn: int
    action: int
    probabilities: F64
    explores: bool
    time: float
    model: tuple[int, int]

    @property
    def probability(self) -> float:
        """With which this action was chosen."""
        return float(self.probabilities[self.action])


def as_contexts(contexts_global: Contexts, contexts_local: Contexts) -> tuple[Matrix, Matrix]:
    """Both views as matrices of finite numbers with one row an action.

    Examples
    --------
    >>> x_global, x_local = as_contexts([[1.0, 2.0], [3.0, 4.0]], None)
    >>> x_global.shape, x_local.shape
    ((2, 2), (2, 0))
    """
    views = {"contexts_global": contexts_global, "contexts_local": contexts_local}
    counts = {name: _rows(x, name) for name, x in views.items() if x is not None}
    if len(set(counts.values())) != 1:
        given = " and ".join(f"{rows} in {name}" for name, rows in counts.items()) or "none"
        raise ValueError(f"contexts need one row an action in both views, not {given}")
    (actions,) = set(counts.values())
    x_global, x_local = (_canonical(as_matrix(x, name, actions)) for name, x in views.items())
    if actions == 0 or x_global.shape[1] + x_local.shape[1] == 0:
        raise ValueError(
            f"contexts of {actions} actions with {x_global.shape[1]} global and "
            f"{x_local.shape[1]} local features: give at least one action and one feature"
        )
    return x_global, x_local


def _canonical(x: Matrix) -> Matrix:
    """Features in rising order and each once, as messages insist."""
    if isinstance(x, np.ndarray) or x.has_canonical_format:
        return x
    x = x.copy()
    x.sum_duplicates()
    return x


def joint_scores(x_global: Matrix, x_local: Matrix, w_global: F32, w_local: F32) -> F64:
    """The predicted reward of every action: the sum of both models, never clipped.

    Examples
    --------
    >>> w_global, w_local = np.float32([1.0, 0.5]), np.float32([])  # the constant's weight last
    >>> joint_scores(np.float32([[1], [2]]), np.empty((2, 0), np.float32), w_global, w_local)
    array([1.5, 2.5])
    """
    sides = (("global", x_global, w_global), ("local", x_local, w_local))
    for side, x, w in sides:
        if x.shape[1] != (known := max(len(w) - 1, 0)):
            raise ValueError(
                f"contexts_{side} has {x.shape[1]} features, the {side} model {known}: "
                "give the features that the model was made for"
            )
    with np.errstate(over="ignore", invalid="ignore"):  # the policy refuses what is not finite
        both = [linear(x, w, constant=len(w) > 0) for _, x, w in sides]
        scores: F64 = (both[0] + both[1]).astype(np.float64)
    return scores


def _rows(x: Any, name: str) -> int:
    try:
        return int(x.shape[0]) if hasattr(x, "shape") else len(x)
    except (TypeError, IndexError):
        raise ValueError(f"{name} must be a table, one row an action, not {x!r}") from None

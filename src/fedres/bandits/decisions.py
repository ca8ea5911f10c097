"""Contexts, decisions, and the bounded table of decisions that wait for their reward."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

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
        The client's own count of decisions, from 1: what its reward is given by.
    action
        The row of the contexts that was chosen.
    probabilities
        With which each action could have been chosen.
    explores
        Whether it is pure exploration.
    """

    id: int
    action: int
    probabilities: F64
    explores: bool

    @property
    def probability(self) -> float:
        """With which this action was chosen."""
        return float(self.probabilities[self.action])


class Unrewarded(NamedTuple):
    """A decision without reward: the chosen rows, and all rows if they are to be logged."""

    decision: Decision
    x_global: Matrix
    x_local: Matrix
    contexts: tuple[Matrix, Matrix] | None


class Pending:
    """The decisions of one client that wait, and which of the others were rewarded.

    One waits for its reward for `wait` further decisions, or as long as there is room: `most`
    wait, and so many expired ones are remembered. Decisions expire oldest first, so an id that
    does not wait, and is newer than the oldest expired one still remembered, is known to have
    been rewarded unless it is remembered itself.
    """

    def __init__(self, wait: int | None, most: int) -> None:
        if wait is not None and wait < 0:
            raise ValueError(f"wait must be a number of decisions from 0, or None, not {wait}")
        if most < 1:
            raise ValueError(f"most_pending must be at least 1, not {most}")
        self.made = 0
        self._wait = wait
        self._most = most
        self._waiting: OrderedDict[int, Unrewarded] = OrderedDict()
        self._expired: OrderedDict[int, None] = OrderedDict()
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiting: Unrewarded) -> Unrewarded | None:
        """Let a new decision wait; the one, if any, that thereby expires."""
        self.made = waiting.decision.id
        oldest = next(iter(self._waiting), self.made)
        late = self._wait is not None and self.made - oldest > self._wait
        over = self.expire_oldest() if late or len(self) == self._most else None
        self._waiting[self.made] = waiting
        return over

    def expire_oldest(self) -> Unrewarded:
        """End the wait of the oldest decision."""
        id_, waiting = self._waiting.popitem(last=False)
        self._expired[id_] = None
        if len(self._expired) > self._most:
            self._forgotten, _ = self._expired.popitem(last=False)
        return waiting

    def take(self, id_: Any) -> Unrewarded:
        """The decision of that id, which waits no longer; an error if it does not wait."""
        if id_ in self._waiting:
            return self._waiting.pop(id_)
        if not isinstance(id_, int | np.integer) or not 1 <= id_ <= self.made:
            why = f"was never made: this client's decisions are 1 to {self.made}"
        elif id_ in self._expired:
            why = "has expired: its reward came too late, raise `wait` or `most_pending`"
        elif id_ > self._forgotten:
            why = "was rewarded already: give each reward once"
        else:
            why = "was rewarded already or expired, too long ago to tell which"
        raise ValueError(f"decision {id_!r} {why}")


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
    x_global, x_local = (as_matrix(x, name, actions) for name, x in views.items())
    if actions == 0 or x_global.shape[1] + x_local.shape[1] == 0:
        raise ValueError(
            f"contexts of {actions} actions with {x_global.shape[1]} global and "
            f"{x_local.shape[1]} local features: give at least one action and one feature"
        )
    return x_global, x_local


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

"""Your own data as a world: clients are offered some of the actions that they have rows of."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedres.bandits.environments import Environment
from fedres.bandits.world import REPLAY, World
from fedres.core.types import F32, I64, Matrix
from fedres.core.views import as_matrix, beside, is_sparse


@dataclass(frozen=True, eq=False)
class Replay(Environment):
    """What clients thought of actions, such as ratings: a row pays what it says.

    A decision offers a client some of its own rows, drawn at random; so the reward of each is
    known. The best that can be had is the best that is offered.

    Attributes
    ----------
    x_global, x_local, x_all
        Features of the rows, sorted by client, dense or CSR.
    pays
        What each row pays.
    first
        The first row of every client, and the number of rows.
    offers
        How many rows a decision offers; fewer to clients that have fewer.

    Examples
    --------
    >>> world = Replay.from_arrays(
    ...     client=["ann", "bob", "ann", "bob", "ann"], reward=[1, 0, 0, 1, 1], x_global=np.eye(5)
    ... )
    >>> world.clients, world.pays.tolist(), world.actions(seed=0, client=1, turn=1).row.tolist()
    (2, [1.0, 0.0, 1.0, 0.0, 1.0], [3, 4])
    """

    x_global: Matrix
    x_local: Matrix
    x_all: Matrix
    pays: F32
    first: I64
    offers: int = 10

    @classmethod
    def from_arrays(
        cls,
        client: ArrayLike,
        reward: ArrayLike,
        x_global: Any,
        x_local: Any = None,
        x_all: Any = None,
        offers: int = 10,
    ) -> Self:
        """Rows in any order; those of clients with only one are left out.

        All features are divided by one number, so that rows have a norm of 1 on average.

        Parameters
        ----------
        client, reward
            Whose row it is, and what it pays.
        x_global, x_local
            Features of the global and of local models; None for those of the other.
        x_all
            Features of a client that learns alone; None for both views side by side.
        offers
            How many rows a decision offers.
        """
        names, owner, counts = np.unique(
            np.asarray(client), return_inverse=True, return_counts=True
        )
        paid = np.asarray(reward, np.float64)
        if paid.shape != owner.shape or not np.isfinite(paid).all():
            raise ValueError(f"there are {len(owner)} rows: give each a reward, a finite number")
        if offers < 2:
            raise ValueError(f"offers must be at least 2, not {offers}")
        kept = np.flatnonzero(counts[owner] > 1)
        if not len(kept):
            raise ValueError(
                f"none of the {len(names):,} clients has two rows to choose from: name another "
                "column of clients"
            )
        order = kept[np.argsort(owner[kept], kind="stable")]
        x_global = x_local if x_global is None else x_global
        x_local = x_global if x_local is None else x_local
        x_all = beside(x_global, x_local) if x_all is None else x_all
        views = [
            as_matrix(x, name, len(owner))[order]
            for x, name in ((x_global, "x_global"), (x_local, "x_local"), (x_all, "x_all"))
        ]
        norm = np.sqrt(_squares(views[2])).mean() or 1.0
        first = np.concatenate([[0], np.cumsum(counts[counts > 1])]).astype(np.int64)
        x_global, x_local, x_all = ((x / norm).astype(np.float32) for x in views)
        return cls(x_global, x_local, x_all, paid[order].astype(np.float32), first, offers)

    def some(self, clients: int, seed: int) -> Self:
        """The same with so many clients, drawn at random; all if there are no more."""
        if clients >= self.clients:
            return self
        drawn = np.sort(np.random.default_rng(seed).permutation(self.clients)[:clients])
        rows = np.concatenate([np.arange(*self.first[i : i + 2]) for i in drawn])
        first = np.concatenate([[0], np.cumsum(np.diff(self.first)[drawn])]).astype(np.int64)
        x_global, x_local, x_all = (x[rows] for x in (self.x_global, self.x_local, self.x_all))
        return type(self)(x_global, x_local, x_all, self.pays[rows], first, self.offers)

    @property
    def clients(self) -> int:
        """P."""
        return len(self.first) - 1

    @property
    def best(self) -> F32:
        """Empty: the best that is offered."""
        return np.empty((0, 0), np.float32)

    @cached_property
    def world(self) -> World:
        """The same for compiled loops."""
        none = np.empty(0, np.int32)
        nothing = none.reshape(0, 0)
        return World(
            REPLAY, self.offers, self.offers, self.pays[None], 0.0, self.first,
            nothing, nothing, none,
        )  # fmt: skip


def _squares(x: Matrix) -> Any:
    return np.asarray((x.multiply(x) if is_sparse(x) else x * x).sum(axis=1)).ravel()

"""Multiclass data as a world: name the class of a row."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np

from fedres.bandits.environments import Environment
from fedres.bandits.world import CLASSES, World
from fedres.core.best_pair import solve_arrow
from fedres.core.types import F32, I32, I64, Matrix
from fedres.core.views import as_matrix, is_sparse
from fedres.simulation.dataset import Dataset, load_data
from fedres.simulation.settings import at_least_1, choose

RIDGE = 1e-3  # of the best pair of models, beside a mean squared error


@dataclass(frozen=True, eq=False)
class Multiclass(Environment):
    """Multiclass data as a bandit: name the class of a row; 1 for the right one, else 0.

    Every class is an action, with a block of weights of its own.

    Attributes
    ----------
    x_global, x_local, x_all
        Tables of features, dense or CSR, their rows sorted by class.
    first
        The first row of every class, and the number of rows.
    seen
        (clients, c): the classes of which each client sees rows, all equally often.
    pays
        (clients, classes): the action that is right for each class; 0, 1, 2, ... but where a
        client has permuted labels.

    Examples
    --------
    >>> world = Multiclass.deal("digits", clients=3, classes=5, permute=0.3, seed=0)
    >>> world.pays[0]
    array([0, 1, 2, 3, 7, 4, 6, 5, 8, 9], dtype=int32)
    """

    x_global: Matrix
    x_local: Matrix
    x_all: Matrix
    first: I64
    seen: I32
    pays: I32

    def __post_init__(self) -> None:
        for name in ("x_global", "x_local", "x_all"):
            table = as_matrix(getattr(self, name), name, int(self.first[-1]))
            object.__setattr__(self, name, table)
        for name in ("seen", "pays"):
            classes = getattr(self, name)
            if classes.ndim != 2 or not ((classes >= 0) & (classes < len(self.first) - 1)).all():
                raise ValueError(
                    f"{name} must be a table of classes 0 to {len(self.first) - 2}, a row a client"
                )

    @classmethod
    def deal(
        cls,
        data: str | Dataset,
        clients: int,
        *,
        classes: int | None = None,
        permute: float = 0.0,
        views: Literal["same", "halves"] = "same",
        seed: int = 0,
    ) -> Self:
        """Let clients see the training rows of a data set.

        All features are divided by one number, so that rows have a norm of 1 on average: then a
        step size that does for one set does for others.

        Parameters
        ----------
        data
            A data set or the name of one.
        clients
            P.
        classes
            How many classes each client sees, drawn at random; None for all.
        permute
            The share of the labels that each client permutes among themselves.
        views
            Both models see all features (``same``), or each a random half (``halves``).
        seed
            Decides classes, permutations and halves.
        """
        dataset = load_data(data) if isinstance(data, str) else data
        labels, y = np.unique(dataset.y, return_inverse=True)
        most = len(labels)
        classes = most if classes is None else classes
        at_least_1(clients=clients)
        if not 1 <= classes <= most:
            raise ValueError(f"classes must be from 1 to {most} in {dataset.name}, not {classes}")
        if not 0 <= permute <= 1:
            raise ValueError(f"permute must be from 0 to 1, not {permute}")
        choose("views", views, ("same", "halves"))
        rng = np.random.default_rng(seed)
        order = np.argsort(y, kind="stable")
        x = as_matrix(dataset.x, f"{dataset.name}.x", len(y))[order]
        x /= np.linalg.norm(x, axis=1).mean() or 1
        seen = np.array([rng.permutation(most)[:classes] for _ in range(clients)], np.int32)
        pays = np.tile(np.arange(most, dtype=np.int32), (clients, 1))
        for row in pays:
            moved = rng.permutation(most)[: round(permute * most)]
            row[moved] = np.roll(moved, 1)
        halves = np.array_split(rng.permutation(x.shape[1]), 2)
        x_global, x_local = (x, x) if views == "same" else (x[:, np.sort(half)] for half in halves)
        first = np.searchsorted(y[order], np.arange(most + 1)).astype(np.int64)
        return cls(x_global, x_local, x, first, seen, pays)

    @property
    def clients(self) -> int:
        """P."""
        return len(self.seen)

    @cached_property
    def best(self) -> F32:
        """1 where the best pair of models names the right action, (clients, rows).

        Of every action it is the pair, with a constant, that best predicts the rewards on all
        rows that clients can draw: in squares, and but for a little ridge.
        """
        ones = np.ones((int(self.first[-1]), 1))
        dense = (x.toarray() if is_sparse(x) else x for x in (self.x_global, self.x_local))
        left, right = (np.hstack([x, ones]) for x in dense)
        width, both = left.shape[1], np.hstack([left, right])
        parts = np.split(both, self.first[1:-1])
        squares = np.stack([rows.T @ rows / len(rows) for rows in parts])
        means = np.stack([rows.mean(axis=0) for rows in parts])
        ridge = RIDGE * self.seen.shape[1]
        # Normal equations, of all actions at once.
        shared, target, blocks = ridge * np.eye(width), np.zeros((width, self.most)), []
        for seen, pays in zip(self.seen, self.pays, strict=True):
            square, paid = squares[seen].sum(axis=0), np.zeros((both.shape[1], self.most))
            paid[:, pays[seen]] = means[seen].T
            shared += square[:width, :width]
            target += paid[:width]
            own = square[width:, width:] + ridge * np.eye(right.shape[1])
            half = np.linalg.inv(np.linalg.cholesky(own))
            blocks.append((half, square[width:, :width], paid[width:]))
        w_global, *w_local = solve_arrow(shared, target, blocks, np.linalg.solve)
        named = np.repeat(self.pays, np.diff(self.first), axis=1)
        score = left @ w_global
        chosen = [(score + right @ own).argmax(axis=1) for own in w_local]
        return np.asarray(np.array(chosen) == named, np.float32)

    @cached_property
    def world(self) -> World:
        """The same for compiled loops."""
        classes = int(self.pays.shape[1])
        class_of = np.repeat(np.arange(classes, dtype=np.int32), np.diff(self.first))
        first = np.require(self.first, np.int64, ["C", "W"])
        seen, pays = (np.require(x, np.int32, ["C", "W"]) for x in (self.seen, self.pays))
        nothing = np.empty((0, 0), np.float32)
        return World(CLASSES, classes, classes, nothing, -1.0, first, seen, pays, class_of)

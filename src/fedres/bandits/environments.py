"""Worlds for bandits to act in: what each client is offered, and what it pays.

A decision offers K actions. The features of action a are a row of a table of features, placed in
one block of the weights: so, however many the decisions, only the tables are kept. All chance is
a function of (seed, client, round): every method and every policy meets the same decisions.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fedres.bandits.game import earn, new_offer
from fedres.bandits.policies import Policy
from fedres.bandits.world import CLASSES, World, offered, pay
from fedres.core.primitives import View
from fedres.core.sgd import Linear, One, new_models
from fedres.core.types import F32, I32, Matrix
from fedres.core.views import matrix_view
from fedres.simulation.settings import SGD_METHODS, Method, choose


class Actions(NamedTuple):
    """The actions of one decision: row[a] of the tables, placed in block[a] of the weights."""

    row: I32
    block: I32


class Environment(ABC):
    """What all worlds offer.

    Attributes
    ----------
    x_global, x_local, x_all
        Tables of features: of the global model, of local models, and of a client that learns
        alone, which sees both.
    """

    x_global: Matrix
    x_local: Matrix
    x_all: Matrix

    @property
    @abstractmethod
    def clients(self) -> int:
        """P."""

    @property
    def most(self) -> int:
        """The most actions that a decision can have."""
        return self.world.high

    @property
    def blocks(self) -> int:
        """Models have so many times the width of their table: one, or one a class."""
        return self.most if self.world.kind == CLASSES else 1

    @property
    @abstractmethod
    def world(self) -> World:
        """The same for compiled loops."""

    @property
    @abstractmethod
    def best(self) -> F32:
        """What the best pair of models earns, (clients, rows); empty: the best that is offered."""

    def actions(self, seed: int, client: int, turn: int) -> Actions:
        """What a client is offered in a round, counted from 1."""
        from fedres.core.compiled import compiled

        row, block = np.empty((2, self.most), np.int32)
        count = compiled(offered)(self.world, seed, client, turn - 1, row, block)
        return Actions(row[:count], block[:count])

    def reward(self, seed: int, client: int, turn: int, row: int, block: int) -> float:
        """What an action pays in a round."""
        from fedres.core.compiled import compiled

        return float(compiled(pay)(self.world, seed, client, turn - 1, row, block))

    def tables(self, method: Method) -> tuple[Matrix, Matrix]:
        """The features that the server and the clients learn on under a method."""
        choose("method", method, SGD_METHODS)
        nothing = np.empty((self.x_global.shape[0], 0), np.float32)
        if method == "independent":
            return nothing, self.x_all
        return self.x_global, nothing if method == "central" else self.x_local

    def views(self, method: Method) -> tuple[View, View]:
        """The same for compiled loops: the rows of each client are those of all."""
        everyone = np.zeros(self.clients + 1, np.int64)
        x_global, x_local = self.tables(method)
        return matrix_view(x_global, everyone), matrix_view(x_local, everyone)

    def side(
        self,
        view: View,
        models: int,
        constant: bool,
        eta: float = 0.0,
        reach: tuple[float, float] = (-np.inf, np.inf),
        versions: int = 1,
    ) -> Linear:
        """One side of the federation, its models at zero; for the rest see `new_models`."""
        width = np.full(models, self.blocks * view.width[0])
        begin = new_models(width, constant, reach, versions)
        # Steps on the mean of several samples, which need room for a sum, do not occur.
        return Linear(view, begin, np.float32(eta), np.zeros(1, np.float32))

    def contexts(self, actions: Actions, table: Matrix) -> Matrix:
        """A table's features of every action, as wide as the weights."""
        rows = table[actions.row]
        if self.blocks == 1:
            return rows
        placed = sparse.coo_array(rows)
        columns = actions.block[placed.row] * table.shape[1] + placed.col
        shape = (len(actions.row), self.blocks * table.shape[1])
        return sparse.csr_array((placed.data, (placed.row, columns)), shape=shape)

    def value(
        self,
        policy: Policy,
        w_global: F32,
        w_local: F32,
        method: Method = "fedres",
        *,
        turn: int = 1,
        decisions: int = 10_000,
        seed: int = 0,
    ) -> float:
        """The expected reward of a policy whose models stay as they are.

        Parameters
        ----------
        policy, turn
            What chooses, and which of its decisions it takes this one for.
        w_global, w_local, method
            The models as a run of that method leaves them.
        decisions, seed
            How many and which decisions of each client are averaged over.

        Examples
        --------
        >>> from fedres.bandits import Catalogue, Greedy
        >>> world = Catalogue.draw(clients=3, seed=0)
        >>> best = world.value(Greedy(), world.w_global, world.w_local)
        >>> best > world.value(Greedy(), world.w_global * 0, world.w_local * 0)
        True
        """
        from fedres.core.compiled import compiled

        views = self.views(method)
        sides = zip(("w_global", "w_local"), views, (w_global[None], w_local), strict=True)
        earned = np.zeros(self.clients)
        compiled(earn, Linear, One)(
            self.world, policy.chooser, turn, seed, decisions,
            *(self._fixed(*side) for side in sides), new_offer(self.most), earned,
        )  # fmt: skip
        return float(earned.sum()) / (self.clients * decisions)

    def _fixed(self, name: str, view: View, weights: F32) -> Linear:
        """Models that will not move, with or without a constant."""
        rows = 1 if name == "w_global" else self.clients
        width = self.blocks * int(view.width[0])
        constant = width > 0 and weights.shape == (rows, width + 1)
        if weights.shape != (rows, width + constant):
            raise ValueError(
                f"{name} has weights of shape {weights.shape}, and models need ({rows}, {width}), "
                "or one column more for the constant's"
            )
        fixed = self.side(view, rows, constant)
        fixed.models.weights.reshape(rows, -1)[:, : width + constant] = weights
        return fixed

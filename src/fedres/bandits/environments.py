"""Worlds for bandits to act in: what each client is offered, and what it pays.

A decision offers K actions. The features of action a are a row of a table of features, placed in
one block of the weights: so, however many the decisions, only the tables are kept. All chance is
a function of (seed, client, round): every method and every policy meets the same decisions.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Self

import numpy as np
from scipy import sparse

from fedres.bandits.game import earn, new_offer
from fedres.bandits.policies import Policy
from fedres.bandits.world import CATALOGUE, CLASSES, World, offered, pay
from fedres.core.best_pair import solve_arrow
from fedres.core.models import linear
from fedres.core.primitives import View
from fedres.core.sgd import Linear, One, new_models
from fedres.core.types import F32, F64, I32, I64, Matrix
from fedres.core.views import as_matrix, beside, is_sparse, matrix_view
from fedres.simulation.dataset import Dataset, load_data
from fedres.simulation.settings import SGD_METHODS, Method, at_least_1, choose

RIDGE = 1e-3  # of the best pair of models, beside a mean squared error


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
        >>> from fedres.bandits.policies import Greedy
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


@dataclass(frozen=True, eq=False)
class Catalogue(Environment):
    """Items with features; each decision offers some at random. The models can be exactly right.

    The expected reward is f = w_g . x_g + w_i . x_l, and lies in [0, 1].

    Attributes
    ----------
    x_global, x_local
        Features of the items, a row each, dense or CSR.
    w_global, w_local
        The best pair of models; `w_local` has a row a client.
    actions_low, actions_high
        How many items a decision offers: from low to high, none twice.
    noise
        ``"bernoulli"``: rewards are 1 with probability f, else 0. Or half the width of a uniform
        noise that is added to f.

    Examples
    --------
    >>> world = Catalogue.draw(clients=3, actions=(2, 5), seed=0)
    >>> world.actions(seed=7, client=0, turn=1).row
    array([29, 20, 74, 96], dtype=int32)
    """

    x_global: Matrix
    x_local: Matrix
    w_global: F32
    w_local: F32
    actions_low: int
    actions_high: int
    noise: Literal["bernoulli"] | float = "bernoulli"

    def __post_init__(self) -> None:
        for name in ("x_global", "x_local"):
            object.__setattr__(self, name, as_matrix(getattr(self, name), name, self.items))
        if not 1 <= self.actions_low <= self.actions_high <= self.items:
            raise ValueError(
                f"need 1 <= low <= high <= {self.items} items to offer, "
                f"not {self.actions_low} to {self.actions_high}"
            )
        if self.noise != "bernoulli" and not 0 <= self.noise < np.inf:
            raise ValueError(f"noise must be 'bernoulli' or a number from 0 up, not {self.noise}")
        mean = self.mean
        if not (mean.min() >= 0 and mean.max() <= 1):
            raise ValueError(
                f"expected rewards go from {mean.min():g} to {mean.max():g}: scale the weights so "
                "that they lie in [0, 1]"
            )

    @classmethod
    def draw(
        cls,
        clients: int,
        *,
        items: int = 100,
        actions: int | tuple[int, int] = 10,
        width_global: int = 10,
        width_local: int = 10,
        difference: float = 0.5,
        noise: Literal["bernoulli"] | float = "bernoulli",
        seed: int = 0,
    ) -> Self:
        """A random catalogue.

        Every item is a mixture of kinds, two mixtures in fact: its features are shares that sum to
        1 in both views. The weight of a kind is what it would pay by itself.

        Parameters
        ----------
        clients, items
            P, and how many items there are.
        actions
            How many are offered: a number, or (fewest, most).
        width_global, width_local
            Kinds in each view.
        difference
            How much of a reward depends on the client: 0 if clients are alike, 1 for all of it.
        noise
            See the class.
        seed
            Decides features and weights.
        """
        if not 0 <= difference <= 1:
            raise ValueError(f"difference must be from 0 to 1, not {difference}")
        at_least_1(clients=clients, items=items)
        rng = np.random.default_rng(seed)
        low, high = (actions, actions) if isinstance(actions, int) else actions

        def mixtures(width: int) -> F32:
            # Few kinds an item: else all items would pay about the same.
            return rng.dirichlet(np.full(width, 1 / width), items).astype(np.float32)

        def pays(*shape: int) -> F64:
            return rng.uniform(0.05, 0.95, shape)

        return cls(
            mixtures(width_global),
            mixtures(width_local),
            ((1 - difference) * pays(width_global)).astype(np.float32),
            (difference * pays(clients, width_local)).astype(np.float32),
            low,
            high,
            noise,
        )

    @property
    def items(self) -> int:
        """How many there are."""
        return int(self.x_global.shape[0])

    @property
    def clients(self) -> int:
        """P."""
        return len(self.w_local)

    @cached_property
    def x_all(self) -> Matrix:
        """Both views side by side."""
        return beside(self.x_global, self.x_local)

    @cached_property
    def mean(self) -> F32:
        """The expected reward of every item, (clients, items)."""
        # Not by BLAS, which adds in another order on another CPU.
        shared = linear(self.x_global, self.w_global, constant=False)
        own = [linear(self.x_local, w, constant=False) for w in self.w_local]
        return shared + np.array(own, np.float32)

    @property
    def best(self) -> F32:
        """Empty: the best pair knows the best that is offered."""
        return np.empty((0, 0), np.float32)

    @cached_property
    def world(self) -> World:
        """The same for compiled loops."""
        noise = -1.0 if self.noise == "bernoulli" else float(self.noise)
        none = np.empty(0, np.int32)
        classes = none.astype(np.int64), none.reshape(0, 0), none.reshape(0, 0), none
        return World(CATALOGUE, self.actions_low, self.actions_high, self.mean, noise, *classes)


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

"""A catalogue as a world, in which the models can be exactly right."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np

from fedres.bandits.environments import Environment
from fedres.bandits.world import CATALOGUE, World
from fedres.core.models import linear
from fedres.core.types import F32, F64, Matrix
from fedres.core.views import as_matrix, beside
from fedres.simulation.settings import at_least_1


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

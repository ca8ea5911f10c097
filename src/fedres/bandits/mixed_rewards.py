"""Rewards predicted by a client that mixes: its model on all it has, the shared model, FedRes.

Where some model predicts rewards right, SquareCB's regret is at most about the square root of

    actions x decisions x what predictions of chosen actions lose to that model, in squared loss

(Foster and Rakhlin, 2020). The mixture (`fedres.core.mixture`) loses no more there than its best
expert, whichever that is, and a constant: half of the squared range of rewards, times log 6. When
rewards are late, what counts is what models say when the reward comes.
"""

from typing import Any

import numpy as np

from fedres.bandits.decisions import joint_scores
from fedres.bandits.learners import Learner, new_client
from fedres.core.losses import SQUARED_NUMBER
from fedres.core.mixture import EXPERTS, mix, mix_rows, new_mixture
from fedres.core.parties import Client
from fedres.core.ridge_parties import RidgeClient
from fedres.core.state_files import Arrays
from fedres.core.types import F32, F64, Matrix
from fedres.core.views import beside

NO_WEIGHTS = np.empty(0, np.float32)


class MixedRewards:
    """A client's own model on all features, and how far it trusts each expert.

    Parameters
    ----------
    step
        How its own model learns.
    features
        Number of its features: those of both views.
    rewards
        The lowest and the highest.

    Examples
    --------
    >>> from fedres.bandits.learners import STEP
    >>> both, x = new_client(STEP, 1, 1, client=0), np.float32([[1.0]])
    >>> mixed = MixedRewards(STEP, 2, (0.0, 1.0))
    >>> for _ in range(20):
    ...     mixed.learn(both, x, x, 1.0)  # which FedRes never hears of
    >>> mixed.scores(both, x, x).round(1)
    array([1.])
    >>> mixed.trust.round(1)
    array([1., 0., 0.])
    """

    def __init__(self, step: Learner, features: int, rewards: tuple[float, float]) -> None:
        self._alone = new_client(step, 0, features, client=0)
        self._mixture = new_mixture(SQUARED_NUMBER, rewards, 1, EXPERTS)

    @property
    def trust(self) -> F64:
        """In the client's own model, the shared one alone, and FedRes."""
        return np.asarray((self._mixture.staying + self._mixture.moving)[:, 0])

    def scores(self, both: Client | RidgeClient, x_global: Matrix, x_local: Matrix) -> F64:
        """The predicted reward of every action."""
        from fedres.core.compiled import compiled  # takes a moment to load

        said = self._said(both, x_global, x_local)
        out = np.empty(said.shape[1], np.float32)
        nobody_else = np.zeros(len(out), np.int64)
        compiled(mix_rows, allocates=True)(self._mixture, nobody_else, said, out)
        return out.astype(np.float64)

    def learn(
        self, both: Client | RidgeClient, x_global: Matrix, x_local: Matrix, reward: float
    ) -> None:
        """Learn what an action has brought, before FedRes does."""
        from fedres.core.compiled import compiled

        y, out = np.array([reward], np.float32), np.empty(1, np.float32)
        said = self._said(both, x_global, x_local)
        compiled(mix, allocates=True)(self._mixture, said, y, out)
        self._alone.observe(np.empty((1, 0), np.float32), beside(x_global, x_local), y)

    def state(self) -> Arrays:
        """All that learning has changed, to be kept."""
        one = self._mixture
        trust = {"staying": one.staying, "moving": one.moving, "labels": one.labels}
        return {**self._alone.local.state(), **trust}

    def restore(self, state: Arrays) -> None:
        """Go on from a state that was kept."""
        self._alone.local.restore(state)
        for name in ("staying", "moving", "labels"):
            kept: Any = getattr(self._mixture, name)
            kept[:] = state[name]

    def _said(self, both: Client | RidgeClient, x_global: Matrix, x_local: Matrix) -> F32:
        """What every expert predicts, (experts, actions)."""
        nothing, none = x_global[:, :0], NO_WEIGHTS
        shared, own = both.global_.weights, both.local.weights
        return np.stack(
            [
                joint_scores(nothing, beside(x_global, x_local), none, self._alone.local.weights),
                joint_scores(x_global, nothing, shared, none),
                joint_scores(x_global, x_local, shared, own),
            ]
        ).astype(np.float32)

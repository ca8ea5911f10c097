"""The linear model of fedres as a local learner."""

from dataclasses import replace

import numpy as np

from fedres.core import sgd
from fedres.core.models import LinearModel, batch_of, whole
from fedres.core.primitives import view_of
from fedres.core.rule import Rule
from fedres.core.types import F32, Matrix


class LinearLearner:
    """The local model of `fedres.core.parties.Client`, to the last bit.

    Parameters
    ----------
    rule
        How it steps.
    width
        Number of local features.
    weight
        lambda_i.
    initial
        Weights to begin with, the constant's last; zeros if None.

    Examples
    --------
    >>> from fedres.core.steps import Adaptive
    >>> learner = LinearLearner(Rule(Adaptive(0.1)), width=1)
    >>> x, y, offset = np.float32([[2.0]]), np.float32([1.0]), np.float32([0.25])
    >>> for _ in range(20):
    ...     learner.learn(x, y, offset)
    >>> learner.predict(x).round(2)
    array([0.75], dtype=float32)
    """

    def __init__(
        self, rule: Rule, width: int, weight: float = 1.0, initial: F32 | None = None
    ) -> None:
        self.model = LinearModel(width, rule, rule.step_of_clients, initial)
        self.loss = rule.loss.name
        self._terms = replace(rule, alignment="arrival").terms(np.array([weight], np.float32))

    def __repr__(self) -> str:
        return f"LinearLearner(width={self.model.width})"

    def predict(self, x: Matrix) -> F32:
        """f(x; w_i) of every row, not clipped."""
        return self.model.f(x)

    def learn(self, x: Matrix, y: F32, offset: F32) -> None:
        """One step along the mean gradient of the rows."""
        flight, side = batch_of(y), self.model.on(view_of(x))
        flight.seen[:], flight.own[:] = offset, self.model.f(x)
        sgd.learn(side, self._terms, whole(flight))

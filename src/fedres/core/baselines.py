"""The two baselines of section 6.2.

    Independent   w_i <- Pi_D{ w_i - eta grad l(y, f(x; w_i)) }          on all features
    Central       w^g <- Pi_D{ w^g - eta sum_i grad l(y, f(x^g; w^g)) }  on the global features

Independent never sends anything. In Central the clients only predict with the model they were
sent, and send every sample up: they are those of `fedres.core.sgd` without local features, and its
server is the same.
"""

import numpy as np

from fedres.core.sgd import Rule
from fedres.core.types import F32, Matrix


class Independent:
    """A client on its own.

    Examples
    --------
    >>> alone = Independent(Rule(), width=1)
    >>> for _ in range(20):
    ...     alone.observe(np.float32([[2.0]]), np.float32([1.0]))
    >>> alone.predict(np.float32([[2.0]])).round(2)
    array([1.], dtype=float32)
    """

    def __init__(
        self, rule: Rule, width: int, weight: float = 1.0, initial: F32 | None = None
    ) -> None:
        self.rule = rule
        self.weight = weight
        self.model = rule.local_model(width, initial)
        self._batch: list[tuple[Matrix, F32]] = []

    def predict(self, x: Matrix) -> F32:
        """f(x; w_i), clipped to the labels seen."""
        return self.model.clip(self.model.f(x))

    def observe(self, x: Matrix, y: F32) -> None:
        """Learn from samples once the batch is full."""
        self._batch.append((x, y))
        if sum(len(y) for _, y in self._batch) >= self.rule.batch:
            self.flush()

    def flush(self) -> None:
        """Step on the samples observed since the last step: on the mean of their gradients."""
        if not self._batch:
            return
        self.model.see(np.concatenate([y for _, y in self._batch]))
        gradients = [
            np.float32(len(y)) * self.model.gradient(x, self.model.slope(self.model.f(x), y))
            for x, y in self._batch
        ]
        samples = sum(len(y) for _, y in self._batch)
        self.model.descend(np.sum(gradients, axis=0) / np.float32(samples), self.weight)
        self._batch = []

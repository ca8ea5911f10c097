"""Several classes: a model for each, one class against all others, on the same rows.

These *outputs* share features and messages and nothing else: with K classes, FedRes runs K times
over the same rows, and a message carries the K residuals of each.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedres.core.models import LinearModel
from fedres.core.rule import Rule
from fedres.core.steps import Step
from fedres.core.types import F32, Matrix


def targets_of(number: NDArray[Any], wanted: NDArray[Any]) -> F32:
    """1 for rows of the class and -1 for others: (wanted, rows), by the numbers of classes.

    Examples
    --------
    >>> targets_of(np.array([2, 0]), np.arange(3))
    array([[-1.,  1.],
           [-1., -1.],
           [ 1., -1.]], dtype=float32)
    """
    return np.where(number == wanted[:, None], np.float32(1), np.float32(-1))


class OutputModels:
    """A `LinearModel` for each output, whose weights lie one after the other in one array.

    Parameters
    ----------
    outputs
        How many.
    width, rule, step
        As of a `LinearModel`.

    Examples
    --------
    >>> models = OutputModels(2, 1, Rule(), Rule().step)
    >>> models.weights[:] = [1.0, 0.5, -1.0, 0.0]  # each with its constant
    >>> models.f(np.float32([[3.0]]))
    array([[ 3.5],
           [-3. ]], dtype=float32)
    """

    def __init__(self, outputs: int, width: int, rule: Rule, step: Step) -> None:
        self.width = width
        self.each = tuple(LinearModel(width, rule, step) for _ in range(outputs))
        first = self.each[0]
        self._used = (outputs, len(first.weights))
        weights, squares = (
            np.tile(one, (outputs, 1)) for one in (first.models.weights, first.models.squares)
        )
        for k, model in enumerate(self.each):
            model.models = model.models._replace(weights=weights[k], squares=squares[k])
        self._weights, self._squares = weights, squares

    @property
    def weights(self) -> F32:
        """Those of all outputs, one after the other; a view that can be written to."""
        return self._flat(self._weights)

    @property
    def squares(self) -> F32:
        """The running sums of squares, likewise."""
        return self._flat(self._squares)

    def _flat(self, all_: F32) -> F32:
        outputs, used = self._used
        # One model may leave its constant out; several have one, or no weights at all.
        return all_.reshape(-1)[: used if outputs == 1 else outputs * used]

    @property
    def reach(self) -> tuple[float, float]:
        """The range that predictions are clipped to, the same for all outputs."""
        return self.each[0].reach

    @reach.setter
    def reach(self, reach: tuple[float, float]) -> None:
        for model in self.each:
            model.reach = reach

    def f(self, x: Matrix) -> F32:
        """f(x; w) of every output and row, not clipped: (outputs, rows)."""
        return np.stack([model.f(x) for model in self.each])

    def clip(self, prediction: F32) -> F32:
        """Bring predictions into the range of the labels seen so far."""
        return self.each[0].clip(prediction)

"""Regressors of river as local learners."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from fedres.core.types import F32, Matrix
from fedres.learners.local_learner import entries


class RiverLearner:
    """Any regressor with river's `predict_one` and `learn_one`, row by row.

    Parameters
    ----------
    regressor
        A regressor, or a pipeline that ends in one.
    names
        What the features are called, in order; if None, by their position. As river has it, the
        zeros of CSR rows are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from river.tree import HoeffdingTreeRegressor
    >>> learner = RiverLearner(HoeffdingTreeRegressor(grace_period=20))
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (500, 2)).astype(np.float32)
    >>> learner.learn(x, y=np.sign(x[:, 1]), offset=np.zeros(500, np.float32))
    >>> np.round(learner.predict(np.float32([[0.0, -0.5], [0.0, 0.5]])), 2)
    array([-1.,  1.])
    """

    loss: ClassVar[str] = "squared"

    def __init__(self, regressor: Any, names: Sequence[str] | None = None) -> None:
        for method in ("predict_one", "learn_one"):
            if not hasattr(regressor, method):
                raise ValueError(f"{regressor!r} has no {method}: give a regressor of river")
        self.regressor = regressor
        self.names = names

    def __repr__(self) -> str:
        return f"RiverLearner({type(self.regressor).__name__})"

    def predict(self, x: Matrix) -> list[float]:
        """What the regressor says of every row."""
        return [self.regressor.predict_one(features) for features in self._features(x)]

    def learn(self, x: Matrix, y: F32, offset: F32) -> None:
        """Learn `y - offset`, row by row."""
        for features, target in zip(self._features(x), (y - offset).tolist(), strict=True):
            self.regressor.learn_one(features, target)

    def _features(self, x: Matrix) -> Iterator[dict[Any, float]]:
        names = range(x.shape[1]) if self.names is None else self.names
        if x.shape[1] != len(names):
            raise ValueError(f"rows have {x.shape[1]} features, {len(names)} names were given")
        for columns, values in entries(x):
            yield {names[j]: value for j, value in zip(columns, values, strict=True)}

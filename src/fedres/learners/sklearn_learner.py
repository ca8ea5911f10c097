"""Regressors of scikit-learn as local learners."""

from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from fedres.core.types import F32, Matrix


class SklearnLearner:
    """Any regressor with scikit-learn's `predict` and `partial_fit`.

    It predicts 0 until it has learned something. What it learned before counts.

    Parameters
    ----------
    regressor
        Say, an `SGDRegressor` or an `MLPRegressor`.

    Examples
    --------
    >>> from sklearn.linear_model import SGDRegressor
    >>> learner = SklearnLearner(SGDRegressor())
    >>> x, y, offset = np.float32([[2.0]]), np.float32([1.0]), np.float32([0.25])
    >>> learner.predict(x)
    array([0.], dtype=float32)
    >>> for _ in range(500):
    ...     learner.learn(x, y, offset)
    >>> learner.predict(x).round(2)
    array([0.75])
    """

    loss: ClassVar[str] = "squared"

    def __init__(self, regressor: Any) -> None:
        for method in ("predict", "partial_fit"):
            if not hasattr(regressor, method):
                raise ValueError(
                    f"{regressor!r} has no {method}: give a regressor of scikit-learn that learns "
                    "row by row"
                )
        self.regressor = regressor

    def __repr__(self) -> str:
        return f"SklearnLearner({type(self.regressor).__name__})"

    def predict(self, x: Matrix) -> Any:
        """What the regressor says of every row; zeros before it was fitted."""
        from sklearn.exceptions import NotFittedError

        try:
            return self.regressor.predict(_narrow(x))
        except NotFittedError:
            return np.zeros(x.shape[0], np.float32)

    def learn(self, x: Matrix, y: F32, offset: F32) -> None:
        """Fit `y - offset`, all rows at once."""
        self.regressor.partial_fit(_narrow(x), y - offset)


def _narrow(x: Matrix) -> Matrix:
    """CSR rows with 32-bit indices, the only ones that many estimators take."""
    if isinstance(x, np.ndarray):
        return x
    indices, indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)
    return sparse.csr_array((x.data, indices, indptr), shape=x.shape)

"""Regression: numbers as labels, the squared loss."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import assert_all_finite, column_or_1d

from fedres.core.types import F64
from fedres.tables.labels import NumberLabels, Running
from fedres.tables.online_estimator import OnlineEstimator


class FedResRegressor(RegressorMixin, OnlineEstimator):  # type: ignore[misc]
    """A number for each row: a model of its client's own plus one that all clients share.

    Parameters
    ----------
    client
        The column of a DataFrame, or the key of a dict, that names the client of a row. None if
        methods are told by their argument `client`, one id a row, which goes before the column.
        False if rows have no clients: then all are one's.
    local_features, global_features
        Columns that local models and the global model see; names or wildcards. By default a small
        set of the narrowest columns is local, and all are global. Every model has a constant.
    categorical_features
        Columns of numbers that are categories; texts always are.
    method
        ``fedres``; or one half of it, to compare with: ``independent`` (local models on all
        features) or ``central`` (the global model).
    solver
        ``sgd`` learns row by row, the adaptive step on both sides, and can go on learning;
        ``erm`` finds the best pair of models for all rows, for at most 2000 features a side.
    eta
        Step size of ``sgd``.
    shrinkage
        How much local models hold to zero, so that a client with three rows is left to the global
        model: for ``sgd`` what the running sums of squares of their gradients begin at, for
        ``erm`` the weight of their squared norm.
    passes
        How often ``sgd`` goes through the rows in `fit`, each time in a new order.
    random_state
        Decides which rows are held out and the order of passes.

    Attributes
    ----------
    eta_, shrinkage_, passes_
        As given, or as chosen by progressive validation where they were None.
    validation_
        What was tried, with the mean loss (of standardised labels) on rows held out.
    global_model_, local_models_
        `Weights` of the global model, and of local models by client.
    clients_
        All clients known. Others are predicted by the global model alone.
    encoder_
        What turns columns into features.

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> user, film = rng.integers(0, 20, 2000), rng.integers(0, 50, 2000)
    >>> taste, quality = rng.normal(size=20), rng.normal(size=50)
    >>> rating = taste[user] + quality[film]
    >>> X = pd.DataFrame({"film": film.astype(str)})
    >>> model = FedResRegressor().fit(X, rating, client=user)
    >>> bool(model.score(X, rating, client=user) > 0.95)
    True
    >>> bool(abs(model.local_models_[7].constant - (taste[7] - taste.mean())) < 0.1)
    True
    """

    _loss = "squared"
    _labels: NumberLabels

    def partial_fit(self, X: Any, y: Any, client: Any = None) -> Self:
        """Learn from the rows of a table once, in their order, and keep what was learned before.

        The first rows ever decide how features and labels are encoded: let them be typical.
        """
        return self._partial_fit(X, y, client, None)

    def predict(self, X: Any, client: Any = None) -> F64:
        """Predict the label of each row, within the range of the labels seen."""
        scores = self._scores(X, client)
        return self._labels.values(scores)

    def score(self, X: Any, y: Any, client: Any = None, sample_weight: Any = None) -> float:
        """R^2 of the predictions."""
        return float(r2_score(y, self.predict(X, client), sample_weight=sample_weight))

    def predict_one(self, x: Mapping[str, Any]) -> float:
        """Predict the label of one row; 0 before anything was learned."""
        if not hasattr(self, "_models"):
            return 0.0
        return float(self._labels.values(self._score_one(x))[0])

    def _check_labels(self, y: Any) -> F64:
        labels = column_or_1d(y, warn=True)
        try:
            numbers = np.asarray(labels, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must be numbers: {error}") from None
        assert_all_finite(numbers, input_name="y")
        return numbers

    def _check_label(self, y: Any) -> F64:
        try:
            value = float(y)
        except (TypeError, ValueError):
            raise ValueError(f"y must be a number, not {y!r}") from None
        if not np.isfinite(value):
            raise ValueError(f"y must be a finite number, not {value}")
        return np.array([value])

    def _learn_labels(
        self, y: F64, _classes: Any, offset: F64 | None = None, weight: F64 | None = None
    ) -> NumberLabels:
        return NumberLabels.fit(y, offset, weight)

    def _no_labels(self) -> NumberLabels:
        return NumberLabels(running=Running())

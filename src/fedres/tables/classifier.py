"""Classification: two classes or more, the logistic loss."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from fedres.core.types import F64
from fedres.tables.cell_values import is_missing, refuse_labels
from fedres.tables.estimator import finite_labels
from fedres.tables.input_rows import check_aligned
from fedres.tables.labels import ClassLabels
from fedres.tables.online_estimator import OnlineEstimator


class FedResClassifier(ClassifierMixin, OnlineEstimator):  # type: ignore[misc]
    """A class for each row: a model of its client's own plus one that all clients share.

    The models predict log odds. More than two classes are told apart by one pair of models a
    class against all others.

    Parameters and other attributes are those of `FedResRegressor`.

    Attributes
    ----------
    classes_
        All classes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, user = rng.normal(size=(900, 2)), np.repeat(["ann", "bob", "cyd"], 300)
    >>> likes = X[:, 0] + np.where(user == "bob", -3, 3) * X[:, 1] > 0
    >>> model = FedResClassifier().fit(X, likes, client=user)
    >>> bool(model.score(X, likes, client=user) > 0.95)
    True
    >>> model.predict_proba(X[:5], client=user[:5]).shape
    (5, 2)
    """

    _loss = "logistic"
    _multiclass = True  # river asks
    _labels: ClassLabels

    @property
    def classes_(self) -> NDArray[Any]:
        """All classes."""
        check_is_fitted(self)
        return self._labels.classes

    def partial_fit(self, X: Any, y: Any, client: Any = None, classes: Any = None) -> Self:
        """Learn from the rows of a table once, in their order, and keep what was learned before.

        The first rows ever decide how features are encoded: let them be typical. If they do not
        show all classes, name these by `classes`.
        """
        return self._partial_fit(X, y, client, classes)

    def decision_function(self, X: Any, client: Any = None) -> F64:
        """Log odds of the second of two classes, (rows,), or of each class, (rows, classes)."""
        scores = self._scores(X, client)
        return self._labels.log_odds(scores)

    def predict_proba(self, X: Any, client: Any = None) -> F64:
        """The probability of each class, (rows, classes)."""
        scores = self._scores(X, client)
        return self._labels.probabilities(scores)

    def predict(self, X: Any, client: Any = None) -> NDArray[Any]:
        """The most probable class of each row."""
        scores = self._scores(X, client)
        return self._labels.likeliest(scores)

    def score(self, X: Any, y: Any, client: Any = None, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted."""
        check_aligned(X=X, y=y)
        return float(accuracy_score(y, self.predict(X, client), sample_weight=sample_weight))

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[Any, float]:
        """The probability of each class for one row; none before anything was learned."""
        if not hasattr(self, "_models"):
            return {}
        probabilities = self._labels.probabilities(self._score_one(x))[0]
        return dict(zip(self.classes_.tolist(), probabilities.tolist(), strict=True))

    def predict_one(self, x: Mapping[str, Any]) -> Any:
        """The most probable class of one row; None before anything was learned."""
        if not hasattr(self, "_models"):
            return None
        return self._labels.likeliest(self._score_one(x)).tolist()[0]

    def _check_labels(self, y: Any) -> NDArray[Any]:
        labels: NDArray[Any] = column_or_1d(y, warn=True)
        refuse_labels(labels)
        finite_labels(y, labels)
        check_classification_targets(labels)
        return labels

    def _check_label(self, y: Any) -> NDArray[Any]:
        if is_missing(y):
            raise ValueError("y is missing: give every row a class")
        label = np.empty(1, object)
        label[0] = y.item() if isinstance(y, np.generic) else y
        return label

    def _learn_labels(
        self,
        y: NDArray[Any],
        classes: Any,
        _offset: F64 | None = None,
        _weight: F64 | None = None,
    ) -> ClassLabels:
        found = np.unique(y if classes is None else np.asarray(classes))
        if len(found) < 2:
            raise ValueError(
                f"there is only one class, {found.tolist()[0]!r}: give rows of another, or name "
                "all classes"
            )
        return ClassLabels(found)

    def _no_labels(self) -> ClassLabels:
        return ClassLabels(np.empty(0, object), grows=True)

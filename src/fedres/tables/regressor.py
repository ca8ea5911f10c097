"""Regression: numbers as labels, the squared loss, or counts, the Poisson loss."""

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args, overload

import numpy as np
from scipy.special import nbdtrik
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import column_or_1d

from fedres.core.types import F64
from fedres.simulation.settings import choose
from fedres.tables.cell_values import refuse_labels
from fedres.tables.encoder import EstimatorMethod, Names
from fedres.tables.estimator import finite_labels
from fedres.tables.input_rows import check_aligned
from fedres.tables.labels import CountLabels, NumberLabels, Running
from fedres.tables.online_estimator import OnlineEstimator
from fedres.tables.parameters import SharedKind, Solver

NumberLoss = Literal["squared", "poisson"]


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
        features) or ``central`` (the global model). Or ``mixture``, which learns by `partial_fit`
        and `learn_one` alone: each client mixes these three, and never loses much to the best of
        them (`fedres.core.mixture`); weights shown are FedRes's.
    loss
        ``squared``, or ``poisson`` for counts: then the models predict the logarithm of the mean.
    shared
        The model that all clients share: ``linear``; ``trees``, boosted ones of LightGBM; ``auto``
        for whichever of these has the smaller loss on rows left out; or a regressor of
        scikit-learn's kind (for classes, a classifier will do as well). All but ``linear`` need
        ``bayes``, which still fits local models, and weights
        for columns of more than 32 categories, which such a model does not see.
    solver
        ``bayes`` fits both models to all rows at once and finds how much to shrink each column's
        weights from the rows, so that a client with three rows is left to the global model;
        ``sgd`` learns row by row, the adaptive step on both sides. By default (``auto``) `fit` is
        ``bayes`` unless an option of ``sgd`` is given or local models are too wide, and what begins
        with `partial_fit` or `learn_one` is ``sgd``. After a `fit` by ``bayes`` these go on from
        what it knows, weights and their covariances, under the variances that it found.
    offset
        A column of X that holds a score already: it is added to the sum of both models, in units
        of the label (of counts: of their logarithm; of classes: log odds). Needs ``bayes``.
    latent, item
        How many tastes a client has for items, and the column that names the item of a row: its
        values are categories. To the sum of both models is added the product of the client's own
        factors, which it alone knows, and those of the item, which all share. Rows left out tell
        how strong tastes are, and whether they pay: if not, there are none. Needs ``bayes``, a
        linear shared model (which ``auto`` is then), and numbers or two classes.
    forgetting_factor
        Below 1, a client's own model forgets while `partial_fit` and `learn_one` go on from
        ``bayes``: at each row of the client it keeps this share of what is known of it, so that
        with 0.99 about the last hundred rows count.
    eta
        Step size of ``sgd``.
    shrinkage
        How much the local models of ``sgd`` hold to zero, so that a client with three rows is left
        to the global model: what the running sums of squares of their gradients begin at.
    passes
        How often ``sgd`` goes through the rows in `fit`, each time in a new order; three passes
        with smaller steps follow.
    random_state
        Decides which rows are held out and the order of passes, and where ``bayes`` samples.

    Attributes
    ----------
    solver_, shared_
        The solver that fitted, and the shared model: ``linear``, ``trees`` or the name of a class.
    latent_
        How many tastes each client has: `latent`, or 0 where they do not pay.
    variance_components_, effects_
        Tables, where ``bayes`` fitted: how much of the labels' variance is whose, and every
        client's weights with standard errors.
    eta_, shrinkage_, passes_
        As given, or as chosen by progressive validation where they were None.
    validation_
        What was tried, with the mean loss (of standardised labels) on rows held out.
    coef_, intercept_
        Weights of a linear shared model and its constant, in units of the label and the columns.
    global_model_, local_models_
        `Weights` of the global model, and of local models by client.
    n_samples_seen_
        How many rows it learned from.
    verdict_
        What `fedres.compare` or ``fedres fit`` found, if it was made by one of them.
    clients_
        All clients known. Others are predicted by the global model alone.
    encoder_
        What turns columns into features: numbers are standardised. Where it fits better, local
        models count a column from 0 and not from its mean (`from_zero`), and so do `effects_`.

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

    Trees find a shared part that is not linear.

    >>> X = rng.normal(size=(2000, 2))
    >>> y = np.sign(X[:, 0] * X[:, 1]) + taste[user]
    >>> rest, new = slice(1000), slice(1000, 2000)
    >>> for shared in ("linear", "trees"):
    ...     model = FedResRegressor(shared=shared).fit(X[rest], y[rest], client=user[rest])
    ...     print(shared, bool(model.score(X[new], y[new], client=user[new]) > 0.9))
    linear False
    trees True
    """

    _labels: NumberLabels

    def __init__(
        self,
        *,
        client: str | Literal[False] | None = None,
        local_features: Names | None = None,
        global_features: Names | None = None,
        categorical_features: Names | None = None,
        method: EstimatorMethod = "fedres",
        loss: NumberLoss = "squared",
        shared: SharedKind | Any = "linear",
        solver: Solver = "auto",
        offset: str | None = None,
        latent: int | None = None,
        item: str | None = None,
        forgetting_factor: float = 1.0,
        eta: float | None = None,
        shrinkage: float | None = None,
        passes: int | None = None,
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            client=client,
            local_features=local_features,
            global_features=global_features,
            categorical_features=categorical_features,
            method=method,
            shared=shared,
            solver=solver,
            offset=offset,
            latent=latent,
            item=item,
            forgetting_factor=forgetting_factor,
            eta=eta,
            shrinkage=shrinkage,
            passes=passes,
            random_state=random_state,
        )
        self.loss = loss

    @property
    def _loss(self) -> str:
        choose("loss", self.loss, get_args(NumberLoss))
        return self.loss

    def partial_fit(self, X: Any, y: Any, client: Any = None) -> Self:
        """Learn from the rows of a table once, in their order, and keep what was learned before.

        The first rows ever decide how features and labels are encoded: let them be typical.
        """
        return self._partial_fit(X, y, client, None)

    @overload
    def predict(self, X: Any, client: Any = None, return_std: Literal[False] = False) -> F64: ...

    @overload
    def predict(
        self, X: Any, client: Any = None, *, return_std: Literal[True]
    ) -> tuple[F64, F64]: ...

    def predict(
        self, X: Any, client: Any = None, return_std: bool = False
    ) -> F64 | tuple[F64, F64]:
        """Predict the label of each row, within the range of the labels seen.

        With `return_std` also the standard deviation of what the label may differ by: noise, and
        what is not known of the weights. Needs ``bayes``.
        """
        scores = self._scores(X, client)
        values = self._labels.values(scores)
        if not return_std:
            return values
        return values, np.sqrt(self._labels.variance(values, *self._spread(X, client)))

    def predict_interval(self, X: Any, client: Any = None, level: float = 0.9) -> F64:
        """Bounds between which each row's label lies in so many of all cases: (rows, 2).

        How errors are spread is learned from the errors of training rows, each predicted as if it
        had not been among them, and for new clients as if none of their client's had.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X, user = rng.normal(size=(2000, 1)), rng.integers(0, 50, 2000)
        >>> y = X[:, 0] + rng.normal(size=50)[user] + rng.normal(size=2000)
        >>> model = FedResRegressor().fit(X[:1000], y[:1000], client=user[:1000])
        >>> low, high = model.predict_interval(X[1000:], client=user[1000:], level=0.9).T
        >>> bool(0.87 < ((low < y[1000:]) & (y[1000:] < high)).mean() < 0.93)
        True
        """
        if not 0 < level < 1:
            raise ValueError(
                f"level must be between 0 and 1, not {level}: 0.9 holds nine labels in ten"
            )
        values, deviation = self.predict(X, client, return_std=True)
        if isinstance(self._labels, CountLabels):
            return _count_bounds(values, deviation**2, level)
        is_new = (self._known_rows(X, client, loud=False)[1] < 0).astype(int)
        return np.asarray(
            values[:, None] + deviation[:, None] * self._known.quantiles(level)[is_new]
        )

    def _spread(self, X: Any, client: Any) -> tuple[float, F64]:
        """The variance of the noise, and that of each row's score, in units of the models."""
        known = self._known
        table, numbers, _ = self._known_rows(X, client, loud=False)
        variances = known.variances_of(self._models, *self._views(table), numbers)
        return float(known.noise[0]), variances

    def score(self, X: Any, y: Any, client: Any = None, sample_weight: Any = None) -> float:
        """R^2 of the predictions."""
        check_aligned(X=X, y=y)
        return float(r2_score(y, self.predict(X, client), sample_weight=sample_weight))

    def predict_one(self, x: Mapping[str, Any]) -> float:
        """Predict the label of one row; 0 before anything was learned."""
        if not hasattr(self, "_models"):
            return 0.0
        return float(self._labels.values(self._score_one(x))[0])

    def _check_labels(self, y: Any) -> F64:
        labels = column_or_1d(y, warn=True)
        refuse_labels(labels)
        try:
            numbers = np.asarray(labels, np.float64)
        except (TypeError, ValueError) as error:
            what = str(error).replace("np.str_(", "").rstrip(")")
            raise ValueError(f"y must be numbers: {what}; FedResClassifier takes classes") from None
        finite_labels(y, numbers)
        if self._loss == "poisson" and (numbers < 0).any():
            raise ValueError(f"loss='poisson' takes counts from 0 up, not {numbers.min():g}")
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
        kind = CountLabels if self._loss == "poisson" else NumberLabels
        return kind.fit(y, offset, weight)

    def _no_labels(self) -> NumberLabels:
        return NumberLabels(running=Running())


def _count_bounds(mean: F64, variance: F64, level: float) -> F64:
    """Bounds of counts that scatter more than Poisson's: those of a negative binomial."""
    size = mean**2 / np.maximum(variance - mean, 1e-9 * mean)
    share = size / (size + mean)
    # nbdtrik is the (continuous) inverse in the count of the distribution function.
    bounds = [np.ceil(nbdtrik(side, size, share)) for side in ((1 - level) / 2, (1 + level) / 2)]
    return np.asarray(np.nan_to_num(np.stack(bounds, axis=1)))

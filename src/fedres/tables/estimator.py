"""What both estimators share: from tables and dicts to models, and back to scores."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fedres.core.types import F32, Matrix
from fedres.simulation.settings import choose
from fedres.tables.client_ids import Clients
from fedres.tables.dict_encoder import DictEncoder
from fedres.tables.encoder import Encoder
from fedres.tables.erm_solver import Problem, Ridges
from fedres.tables.labels import FARTHEST, Labels
from fedres.tables.online_models import OnlineModels, Settings, SparseRow
from fedres.tables.sgd_tuning import Encoded, Trial, or_default, train
from fedres.tables.weights import LocalModels, Weights, unpack

Names = Sequence[str] | str | None
Method = Literal["fedres", "independent", "central"]
Solver = Literal["sgd", "erm"]
Views = TypeVar("Views", bound=tuple[Matrix | SparseRow, Matrix | SparseRow])


class FedResEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """The common part of `FedResRegressor` and `FedResClassifier`."""

    _loss: ClassVar[str]
    _river: ClassVar[str]
    _labels: Labels
    _clients: Clients
    _models: OnlineModels
    encoder_: Encoder | DictEncoder
    validation_: list[dict[str, Any]]

    def __init__(
        self,
        *,
        client: str | None = None,
        local_features: Names = None,
        global_features: Names = None,
        categorical_features: Names = None,
        method: Method = "fedres",
        solver: Solver = "sgd",
        eta: float | None = None,
        shrinkage: float | None = None,
        passes: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.client = client
        self.local_features = local_features
        self.global_features = global_features
        self.categorical_features = categorical_features
        self.method = method
        self.solver = solver
        self.eta = eta
        self.shrinkage = shrinkage
        self.passes = passes
        self.random_state = random_state
        # river's metrics take river's classes only: where river is in use, let them take ours.
        if river := sys.modules.get("river.base"):
            getattr(river, self._river).register(type(self))

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn from a table, and forget what was learned before.

        Parameters
        ----------
        X
            Rows of features: a DataFrame (of numbers, texts, dates, missing values), an array or
            a sparse matrix.
        y
            The label of each row.
        groups
            The client of each row, a string or a whole number. If None, the column `client` of X
            names it; without such a column all rows are one client's.
        """
        with all_or_nothing(self):
            table, y, groups = self._begin(X, y, groups)
            self._labels = self._learn_labels(y, None)
            targets, limits = self._labels.targets(y), self._labels.limits
            client = self._clients.learn(groups, len(y))
            self._train(Encoded(*self._views(table), targets, client, limits))
        return self

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the model to a folder, from which `fedres.load` reads it."""
        from fedres.tables.stored_estimator import save

        check_is_fitted(self)
        save(self, folder)

    @property
    def clients_(self) -> list[Any]:
        """The ids of all clients known."""
        check_is_fitted(self)
        return self._clients.ids

    @property
    def global_model_(self) -> Weights:
        """The model that all clients share."""
        check_is_fitted(self)
        models, encoder = self._models, self.encoder_
        names = [] if models.settings.width_global is None else encoder.names_global
        return unpack(names, models.w_global, *self._labels.units)

    @property
    def local_models_(self) -> LocalModels:
        """Every client's own model, by client."""
        check_is_fitted(self)
        models, names = self._models, self.encoder_.names_local
        clients = Clients() if models.settings.width_local is None else self._clients
        return LocalModels(models, clients, names, self._labels.units[0])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_models")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    # What the two kinds of labels differ in.

    @abstractmethod
    def _check_labels(self, y: Any) -> Any: ...

    @abstractmethod
    def _learn_labels(self, y: Any, classes: Any) -> Labels: ...

    # Tables.

    def _begin(self, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Any]:
        """Forget everything and learn the encoder; the table, labels and clients of its rows."""
        self._check_parameters()
        table, groups = self._split(X, groups, reset=True)
        y = self._check_labels(y)
        check_consistent_length(table, y)
        encoder = Encoder.fit(
            table,
            categorical=self.categorical_features,
            local=self.local_features,
            global_=self.global_features,
        )
        if self.method == "central":
            encoder = replace(encoder, local=())
        elif self.method == "independent":
            encoder = replace(
                encoder, global_=(), local=tuple(sorted({*encoder.global_, *encoder.local}))
            )
        self.encoder_, self._clients = encoder, Clients()
        return table, y, groups

    def _partial_fit(self, X: Any, y: Any, groups: Any, classes: Any) -> Self:
        """Learn from the rows of a table once, in their order."""
        self._refuse_erm()
        if hasattr(self, "_models"):
            table, groups = self._split(X, groups, reset=False)
            y = self._check_labels(y)
            check_consistent_length(table, y)
            self._go_on(table, y, groups)
            return self
        with all_or_nothing(self):
            table, y, groups = self._begin(X, y, groups)
            self._labels = self._learn_labels(y, classes)
            self._begin_online()
            self._go_on(table, y, groups)
        return self

    def _go_on(self, table: Any, y: Any, groups: Any) -> None:
        # All that may be refused comes before anything changes.
        views, targets = self._views(table), self._labels.targets(y)
        client = self._clients.learn(groups, len(y))
        self._models.learn(self._models.rows(*views, client), targets)
        self._labels.see(y)

    def _scores(self, X: Any, groups: Any) -> F32:
        """The sums of both models for the rows of a table, (outputs, rows)."""
        check_is_fitted(self)
        table, groups = self._split(X, groups, reset=False, learn=False)
        x_global, x_local = self._views(table)
        client = self._clients.find(groups, x_global.shape[0])
        return self._models.predict(self._models.rows(x_global, x_local, client, new=False))

    def _split(self, X: Any, groups: Any, *, reset: bool, learn: bool = True) -> tuple[Any, Any]:
        """Features and clients, checked."""
        import pandas as pd

        if not reset and isinstance(self.encoder_, DictEncoder):
            raise ValueError(
                "this model began with learn_one, and learned of no table: go on with learn_one "
                "and predict_one, or fit anew"
            )
        if isinstance(X, pd.DataFrame):
            X = X.rename(columns=str)
            if self.client in X.columns:
                groups = X[self.client] if groups is None else groups
                X = X.drop(columns=self.client)
        if learn and groups is None and self.client is not None:
            raise ValueError(
                f"X has no column {self.client!r}, which names the clients: add it or give groups"
            )
        if isinstance(X, pd.DataFrame) and (reset or hasattr(self, "feature_names_in_")):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X, groups
        X = validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite="allow-nan")
        if not reset and hasattr(self, "feature_names_in_") and isinstance(X, np.ndarray):
            X = pd.DataFrame(X, columns=self.feature_names_in_)
        return X, groups

    def _views(self, table: Any) -> tuple[Matrix, Matrix]:
        assert isinstance(self.encoder_, Encoder)
        return in_range(self.encoder_.transform(table))

    # Training.

    def _train(self, data: Encoded) -> None:
        rng = check_random_state(self.random_state)
        settings = self._settings(0.0, 0.0)
        best: Trial | Ridges
        trials: Sequence[Trial] | Sequence[Ridges]
        if self.solver == "erm":
            self._models, best, trials = Problem(settings, data).train(self.shrinkage, rng)
        else:
            given = self.eta, self.shrinkage, self.passes
            self._models, best, trials = train(settings, data, *given, rng)
        self._keep(best, trials)

    def _begin_online(self) -> None:
        best = or_default(self.eta, self.shrinkage, passes=1)
        self._keep(best, [])
        settings = self._settings(best.eta, best.shrinkage)
        self._models = OnlineModels(settings, self._labels.outputs)

    def _keep(self, best: Trial | Ridges, trials: Sequence[Trial] | Sequence[Ridges]) -> None:
        chosen = best._asdict()
        self.eta_, self.passes_ = chosen.get("eta"), chosen.get("passes")
        self.shrinkage_, self.ridge_global_ = best.shrinkage, chosen.get("ridge_global")
        self.validation_ = [trial._asdict() for trial in trials]

    def _settings(self, eta: float, shrinkage: float) -> Settings:
        encoder = self.encoder_
        return Settings(
            None if self.method == "independent" else encoder.width_global,
            None if self.method == "central" else encoder.width_local,
            self._loss,
            eta,
            shrinkage,
        )

    def _check_parameters(self) -> None:
        choose("method", self.method, get_args(Method))
        choose("solver", self.solver, get_args(Solver))
        if self.eta is not None and not 0 < self.eta < np.inf:
            raise ValueError(f"eta must be a positive number or None, not {self.eta}")
        if self.shrinkage is not None and not 0 <= self.shrinkage < np.inf:
            raise ValueError(f"shrinkage must be a number from 0 up or None, not {self.shrinkage}")
        if self.passes is not None and not (self.passes >= 1 and self.passes == int(self.passes)):
            raise ValueError(f"passes must be a whole number from 1 up or None, not {self.passes}")

    def _refuse_erm(self) -> None:
        if self.solver == "erm":
            raise ValueError(
                "solver='erm' needs all rows at once: use fit, or solver='sgd' to learn row by row"
            )


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """Let the estimator be as it was before, should the block fail."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def in_range(views: Views) -> Views:
    """Refuse encoded features that are so large that learning from them would overflow."""
    for x in views:
        values = x if isinstance(x, np.ndarray) else x.data
        if values.size and (largest := np.abs(values).max()) > FARTHEST:
            raise ValueError(
                f"a feature is {largest:.0e} times its spread in the rows seen first: correct it, "
                "or fit anew"
            )
    return views

"""What estimators are told, and what of it goes together."""

from abc import ABC
from typing import Any, Literal, get_args

import numpy as np
from sklearn.base import BaseEstimator, is_classifier, is_regressor

from fedres.core.losses import LOSSES
from fedres.simulation.settings import choose
from fedres.tables.encoder import EstimatorMethod, Names
from fedres.tables.posterior import Posterior
from fedres.tables.sgd_tuning import Encoded

Solver = Literal["auto", "bayes", "sgd"]
SharedKind = Literal["linear", "trees", "auto"]


class Parameters(BaseEstimator, ABC):  # type: ignore[misc]
    """The parameters that `FedResRegressor`, which explains them, and `FedResClassifier` share."""

    _loss: Any  # the name of the loss
    _posterior: Posterior | None = None

    def __init__(
        self,
        *,
        client: str | Literal[False] | None = None,
        local_features: Names | None = None,
        global_features: Names | None = None,
        categorical_features: Names | None = None,
        method: EstimatorMethod = "fedres",
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
        self.client = client
        self.local_features = local_features
        self.global_features = global_features
        self.categorical_features = categorical_features
        self.method = method
        self.shared = shared
        self.solver = solver
        self.offset = offset
        self.latent = latent
        self.item = item
        self.forgetting_factor = forgetting_factor
        self.eta = eta
        self.shrinkage = shrinkage
        self.passes = passes
        self.random_state = random_state

    def _check_parameters(self) -> None:
        choose("method", self.method, get_args(EstimatorMethod))
        choose("solver", self.solver, get_args(Solver))
        self._check_shared()
        self._check_tastes()
        if not (self.client is None or self.client is False or isinstance(self.client, str)):
            raise ValueError(f"client must name a column or be None or False, not {self.client!r}")
        if not 0 < self.forgetting_factor <= 1:
            raise ValueError(
                f"forgetting_factor must be above 0 and at most 1, not {self.forgetting_factor}"
            )
        if self.eta is not None and not 0 < self.eta < np.inf:
            raise ValueError(f"eta must be a positive number or None, not {self.eta}")
        if self.shrinkage is not None and not 0 <= self.shrinkage < np.inf:
            raise ValueError(f"shrinkage must be a number from 0 up or None, not {self.shrinkage}")
        if self.passes is not None and not (self.passes >= 1 and self.passes == int(self.passes)):
            raise ValueError(f"passes must be a whole number from 1 up or None, not {self.passes}")

    def _check_shared(self) -> None:
        if isinstance(self.shared, str):
            choose("shared", self.shared, get_args(SharedKind))
            return
        kinds = ("predict", "predict_proba") if self._loss == "logistic" else ("predict",)
        if isinstance(self.shared, type) or not (
            hasattr(self.shared, "fit")
            and (is_regressor(self.shared) or (len(kinds) == 2 and is_classifier(self.shared)))
        ):
            raise ValueError(
                f"shared must be {', '.join(map(repr, get_args(SharedKind)))} or a regressor"
                f"{' or classifier' if len(kinds) == 2 else ''} of scikit-learn's kind, "
                f"not {self.shared!r}"
            )
        if is_classifier(self.shared) and not hasattr(self.shared, "predict_proba"):
            raise ValueError(f"shared must have predict_proba, which {self.shared!r} has not")

    def _check_tastes(self) -> None:
        if (self.latent is None) != (self.item is None):
            needs = "item='column'" if self.item is None else "latent=8"
            given = "latent" if self.item is None else "item"
            raise ValueError(
                f"{given}={getattr(self, given)!r} needs the other of both, such as {needs}: how "
                "many tastes a client has, and the column that names what they are for"
            )
        if self.latent is None:
            return
        if not (self.latent >= 1 and self.latent == int(self.latent)):
            raise ValueError(f"latent must be a whole number from 1 up or None, not {self.latent}")
        if self.shared not in ("linear", "auto"):
            raise ValueError(f"latent needs a linear shared model, not shared={self.shared!r}")
        if self.item == self.client:
            raise ValueError(f"item and client are both {self.item!r}: name another column")

    def _refuse_batch(self) -> None:
        """Refuse to learn row by row what has to be learned from all rows at once."""
        if self._posterior is not None:
            return
        if hasattr(self, "_models") and getattr(self, "solver_", None) == "bayes":
            raise ValueError(
                "this model cannot go on learning: it was fitted by solver='bayes' in shards, "
                "which keeps no covariances; fit it anew, or in shards with --solver sgd"
            )
        what = self._only_bayes(None)
        if what is None and self.solver == "bayes":
            what = "solver='bayes'"
        if what is not None:
            raise ValueError(
                f"{what} needs many rows to begin with: use fit first, or solver='sgd' to learn "
                "row by row from the start"
            )

    def _chosen_solver(self, data: Encoded | None) -> str:
        """What ``auto`` stands for: options of ``sgd`` ask for it."""
        given = [name for name in ("eta", "shrinkage", "passes") if getattr(self, name) is not None]
        chosen = self.solver
        if chosen == "auto":
            chosen = "sgd" if given else "bayes"
        if chosen != "bayes" and (what := self._only_bayes(data)):
            raise ValueError(
                f"{what} needs solver='bayes', and {given[0] + ' is for' if given else 'this is'} "
                f"solver={chosen!r}: leave it out"
            )
        return chosen

    def _only_bayes(self, data: Encoded | None) -> str | None:
        """What is asked for that only ``bayes`` can do."""
        if self.offset is not None:
            return "offset"
        if self.latent is not None:
            return "latent"
        if self.forgetting_factor != 1:
            return "forgetting_factor"
        if not (isinstance(self.shared, str) and self.shared in ("linear", "auto")):
            return f"shared={self.shared!r}"
        if data is not None and data.weight is not None:
            return "sample_weight"
        return None if self._loss in LOSSES else f"loss={self._loss!r}"

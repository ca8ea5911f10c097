"""An estimator that is trained elsewhere, on rows that it never sees: the other steps of `fit`.

Where rows do not fit into memory, `fedres.cluster` learns columns and trains models, and asks this
for what an estimator decides: which solver there is, what shape models have, which variances.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from fedres.tables.empirical_bayes import Variances
from fedres.tables.encoder import Encoder, EstimatorMethod
from fedres.tables.estimator import FedResEstimator
from fedres.tables.labels import Labels
from fedres.tables.online_models import ModelShape
from fedres.tables.sgd_tuning import DEFAULT, Encoded, Trial, or_default
from fedres.tables.weight_groups import Groups


class Prior(NamedTuple):
    """What ``bayes`` knows before it solves for weights: a variance for each group of them.

    Attributes
    ----------
    shape
        Of the models.
    groups
        Which weights share a variance.
    variances
        Of every output.
    """

    shape: ModelShape
    groups: Groups
    variances: list[Variances]


def tell_columns(
    model: FedResEstimator, encoder: Encoder, labels: Labels, names: Sequence[str]
) -> None:
    """Tell an estimator how its columns and labels are encoded."""
    model.encoder_, model._labels = encoder, labels
    model.n_features_in_, model.feature_names_in_ = len(names), np.array(names, object)


def untrained(
    model: FedResEstimator, method: EstimatorMethod, chosen: dict[str, Any]
) -> FedResEstimator:
    """A copy for one of the methods that knows the same columns, and has chosen its solver."""
    encoder = model.encoder_
    assert isinstance(encoder, Encoder)
    copy: FedResEstimator = clone(model).set_params(method=method, **chosen)
    tell_columns(copy, encoder.of_method(method), model._labels, model.feature_names_in_)
    copy.shared_, copy.latent_, copy._posterior = "linear", 0, None
    copy.solver_ = copy._chosen_solver(None)
    return copy


def find_prior(model: FedResEstimator, data: Encoded, rng: Any) -> Prior:
    """Variances from some rows, which also say where slopes of clients had better begin."""
    shape = model._settings(DEFAULT.eta, 0.0)
    _, found = model._train_linear(shape, data, rng)
    model._keep(None, [])
    return Prior(shape, model._groups, [one.variances for one in found])


def choose_step(model: FedResEstimator) -> tuple[ModelShape, Trial]:
    """The shape of models, and the steps and passes of ``sgd``."""
    best = or_default(model.eta, model.shrinkage, model.passes)
    model._keep(best, [])
    return model._settings(best.eta, best.shrinkage), best

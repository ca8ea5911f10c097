"""Estimators for tables and streams, by the conventions of scikit-learn and of river."""

from fedres.estimators.classifier import FedResClassifier
from fedres.estimators.regressor import FedResRegressor

__all__ = ["FedResClassifier", "FedResRegressor"]

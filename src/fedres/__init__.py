"""Federated Residual Learning: clients keep local models, a server keeps one global model.

Every prediction is the sum of the two, and each side learns the residual of the other
(Agarwal, Langford and Wei, 2020).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedres import bandits as bandits
    from fedres import learners as learners
    from fedres.core import theory as theory
    from fedres.core.delays import Delay as Delay
    from fedres.core.delays import Uniform as Uniform
    from fedres.core.losses import PairLoss as PairLoss
    from fedres.core.participation import Participation as Participation
    from fedres.core.steps import Adaptive as Adaptive
    from fedres.core.steps import Sgd as Sgd
    from fedres.simulation.dataset import Dataset as Dataset
    from fedres.simulation.dataset import load_data as load_data
    from fedres.simulation.engine import simulate as simulate
    from fedres.simulation.federation import Federation as Federation
    from fedres.simulation.parallel import run_all as run_all
    from fedres.simulation.run import Run as Run
    from fedres.simulation.split import federate as federate
    from fedres.simulation.sweep import sweep as sweep
    from fedres.tables.classifier import FedResClassifier as FedResClassifier
    from fedres.tables.compare_data import compare as compare
    from fedres.tables.regressor import FedResRegressor as FedResRegressor
    from fedres.tables.river_classes import register_with_river as register_with_river
    from fedres.tables.stored_estimator import load_model as load_model

__version__ = "0.1.0"

# Names are imported when first used, so that `fedres --help` need not wait for a compiler.
_HOMES = {
    "Adaptive": "core.steps",
    "Dataset": "simulation.dataset",
    "Delay": "core.delays",
    "FedResClassifier": "tables.classifier",
    "FedResRegressor": "tables.regressor",
    "Federation": "simulation.federation",
    "PairLoss": "core.losses",
    "Participation": "core.participation",
    "Run": "simulation.run",
    "Sgd": "core.steps",
    "Uniform": "core.delays",
    "compare": "tables.compare_data",
    "federate": "simulation.split",
    "load_data": "simulation.dataset",
    "load_model": "tables.stored_estimator",
    "register_with_river": "tables.river_classes",
    "run_all": "simulation.parallel",
    "simulate": "simulation.engine",
    "sweep": "simulation.sweep",
}
_SUBMODULES = {
    "bandits": "fedres.bandits",
    "learners": "fedres.learners",
    "theory": "fedres.core.theory",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(_SUBMODULES[name])
    if name in _HOMES:
        return getattr(import_module(f"fedres.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedres' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_HOMES, *_SUBMODULES, "__version__"])

"""Federated Residual Learning: clients keep local models, a server keeps one global model.

Every prediction is the sum of the two, and each side learns the residual of the other
(Agarwal, Langford and Wei, 2020).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedres import theory as theory
    from fedres.data.dataset import Dataset as Dataset
    from fedres.data.federation import Federation as Federation
    from fedres.data.split import federate as federate
    from fedres.delays import Delay as Delay
    from fedres.delays import Uniform as Uniform
    from fedres.estimators import FedResClassifier as FedResClassifier
    from fedres.estimators import FedResRegressor as FedResRegressor
    from fedres.loading import load as load
    from fedres.simulation.compare import compare as compare
    from fedres.simulation.engine import simulate as simulate
    from fedres.simulation.parallel import run_all as run_all
    from fedres.simulation.run import Run as Run
    from fedres.simulation.sweep import sweep as sweep
    from fedres.steps import Adaptive as Adaptive
    from fedres.steps import Sgd as Sgd
    from fedres.verdict import judge as judge

__version__ = "0.1.0"

# Names are imported when first used, so that `fedres --help` need not wait for a compiler.
_HOMES = {
    "Adaptive": "steps",
    "Dataset": "data.dataset",
    "Delay": "delays",
    "FedResClassifier": "estimators",
    "FedResRegressor": "estimators",
    "Federation": "data.federation",
    "Run": "simulation.run",
    "Sgd": "steps",
    "Uniform": "delays",
    "compare": "simulation.compare",
    "federate": "data.split",
    "judge": "verdict",
    "load": "loading",
    "run_all": "simulation.parallel",
    "simulate": "simulation.engine",
    "sweep": "simulation.sweep",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name == "theory":
        return import_module("fedres.theory")
    if name in _HOMES:
        return getattr(import_module(f"fedres.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedres' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]

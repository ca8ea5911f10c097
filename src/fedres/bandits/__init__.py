"""Contextual bandits: clients that choose, and learn from rewards that may come late.

Section 5 of the paper. A `BanditClient` chooses among actions by the sum of its local and the
shared global model; a `BanditServer` keeps the global one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedres.bandits.catalogue import Catalogue as Catalogue
    from fedres.bandits.client import BanditClient as BanditClient
    from fedres.bandits.decisions import Decision as Decision
    from fedres.bandits.dsjson import read_dsjson as read_dsjson
    from fedres.bandits.dsjson import write_dsjson as write_dsjson
    from fedres.bandits.estimates import Evaluation as Evaluation
    from fedres.bandits.estimates import estimate as estimate
    from fedres.bandits.logs import Event as Event
    from fedres.bandits.logs import EventLog as EventLog
    from fedres.bandits.logs import read_events as read_events
    from fedres.bandits.multiclass import Multiclass as Multiclass
    from fedres.bandits.pending import RewardError as RewardError
    from fedres.bandits.policies import EpsilonGreedy as EpsilonGreedy
    from fedres.bandits.policies import Greedy as Greedy
    from fedres.bandits.policies import LinUCB as LinUCB
    from fedres.bandits.policies import Softmax as Softmax
    from fedres.bandits.policies import SquareCB as SquareCB
    from fedres.bandits.policies import Thompson as Thompson
    from fedres.bandits.replayed_rows import Replay as Replay
    from fedres.bandits.section_5 import paper_bandit as paper_bandit
    from fedres.bandits.server import BanditServer as BanditServer
    from fedres.bandits.simulator import simulate_bandit as simulate_bandit
    from fedres.bandits.targets import ReplayLearner as ReplayLearner
    from fedres.bandits.targets import evaluate_log as evaluate_log
    from fedres.bandits.targets import joint_policy as joint_policy
    from fedres.core.ridge import Ridge as Ridge

# Names are imported when first used, as in `fedres` itself: a simulation needs a compiler.
_NAMES = {
    "catalogue": ("Catalogue",),
    "client": ("BanditClient",),
    "decisions": ("Decision",),
    "dsjson": ("read_dsjson", "write_dsjson"),
    "estimates": ("Evaluation", "estimate"),
    "logs": ("Event", "EventLog", "read_events"),
    "multiclass": ("Multiclass",),
    "pending": ("RewardError",),
    "policies": ("EpsilonGreedy", "Greedy", "LinUCB", "Softmax", "SquareCB", "Thompson"),
    "replayed_rows": ("Replay",),
    "section_5": ("paper_bandit",),
    "server": ("BanditServer",),
    "simulator": ("simulate_bandit",),
    "targets": ("ReplayLearner", "evaluate_log", "joint_policy"),
}
_HOMES = {name: f"fedres.bandits.{home}" for home, names in _NAMES.items() for name in names}
_HOMES["Ridge"] = "fedres.core.ridge"
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fedres.bandits' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

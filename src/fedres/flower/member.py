"""What the server knows of a client."""

from dataclasses import dataclass, field

from fedres.core.receipts import Received


@dataclass(slots=True)
class Member(Received):
    """A client as the server sees it."""

    node: int | None = None  # the node whose name this is
    applied: int = 0  # uploads used
    repeated: int = 0  # uploads that came again and changed nothing
    rows: int = 0  # used
    loss: float = 0.0  # mean progressive loss of its newest upload, as it says
    accuracy: float | None = None  # likewise, the share of rows whose class was predicted
    lag: float = 0.0  # rounds from the model that its newest upload was made with to the one it met
    last_seen: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    refused: dict[str, int] = field(default_factory=dict)  # uploads by reason
    strikes: float = 0.0  # refusals, less a tenth for every upload used since
    faults: dict[str, int] = field(default_factory=dict)  # errors of its own, by kind
    ignored: bool = False
    done: bool = False
    held_back: int = 0  # uploads that the other clients' rows spoke against, see `jury`:
    judged: int = 0  # how many they have judged of late,
    harm: float = 0.0  # what those would have done to them,
    pull: float = 0.0  # and how wrong they were themselves

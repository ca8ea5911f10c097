"""The clients that a server knows: what each has sent, and whose node is whose."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedres.core.receipts import Received
from fedres.flower.checks import RefusedError
from fedres.flower.log import LOG

FIRST_REST, LONGEST_REST = 5.0, 300.0  # seconds without a task after a fault, and after many
EARLIER = 16  # uploads of a node for tasks that this process of the server knows nothing of
MOST_KINDS = 20  # of faults that are counted apart: a client names them itself


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

    def fault(self, kind: str) -> None:
        """Count a fault."""
        known = kind in self.faults or len(self.faults) < MOST_KINDS
        kind = kind if known else "others"
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def refuse(self, reason: str, most: int) -> None:
        """Count a refused upload; after so many the client is ignored."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self.strikes += 1
        self.ignored |= self.strikes >= most


@dataclass(slots=True)
class Node:
    """A node, as long as the server's process lives."""

    first_asked: float
    faults: int = 0  # in a row,
    rests_until: float = 0.0  # and so long it is left in peace
    ask_again: float = 0.0  # when, if it has no more rows
    room: int = EARLIER  # uploads that may still come of it: a task makes one

    def fault(self, now: float) -> float:
        """Rest, each time for longer; the seconds."""
        seconds = min(FIRST_REST * 2.0 ** min(self.faults, 20), LONGEST_REST)
        self.faults, self.rests_until = self.faults + 1, now + seconds
        return seconds

    def recover(self) -> None:
        """Rest no more."""
        self.faults, self.rests_until = 0, 0.0


class Members(dict[str, Member]):
    """All clients by name.

    `bind` says whether a name belongs for good to the node that used it first, or only as long as
    that is there.
    """

    def __init__(self, bind: bool) -> None:
        super().__init__()
        self.bind = bind
        self.name_of: dict[int, str] = {}  # by node
        self.online: set[int] = set()
        self.changed: set[str] = set()  # since the last checkpoint
        # Who is not ignored: those with rows to come, and those without.
        self.working: set[str] = set()
        self.done: set[str] = set()

    def claim(self, client: str, node: int) -> Member:
        """The member of that name, if it is this node's."""
        if self.name_of.get(node, client) != client:
            raise RefusedError("changed its name")
        member = self.setdefault(client, Member())
        if member.node != node:
            if member.node is not None and (self.bind or member.node in self.online):
                LOG.warning(
                    "fedres: node %d says that it is %s, which is the name of node %d: it is "
                    "refused. If it took that one's place, `fedres flower forgive` frees the name",
                    node, client, member.node,
                )  # fmt: skip
                raise RefusedError("name of another node")
            LOG.info("fedres: %s is node %d from now on", client, node)
            self.free(member)
            member.node = node
        self.name_of[node] = client
        return member

    def free(self, member: Member) -> None:
        """Let any node take a member's name."""
        self.name_of.pop(member.node, None)  # type: ignore[arg-type]
        member.node = None

    def note_change(self, client: str) -> None:
        """Keep what has become of a member with the next checkpoint."""
        member = self[client]
        self.changed.add(client)
        self.working.discard(client)
        self.done.discard(client)
        if not member.ignored:
            (self.done if member.done else self.working).add(client)

    def load(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from a checkpoint."""
        for name, values in facts.items():
            self[name] = member = Member(**{**values, "done": False})  # tables grow
            if member.node is not None:
                self.name_of[member.node] = name
            self.note_change(name)
        self.changed.clear()

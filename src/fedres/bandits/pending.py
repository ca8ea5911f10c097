"""The bounded table of decisions that wait for their reward, and of what became of the others."""

from collections import OrderedDict
from typing import Any, Literal, NamedTuple

import numpy as np

from fedres.bandits.decisions import Decision
from fedres.bandits.saving import (
    named,
    pack_matrices,
    pack_rows,
    part,
    unpack_matrices,
    unpack_rows,
)
from fedres.core.receipts import new_epoch
from fedres.core.state_files import Arrays
from fedres.core.types import Matrix

End = Literal["rewarded", "expired"]
_WORDS = {
    "rewarded": "was rewarded already: give each reward once",
    "expired": "has expired: its reward came too late, raise `window`, `wait` or `most_pending`",
}


class RewardError(ValueError):
    """A reward that cannot be taken; nothing has changed.

    Attributes
    ----------
    reason
        ``rewarded`` if the decision has its reward, so that it need not be sent again;
        ``expired`` if it came too late; ``unknown`` if this client does not know the decision.
    """

    def __init__(self, words: str, reason: str) -> None:
        super().__init__(words)
        self.reason = reason


class Unrewarded(NamedTuple):
    """A decision without reward: the chosen rows, and all rows if they are to be logged."""

    decision: Decision
    x_global: Matrix
    x_local: Matrix
    contexts: tuple[Matrix, Matrix] | None


class Pending:
    """The decisions of one client that wait, and how the wait of the last others ended.

    One waits for its reward for `window` seconds and `wait` further decisions, or as long as there
    is room: `most` wait, and of so many others it is remembered how they ended. Ids are numbered
    from `serial` on, which no other life of this client reaches.
    """

    def __init__(
        self, client: int | str, window: float | None, wait: int | None, most: int
    ) -> None:
        if window is not None and not 0 < window < float("inf"):
            raise ValueError(f"window must be a positive number of seconds, or None, not {window}")
        if wait is not None and wait < 0:
            raise ValueError(f"wait must be a number of decisions from 0, or None, not {wait}")
        if most < 1:
            raise ValueError(f"most_pending must be at least 1, not {most}")
        self.client = client
        self.made = 0
        self.serial = new_epoch()
        self._window = window
        self._wait = wait
        self._most = most
        self.waiting: OrderedDict[str, Unrewarded] = OrderedDict()
        self.over: OrderedDict[str, End] = OrderedDict()

    def __len__(self) -> int:
        return len(self.waiting)

    def next_id(self) -> str:
        """The id of the next decision."""
        return f"{self.client}:{self.serial + 1:016x}"

    def add(self, waiting: Unrewarded) -> Unrewarded | None:
        """Let a new decision wait; the one, if any, that thereby expires."""
        self.made += 1
        self.serial += 1
        oldest = next(iter(self.waiting.values()), waiting).decision.turn
        late = self._wait is not None and self.made - oldest > self._wait
        over = self.expire_oldest() if late or len(self) == self._most else None
        self.waiting[waiting.decision.id] = waiting
        return over

    def closed(self, now: float) -> bool:
        """Whether the window of the oldest decision has closed."""
        if self._window is None or not self.waiting:
            return False
        return next(iter(self.waiting.values())).decision.time + self._window <= now

    def expire_oldest(self) -> Unrewarded:
        """End the wait of the oldest decision."""
        return self._end(next(iter(self.waiting)), "expired")

    def take(self, id_: Any) -> Unrewarded:
        """The decision of that id, which waits no longer; an error if it does not wait."""
        if id_ in self.waiting:
            return self._end(id_, "rewarded")
        if id_ in self.over:
            reason = self.over[id_]
            raise RewardError(f"decision {id_!r} {_WORDS[reason]}", reason)
        raise RewardError(
            f"client {self.client!r} knows no decision {id_!r}: it is of another client, was lost "
            f"when this one restarted, or was over more than {self._most} decisions ago",
            "unknown",
        )

    def facts(self) -> dict[str, Any]:
        """What is kept of it as JSON."""
        waiting = [
            [one.id, one.turn, one.action, one.explores, one.time, one.model, contexts is not None]
            for one, _, _, contexts in self.waiting.values()
        ]
        return {"made": self.made, "serial": self.serial, "waiting": waiting, "over": [*self.over]}

    def arrays(self) -> Arrays:
        """And as arrays."""
        waiting = self.waiting.values()
        chosen = [x for one in waiting for x in (one.x_global, one.x_local)]
        contexts = [x for one in waiting if one.contexts is not None for x in one.contexts]
        ends = [end == "rewarded" for end in self.over.values()]
        return {
            "over rewarded": np.array(ends, np.uint8),
            **named("odds", pack_rows([one.decision.probabilities for one in waiting], "f8")),
            **named("chosen", pack_matrices(chosen)),
            **named("contexts", pack_matrices(contexts)),
        }

    def restore(self, facts: dict[str, Any], arrays: Arrays) -> None:
        """Go on from what was kept, with ids of a new life."""
        self.made, self.serial = facts["made"], new_epoch(after=facts["serial"])
        ends: list[End] = ["rewarded" if end else "expired" for end in arrays["over rewarded"]]
        self.over = OrderedDict(zip(facts["over"], ends, strict=True))
        chosen, contexts = (
            iter(unpack_matrices(part(name, arrays))) for name in ("chosen", "contexts")
        )
        odds = unpack_rows(part("odds", arrays))
        for probabilities, kept in zip(odds, facts["waiting"], strict=True):
            id_, turn, action, explores, time, model, logged = kept
            decision = Decision(
                id_, turn, action, probabilities, explores, time, (model[0], model[1])
            )
            self.waiting[id_] = Unrewarded(
                decision,
                next(chosen),
                next(chosen),
                (next(contexts), next(contexts)) if logged else None,
            )

    def _end(self, id_: str, end: End) -> Unrewarded:
        self.over[id_] = end
        if len(self.over) > self._most:
            self.over.popitem(last=False)
        return self.waiting.pop(id_)

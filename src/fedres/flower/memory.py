"""All that a client knows between two tasks, in one file."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedres.core.messages import GlobalModel
from fedres.core.one_against_all import OutputModels
from fedres.core.state_files import Arrays, read, write
from fedres.core.types import F32
from fedres.flower.app_settings import AppSettings
from fedres.flower.own_mixture import OwnMixture

STATE = "state.safetensors"
# Kept as they are.
PLAIN = (
    "session", "next", "position", "losses", "done", "answered", "source", "trail", "trail_rows",
    "started",
)  # fmt: skip


def begin_again(folder: Path) -> str:
    """How to, in the words of an error."""
    return f"begin with an empty local model: `fedres flower reset {folder}`"


@dataclass
class Unconfirmed:
    """An upload that the server has not yet confirmed, and the last task it was sent in."""

    task: str
    loss: float
    upload: bytes
    accuracy: float | None = None


@dataclass
class Memory:
    """A client between two tasks."""

    client: str
    session: str  # the training that it is of
    local: OutputModels
    global_: GlobalModel  # the newest that it was sent
    started: int = 0  # when the server that sent it did
    next: int = 0  # the number of its next upload
    position: int = 0  # where in its rows that will begin
    losses: float = 0.0  # sum of the progressive losses so far
    done: bool = False  # whether its rows have come to their end
    # What its rows were made from, and a checksum of so many rows from the first on: a table may
    # change, but not in the rows that were used.
    source: str = ""
    trail: int = 0
    trail_rows: int = 0
    outbox: dict[int, Unconfirmed] = field(default_factory=dict)
    # Where clients wait for the server's own use of an upload before they learn from it: the
    # position and the slopes of each, (outputs, rows).
    waiting: dict[int, tuple[int, F32]] = field(default_factory=dict)
    # The uploads that each of the last tasks was answered with.
    answered: dict[str, list[int]] = field(default_factory=dict)
    # Of a state that does not fit the settings, the training that it is of, and why.
    misfit: tuple[str, str] = ("", "")
    own: OwnMixture | None = None  # if it mixes

    @classmethod
    def blank(cls, client: str, session: str, settings: AppSettings) -> "Memory":
        """A client that has learned nothing."""
        rule, outputs = settings.rule, settings.outputs
        empty = OutputModels(outputs, settings.width_global, rule, rule.step)
        local = OutputModels(outputs, settings.width_local, rule, rule.step_of_clients)
        model = GlobalModel(0, empty.weights, *empty.reach)
        own = OwnMixture(settings) if settings.mix else None
        return cls(client, session, local, model, own=own)

    def save(self, folder: Path) -> None:
        """Put the file in place, all of it or nothing."""
        local, model = self.local, self.global_
        facts = {
            **{name: getattr(self, name) for name in ("client", *PLAIN)},
            "outbox": {k: [one.task, one.loss, one.accuracy] for k, one in self.outbox.items()},
            "waiting": {k: position for k, (position, _) in self.waiting.items()},
            "local": list(local.reach),
            "global": [model.version, model.low, model.high],
        }
        arrays: Arrays = {"w_local": local.weights, "squares": local.squares}
        arrays["w_global"] = model.weights
        if self.own is not None:
            arrays |= self.own.arrays()
        for k, one in self.outbox.items():
            arrays[f"upload {k}"] = np.frombuffer(one.upload, np.uint8)
        for k, (_, slopes) in self.waiting.items():
            arrays[f"slopes {k}"] = slopes
        write(folder / STATE, facts, arrays)

    @classmethod
    def load(cls, folder: Path, client: str, settings: AppSettings) -> "Memory":
        """Go on from the file in a folder, or begin."""
        memory = cls.blank(client, "", settings)
        if not (folder / STATE).exists():
            return memory
        facts, arrays = read(folder / STATE, begin_again(folder))
        if facts["client"] != client:
            raise ValueError(
                f"{folder} holds the state of client {facts['client']!r}, not of {client!r}: "
                "give each client a state folder of its own"
            )
        widths = memory.local.weights.size, memory.global_.weights.size
        if widths != (found := (arrays["w_local"].size, arrays["w_global"].size)):
            # Of an app with other features: its training is over.
            words = "{} local and {} global weights"
            why = f"{words.format(*found)}, not {words.format(*widths)}"
            memory.misfit = facts["session"], why
            return memory
        for name in PLAIN:
            setattr(memory, name, facts[name])
        local = memory.local
        local.weights[:], local.squares[:] = arrays["w_local"], arrays["squares"]
        local.reach = tuple(facts["local"])
        if memory.own is not None:
            memory.own.restore(arrays)
        version, low, high = facts["global"]
        memory.global_ = GlobalModel(version, arrays["w_global"], low, high)
        memory.outbox = {
            int(k): Unconfirmed(task, loss, arrays[f"upload {k}"].tobytes(), accuracy)
            for k, (task, loss, accuracy) in facts["outbox"].items()
        }
        memory.waiting = {
            int(k): (position, arrays[f"slopes {k}"]) for k, position in facts["waiting"].items()
        }
        return memory

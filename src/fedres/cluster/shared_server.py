"""The global model of shards that learn elsewhere: FedRes.SGD with the alignment ``arrival``.

A message is Z = (x^g, f(x^l; w_i), y) of some thousand rows of a shard. The server evaluates its
gradients afresh at its newest model when it comes (`OnlineModels.apply_told`), which makes a new
version of it. Messages of a shard are numbered, and each is used exactly once:

- one that has been used (`Received`) is dropped;
- one before which another is missing is refused. That happens when the server has died and gone on
  from what it last wrote: the shard then goes back to what it last wrote, and sends from there.

A shard writes its local models only when the server has written that it has the shard's messages
(`settle`). So whatever dies, the local models on disk never know of rows that the global model
could lose, and rows that they learn again are not learned again by the global one.
"""

from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedres.cluster.local_parts import GlobalState
from fedres.core import state_files
from fedres.core.receipts import Received
from fedres.core.types import F32, Matrix
from fedres.tables.online_models import ModelShape, OnlineModels

STATE = "server.state"


class Message(NamedTuple):
    """What a shard sends of some of its rows.

    Attributes
    ----------
    shard, number
        Whose it is, and its place among all messages of that shard.
    version
        How many messages the model knew of that the rows were learned with.
    eta
        The step.
    x_global, y, own
        The rows: what the global model sees, labels, and what local models said, (outputs, rows).
    asks
        Whether the sender wants the newest model, should it be another than its own.
    """

    shard: int
    number: int
    version: int
    eta: float
    x_global: Matrix
    y: F32
    own: F32
    asks: bool = True


class Receipt(NamedTuple):
    """What the server answers.

    Attributes
    ----------
    known
        Whether the message has been used, now or before; if not, one before it is missing.
    version
        How many messages the global model knows of.
    model
        That model; None where the sender has it or did not ask.
    """

    known: bool
    version: int
    model: GlobalState | None


class Used(NamedTuple):
    """What a server has learned from so far.

    Attributes
    ----------
    rows
        How many of each shard, by its number.
    messages
        How many of each shard.
    delays
        How many messages came so many versions late: learned with a model that did not know of so
        many messages which the server had used by then.
    dropped
        How many messages came again.
    """

    rows: dict[int, int]
    messages: dict[int, int]
    delays: dict[int, int]
    dropped: int

    def summary(self) -> dict[str, float]:
        """How many messages there were, and how late.

        Examples
        --------
        >>> Used({0: 30}, {0: 3}, {0: 1, 2: 2}, 0).summary()
        {'used': 3, 'mean_delay': 1.3333333333333333, 'largest_delay': 2, 'dropped': 0}
        """
        used = sum(self.delays.values())
        return {
            "used": used,
            "mean_delay": sum(late * count for late, count in self.delays.items()) / max(1, used),
            "largest_delay": max(self.delays, default=0),
            "dropped": self.dropped,
        }


class SharedServer:
    """The global model, and which messages it knows of.

    Parameters
    ----------
    shape
        Of all models; there are no local ones here.
    outputs
        How many problems.
    folder
        Where its state is kept: a server that finds one goes on from there.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> rows = np.float32([[1], [2]]), np.float32([[1, 2]]), np.float32([[0, 0]])
    >>> with TemporaryDirectory() as folder:
    ...     server = SharedServer(ModelShape(1, None), 1, Path(folder))
    ...     first = server.receive(Message(7, 0, 0, 0.3, *rows))
    ...     again = server.receive(Message(7, 0, 0, 0.3, *rows))
    ...     missing = server.receive(Message(7, 2, 0, 0.3, *rows))
    ...     server.settle(7, 1), SharedServer(ModelShape(1, None), 1, Path(folder)).used().rows
    (True, {7: 2})
    >>> first.known, again.known, missing.known, again.version
    (True, True, False, 1)
    """

    def __init__(self, shape: ModelShape, outputs: int, folder: Path) -> None:
        self._models = OnlineModels(shape._replace(width_local=None), outputs)
        self._received: dict[int, Received] = defaultdict(Received)
        self._rows: Counter[int] = Counter()
        self._delays: Counter[int] = Counter()
        self._version, self._dropped = 0, 0
        self._path = folder / STATE
        if self._path.exists():
            self._read()
        self._settled = self.used().messages

    def receive(self, message: Message) -> Receipt:
        """Learn from a message that is new."""
        received = self._received[message.shard]
        if received.has(message.number):
            self._dropped += 1
            return Receipt(True, self._version, self._newest)
        if message.number > received.confirmed:
            return Receipt(False, self._version, None)
        # What learned with a model that knew too much, after a restart, was not late.
        late = max(0, self._version - message.version)
        self._learn(message)
        received.note(message.number)
        self._version += 1
        self._rows[message.shard] += message.y.shape[1]
        self._delays[late] += 1
        return Receipt(True, self._version, self._newest if late and message.asks else None)

    def newest(self) -> tuple[int, GlobalState]:
        """How many messages the global model knows of, and that model."""
        return self._version, self._newest

    def used(self) -> Used:
        """What it has learned from."""
        messages = {shard: one.confirmed for shard, one in self._received.items()}
        return Used(dict(self._rows), messages, dict(self._delays), self._dropped)

    def settle(self, shard: int, messages: int) -> bool:
        """Write it down that so many messages of a shard are known; False if some are not."""
        if self._received[shard].confirmed < messages:
            return False
        if self._settled.get(shard, 0) < messages:
            self._write()
            self._settled = self.used().messages
        return True

    @property
    def _newest(self) -> GlobalState:
        return GlobalState(self._models.w_global, self._models.squares_global)

    def _learn(self, message: Message) -> None:
        models, rows = self._models, message.y.shape[1]
        models.settings = models.settings._replace(eta=message.eta)
        # Arrays from Ray's store are read-only, which is another type to the compiler.
        x, y, own = (part.copy() for part in (message.x_global, message.y, message.own))
        told = models.rows(x, np.empty((rows, 0), np.float32), np.zeros(rows, np.int64))
        models.apply_told(told, y, np.arange(rows, dtype=np.int32), own)

    def _write(self) -> None:
        facts = {"version": self._version, **self.used()._asdict()}
        state_files.write(self._path, facts, self._newest._asdict())

    def _read(self) -> None:
        facts, arrays = state_files.read(self._path, "train anew")
        self._models.w_global, self._models.squares_global = arrays["weights"], arrays["squares"]
        self._version, self._dropped = facts["version"], facts["dropped"]
        for name, counts in (("rows", self._rows), ("delays", self._delays)):
            counts.update({int(key): count for key, count in facts[name].items()})
        for shard, messages in facts["messages"].items():
            self._received[int(shard)].begin_at(messages)

"""The bandit server: the global model, and which uploads are in it."""

from collections.abc import Iterable
from pathlib import Path
from threading import RLock
from typing import Self

from fedres.bandits.learners import LEARNERS, STEP, Learner, new_server
from fedres.bandits.saving import as_fact, check_kind, from_fact
from fedres.core.messages import GlobalModel, Upload
from fedres.core.receipts import Receipt, Received, new_epoch
from fedres.core.state_files import read, write
from fedres.core.types import F32

KIND = "bandit server"


class BanditServer:
    """Keeps the global model of all clients. Threads may share one.

    Parameters
    ----------
    features_global
        Number of global features.
    step
        How the global model moves: as of the clients.

    Attributes
    ----------
    epoch
        Which life of the server this is: a model of a later one is newer, whatever its version.
    """

    def __init__(self, features_global: int, step: Learner = STEP) -> None:
        if features_global < 0:
            raise ValueError(f"features_global must not be negative, and is {features_global}")
        self._step, self._server = step, new_server(step, features_global)
        self.epoch = self._server.epoch = new_epoch()
        self._received: dict[int, Received] = {}  # by sender
        self._lock = RLock()

    @property
    def w_global(self) -> F32:
        """The global model, the constant's weight last."""
        return self._server.global_.weights.copy()

    def apply(self, uploads: Upload | Iterable[Upload]) -> list[Receipt]:
        """Work on uploads, one or many, that have not come before; returns a receipt for each.

        None of them is used if one is of another width. A receipt lets the client forget the
        upload, so save the server before you send it.
        """
        several = [uploads] if isinstance(uploads, Upload) else list(uploads)
        for upload in several:
            self._server.check_width(upload)
            if upload.ticket is None:
                raise ValueError(
                    f"an upload of client {upload.client} has no ticket: send what "
                    "`BanditClient.uploads` hands out"
                )
        with self._lock:
            return [self._apply_once(upload, *(upload.ticket or ())) for upload in several]

    def _apply_once(self, upload: Upload, sender: int, serial: int, oldest: int) -> Receipt:
        received = self._received.setdefault(sender, Received())
        if not received.has(serial):
            self._server.apply(upload)
            received.note(serial)
        received.begin_at(oldest)
        return Receipt(sender, serial)

    def publish(self) -> GlobalModel:
        """Close the round: the next version of the global model."""
        with self._lock:
            return self._server.publish()

    def save(self, path: str | Path) -> None:
        """Put all that the server knows into one file, whole or not at all."""
        with self._lock:
            server = self._server
            facts = {
                "kind": KIND,
                "features_global": server.global_.width,
                "step": as_fact(self._step, LEARNERS),
                "epoch": self.epoch,
                "version": server.version,
                "received": {k: [one.confirmed, one.beyond] for k, one in self._received.items()},
            }
            write(Path(path), facts, {**server.global_.state()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Go on from a file that `save` has written, in a new epoch."""
        facts, arrays = read(Path(path))
        check_kind(facts, KIND, path)
        server = cls(facts["features_global"], from_fact(facts["step"], LEARNERS))
        server._server.global_.restore(arrays)
        server._server.version = facts["version"]
        server.epoch = server._server.epoch = new_epoch(after=facts["epoch"])
        server._received = {int(k): Received(*one) for k, one in facts["received"].items()}
        return server

"""FedRes.SGD as two parties that exchange messages: a `Client` and a `Server`.

The algorithm is that of `fedres.core.sgd`, whose functions do all the arithmetic; here is who
keeps what between two messages. The server's ``used`` list tells a waiting client (alignments
``aligned`` and ``late``) which of its uploads a version contains, so that it learns from them just
when the server's own use becomes visible to it, whatever the delay.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedres.core import sgd
from fedres.core.messages import GlobalModel, Upload
from fedres.core.models import LinearModel, batch_of, linear, whole
from fedres.core.primitives import Models, copy_model, project, view_of
from fedres.core.rule import Rule
from fedres.core.types import F32, Matrix


class Waiting(NamedTuple):
    """A batch that the client has sent, and learns from when the server has."""

    global_: Any
    local: Any
    flight: sgd.Flight


class Client:
    """FedRes.SGD.Client: the local model, and the newest global model it was sent.

    Parameters
    ----------
    rule
        What clients and server agree on.
    width_global, width_local
        Number of features of each view; 0 for no model on that side.
    client
        Its number, in its uploads.
    weight
        lambda_i.
    initial_global, initial_local
        Weights to begin with, the constant's last; zeros if None.

    Examples
    --------
    >>> rule = Rule()
    >>> client, server = Client(rule, 2, 1), Server(rule, 2)
    >>> x_global, x_local = np.float32([[1.0, 0.0]]), np.float32([[2.0]])
    >>> for _ in range(20):
    ...     prediction = client.predict(x_global, x_local)
    ...     upload = client.observe(x_global, x_local, np.float32([1.0]))
    ...     server.apply(upload)
    ...     client.refresh(server.publish())
    >>> round(float(prediction[0]), 2)
    1.0
    """

    def __init__(
        self,
        rule: Rule,
        width_global: int,
        width_local: int,
        client: int = 0,
        weight: float = 1.0,
        initial_global: F32 | None = None,
        initial_local: F32 | None = None,
    ) -> None:
        if not width_global:  # then there is nothing to wait for
            rule = replace(rule, alignment="arrival")
        self.rule, self.client, self.round = rule, client, 0
        self.terms = rule.terms(np.array([weight], np.float32))
        self.local = LinearModel(width_local, rule, rule.step_of_clients, initial_local)
        self.global_ = LinearModel(width_global, rule, rule.step, initial_global)
        self.epoch = self.version = 0  # of the newest global model
        self._mail: list[GlobalModel] = []
        self._bits = rule.residual_bits if width_local else 0
        self._batch: list[tuple[Matrix, Matrix, F32]] = []
        self._waiting: dict[int, Waiting] = {}

    @property
    def upload_width(self) -> int:
        """How many features the rows of uploads have."""
        return self.global_.width

    def refresh(self, model: GlobalModel) -> None:
        """Take in a published global model, in any order; a batch begun is finished first."""
        self._mail.append(model)
        if not self._batch:
            self._open_mail()

    def _open_mail(self) -> None:
        for model in sorted(self._mail, key=lambda model: (model.epoch, model.version)):
            if (model.epoch, model.version) > (self.epoch, self.version):
                self.epoch, self.version = model.epoch, model.version
                self.global_.weights[:] = model.weights
                self.global_.reach = model.low, model.high
            for round_ in model.used.get(self.client, ()):
                if round_ in self._waiting:
                    self._learn_waiting(self._waiting.pop(round_))
        self._mail = []

    def _learn_waiting(self, waiting: Waiting) -> None:
        message = whole(waiting.flight)
        sgd.learn_waiting(waiting.local, self.terms, waiting.global_, 0, message)

    def predict(self, x_global: Matrix, x_local: Matrix) -> F32:
        """f(x^g; w^g) + f(x^l; w_i), clipped to the labels seen; learns nothing."""
        prediction = self.global_.f(x_global) + self.local.f(x_local)
        # Without a local model it is the server that knows the range of labels.
        return (self.local if self.local.width else self.global_).clip(prediction)

    def observe(self, x_global: Matrix, x_local: Matrix, y: F32) -> Upload | None:
        """Learn from samples; an upload once the batch is full, else None."""
        if self.rule.batch == 1:
            return self._send(x_global, x_local, y)
        self._batch.append((x_global, x_local, y))
        if sum(len(y) for _, _, y in self._batch) < self.rule.batch:
            return None
        return self.flush()

    def flush(self) -> Upload | None:
        """Step on the samples observed since the last upload, and send them."""
        if not self._batch:
            return None
        x_global, x_local = (_stack([row[side] for row in self._batch]) for side in (0, 1))
        y = np.concatenate([row[2] for row in self._batch])
        # Done with before learning: rows that a local model fails on must not come again.
        self._batch = []
        return self._send(x_global, x_local, y)

    def _send(self, x_global: Matrix, x_local: Matrix, y: F32) -> Upload:
        flight, global_ = batch_of(y), self.global_.on(view_of(x_global))
        local = self._local_side(x_local)
        sgd.predict(self.terms, global_, 0, local, whole(flight))
        sgd.learn(local, self.terms, whole(flight))
        if self.rule.waits:
            self._waiting[self.round] = Waiting(global_, local, flight)
        sent = flight.sent if self._bits else np.zeros_like(flight.sent)
        upload = Upload(
            self.client, self.round, self.version, x_global, sent, y, self._bits,
            self.rule.residual_span,
        )  # fmt: skip
        self.round += 1
        if self._mail:
            self._open_mail()
        return upload

    def _local_side(self, x_local: Matrix) -> Any:
        return self.local.on(view_of(x_local))


class Server:
    """FedRes.SGD.Server: the global model, and the versions that uploads may refer to.

    Parameters
    ----------
    rule
        What clients and server agree on.
    width
        Number of global features.
    weights
        lambda_i a client; 1 where none is given.
    history
        How many old versions ``aligned`` and ``asymmetric`` may look back on.
    initial
        Weights to begin with, the constant's last; zeros if None.
    """

    def __init__(
        self,
        rule: Rule,
        width: int,
        weights: dict[int, float] | None = None,
        history: int = 1000,
        initial: F32 | None = None,
    ) -> None:
        self.rule = rule
        # Sgd takes its gradients at a version that must not change under it.
        self.global_ = LinearModel(width, rule, rule.step, initial, 2 - rule.step.adaptive)
        self.epoch = self.version = 0
        self._new = len(self.global_.models.start) - 1
        copy_model(self.global_.models, 0, self._new)
        self._weights = weights or {}
        self._history = history
        self._old = {0: self.global_.weights.copy()}
        self._used: dict[int, dict[int, int]] = {}

    def apply(self, upload: Upload) -> None:
        """Work on one upload. Adaptive steps at once; Sgd sums until `publish`."""
        model, flight = self.global_, batch_of(upload.y)
        self.check_width(upload)
        flight.sent[:] = upload.residual
        if self.rule.looks_back:
            if upload.version not in self._old:
                raise ValueError(
                    f"client {upload.client} predicted with global model {upload.version}, and "
                    f"the server keeps only {min(self._old)} to {self.version}: raise `history`"
                )
            flight.seen[:] = linear(upload.x_global, self._old[upload.version], model.constant)
        terms = self.rule.terms(np.array([self._weights.get(upload.client, 1.0)], np.float32))
        side = model.on(view_of(upload.x_global))
        sgd.apply(terms, side, 0, self._new, whole(flight))
        if self.rule.waits:
            # What a client has predicted with it has seen: of that it need not hear again.
            used = self._used.get(upload.client, {})
            used = {round_: made for round_, made in used.items() if made > upload.version}
            self._used[upload.client] = used | {upload.round: self.version + 1}

    def check_width(self, upload: Upload) -> None:
        """Refuse an upload with another number of features."""
        if (width := upload.x_global.shape[1]) != self.global_.width:
            raise ValueError(
                f"client {upload.client} sent {width} global features, this server was made for "
                f"{self.global_.width}: use the same on both sides"
            )

    def publish(self) -> GlobalModel:
        """Close the round: the next version of the global model."""
        models = self.global_.models
        if not self.rule.step.adaptive:
            if self.rule.radius is not None:
                project(models, self._new, np.float32(self.rule.radius))
            copy_model(models, self._new, 0)
        self.version += 1
        if self.rule.looks_back:
            self._old[self.version] = self.global_.weights.copy()
            self._old.pop(self.version - self._history - 1, None)
        return self.current()

    def current(self) -> GlobalModel:
        """The newest version of the global model."""
        used = {client: tuple(rounds) for client, rounds in self._used.items()}
        weights = self.global_.weights.copy()
        return GlobalModel(self.version, weights, *self.global_.reach, used, self.epoch)

    def go_on_from(self, models: Models, version: int, rounds: int) -> None:
        """Take over a global model that has played so many rounds elsewhere."""
        start, size = models.start[version], len(self.global_.weights)
        self.global_.weights[:] = models.weights[start : start + size]
        self.global_.squares[:] = models.squares[:size]
        self.global_.reach = models.low[version], models.high[version]
        copy_model(self.global_.models, 0, self._new)
        self.version, self._old = rounds, {rounds: self.global_.weights.copy()}


def _stack(rows: list[Matrix]) -> Matrix:
    if len(rows) == 1:
        return rows[0]
    if isinstance(rows[0], np.ndarray):
        return np.vstack(rows)
    from scipy import sparse

    return sparse.csr_array(sparse.vstack(rows, format="csr"))

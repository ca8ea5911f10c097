"""FedRes.SGD (Agarwal, Langford and Wei, 2020, section 3.2, Algorithms 3 and 4).

In round t, client i holds the global model w^g_{t-beta_i} and its own w_{i,t}:

    client   w_{i,t} <- Pi_D{ w_{i,t-1} - eta_i grad^l_{i,t-tau_i} }
             sends Z_{i,t} = (x^g, f(x^l; w_{i,t}), y)
    server   w^g_t   <- Pi_D{ w^g_{t-1} - eta sum_i grad^g_{i,t-alpha_i} }

with grad_{i,s} the gradient of l(y, f(x^g; w^g_{s-beta_i}) + f(x^l; w_{i,s})). That is the
alignment ``aligned``. The two simpler rules that the section begins with are

    ``asymmetric``  the client does not wait: it applies grad^l_{i,t-1} in round t;
    ``arrival``     nor does the client wait, and the server takes its gradient at its newest
                    model, at (w^g_t, w_{i,t-alpha_i}), when Z arrives.

The server's ``used`` list tells a waiting client which of its uploads a version contains, so
that it applies its own gradient just when the server's becomes visible, whatever the delay.
"""

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from fedres.core.losses import SQUARED, Loss
from fedres.core.messages import GlobalModel, Upload, quantise
from fedres.core.models import LinearModel, linear
from fedres.core.steps import Adaptive, Step
from fedres.core.types import F32, Matrix

Alignment = Literal["aligned", "asymmetric", "arrival"]
ALIGNMENTS: tuple[Alignment, ...] = get_args(Alignment)


@dataclass(frozen=True)
class Rule:
    """What clients and server have to agree on.

    Attributes
    ----------
    step, loss
        How models move, and along the slope of what.
    alignment
        See the module's head.
    batch
        Samples a message; both sides step on their mean gradient.
    radius
        Radius D of the ball that every model stays in; None for no bound.
    constant
        Whether every model has a feature that is always 1.
    residual_bits, residual_span
        Bits a residual is sent with, and the range that fewer than 32 bits cover.
    local_step
        How local models move (eta_i), where that differs from the global model (eta).
    ridge, solve_every
        Of the ERM-based algorithms: weight of ||w||^2 in every argmin, and rounds from one
        argmin to the next.
    """

    step: Step = field(default_factory=Adaptive)
    loss: Loss = SQUARED
    alignment: Alignment = "arrival"
    batch: int = 1
    radius: float | None = None
    constant: bool = True
    residual_bits: int = 32
    residual_span: tuple[float, float] = (-1.0, 1.0)
    local_step: Step | None = None
    ridge: float = 0.0
    solve_every: int = 1

    @property
    def step_of_clients(self) -> Step:
        """How local models move."""
        return self.local_step or self.step

    def global_model(self, width: int, initial: F32 | None = None) -> LinearModel:
        """A global model that follows this rule."""
        return LinearModel(width, self.step, self.loss, self.radius, self.constant, initial)

    def local_model(self, width: int, initial: F32 | None = None) -> LinearModel:
        """A local model that follows this rule."""
        step = self.step_of_clients
        return LinearModel(width, step, self.loss, self.radius, self.constant, initial)


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
        self.rule = rule
        self.client = client
        self.weight = weight
        self.round = 0
        self.local = rule.local_model(width_local, initial_local)
        empty = rule.global_model(width_global, initial_global)
        self.global_ = GlobalModel(0, empty.weights, float(empty.low), float(empty.high))
        self._constant = empty.constant
        self._incoming = self.global_
        self._bits = rule.residual_bits if width_local else 0
        self._batch: list[tuple[Matrix, Matrix, F32]] = []
        self._waiting: dict[int, tuple[Matrix, F32]] = {}

    def refresh(self, model: GlobalModel) -> None:
        """Take in a published global model, in any order; a batch begun is finished first."""
        for round_ in model.used.get(self.client, ()):
            self.local.move(*self._waiting.pop(round_), self.weight)
        if model.version > self._incoming.version:
            self._incoming = model
        if not self._batch:
            self.global_ = self._incoming

    def predict(self, x_global: Matrix, x_local: Matrix) -> F32:
        """f(x^g; w^g) + f(x^l; w_i), clipped to the labels seen; learns nothing."""
        prediction = self._seen(x_global) + self.local.f(x_local)
        if self.local.width:
            return self.local.clip(prediction)
        # Without a local model it is the server that knows the range of labels.
        return prediction.clip(np.float32(self.global_.low), np.float32(self.global_.high))

    def observe(self, x_global: Matrix, x_local: Matrix, y: F32) -> Upload | None:
        """Learn from samples; an upload once the batch is full, else None."""
        self._batch.append((x_global, x_local, y))
        return self.flush() if sum(len(y) for _, _, y in self._batch) >= self.rule.batch else None

    def flush(self) -> Upload | None:
        """Step on the samples observed since the last upload, and send them."""
        if not self._batch:
            return None
        x_global, x_local = (_stack([row[side] for row in self._batch]) for side in (0, 1))
        y = np.concatenate([row[2] for row in self._batch])
        seen, version = self._seen(x_global), self.global_.version
        # Done with before learning: rows that a local model fails on must not come again.
        self._batch, self.global_ = [], self._incoming
        residual = self._learn(x_local, y, seen)
        bits, span = self._bits, self.rule.residual_span
        sent = quantise(residual, bits, span) if bits else np.zeros_like(residual)
        upload = Upload(self.client, self.round, version, x_global, sent, y, bits, span)
        self.round += 1
        return upload

    def _learn(self, x_local: Matrix, y: F32, seen: F32) -> F32:
        """The residuals, and then the local step on them, or a gradient left waiting."""
        residual = self.local.f(x_local)
        self.local.see(y)
        slope = self.local.slope(seen + residual, y)
        if self.rule.alignment == "aligned":
            self._waiting[self.round] = (x_local, slope)
        else:
            self.local.move(x_local, slope, self.weight)
        return residual

    def _seen(self, x_global: Matrix) -> F32:
        seen: F32 = linear(x_global, self.global_.weights, self._constant)
        return seen


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
        self.global_ = rule.global_model(width, initial)
        self.version = 0
        self._weights = weights or {}
        self._history = history
        self._old = {0: self.global_.weights.copy()}
        self._sum = np.zeros_like(self.global_.weights)
        self._used: dict[int, tuple[int, ...]] = {}

    def apply(self, upload: Upload) -> None:
        """Work on one upload. Adaptive steps at once; Sgd sums until `publish`."""
        model, x, y = self.global_, upload.x_global, upload.y
        model.see(y)
        if self.rule.alignment == "arrival":
            seen = model.f(x)
        elif upload.version in self._old:
            seen = linear(x, self._old[upload.version], model.constant)
        else:
            raise ValueError(
                f"client {upload.client} predicted with global model {upload.version}, and the "
                f"server keeps only {min(self._old)} to {self.version}: raise `history`"
            )
        gradient = model.gradient(x, model.slope(seen + upload.residual, y))
        weight = self._weights.get(upload.client, 1.0)
        if self.rule.step.adaptive:
            model.descend(gradient, weight)
        else:
            self._sum += np.float32(weight) * gradient
        if self.rule.alignment == "aligned":
            self._used[upload.client] = (*self._used.get(upload.client, ()), upload.round)

    def publish(self) -> GlobalModel:
        """Close the round: the next version of the global model."""
        if not self.rule.step.adaptive:
            self.global_.descend(self._sum)
            self._sum[:] = 0
        self.version += 1
        weights = self.global_.weights.copy()
        if self.rule.alignment != "arrival":
            self._old[self.version] = weights
            self._old.pop(self.version - self._history - 1, None)
        used, self._used = self._used, {}
        return GlobalModel(
            self.version, weights, float(self.global_.low), float(self.global_.high), used
        )


def _stack(rows: list[Matrix]) -> Matrix:
    if isinstance(rows[0], np.ndarray):
        return np.vstack(rows)
    from scipy import sparse

    return sparse.csr_array(sparse.vstack(rows, format="csr"))

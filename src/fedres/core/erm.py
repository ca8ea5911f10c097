"""FedRes.ERM (Agarwal, Langford and Wei, 2020, section 3.1, Algorithms 1 and 2).

    client   w_{i,t}   = argmin_{||w|| <= D}  sum_{s < t} l_{i,s}(w^g_{t-beta}, w)
             sends z_{i,t} = (x^g, x^l, y) and w_{i,t}
    server   w^g_{t+1} = argmin_{||w|| <= D}  sum_i sum_{s <= t-alpha} l_{i,s}(w, w_{i,t-alpha})

Both argmins are over all samples so far, under the *newest* model of the other side. For the
squared loss sums of products suffice (`Squares`): no sample is looked at twice. Where samples do
not determine w, the argmin is the one of minimum norm; without samples, a model stays as it was.
"""

from typing import Protocol

import numpy as np
import scipy

from fedres.core.losses import Loss
from fedres.core.messages import GlobalModel, ModelUpload
from fedres.core.models import linear
from fedres.core.rule import Rule
from fedres.core.solvers import least_squares_in_ball, minimise_in_ball
from fedres.core.types import F32, F64, Matrix


class Problem(Protocol):
    """argmin_w of losses in which the other side's models are given."""

    def add(self, own: Matrix, other: F64, y: F32, weight: float, key: int) -> None:
        """Take in samples of client `key`: this side's features, and the other's with constant."""

    def solve(self, others: dict[int, F64], start: F64) -> F64:
        """The argmin, the other side's model being `others[key]` for samples of client `key`."""


class Squares:
    """Squared loss, from sums: A = sum x x', c = sum x y, C_i = sum x z', z the other side's."""

    def __init__(self, rule: Rule, width: int, constant: bool) -> None:
        self.rule, self.constant = rule, constant
        size = width + constant
        self.A, self.c = rule.ridge * np.eye(size), np.zeros(size)
        self.C: dict[int, F64] = {}

    def add(self, own: Matrix, other: F64, y: F32, weight: float, key: int) -> None:
        """Add products."""
        x = with_constant(own, self.constant)
        self.A += weight * x.T @ x
        self.c += weight * x.T @ y
        self.C[key] = self.C.get(key, 0.0) + weight * x.T @ other

    def solve(self, others: dict[int, F64], start: F64) -> F64:  # noqa: ARG002
        """Solve A w = c - sum_i C_i w_i within the ball."""
        r = self.c - sum(C @ others[key] for key, C in self.C.items())
        return least_squares_in_ball(self.A, r, self.rule.radius)


class Samples:
    """Any other loss, from the samples themselves."""

    def __init__(self, rule: Rule, width: int, constant: bool) -> None:  # noqa: ARG002
        self.rule, self.constant = rule, constant
        self.rows: list[tuple[Matrix, F64, F32, float, int]] = []

    def add(self, own: Matrix, other: F64, y: F32, weight: float, key: int) -> None:
        """Keep samples."""
        self.rows.append((own, other, y, weight, key))

    def solve(self, others: dict[int, F64], start: F64) -> F64:
        """Minimise from the last solution."""
        x = [own for own, *_ in self.rows]
        return minimise_in_ball(
            self.rule.loss,
            np.vstack(x) if isinstance(x[0], np.ndarray) else scipy.sparse.vstack(x, format="csr"),
            np.concatenate([y for _, _, y, _, _ in self.rows]),
            np.concatenate([other @ others[key] for _, other, _, _, key in self.rows]),
            np.concatenate([np.full(len(y), weight) for _, _, y, weight, _ in self.rows]),
            constant=self.constant,
            radius=self.rule.radius,
            ridge=self.rule.ridge,
            start=start,
        )


def problem(rule: Rule, width: int, constant: bool) -> Problem:
    """The form that the loss allows."""
    return (Squares if is_squared(rule.loss) else Samples)(rule, width, constant)


def is_squared(loss: Loss) -> bool:
    """Whether sums of products suffice."""
    return loss.name == "squared"


def with_constant(x: Matrix, constant: bool) -> F64:
    """(x, 1) of every row, dense and in double precision."""
    rows = np.asarray(x if isinstance(x, np.ndarray) else x.toarray(), np.float64)
    return np.hstack([rows, np.ones((len(rows), 1))]) if constant else rows


class Client:
    """FedRes.ERM.Client.

    Parameters are those of `fedres.core.sgd.Client`.

    Examples
    --------
    >>> rule = Rule(constant=False)
    >>> client, server = Client(rule, 1, 1), Server(rule, 1)
    >>> for x_global, x_local in ([[[1.0]], [[0.0]]], [[[0.0]], [[1.0]]]):
    ...     sample = np.float32(x_global), np.float32(x_local), np.float32([2.0])
    ...     server.apply(client.observe(*sample))
    ...     client.refresh(server.publish())
    >>> client.predict(np.float32([[1.0]]), np.float32([[1.0]]))
    array([4.], dtype=float32)
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
        self.rule, self.client, self.weight = rule, client, weight
        self.round = 0
        local, empty = (
            rule.local_model(width_local, initial_local),
            rule.global_model(width_global, initial_global),
        )
        self.constants = empty.constant, local.constant
        self.global_ = GlobalModel(0, empty.weights, -np.inf, np.inf)
        self.weights = local.weights.astype(np.float64)
        self._problem = problem(rule, width_local, local.constant)
        self._solved: tuple[int, int] | None = None

    def refresh(self, model: GlobalModel) -> None:
        """Take in a published global model, in any order."""
        if model.version > self.global_.version:
            self.global_ = model

    def predict(self, x_global: Matrix, x_local: Matrix) -> F32:
        """f(x^g; w^g) + f(x^l; w_i) with the argmin for the newest global model."""
        self.settle()
        seen = linear(x_global, self.global_.weights, self.constants[0], np.float64)
        joint: F64 = seen + linear(x_local, self.weights, self.constants[1], np.float64)
        return joint.astype(np.float32)

    def observe(self, x_global: Matrix, x_local: Matrix, y: F32) -> ModelUpload:
        """Take in the samples of a round; what to send."""
        self.settle()
        upload = ModelUpload(self.client, self.round, x_global, x_local, y, self.weights)
        seen = with_constant(x_global, self.constants[0])
        self._problem.add(x_local, seen, y, self.weight, 0)
        self.round += 1
        return upload

    def settle(self) -> None:
        """The argmin, once for each round and global model."""
        state = (self.round, self.global_.version)
        if self.round and self.round % self.rule.solve_every == 0 and state != self._solved:
            if self.weights.size:
                self.weights = self._problem.solve(self._others(), self.weights)
            self._solved = state

    def _others(self) -> dict[int, F64]:
        return {0: np.asarray(self.global_.weights, np.float64)}


class Server:
    """FedRes.ERM.Server.

    Parameters are those of `fedres.core.sgd.Server`.
    """

    def __init__(
        self,
        rule: Rule,
        width: int,
        weights: dict[int, float] | None = None,
        initial: F32 | None = None,
    ) -> None:
        self.rule = rule
        model = rule.global_model(width, initial)
        self.weights = model.weights.astype(np.float64)
        self.version = 0
        self._weights = weights or {}
        self._problem = problem(rule, width, model.constant)
        self._locals: dict[int, tuple[int, F64]] = {}

    def apply(self, upload: ModelUpload) -> None:
        """Take in samples, and the local model if it is the client's newest."""
        other = with_constant(upload.x_local, len(upload.weights) > upload.x_local.shape[1])
        weight = self._weights.get(upload.client, 1.0)
        self._problem.add(upload.x_global, other, upload.y, weight, upload.client)
        if upload.round >= self._locals.get(upload.client, (-1,))[0]:
            self._locals[upload.client] = (upload.round, upload.weights)

    def publish(self) -> GlobalModel:
        """Close the round: the argmin for the newest local models."""
        self.version += 1
        if self._locals and self.version % self.rule.solve_every == 0:
            others = {client: weights for client, (_, weights) in self._locals.items()}
            self.weights = self._problem.solve(others, self.weights)
        return GlobalModel(self.version, self.weights.astype(np.float32), -np.inf, np.inf)

"""Fictitious play (Agarwal, Langford and Wei, 2020, the update rules after Theorem 1).

    client   w_{i,t+1} = argmin_w  sum_{s <= t} l_{i,s}(w^g_{s-beta}, w)
             sends Z_{i,t} = (x^g, f(x^l; w_{i,t}), y)
    server   w^g_{t+1} = argmin_w  sum_i sum_{s <= t-alpha} l_{i,s}(w, w_{i,s})

Unlike FedRes.ERM, each sample keeps the other side's prediction of *its own* round. So residuals
are all that has to be sent, but both sides remember each other's old mistakes, and lock each
other: appendix C.
"""

import numpy as np

from fedres.algorithms.erm import Problem, problem
from fedres.algorithms.sgd import Rule
from fedres.messages import GlobalModel, Upload, quantise
from fedres.models import linear
from fedres.types import F32, F64, Matrix

# A sample's offset enters a problem as one feature of the other side, whose weight is 1.
_ONE = {0: np.ones(1)}


class Client:
    """The client of fictitious play.

    Parameters are those of `fedres.algorithms.sgd.Client`.

    Examples
    --------
    >>> rule = Rule(constant=False)
    >>> client, server = Client(rule, 1, 1), Server(rule, 1)
    >>> one, y = np.float32([[1.0]]), np.float32([1.0])
    >>> for _ in range(3):  # both make up for the same error, then remember having been right
    ...     print(client.predict(one, one))
    ...     server.apply(client.observe(one, one, y))
    ...     client.refresh(server.publish())
    [0.]
    [2.]
    [1.]
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
        self.width, self.constants = width_local, (empty.constant, local.constant)
        self.global_ = GlobalModel(0, empty.weights, -np.inf, np.inf)
        self.weights = local.weights.astype(np.float64)
        self._problem = problem(rule, width_local, local.constant)
        self._settled = True

    def refresh(self, model: GlobalModel) -> None:
        """Take in a published global model, in any order."""
        if model.version > self.global_.version:
            self.global_ = model

    def predict(self, x_global: Matrix, x_local: Matrix) -> F32:
        """f(x^g; w^g) + f(x^l; w_i)."""
        self.settle()
        joint = self._seen(x_global) + self._residual(x_local)
        return joint.astype(np.float32)

    def observe(self, x_global: Matrix, x_local: Matrix, y: F32) -> Upload:
        """Take in the samples of a round; what to send."""
        self.settle()
        residual = self._residual(x_local).astype(np.float32)
        bits, span = (self.rule.residual_bits if self.width else 0), self.rule.residual_span
        sent = quantise(residual, bits, span) if bits else np.zeros_like(residual)
        upload = Upload(
            self.client, self.round, self.global_.version, x_global, sent, y, bits, span
        )
        self._problem.add(x_local, self._seen(x_global)[:, None], y, self.weight, 0)
        self.round += 1
        self._settled = False
        return upload

    def settle(self) -> None:
        """The argmin, once a round."""
        due = self.round % self.rule.solve_every == 0
        if self.weights.size and due and not self._settled:
            self.weights = self._problem.solve(_ONE, self.weights)
        self._settled = True

    def _seen(self, x_global: Matrix) -> F64:
        seen: F64 = linear(x_global, self.global_.weights, self.constants[0], np.float64)
        return seen

    def _residual(self, x_local: Matrix) -> F64:
        residual: F64 = linear(x_local, self.weights, self.constants[1], np.float64)
        return residual


class Server:
    """The server of fictitious play.

    Parameters are those of `fedres.algorithms.sgd.Server`.
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
        self._problem: Problem = problem(rule, width, model.constant)
        self._begun = False

    def apply(self, upload: Upload) -> None:
        """Take in samples with the residuals they were sent with."""
        residual = upload.residual.astype(np.float64)[:, None]
        weight = self._weights.get(upload.client, 1.0)
        self._problem.add(upload.x_global, residual, upload.y, weight, 0)
        self._begun = True

    def publish(self) -> GlobalModel:
        """Close the round: the argmin over all samples so far."""
        self.version += 1
        if self._begun and self.version % self.rule.solve_every == 0:
            self.weights = self._problem.solve(_ONE, self.weights)
        return GlobalModel(self.version, self.weights.astype(np.float32), -np.inf, np.inf)

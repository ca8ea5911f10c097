"""FedRes.SGD.Client with any local model: see `fedres.core.sgd` for the algorithm.

    client   sends Z = (x^g, f(x^l), y); its learner learns y, given f(x^g; w^g)

The server stays that of `fedres.core.sgd`: f(x^l) is all it ever sees of a local model.
"""

from typing import Any

import numpy as np

from fedres.core import parties
from fedres.core.messages import Upload
from fedres.core.rule import Rule
from fedres.core.types import F32, Matrix
from fedres.core.views import as_matrix
from fedres.learners.foreign_side import Foreign
from fedres.learners.local_learner import LocalLearner


class LearnerClient(parties.Client):
    """A client of FedRes.SGD whose local model is a `LocalLearner`.

    Where its learner fails or predicts something that is not a finite number, `predict` and
    `observe` raise, and the rows at hand are dropped: they never reach the server.

    Parameters
    ----------
    rule
        What clients and server agree on. Learners know only their newest model, so the alignment
        is ``arrival``, ``asymmetric`` or ``late``, not ``aligned``.
    width_global
        Number of global features; 0 for no global model.
    learner
        Its local model.
    client
        Its number, in its uploads.
    name
        What errors call it; its number if None.

    Examples
    --------
    >>> from sklearn.linear_model import SGDRegressor
    >>> from fedres.learners import SklearnLearner
    >>> rule = Rule()
    >>> client = LearnerClient(rule, 2, SklearnLearner(SGDRegressor()))
    >>> server = parties.Server(rule, 2)
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
        learner: LocalLearner,
        client: int = 0,
        name: Any = None,
    ) -> None:
        # `local`, a model without weights, only keeps the range of the labels seen.
        super().__init__(rule, width_global, width_local=0, client=client)
        self.learner = learner
        self.name = client if name is None else name
        self._width_global = width_global
        self._bits = rule.residual_bits
        check_learner(rule, learner, self.name)

    def predict(self, x_global: Matrix, x_local: Matrix) -> F32:
        """f(x^g; w^g) + f(x^l), clipped to the labels seen; learns nothing."""
        x_global = self._global_rows(x_global, x_local.shape[0], "x_local")
        return self.local.clip(self.global_.f(x_global) + self._local_side(x_local).say(0, x_local))

    def observe(self, x_global: Matrix, x_local: Matrix, y: F32) -> Upload | None:
        """Learn from samples; an upload once the batch is full, else None."""
        y = np.asarray(y, np.float32)
        if y.shape != x_local.shape[:1] or not y.size or not np.isfinite(y).all():
            raise ValueError(
                f"y must be one finite label for each of {x_local.shape[0]} rows, not {y}"
            )
        self.rule.loss.check(y)
        return super().observe(self._global_rows(x_global, len(y), "y"), x_local, y)

    def _local_side(self, x_local: Matrix) -> Foreign:
        return Foreign(
            [self.learner], [self.name], [x_local], np.zeros(2, np.int64), self.local.models
        )

    def _global_rows(self, x: Matrix, rows: int, beside: str) -> Matrix:
        x = as_matrix(x, "x_global", x.shape[0])
        if x.shape != (rows, self._width_global):
            raise ValueError(
                f"x_global has {x.shape[0]} rows of {x.shape[1]} features, {beside} has {rows} "
                f"rows and the global model {self._width_global} features"
            )
        return x


def check_learner(rule: Rule, learner: LocalLearner, name: Any) -> None:
    """Refuse a learner that cannot follow a rule."""
    if rule.alignment == "aligned":
        raise ValueError(
            "learners know only their newest model and cannot step along a gradient at an older "
            "one as alignment='aligned' asks: use 'late', or 'arrival'"
        )
    if learner.loss != rule.loss.name:
        raise ValueError(
            f"{learner!r} of client {name!r} learns the {learner.loss} loss, the "
            f"federation the {rule.loss.name} loss: all must learn the same"
        )

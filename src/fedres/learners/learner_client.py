"""FedRes.SGD.Client with any local model: see `fedres.core.sgd` for the algorithm.

    client   sends Z = (x^g, f(x^l), y); its learner learns y, given f(x^g; w^g)

The server stays that of `fedres.core.sgd`: f(x^l) is all it ever sees of a local model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedres.core import sgd
from fedres.core.messages import Upload
from fedres.core.types import F32, Matrix
from fedres.core.views import as_matrix
from fedres.learners.protocol import LocalLearner


class LearnerClient(sgd.Client):
    """A client of FedRes.SGD whose local model is a `LocalLearner`.

    Where its learner fails or predicts something that is not a finite number, `predict` and
    `observe` raise, and the rows at hand are dropped: they never reach the server.

    Parameters
    ----------
    rule
        What clients and server agree on. Learners learn at once, so the alignment is
        ``arrival`` or ``asymmetric``.
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
    >>> rule = sgd.Rule()
    >>> client = LearnerClient(rule, 2, SklearnLearner(SGDRegressor()))
    >>> server = sgd.Server(rule, 2)
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
        rule: sgd.Rule,
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
        if rule.alignment == "aligned":
            raise ValueError(
                "learners learn at once and cannot wait for the server as alignment='aligned' "
                "asks: use 'arrival'"
            )
        if learner.loss != rule.loss.name:
            raise ValueError(
                f"{learner!r} of client {self.name!r} learns the {learner.loss} loss, the "
                f"federation the {rule.loss.name} loss: all must learn the same"
            )

    def predict(self, x_global: Matrix, x_local: Matrix) -> F32:
        """f(x^g; w^g) + f(x^l), clipped to the labels seen; learns nothing."""
        x_global = self._global_rows(x_global, x_local.shape[0], "x_local")
        return self.local.clip(self._seen(x_global) + self._residual(x_local))

    def observe(self, x_global: Matrix, x_local: Matrix, y: F32) -> Upload | None:
        """Learn from samples; an upload once the batch is full, else None."""
        y = np.asarray(y, np.float32)
        if y.shape != x_local.shape[:1] or not y.size or not np.isfinite(y).all():
            raise ValueError(
                f"y must be one finite label for each of {x_local.shape[0]} rows, not {y}"
            )
        self.rule.loss.check(y)
        return super().observe(self._global_rows(x_global, len(y), "y"), x_local, y)

    def _learn(self, x_local: Matrix, y: F32, seen: F32) -> F32:
        residual = self._residual(x_local)
        with self._naming_it("learn"):
            self.learner.learn(x_local, y, seen)
        self.local.see(y)
        return residual

    def _global_rows(self, x: Matrix, rows: int, beside: str) -> Matrix:
        x = as_matrix(x, "x_global", x.shape[0])
        if x.shape != (rows, self._width_global):
            raise ValueError(
                f"x_global has {x.shape[0]} rows of {x.shape[1]} features, {beside} has {rows} "
                f"rows and the global model {self._width_global} features"
            )
        return x

    def _residual(self, x_local: Matrix) -> F32:
        with self._naming_it("predict"):
            return _finite(self.learner.predict(x_local), x_local.shape[0])

    @contextmanager
    def _naming_it(self, task: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise ValueError(
                f"{self.learner!r} of client {self.name!r} could not {task}, and nothing was "
                f"sent: {error}"
            ) from error


def _finite(said: ArrayLike, rows: int) -> F32:
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf, and is refused
        residual = np.asarray(said, np.float32)
    if residual.shape != (rows,):
        raise ValueError(
            f"it must give {rows} numbers, one a row, not an array of shape {residual.shape}"
        )
    if (bad := residual[~np.isfinite(residual)]).size:
        raise ValueError(f"it must give finite numbers, not {bad[0]}")
    return residual

"""The local side of a federation when local models are objects: a `LocalLearner` a client.

    client   sends Z = (x^g, f(x^l), y); its learner learns y, given f(x^g; w^g)

A learner has only its newest model, as Vowpal Wabbit has: it can learn at once, or learn an example
late (alignment ``late``), but not take a gradient at a model that it had (``aligned``). Nothing
else differs from linear local models: the clock, the global side and the messages are those of
`fedres.core`. A learner cannot be compiled, so neither can such a run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedres.core.primitives import Models
from fedres.core.sgd import (
    ALIGNMENTS,
    Linear,
    Message,
    Terms,
    bounds,
    deliver,
    evaluate,
    learn,
    learn_waiting,
)
from fedres.core.types import F32, I64, Matrix
from fedres.learners.local_learner import LocalLearner

LATE = ALIGNMENTS.index("late")


class Foreign(NamedTuple):
    """Learners, their names in errors, and the rows of each client from `row_start` on."""

    learners: list[LocalLearner]
    names: list[Any]
    rows: list[Matrix]
    row_start: I64
    models: Models  # without weights: they keep the range of the labels that a client has seen

    def features(self, message: Message) -> Matrix:
        """Local features of samples under way."""
        i, flight, first, last = message
        return self.rows[i][flight.row[first:last] - self.row_start[i]]

    def say(self, i: int, x: Matrix) -> F32:
        """What a learner predicts, if it is finite numbers."""
        with self.naming_it(i, "predict"):
            return _finite(self.learners[i].predict(x), x.shape[0])

    @contextmanager
    def naming_it(self, i: int, task: str) -> Iterator[None]:
        """Say of an error whose learner made it."""
        try:
            yield
        except Exception as error:
            raise ValueError(
                f"{self.learners[i]!r} of client {self.names[i]!r} could not {task}, and nothing "
                f"was sent: {error}"
            ) from error


@evaluate.register
def _(side: Foreign, m: int, message: Message, out: F32) -> None:
    if message.last > message.first:
        said = side.say(message.client, side.features(message))
        out[message.first : message.last] = said


@bounds.register
def _(side: Foreign, m: int) -> tuple[Any, Any]:
    return side.models.low[m], side.models.high[m]


@learn.register
def _(local: Foreign, terms: Terms, message: Message) -> None:
    if terms.alignment != LATE:
        teach(local, message)


def teach(local: Foreign, message: Message) -> None:
    """Let a learner learn samples, given what the global model says of them."""
    i, flight, first, last = message
    y = flight.label[first:last].copy()
    with local.naming_it(i, "learn"):
        x = local.features(message)
        local.learners[i].learn(x, y, flight.seen[first:last].copy())
    models = local.models
    models.low[i], models.high[i] = min(models.low[i], y.min()), max(models.high[i], y.max())


deliver.register(Foreign)(deliver.dispatch(Linear))


@learn_waiting.register
def _(local: Foreign, terms: Terms, global_: Any, version: int, message: Message) -> None:
    evaluate(global_, version, message, message.flight.seen)
    teach(local, message)


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

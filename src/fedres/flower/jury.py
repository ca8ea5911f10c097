"""What an upload does to the other clients, judged on rows that they sent themselves.

Checks keep out what is malformed, and clipping bounds the slope of a row, but a client that pulls
the wrong way in every row within those bounds still wins against nine that have almost learned
their task. The server holds what tells: (x^g, residual, y) of everyone. Two figures are kept of a
client, as means over its last uploads:

    harm   how much an upload would raise the loss of the median other client, as a share of it
    pull   the loss of the client's own rows, as a share of that of the best constant prediction

Single uploads of honest clients do harm, too, and those of a minority with another truth do so
always; but nobody's models stay worse than knowing nothing, and whoever wants to move the global
model must send rows that it gets wrong. So a client that does harm and pulls is not used, nor one
that does very much harm. It is judged all the same, and comes back when it has changed. Who is not
used does not judge.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np

from fedres.core.losses import Loss
from fedres.core.messages import Upload
from fedres.core.one_against_all import OutputModels
from fedres.core.types import F32, F64, Matrix

JURIES = ("own-history", "off")
ROWS = 64  # of each client
FEWEST, MOST = 2, 50  # clients that judge
KEPT = 200  # clients whose rows are held
HARM, PULL = 0.02, 1.35  # means that are too much together,
MUCH_HARM, MUCH_PULL = 0.1, 2.0  # and alone: more than honest minorities have, see bench-hostile
WORST = 0.25  # harm of one upload: more is cut to this, whoever sends it
MEMORY = 8  # uploads that the mean is over,
CREDIT = 2  # with so many harmless ones before the first
FLOOR = 0.1  # of the largest loss so far: when all is learned, nothing that happens is harm


class Record(Protocol):
    """What is remembered of a client."""

    judged: int
    harm: float
    pull: float


def held(record: Record) -> bool:
    """Whether a client's uploads are not used."""
    much = record.harm > MUCH_HARM or record.pull > MUCH_PULL
    return much or (record.harm > HARM and record.pull > PULL)


class JuryRows(NamedTuple):
    """The newest rows of a client."""

    x_global: Matrix
    residual: F32
    y: F32


def _as_it_is(y: F32) -> F32:
    return y[None]


class Jury:
    """The newest rows of the clients heard last, and what uploads did to them.

    Parameters
    ----------
    loss
        Of one output and row; those of several outputs are averaged.
    targets
        From labels to what each output is to predict, (outputs, rows).

    Examples
    --------
    >>> from fedres.core.losses import SQUARED
    >>> from fedres.core.rule import Rule
    >>> from fedres.core.steps import Sgd
    >>> from fedres.flower.members import Member
    >>> jury, model = Jury(SQUARED), OutputModels(1, 1, Rule(Sgd(0.1)), Sgd(0.1))
    >>> x, y = np.float32([[1.0]]), np.float32([1.0])
    >>> members = {name: Member() for name in "abcd"}
    >>> for client in "abc":
    ...     jury.hear(client, Upload(0, 0, 0, x, np.float32([0.0]), y))
    >>> def astray():
    ...     model.weights[:] -= 1
    >>> jury.apply(model, "d", members, Upload(0, 0, 0, x, np.float32([0.0]), -y), astray)
    0.0
    >>> model.weights
    array([0., 0.], dtype=float32)
    """

    def __init__(self, loss: Loss, targets: Callable[[F32], F32] = _as_it_is) -> None:
        self._loss, self._targets = loss, targets
        self.scale = 0.0  # the largest median loss so far
        self.heard: dict[str, JuryRows] = {}

    def hear(self, client: str, upload: Upload) -> None:
        """Keep the newest rows of a client."""
        rows = JuryRows(upload.x_global, upload.residual, upload.y)
        before = self.heard.pop(client, None)
        if before is not None and len(upload.y) < ROWS:
            rows = JuryRows(*(_stacked([old, new]) for old, new in zip(before, rows, strict=True)))
        # A copy: a view would keep the whole upload.
        self.heard[client] = JuryRows(*(part[-ROWS:].copy() for part in rows))
        if len(self.heard) > KEPT:
            del self.heard[next(iter(self.heard))]

    def apply(
        self,
        model: OutputModels,
        client: str,
        records: Mapping[str, Record],
        upload: Upload,
        step: Callable[[], object],
    ) -> float:
        """Let a step on an upload change the model as far as the others bear it; the share."""
        judges = self._judges(client, records)
        if len(judges) < FEWEST:
            step()
            return 1.0
        before = self._losses(model, judges)
        pull = self._pull(model, upload, judges)
        weights, squares = model.weights.copy(), model.squares.copy()
        step()
        harm = self._harm(before, self._losses(model, judges))
        record = records[client]
        record.judged = min(record.judged + 1, MEMORY)
        weight = 1 / (record.judged + CREDIT)
        record.harm += weight * (float(np.clip(harm, -WORST, 1.0)) - record.harm)
        record.pull += weight * (min(pull, 4.0) - record.pull)
        if held(record):
            share = 0.0
        elif harm > WORST:
            share = WORST / harm
        else:
            return 1.0
        model.weights[:] = weights + np.float32(share) * (model.weights - weights)
        model.squares[:] = squares + np.float32(share**2) * (model.squares - squares)
        return float(share)

    def _judges(self, client: str, records: Mapping[str, Record]) -> list[JuryRows]:
        """Rows of the clients heard last, but for that one and those that are held back."""
        others = (
            self.heard[name]
            for name in reversed(self.heard)
            if name != client and not held(records[name])
        )
        return list(islice(others, MOST))

    def _losses(self, model: OutputModels, judges: list[JuryRows]) -> F64:
        """Mean loss of each judge."""
        x, residual, y = (_stacked(list(parts)) for parts in zip(*judges, strict=True))
        joint = model.clip(model.f(x) + residual.reshape(len(y), -1).T)
        losses = self._loss.value(joint, self._targets(y)).astype(np.float64).mean(axis=0)
        counts = np.array([len(rows.y) for rows in judges])
        means: F64 = np.add.reduceat(losses, np.cumsum(counts) - counts) / counts
        return means

    def _pull(self, model: OutputModels, upload: Upload, judges: list[JuryRows]) -> float:
        """The loss of an upload's rows, as a share of what a constant has on the judges' rows."""
        wanted = self._targets(np.concatenate([rows.y for rows in judges]))
        ignorant = float(self._loss.value(self._constant(wanted), wanted).mean())
        own = self._losses(model, [JuryRows(upload.x_global, upload.residual, upload.y)])[0]
        return float(own / ignorant) if ignorant else 0.0

    def _constant(self, wanted: F32) -> F32:
        """The best constant prediction of each output: the mean label, or its log odds."""
        mean = wanted.mean(axis=1, keepdims=True)
        if self._loss.labels is None:
            return np.asarray(mean, np.float32)
        most = 1 - 1 / wanted.shape[1]  # no odds are infinite
        return np.asarray(2 * np.arctanh(mean.clip(-most, most)), np.float32)

    def _harm(self, before: F64, after: F64) -> float:
        """The harm that at least half of the judges have, as a share of the median loss."""
        self.scale = max(self.scale, float(np.median(before)))
        usual = max(float(np.median(before)), FLOOR * self.scale)
        middle = float(np.sort(after - before)[(len(before) - 1) // 2])
        return middle / usual if usual else 0.0


def _stacked(parts: list[Matrix]) -> Matrix:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    from scipy import sparse

    # A client may send dense rows now and sparse ones then.
    return sparse.csr_array(sparse.vstack([sparse.csr_array(part) for part in parts]))

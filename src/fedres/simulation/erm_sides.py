"""The sides of FedRes.ERM and fictitious play, made of a federation."""

from typing import Any

import numpy as np

from fedres.core.erm import ErmRule, EverySample, Minimiser, PlayRule, Sums
from fedres.core.losses import SQUARED
from fedres.core.messages import Ledger
from fedres.core.primitives import View
from fedres.core.sgd import Many, Terms
from fedres.core.types import F32, F64, I64
from fedres.core.views import client_rows, is_sparse
from fedres.simulation.federation import Federation, Rows
from fedres.simulation.message_bytes import count_bytes
from fedres.simulation.run import LocalWeights
from fedres.simulation.settings import Settings


class ErmSides:
    """What the clock needs, and what a run of it left behind."""

    allocates = True
    dtype = np.float64

    def __init__(self, federation: Federation, settings: Settings, rule: ErmRule) -> None:
        self.federation, self.settings, self.rule = federation, settings, rule
        rows, clients = federation.train, len(federation.clients)
        self.plan = settings.plan(federation, settings.delay)
        self.times = self.plan.times
        self.remembers = isinstance(rule, PlayRule)
        self.bits = rule.residual_bits if isinstance(rule, PlayRule) else 0
        low, high, unbounded = np.array([*settings.residual_span(federation), np.inf], np.float32)
        weights = settings.weights(federation)
        self.terms = Terms(settings.loss.number, 0, False, unbounded, self.bits, low, high, weights)
        self.xl = rows.x_local
        self.constant = (self.xl.width > 0) & settings.constant
        views = (rows.x_global,) if self.remembers else (rows.x_global, rows.x_local)
        self.packed = any(view.sparse for view in views)
        self.stored = np.sum([_stored(view, rows, self.packed) for view in views], axis=0)
        self.kinds: tuple[type, ...] = (Minimiser, Sums)
        # Beside a solve, a loop over one sample is nothing: not worth a kernel of its own.
        self.samples = Many(settings.batch, np.zeros(self.plan.depth * clients, np.int32))
        self._begin(self.plan.depth * clients)

    def _begin(self, places: int) -> None:
        settings, rows, clients = self.settings, self.federation.train, len(self.terms.weight)
        xg, xl = (_padded(view, rows, settings.constant) for view in (rows.x_global, rows.x_local))
        self.begin_global, begin = settings.initial(
            self.federation, self.federation.width_global, self.xl.width
        )
        versions = np.zeros((self.times.history, xg.shape[1]))
        own = np.zeros((clients, xl.shape[1]))
        versions[0] = self.begin_global
        for i, weights in enumerate(begin):
            width = self.xl.width[i]
            own[i, :width] = weights[:width]
            if self.constant[i]:
                own[i, -1] = weights[-1]
        shared = (
            self.remembers,
            self.rule.solve_every,
            np.inf if settings.radius is None else float(settings.radius),
            np.zeros(clients, np.int64),
            np.zeros((places, xl.shape[1])),
            np.full(clients, -1),
            np.zeros((clients, xl.shape[1])),
        )
        self.global_ = Minimiser(xg, xl, versions, self._problem(1, xg, xl), *shared)
        self.local = Minimiser(xl, xg, own, self._problem(clients, xl, xg), *shared)

    def _problem(self, count: int, x: F64, z: F64) -> Sums | EverySample:
        if self.settings.loss != SQUARED:
            return EverySample(
                self.settings.loss.of_sum, self.rule.ridge, [[] for _ in range(count)]
            )
        size, linked = x.shape[1], 0 if self.remembers else len(self.terms.weight)
        return Sums(
            np.tile(self.rule.ridge * np.eye(size), (count, 1, 1)),
            np.zeros((count, size)),
            np.zeros((linked, z.shape[1], size)),
        )

    def test(self, compile_: Any) -> F32:  # noqa: ARG002
        """The final models on the test rows."""
        test = self.federation.test
        assert test is not None
        x, z = (_padded(v, test, self.settings.constant) for v in (test.x_global, test.x_local))
        owner = np.repeat(np.arange(len(test.counts)), test.counts)
        seen = (x * self._final()).sum(axis=1)
        return np.asarray(seen + (z * self.local.weights[owner]).sum(axis=1), np.float32)

    def weights(self) -> tuple[F32, LocalWeights]:
        """The final models."""
        width, constant = self.xl.width, self.constant
        start = np.concatenate([[0], np.cumsum(width + constant)]).astype(np.int64)
        own = np.zeros(start[-1], np.float32)
        for i, weights in enumerate(self.local.weights):
            own[start[i] : start[i] + width[i]] = weights[: width[i]]
            if constant[i]:
                own[start[i + 1] - 1] = weights[-1]
        kept = constant.astype(np.float32)
        return self._final().astype(np.float32), LocalWeights(
            own, start[:-1], width, kept, None, width
        )

    def _final(self) -> F64:
        weights: F64 = self.global_.weights[self.times.rounds % self.times.history]
        return weights

    def ledger(self, features: int) -> Ledger:
        """The size of all messages, `features` being the values in them."""
        bits = np.where(self.xl.width > 0, self.bits, 0)
        # ERM sends its local model with every upload
        extra = 0 if self.remembers else 4 * (self.xl.width + self.constant)
        return count_bytes(self.federation, self.settings, bits, self.packed, features, extra)


def _padded(view: View, rows: Rows, constant: bool) -> F64:
    """All rows, dense, as wide as the widest client, the constant last."""
    most = int(view.width.max())
    padded = np.zeros((int(rows.row_start[-1]), most + (constant and most > 0)))
    for i, width in enumerate(view.width):
        part, x = slice(*rows.row_start[i : i + 2]), client_rows(view, rows.row_start, i)
        padded[part, :width] = x.toarray() if is_sparse(x) else x
        padded[part, most:] = width > 0
    return padded


def _stored(view: View, rows: Rows, packed: bool) -> I64:
    """Values that each row takes in a message: all of them, or those that are not zero."""
    width = np.repeat(view.width, rows.counts)
    if view.sparse:
        width = np.diff(view.indptr)
    elif packed:
        starts = np.concatenate([[0], np.cumsum(width)])
        width = np.diff(np.concatenate([[0], np.cumsum(view.values != 0)])[starts])
    return width

"""The sides of FedRes.SGD and its two baselines, made of a federation."""

from typing import Any

import numpy as np

from fedres.core.delays import Delay
from fedres.core.messages import Ledger
from fedres.core.primitives import View, predict_row
from fedres.core.rule import Rule
from fedres.core.schedule import never
from fedres.core.sgd import Linear, new_models
from fedres.core.types import F32, I64
from fedres.simulation.federation import Federation, sides
from fedres.simulation.message_bytes import count_bytes
from fedres.simulation.run import LocalWeights
from fedres.simulation.settings import Settings, SgdOptions
from fedres.simulation.sparse_columns import known_columns, own_columns


class SgdSides:
    """What the clock needs, and what a run of it left behind."""

    kinds: tuple[type, ...] = (Linear,)
    samples = None
    allocates = False
    dtype = np.float32

    def __init__(self, federation: Federation, settings: Settings, options: SgdOptions) -> None:
        self.federation, self.settings, self.options = federation, settings, options
        rows = federation.train
        self.xg, self.xl = sides(federation, rows, settings.method)
        self.full_width = self.xl.width
        self.columns = None
        if self.xl.sparse and settings.initial_local is None:
            self.xl, self.columns = own_columns(self.xl, rows.row_start)
        self.connected = bool(self.xg.width[0])  # else no server, and nothing to wait for
        self.plan = settings.plan(
            federation,
            settings.delay if self.connected else Delay(),
            waits=self.connected and options.alignment in ("aligned", "late"),
            frozen=not options.step.adaptive,
        )
        self.times = self.plan.times
        alignment = options.alignment
        if not self.connected:
            self.times = self.times._replace(due_server=never(self.times.rounds))
            alignment = "arrival"
        if not self.xl.width.any():  # no client has a model, and none has to learn
            rounds = self.times.rounds
            self.times = self.times._replace(
                at_once=False, labelled=never(rounds), due_local=never(rounds + 1)
            )
        rule = Rule(
            options.step,
            settings.loss,
            alignment,
            settings.batch,
            settings.radius,
            settings.constant,
            options.residual_bits,
            settings.residual_span(federation),
            # alone, a client has only one model, and one step
            options.local_step if settings.method == "fedres" and self.connected else None,
        )
        self.terms = rule.terms(settings.weights(federation))
        self.stored = np.diff(self.xg.indptr) if self.xg.sparse else None
        self._begin(rule)

    def _begin(self, rule: Rule) -> None:
        settings, xg, xl = self.settings, self.xg, self.xl
        self.global_ = linear_side(xg, xg.width[:1], rule, rule.step.eta, self.times.history)
        self.local = linear_side(xl, xl.width, rule, rule.step_of_clients.eta)
        self.begin_global, begin = settings.initial(self.federation, int(xg.width[0]), xl.width)
        self.global_.models.weights[: len(self.begin_global)] = self.begin_global
        if settings.initial_local is not None:
            for weights, start in zip(begin, self.local.models.start, strict=True):
                self.local.models.weights[start : start + len(weights)] = weights

    def test(self, compile_: Any) -> F32:
        """The final models on the test rows."""
        test = self.federation.test
        assert test is not None
        tested = np.empty(len(test.y), np.float32)
        xg, xl = sides(self.federation, test, self.settings.method)
        if self.columns is not None:
            xl = known_columns(xl, test.row_start, self.columns, self.xl.width)
        global_, local = self.global_._replace(x=xg), self.local._replace(x=xl)
        version = self.times.rounds % self.times.history
        compile_(joint)(global_, version, local, test.row_start, tested)
        return tested

    def weights(self) -> tuple[F32, LocalWeights]:
        """The final models."""
        shared, own = self.global_.models, self.local.models
        start = shared.start[self.times.rounds % self.times.history]
        return shared.weights[start : start + len(self.begin_global)].copy(), LocalWeights(
            own.weights, own.start, self.full_width, own.constant, self.columns, self.xl.width
        )

    def ledger(self, features: int) -> Ledger:
        """The size of all messages, `features` being the values in them if rows are sparse."""
        settings, xg = self.settings, self.xg
        if not self.connected:
            return Ledger()
        bits = np.where(self.xl.width > 0, self.options.residual_bits, 0)
        if not xg.sparse:
            features = int((settings.seen(self.federation) * xg.width).sum())
        ledger = count_bytes(self.federation, settings, bits, xg.sparse, features)
        if self.options.alignment == "aligned":
            ledger.down += 4 * self.plan.arrivals
        return ledger


def joint(global_: Linear, version: int, local: Linear, row_start: I64, out: F32) -> None:
    """The sum of both models on every row, not clipped."""
    for i in range(len(row_start) - 1):
        for row in range(row_start[i], row_start[i + 1]):
            out[row] = predict_row(global_.models, version, global_.x, i, row, 0) + predict_row(
                local.models, i, local.x, i, row, 0
            )


def linear_side(x: View, width: I64, rule: Rule, eta: float, versions: int = 1) -> Linear:
    """Models of these widths at zero, and what they learn from."""
    return Linear(
        x,
        new_models(width, rule.constant, rule.reach, versions),
        np.float32(eta),
        np.zeros(int(width.max()) + 1, np.float32),
    )

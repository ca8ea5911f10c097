"""The result of a run."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedres.data.federation import Federation
from fedres.simulation.settings import Settings
from fedres.types import F32, F64


@dataclass(frozen=True)
class Run:
    """What a run leaves behind.

    Attributes
    ----------
    federation, settings
        What was run.
    predictions
        (clients, rounds): the joint predictions as they were made; NaN where a client rested.
    loss
        The average progressive loss, weighted by lambda: the left side of the regret.
    loss_by_round, loss_by_client
        The same by round of `batch` samples, and (not weighted) by client.
    w_global, w_local
        The models at the end, the constant's weight last if there is one; `w_local` has one
        a client.
    bytes_up, bytes_down
        What the scheme would have sent.
    test_predictions
        Joint predictions of the final models on the test rows, not clipped.
    seconds
        Time spent in the rounds.
    """

    federation: Federation
    settings: Settings
    predictions: F32 = field(repr=False)
    loss: float
    loss_by_round: F64 = field(repr=False)
    loss_by_client: F64 = field(repr=False)
    w_global: F32 = field(repr=False)
    w_local: list[F32] = field(repr=False)
    bytes_up: int
    bytes_down: int
    test_predictions: F32 | None = field(repr=False)
    seconds: float = field(compare=False)

    @cached_property
    def accuracy_per_client(self) -> F64:
        """The share of its test rows that each client gets right; NaN for one without any."""
        test = self.federation.test
        if test is None or self.test_predictions is None:
            raise ValueError("the federation has no test rows: give some with test=(...)")
        values = np.unique(self.federation.train.y)
        if len(values) > 2:
            raise ValueError(
                f"accuracy needs two labels, and there are {len(values)}: look at the loss instead"
            )
        right = (self.test_predictions > values.mean()) == (test.y > values.mean())
        correct = np.diff(np.concatenate([[0], np.cumsum(right)])[test.row_start])
        with np.errstate(invalid="ignore"):
            return np.asarray(correct / test.counts, np.float64)

    @property
    def accuracy(self) -> float:
        """Test accuracy, mean over clients."""
        return float(np.nanmean(self.accuracy_per_client))

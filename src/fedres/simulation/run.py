"""The result of a run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedres.core.display import Displayed, Grid
from fedres.core.types import F32, F64, I32, I64
from fedres.simulation.federation import Federation
from fedres.simulation.regret import RegretOver, regret_curve
from fedres.simulation.settings import NAMES, Method, Settings


@dataclass(frozen=True, eq=False, repr=False)
class LocalWeights(Sequence[F32]):
    """The local models of a run, unpacked when one is asked for."""

    weights: F32  # end to end
    start: I64  # where each client's begin
    width: I64  # features a client
    constant: F32  # 1 where a constant's weight follows them
    # Where sparse features were numbered anew: which columns the weights belong to, and how many
    # each client has. All other weights are zero.
    columns: I32 | None
    stored: I64

    @cached_property
    def _first(self) -> I64:
        return np.concatenate([[0], np.cumsum(self.stored)])

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"there are {len(self)} clients, and no client {i}")
        i = i % len(self)
        a, n, constant = self.start[i], self.stored[i], int(self.constant[i])
        if self.columns is None:
            return self.weights[a : a + n + constant]
        weights = np.zeros(int(self.width[i]) + constant, np.float32)
        weights[self.columns[self._first[i] : self._first[i + 1]]] = self.weights[a : a + n]
        if constant:
            weights[-1] = self.weights[a + n]
        return weights


@dataclass(frozen=True, repr=False)
class Run(Displayed):
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
        Time spent in the rounds and on the test rows.
    global_path
        (rounds of `batch` samples + 1, weights): the global model after each, if it was kept.
    experts
        Of a mixture: the runs that it mixes, by method; models and path above are FedRes's.
    expert_weights
        Of a mixture: (clients, experts), the share of each expert at the end.
    """

    federation: Federation
    settings: Settings
    predictions: F32
    loss: float
    loss_by_round: F64
    loss_by_client: F64
    w_global: F32
    w_local: Sequence[F32]
    bytes_up: int
    bytes_down: int
    test_predictions: F32 | None
    seconds: float = field(compare=False)
    global_path: F32 | None = None
    experts: Mapping[Method, "Run"] = field(default_factory=dict)
    expert_weights: F64 | None = None

    @cached_property
    def accuracy_per_client(self) -> F64:
        """The share of its test rows that each client gets right; NaN for one without any."""
        test = self.federation.test
        if test is None or self.test_predictions is None:
            raise ValueError("the federation has no test rows: give some with test=(...)")
        values = self.federation.label_values
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

    def regret(self, over: RegretOver = "weight") -> F64:
        """The average regret after each round of `batch` samples.

        How much the run lost so far to the pair of models that is best for all the samples it saw,
        weighted by lambda.

        Parameters
        ----------
        over
            What the sum is divided by: the ``weight`` of the samples so far, or ``PT``, clients
            times rounds so far, as in equation (1) of the paper.

        Examples
        --------
        >>> import fedres
        >>> x, y = np.ones((3, 1)), [1.0, 1.0, 1.0]
        >>> uneven = fedres.Federation.from_arrays(x, None, y, client=["ann", "bob", "bob"])
        >>> run = fedres.simulate(uneven, step=fedres.Sgd(0.25), constant=False)
        >>> run.regret(), run.regret(over="PT")  # ann rests in the second round
        (array([1.        , 0.66666667]), array([1. , 0.5]))
        """
        return regret_curve(self.federation, self.settings, self.predictions, over)

    def _display(self) -> Iterator[str | Grid]:
        from rich.filesize import decimal

        clients, rounds = self.predictions.shape
        yield f"Run on {self.federation.name}: {clients:,} clients, {rounds:,} rounds"
        rows = [
            [
                NAMES.get(method, method),
                f"{run.loss:.4f}",
                run._accuracy_in_words(),
                decimal(run.bytes_up),
                decimal(run.bytes_down),
                f"{run.seconds:.3g}",
            ]
            for method, run in {**self.experts, self.settings.method: self}.items()
        ]
        heads = ("method", "loss", "test accuracy", "sent up", "sent down", "seconds")
        yield Grid(heads, rows)

    def _accuracy_in_words(self) -> str:
        """Return the test accuracy, or nothing if it is not defined."""
        try:
            return f"{self.accuracy:.3f}"
        except ValueError:
            return ""

"""What held-out rows say of each method, and for which clients FedRes pays.

Means over rows have intervals over clients, since rows of one client are alike: errors are summed
by client, the mean is a ratio of such sums, and its variance is that of the clients' influences.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fedres.core.display import Displayed, Grid
from fedres.core.types import F64, I64
from fedres.simulation.intervals import Interval, interval
from fedres.tables.verdict_words import (
    FEWEST_CLIENTS,
    FEWEST_JUDGED,
    LABELS,
    WORDS,
    part,
    sentences,
    shown,
    sign,
)

if TYPE_CHECKING:
    from fedres.tables.estimator import FedResEstimator

Task = Literal["numbers", "classes"]
ComparedMethod = Literal["constant", "independent", "central", "fedres"]
METHODS: tuple[ComparedMethod, ...] = get_args(ComparedMethod)
OTHERS = METHODS[:-1]
# The first is what the verdict goes by: the loss that all methods are trained for.
METRICS = {"numbers": ("rmse", "mae"), "classes": ("log_loss", "accuracy")}
# Numbers of training rows at which a new group of clients may begin, if it has so many clients.
GROUPS = (0, 1, *(step * 10**power for power in range(12) for step in (2, 5, 10)))


class ClientCounts(NamedTuple):
    """For how many clients the error of FedRes is smaller, larger or the same.

    Clear are those whose own held-out rows tell, by a 95% interval: one in twenty does by chance.
    """

    gain: int
    lose: int
    same: int
    gain_clearly: int
    lose_clearly: int


class Group(NamedTuple):
    """Clients with `low` or more and less than `high` training rows, and what FedRes gains."""

    low: int
    high: int
    clients: int
    gain: Interval


class Example(NamedTuple):
    """One held-out row, and what its prediction by FedRes is made of.

    Attributes
    ----------
    why
        What it is an example of.
    client, label
        As the table has them.
    parts
        What each column adds: ``shared`` or ``client``, its name, and how much.
    interval
        Bounds that hold nine labels in ten; None where they are not known.
    """

    why: str
    client: Any
    label: Any
    parts: list[tuple[str, str, float]]
    interval: tuple[float, float] | None


@dataclass(frozen=True, repr=False)
class TableComparison(Displayed):
    """What `compare` found on a table.

    Attributes
    ----------
    task
        ``numbers`` or ``classes``.
    by_time
        Whether the last rows of each client were held out, and all of those who came last;
        otherwise random ones.
    training_rows
        How many rows the methods were trained on.
    client
        The number of the client of each held-out row, from 0. All have training rows.
    training_rows_of
        How many training rows each of these clients has.
    errors
        The errors of each method on held-out rows, by metric: squared, absolute or logarithmic,
        and for the accuracy 1 where the class is right.
    new
        The same of clients without any training row, if there are some.
    model
        FedRes as it was trained for this.
    chosen
        The parameters that each method chose.
    shared_losses
        Where ``shared="auto"``: the loss of each method with a linear shared model and with trees,
        on rows left out of training.
    examples
        Some held-out rows, and what their predictions are made of.

    Examples
    --------
    >>> client, fedres = np.repeat([0, 1, 2], 2), np.array([1, 1, 1, 1, 4, 4.0])
    >>> others = {method: {"rmse": np.full(6, 4.0)} for method in OTHERS}
    >>> found = TableComparison(
    ...     "numbers", False, 9, client, np.array([2, 3, 4]), others | {"fedres": {"rmse": fedres}}
    ... )
    >>> found.score("central", "rmse").mean, round(found.score("fedres", "rmse").mean, 3)
    (2.0, 1.414)
    >>> found.counts("central")
    ClientCounts(gain=2, lose=0, same=1, gain_clearly=2, lose_clearly=0)
    >>> [(group.low, group.high, group.gain.mean) for group in found.by_training_rows("central")]
    [(1, 5, 0.5857864376269049)]
    """

    task: Task
    by_time: bool
    training_rows: int
    client: I64
    training_rows_of: I64
    errors: dict[ComparedMethod, dict[str, F64]]
    new: "TableComparison | None" = None
    model: "FedResEstimator | None" = None
    chosen: dict[ComparedMethod, dict[str, Any]] = field(default_factory=dict)
    shared_losses: dict[ComparedMethod, dict[str, float]] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics; the verdict goes by the first, an error."""
        return METRICS[self.task]

    @cached_property
    def rows_of(self) -> I64:
        """How many held-out rows each client has."""
        return np.bincount(self.client)

    def score(self, method: ComparedMethod, metric: str) -> Interval:
        """A metric over all held-out rows."""
        value, influence = _measure(self._sums(method, metric), self.rows_of, metric)
        return Interval(value, interval(influence).half)

    def gain_over(self, method: ComparedMethod) -> Interval:
        """By how much the error of FedRes is smaller than that of another method."""
        return self._gain(method, np.ones(len(self.rows_of), bool))

    def gains_of_clients(self, method: ComparedMethod) -> F64:
        """The same for each client, on its own held-out rows."""
        metric = self.metrics[0]
        theirs, ours = (self._sums(one, metric) / self.rows_of for one in (method, "fedres"))
        gains: F64 = np.sqrt(theirs) - np.sqrt(ours) if metric == "rmse" else theirs - ours
        return gains

    def counts(self, method: ComparedMethod) -> ClientCounts:
        """How many clients gain and lose by FedRes against another method."""
        metric, n = self.metrics[0], self.rows_of
        gain = self.errors[method][metric] - self.errors["fedres"][metric]
        mean = np.bincount(self.client, gain) / n
        squares = np.bincount(self.client, (gain - mean[self.client]) ** 2)
        free = np.maximum(n - 1, 1)
        clear = (n > 1) & (np.abs(mean) > stdtrit(free, 0.975) * np.sqrt(squares / free / n))
        who = (mean > 0, mean < 0, mean == 0, clear & (mean > 0), clear & (mean < 0))
        return ClientCounts(*(int(is_it.sum()) for is_it in who))

    def by_training_rows(self, method: ComparedMethod) -> list[Group]:
        """The gain over another method, for clients with no or few training rows up to many."""
        rows = self.training_rows_of
        new = [] if self.new is None else self.new.by_training_rows(method)
        return new + [
            Group(low, high, int(who.sum()), self._gain(method, who))
            for low, high in pairwise(_groups(rows))
            if (who := (rows >= low) & (rows < high)).any()
        ]

    @property
    def judged_enough(self) -> bool:
        """Whether there are enough held-out rows and clients to recommend a method."""
        return len(self.client) >= FEWEST_JUDGED and len(self.rows_of) >= FEWEST_CLIENTS

    @property
    def recommended(self) -> ComparedMethod:
        """FedRes, unless another method is clearly better or Central, being simpler, as good.

        Without enough held-out rows and clients (`judged_enough`) it is FedRes, as a default.
        """
        if not self.judged_enough:
            return "fedres"
        others: tuple[ComparedMethod, ...] = ("central", "independent")
        better = [method for method in others if sign(self.gain_over(method)) < 0]
        if not better and self.gain_over("central").mean <= 0:
            return "central"
        error = self.metrics[0]
        return min(better, key=lambda method: self.score(method, error).mean, default="fedres")

    def verdict(self) -> str:
        """Say in plain words whether personal + shared pays; new clients have their own line."""
        return "\n".join(sentences(self))

    def protocol(self) -> str:
        """Return which rows were trained on and which were held out, in words."""
        which = "the last" if self.by_time else "random ones"
        new = self.new
        also = "" if new is None else f", and {_rows_of_new(new)}"
        return (
            f"trained on {self.training_rows:,} rows, judged on {len(self.client):,} held out "
            f"({which} of each client), of {len(self.rows_of):,} clients{also}"
        )

    def table(self) -> Grid:
        """Return what each method reaches on held-out rows, one row per method."""
        first, second = (WORDS[metric] for metric in self.metrics)
        heads = ["method", first, second, "FedRes gains", "clients better", "clients worse"]
        return Grid(heads, [self._row(method) for method in METHODS])

    def _row(self, method: ComparedMethod) -> list[str]:
        row = [LABELS[method], *(shown(self.score(method, metric)) for metric in self.metrics)]
        if method == "fedres":
            return [*row, "", "", ""]
        counts, clients = self.counts(method), len(self.rows_of)
        worse = f"{part(counts.lose, clients)} ({part(counts.lose_clearly, clients)})"
        return [*row, shown(self.gain_over(method)), part(counts.gain, clients), worse]

    def _display(self) -> Iterator[str | Grid]:
        yield f"Comparison {self.protocol()}"
        yield self.table()
        yield self.verdict()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "verdict": self.verdict(),
            "recommended": self.recommended if self.judged_enough else None,
            "task": self.task,
            "held_out": f"{'last' if self.by_time else 'random'} rows of each client",
            "training_rows": self.training_rows,
            **self._measured(),
            "new_clients": None if self.new is None else self.new._measured(),
        }

    def _measured(self) -> dict[str, Any]:
        error = self.metrics[0]
        return {
            "held_out_rows": len(self.client),
            "held_out_clients": len(self.rows_of),
            "methods": {
                method: {
                    name: value
                    for metric in self.metrics
                    for name, value in self.score(method, metric).named(metric).items()
                }
                for method in METHODS
            },
            "gain_of_fedres": {
                method: {
                    **self.gain_over(method).named(error),
                    "clients": self.counts(method)._asdict(),
                    "by_training_rows": [
                        {"low": low, "high": high, "clients": clients, **gain.named(error)}
                        for low, high, clients, gain in self.by_training_rows(method)
                    ],
                }
                for method in OTHERS
            },
        }

    def _sums(self, method: ComparedMethod, metric: str) -> F64:
        sums: F64 = np.bincount(self.client, self.errors[method][metric])  # type: ignore[assignment]
        return sums

    def _gain(self, method: ComparedMethod, who: NDArray[np.bool_]) -> Interval:
        metric, rows = self.metrics[0], self.rows_of[who]
        theirs, their_influence = _measure(self._sums(method, metric)[who], rows, metric)
        ours, our_influence = _measure(self._sums("fedres", metric)[who], rows, metric)
        return Interval(theirs - ours, interval(their_influence - our_influence).half)


def _rows_of_new(new: TableComparison) -> str:
    clients = len(new.rows_of)
    return f"{len(new.client):,} rows of {clients:,} new client{'s' * (clients > 1)}"


def _groups(rows: I64) -> list[int]:
    """Where groups begin, and where the last ends; clients without any row are one."""
    begins = [0, 1]
    for low in GROUPS[2:]:
        if ((rows >= begins[-1]) & (rows < low)).sum() >= FEWEST_CLIENTS:
            begins.append(low)
    if (rows >= begins[-1]).sum() < FEWEST_CLIENTS and begins[-1] > 1:
        begins.pop()
    return [*begins, int(rows.max()) + 1]


def _measure(sums: F64, rows: I64, metric: str) -> tuple[float, F64]:
    """A metric, and the influence of each client on it."""
    mean = sums.sum() / rows.sum()
    influence = (sums - mean * rows) / rows.mean()
    if metric == "rmse" and mean > 0:
        return float(np.sqrt(mean)), influence / (2 * np.sqrt(mean))
    return float(mean), influence

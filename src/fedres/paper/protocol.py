"""What is run for each figure of the paper (sections 6.3 to 6.5, appendix E), and beyond it.

T = 500 rounds, N0 = 30, accuracy on test rows of the client's own two classes. Independent is
without delay, as in the paper. FedRes is run in three forms: ``aligned``, the paper's Algorithms 3
and 4 by plain SGD with the step sizes of Theorem 2; and with the adaptive step ``arrival``, the
library's default, and ``late``, what an implementation on Vowpal Wabbit does. What the paper does
not state comes from a `Reading`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from fedres.core.sgd import Alignment
from fedres.paper.readings import READING_SEEDS_FROM, Reading
from fedres.simulation.settings import Method
from fedres.simulation.split import federate
from fedres.simulation.sweep import Case, dataset

SETS = ("letter", "pendigits", "shuttle", "covtype", "mnist", "satimage", "sensorless", "usps")
CLIENTS = (5, 10, 20, 35, 50, 75, 100)
MANY, FEW = 50, 10
DELAYS = (0, 10, 20, 40, 80, 120, 160, 200)
BITS = (1, 2, 3, 4, 6, 8, 16, 32)
BATCHES = (1, 2, 5, 10, 25)
ERM_BATCHES, ERM_RIDGE, ERM_WIDEST = (10, 25), 1.0, 64  # beyond, a run of ERM takes minutes

FIGURES = {
    "overall": "Figures 1 and 2: accuracy without delay",
    "clients": "Figures 3, 4 and 8: accuracy against the number of clients",
    "delay": "Figures 5, 9 and 10: accuracy against delay",
    "clients-delay": "Figures 11 and 12: accuracy against the number of clients, with delay",
    "bits": "Beyond the paper: bits a residual",
    "bytes": "Beyond the paper: accuracy against bytes sent, with batches of 1 to 25 samples",
    "local-all": "Beyond the paper: local models on all features",
    "newcomers": "Beyond the paper: the first samples of clients that join later",
    "readings": "What depends on what the paper does not state",
    "appendix-c": "Figures 6 and 7: SGD, ERM and fictitious play",
    "regret": "Measured regret, beside Theorem 2",
}
SYNTHETIC = ("appendix-c", "regret")  # need no data set


@dataclass(frozen=True)
class Scheme:
    """A line in figures."""

    name: str
    label: str
    method: Method
    alignment: Alignment
    step: Literal["adaptive", "sgd"]


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("independent", "Independent", "independent", "arrival", "adaptive"),
        Scheme("central", "Central", "central", "arrival", "adaptive"),
        Scheme("aligned", "FedRes, aligned (paper)", "fedres", "aligned", "sgd"),
        Scheme("arrival", "FedRes, arrival (default)", "fedres", "arrival", "adaptive"),
        Scheme("late", "FedRes, late examples", "fedres", "late", "adaptive"),
        Scheme("gradients", "FedRes, late gradients", "fedres", "aligned", "adaptive"),
        Scheme("arrival-2", "FedRes, arrival, 2-bit residuals", "fedres", "arrival", "adaptive"),
        Scheme("erm", "FedRes.ERM", "fedres-erm", "arrival", "adaptive"),
    )
}
BASELINES = ("independent", "central")


def forms(reading: Reading) -> tuple[str, ...]:
    """The forms of FedRes that are run under a reading."""
    return ("aligned", "arrival", "late", *(["gradients"] if reading.late == "gradients" else []))


@dataclass(frozen=True)
class StepSizes:
    """Tuned constants of one data set."""

    adaptive: Mapping[str, float]  # eta a method
    # Per number of clients, the constants of Theorem 2's step sizes (see `theorem_2`): two of the
    # server's eta, then two of the clients' eta_i.
    aligned: Mapping[int, tuple[float, float, float, float]]

    def etas(self, scheme: str, clients: int, delay: int) -> tuple[float, float | None]:
        """The step sizes of a run: the server's, and the clients' if they differ."""
        if scheme == "aligned":
            first, second, local_first, local_second = self.aligned[clients]
            return theorem_2(first, second, delay), theorem_2(local_first, local_second, delay)
        return self.adaptive.get(SCHEMES[scheme].method, 0.5), None  # ERM has no step size


def theorem_2(first: float, second: float, delay: int) -> float:
    """min{c1, c2 tau^(-2/3)}: a step size of Theorem 2 as it depends on the delay.

    Its other factors (norms, variance, smoothness, T, P) are in the two constants, c2 being
    given as the step size at a delay of 80. Minimising the theorem's bound in eta and eta_i
    apart gives both this form. (The paper then sets them equal; as the server sums P gradients,
    clients with an eta that suits the server hardly learn at P = 50.)

    Examples
    --------
    >>> theorem_2(0.01, 0.002, delay=0), theorem_2(0.01, 0.002, delay=80)
    (0.01, 0.002)
    >>> round(theorem_2(0.01, 0.002, delay=640), 6)  # eight times the delay, a quarter of the step
    0.0005
    """
    return first if delay == 0 else min(first, second * (80 / delay) ** (2 / 3))


def possible_clients(data: str, most: int) -> int:
    """The largest number of clients up to `most`, of those in figures, that a set can supply."""
    for clients in sorted({p for p in CLIENTS if p <= most} | {most}, reverse=True):
        try:
            federate(dataset(data), clients)
        except ValueError:
            continue
        return clients
    return 0


Tagged = tuple[dict[str, Any], Case]


def cases(
    figure: str, data: str, sizes: StepSizes, many: int, seeds: int, reading: Reading
) -> Iterator[Tagged]:
    """All runs of one data set in one figure, with the scheme each belongs to.

    `many` stands for P = 50 where a set cannot supply that many clients.
    """

    def runs(
        schemes: Iterable[str], clients: Iterable[int], delays: Iterable[int] = (0,), **changes: Any
    ) -> Iterator[Tagged]:
        for p, delay, scheme, seed in product(clients, delays, schemes, range(seeds)):
            case = case_of(reading, data, p, seed, scheme, delay, *sizes.etas(scheme, p, delay))
            tags = {"figure": figure, "scheme": scheme, "reading": reading.name}
            yield tags, replace(case, **changes)

    both = dict.fromkeys((many, min(FEW, many)))
    grid = [p for p in CLIENTS if p in sizes.aligned]
    everywhere = (*BASELINES, *forms(reading))
    if figure == "overall":
        yield from runs(everywhere, both)
    elif figure == "clients":
        yield from runs(everywhere, grid)
    elif figure == "delay":
        yield from runs(everywhere, [many], DELAYS)
    elif figure == "clients-delay":
        yield from runs(everywhere, grid, (20, 80))
    elif figure == "bits":
        yield from runs(["central"], [many], [20])
        for bits in BITS:
            yield from runs(["arrival"], [many], [20], residual_bits=bits)
    elif figure == "bytes":
        for batch in BATCHES:
            yield from runs(["central", "arrival"], [many], [20], batch=batch)
            yield from runs(["arrival-2"], [many], [20], batch=batch, residual_bits=2)
        if dataset(data).x.shape[1] <= ERM_WIDEST:
            for batch in ERM_BATCHES:
                yield from runs(["erm"], [many], [20], batch=batch, ridge=ERM_RIDGE)
    elif figure == "local-all":
        yield from runs([*BASELINES, reading.form], both, local="all")


def case_of(
    reading: Reading,
    data: str,
    clients: int,
    seed: int,
    scheme: str,
    delay: int,
    eta: float,
    local_eta: float | None = None,
) -> Case:
    """One run of a scheme under a reading."""
    s = SCHEMES[scheme]
    # Central has no examples that could wait at clients; its gradients can be late.
    late = scheme == "central" and reading.late == "gradients"
    alignment: Alignment = "aligned" if late else s.alignment
    return Case(
        data, clients, seed, s.method, delay, alignment, s.step, eta,
        local_eta=local_eta, **reading.settings(data),
    )  # fmt: skip


def cases_of_readings(
    readings: Iterable[Reading],
    many: Mapping[str, int],
    etas: Mapping[tuple[str, str], Mapping[str, float]],
    seeds: int,
) -> Iterator[Tagged]:
    """All runs of the figure of readings: three schemes without delay, FedRes also with.

    `etas` are the adaptive step sizes of a reading and set, a method.
    """
    for reading, (data, clients) in product(readings, many.items()):
        if (reading.name, data) in etas:
            for scheme, delay in (
                *((s, 0) for s in (*BASELINES, reading.form)),
                (reading.form, 200),
            ):
                eta = etas[reading.name, data][SCHEMES[scheme].method]
                for seed in range(READING_SEEDS_FROM, READING_SEEDS_FROM + seeds):
                    tags = {"figure": "readings", "scheme": scheme, "reading": reading.name}
                    yield tags, case_of(reading, data, clients, seed, scheme, delay, eta)

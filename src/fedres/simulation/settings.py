"""What a run is asked to do, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedres.core.delays import Delay
from fedres.core.erm import ErmRule, PlayRule
from fedres.core.losses import Loss, PairLoss
from fedres.core.messages import check_bits
from fedres.core.participation import Participation, Present
from fedres.core.schedule import Plan, plan
from fedres.core.sgd import ALIGNMENTS, Alignment
from fedres.core.steps import Adaptive, Step
from fedres.core.types import F32, I64
from fedres.simulation.federation import Federation

Method = Literal["independent", "central", "fedres", "mixture", "fedres-erm", "fictitious-play"]
METHODS: tuple[Method, ...] = get_args(Method)
SGD_METHODS: tuple[Method, ...] = ("independent", "central", "fedres")
NAMES = {  # of methods, in tables and figures
    "independent": "Independent",
    "central": "Central",
    "fedres": "FedRes",
    "mixture": "Mixture",
}
Initial = Sequence[float] | NDArray[np.floating] | Mapping[Any, Any]

ClientWeight = Literal["T/N"] | Sequence[float] | NDArray[np.floating] | Mapping[Any, float]


@dataclass(frozen=True)
class SgdOptions:
    """What only methods that go by SGD know; see `simulate` for what each means."""

    step: Step = Adaptive(0.5)
    local_step: Step | None = None
    alignment: Alignment = "arrival"
    residual_bits: int = 32

    def __post_init__(self) -> None:
        choose("alignment", self.alignment, ALIGNMENTS)
        check_bits(self.residual_bits)
        if self.local_step is not None and type(self.local_step) is not type(self.step):
            raise ValueError(
                f"step and local_step must be of one kind, not {self.step} and {self.local_step}"
            )


@dataclass(frozen=True)
class MixtureOptions(SgdOptions):
    """The options of the three that are mixed, and of the mixture itself."""

    switching: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.switching is not None and not 0 <= self.switching < 1:
            raise ValueError(f"switching must be from 0 to less than 1, not {self.switching}")


Options = SgdOptions | ErmRule
KNOWN_ALONE = {"independent": {"step"}, "central": {"step", "alignment"}}
OPTIONS: dict[Method, type[Options]] = {
    **dict.fromkeys(SGD_METHODS, SgdOptions),
    "mixture": MixtureOptions,
    "fedres-erm": ErmRule,
    "fictitious-play": PlayRule,
}


def options_of(method: Method, **given: Any) -> Options:
    """The options of a method, by default those that are None; it has to know the others.

    Examples
    --------
    >>> options_of("fedres-erm", step=None, ridge=1.0)
    ErmRule(ridge=1.0, solve_every=1)
    """
    choose("method", method, METHODS)
    given = {name: value for name, value in given.items() if value is not None}
    known = {name: known_by(name) for name in METHODS}
    for name in given:
        if name not in known[method]:
            who = [other for other in METHODS if name in known[other]]
            raise ValueError(
                f"{method} does not know {name}={given[name]!r}: leave it out, or use a method "
                f"that does ({', '.join(who)})"
            )
    return OPTIONS[method](**given)


def known_by(method: Method) -> set[str]:
    """The names of the options of a method: those with one model or no server have fewer."""
    return KNOWN_ALONE.get(method) or {field.name for field in fields(OPTIONS[method])}


@dataclass(frozen=True)
class Settings:
    """The arguments of `simulate`; see there for what each means."""

    method: Method
    options: Options
    rounds: int | None
    passes: int
    delay: Delay
    loss: Loss | PairLoss
    batch: int
    radius: float | None
    client_weight: ClientWeight | None
    constant: bool
    shuffle: bool
    seed: int
    initial_global: Initial | None
    initial_local: Initial | None
    keep_path: bool
    participation: Participation | None = None

    def __post_init__(self) -> None:
        if self.participation is not None and self.rounds is None:
            raise ValueError("participation is counted in rounds: say how many with rounds=...")
        rounds = 1 if self.rounds is None else self.rounds
        at_least_1(rounds=rounds, passes=self.passes, batch=self.batch)
        check_radius(self.radius)
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be a number from 0 to 2^63 - 1, not {self.seed}")

    @property
    def cycle(self) -> bool:
        """Whether clients go round and round through their rows until all rounds are played."""
        return self.rounds is not None

    def total(self, federation: Federation) -> int:
        """Rounds of one sample: those asked for, or as many as the busiest client needs."""
        if self.rounds is not None:
            return self.rounds
        return self.turns(federation) * self.batch

    def turns(self, federation: Federation) -> int:
        """Rounds of `batch` samples."""
        if self.rounds is not None:
            return -(-self.rounds // self.batch)
        return self.passes * int(-(-federation.train.counts.max() // self.batch))

    def plan(
        self, federation: Federation, delay: Delay, *, waits: bool = False, frozen: bool = False
    ) -> Plan:
        """Who acts when."""
        passes = None if self.cycle else (federation.train.counts, self.passes)
        size = len(federation.clients), self.turns(federation), self.batch
        present = self.present(federation)
        return plan(
            *size, delay, waits=waits, frozen=frozen, passes=passes, present=present, seed=self.seed
        )

    def present(self, federation: Federation) -> Present | None:
        """Who takes part in which round of `batch` samples; None where all always do."""
        if self.participation is None:
            return None
        clients = len(federation.clients)
        return self.participation.draw(clients, self.turns(federation), self.seed)

    def seen(self, federation: Federation) -> I64:
        """N_i: samples that each client sees."""
        if self.rounds is None:
            return self.passes * federation.train.counts
        if (present := self.present(federation)) is None:
            return np.full(len(federation.clients), self.rounds)
        sizes = np.full(present.shape[1], self.batch)
        sizes[-1] = self.rounds - self.batch * (len(sizes) - 1)
        return np.asarray(present @ sizes, np.int64)

    def weights(self, federation: Federation) -> F32:
        """lambda_i."""
        clients = len(federation.clients)
        given = self.client_weight
        if given is None:
            return np.ones(clients, np.float32)
        if isinstance(given, str):
            choose("client_weight", given, ("T/N",))
            return (self.total(federation) / self.seen(federation)).astype(np.float32)
        if isinstance(given, Mapping):
            if unknown := [client for client in given if client not in federation.clients]:
                raise ValueError(f"client_weight names client {unknown[0]!r}, who is not there")
            given = [given.get(client, 1.0) for client in federation.clients]
        weights = np.asarray(given, np.float32)
        if weights.shape != (clients,):
            raise ValueError(f"client_weight has {weights.size} weights for {clients} clients")
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"client weights must be numbers from 0 up, not {weights.min()}")
        return weights

    def of_expert(self, method: Method) -> "Settings":
        """Those of a method that is mixed: what it knows of them."""
        known = known_by(method)
        own = {name: value for name, value in vars(self.options).items() if name in known}
        delay = Delay() if method == "independent" else self.delay
        return replace(
            self, method=method, options=options_of(method, **own), delay=delay,
            keep_path=self.keep_path and method == "fedres",
        )  # fmt: skip

    def residual_span(self, federation: Federation) -> tuple[float, float]:
        """The range that residuals of few bits cover."""
        return self.loss.residuals or _around(federation.label_values)

    def initial(
        self, federation: Federation, global_width: int, local_width: I64
    ) -> tuple[F32, list[F32]]:
        """Weights that the global model and each client's begin with."""
        given = self.initial_local
        by_client = isinstance(given, Mapping) or (given is not None and np.ndim(given) == 2)
        if by_client and not isinstance(given, Mapping):
            given = dict(zip(federation.clients, given, strict=True))  # type: ignore[arg-type]
        return self._begin("initial_global", self.initial_global, global_width), [
            self._begin(
                "initial_local",
                given.get(client) if isinstance(given, Mapping) else given,
                int(local_width[i]),
            )
            for i, client in enumerate(federation.clients)
        ]

    def _begin(self, name: str, given: Any, width: int) -> F32:
        """Weights of one model, the constant's last; it may be left out, and is then 0."""
        size = width + (self.constant and width > 0)
        begin = np.zeros(size, np.float32)
        if given is not None:
            weights = np.asarray(given, np.float32)
            if weights.shape not in ((size,), (width,)):
                raise ValueError(f"{name} has shape {weights.shape} for a model of {size} weights")
            if not np.isfinite(weights).all():
                raise ValueError(f"{name} must be finite numbers, not {given}")
            begin[: len(weights)] = weights
        return begin

    def check(self, federation: Federation) -> None:
        """Refuse a federation that these settings cannot run on."""
        if self.method in ("fedres-erm", "fictitious-play") and not federation.width_global:
            raise ValueError(f"{self.method} needs global features, and there are none")
        if self.method == "independent" and self.delay != Delay():
            raise ValueError(f"independent sends no messages that could be late: {self.delay}")
        begun = self.initial_global is not None or self.initial_local is not None
        if self.method == "mixture" and begun:
            raise ValueError("mixture takes no initial models: the three it mixes begin at zero")
        loss = self.loss if self.method in SGD_METHODS else self.loss.of_sum
        loss.check(federation.train.y)
        if (idle := np.flatnonzero(federation.train.counts == 0)).size:
            raise ValueError(f"client {federation.clients[idle[0]]!r} has no training rows")


def _around(labels: F32) -> tuple[float, float]:
    """Twice the range of the labels: local predictions go beyond it, and clipping them costs."""
    low, high = min(float(labels[0]), 0.0), max(float(labels[-1]), 0.0)
    middle, half = (low + high) / 2, (high - low) or 1.0
    return middle - half, middle + half


def check_radius(radius: float | None) -> None:
    """Refuse a ball that holds no models."""
    if radius is not None and not 0 < radius < np.inf:
        raise ValueError(f"radius must be a positive number or None, not {radius}")


def at_least_1(**counts: int) -> None:
    """Refuse a number of things that is less than 1."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, not {count}")


def choose(name: str, value: str, valid: Sequence[str]) -> None:
    """Refuse a value that is not among the valid ones, listing those."""
    if value not in valid:
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(valid)}")

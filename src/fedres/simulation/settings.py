"""What a run is asked to do, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedres.core.delays import Delay
from fedres.core.losses import Loss
from fedres.core.messages import check_bits
from fedres.core.rule import Rule
from fedres.core.sgd import ALIGNMENTS, Alignment
from fedres.core.steps import Step
from fedres.core.types import F32, I64
from fedres.simulation.federation import Federation

Method = Literal["independent", "central", "fedres", "fedres-erm", "fictitious-play"]
METHODS: tuple[Method, ...] = get_args(Method)
SGD_METHODS: tuple[Method, ...] = ("independent", "central", "fedres")
Initial = Sequence[float] | NDArray[np.floating] | Mapping[Any, Any]

ClientWeight = Literal["T/N"] | Sequence[float] | NDArray[np.floating] | Mapping[Any, float]


@dataclass(frozen=True)
class Settings:
    """The arguments of `simulate`; see there for what each means."""

    method: Method
    rounds: int | None
    passes: int
    delay: Delay
    step: Step
    local_step: Step | None
    alignment: Alignment
    loss: Loss
    batch: int
    radius: float | None
    client_weight: ClientWeight | None
    constant: bool
    residual_bits: int
    shuffle: bool
    seed: int
    initial_global: Initial | None
    initial_local: Initial | None
    ridge: float
    solve_every: int
    keep_path: bool

    def __post_init__(self) -> None:
        choose("method", self.method, METHODS)
        choose("alignment", self.alignment, ALIGNMENTS)
        for name in ("rounds", "passes", "batch", "solve_every"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, not {count}")
        if self.radius is not None and not 0 < self.radius < np.inf:
            raise ValueError(f"radius must be a positive number or None, not {self.radius}")
        if not 0 <= self.ridge < np.inf:
            raise ValueError(f"ridge must be a number from 0 up, not {self.ridge}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be a number from 0 to 2^63 - 1, not {self.seed}")
        if self.local_step is not None and type(self.local_step) is not type(self.step):
            raise ValueError(
                f"step and local_step must be of one kind, not {self.step} and {self.local_step}"
            )
        check_bits(self.residual_bits)

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

    def weights(self, federation: Federation) -> F32:
        """lambda_i."""
        clients = len(federation.clients)
        given = self.client_weight
        if given is None or (isinstance(given, str) and given == "T/N" and self.cycle):
            return np.ones(clients, np.float32)
        if isinstance(given, str):
            choose("client_weight", given, ("T/N",))
            seen = self.passes * federation.train.counts
            return (self.total(federation) / seen).astype(np.float32)
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

    def rule(self, federation: Federation) -> Rule:
        """What clients and server agree on."""
        return Rule(
            self.step,
            self.loss,
            self.alignment,
            self.batch,
            self.radius,
            self.constant,
            self.residual_bits,
            self.loss.residuals or _around(federation.label_values),
            # alone, a client has only one model, and one step
            self.local_step if self.method == "fedres" and federation.width_global else None,
        )

    def initial(
        self,
        federation: Federation,
        global_width: int | None = None,
        local_width: I64 | None = None,
    ) -> tuple[F32, list[F32]]:
        """Weights that the global model and each client's begin with."""
        if global_width is None or local_width is None:
            global_width, local_width = federation.width_global, federation.train.x_local.width
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
        self.loss.check(federation.train.y)
        if (idle := np.flatnonzero(federation.train.counts == 0)).size:
            raise ValueError(f"client {federation.clients[idle[0]]!r} has no training rows")


def _around(labels: F32) -> tuple[float, float]:
    """Twice the range of the labels: local predictions go beyond it, and clipping them costs."""
    low, high = min(float(labels[0]), 0.0), max(float(labels[-1]), 0.0)
    middle, half = (low + high) / 2, (high - low) or 1.0
    return middle - half, middle + half


def choose(name: str, value: str, valid: Sequence[str]) -> None:
    """Refuse a value that is not among the valid ones, listing those."""
    if value not in valid:
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(valid)}")

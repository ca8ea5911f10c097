"""What clients and server have to agree on."""

from dataclasses import dataclass, field

import numpy as np

from fedres.core.losses import SQUARED, Loss, PairLoss
from fedres.core.sgd import ALIGNMENTS, Alignment, Terms
from fedres.core.steps import Adaptive, Step
from fedres.core.types import F32


@dataclass(frozen=True)
class Rule:
    """What clients and server of FedRes.SGD have to agree on.

    Attributes
    ----------
    step, loss
        How models move, and along the slope of what.
    alignment
        Which pair of models gradients are taken at, and when: see `fedres.core.sgd`.
    batch
        Samples a message; both sides step on their mean gradient.
    radius
        Radius D of the ball that every model stays in; None for no bound.
    constant
        Whether every model has a feature that is always 1.
    residual_bits, residual_span
        Bits a residual is sent with, and the range that fewer than 32 bits cover.
    local_step
        How local models move (eta_i), where that differs from the global model (eta).
    """

    step: Step = field(default_factory=Adaptive)
    loss: Loss | PairLoss = SQUARED
    alignment: Alignment = "arrival"
    batch: int = 1
    radius: float | None = None
    constant: bool = True
    residual_bits: int = 32
    residual_span: tuple[float, float] = (-1.0, 1.0)
    local_step: Step | None = None

    @property
    def step_of_clients(self) -> Step:
        """How local models move."""
        return self.local_step or self.step

    @property
    def reach(self) -> tuple[float, float]:
        """Where the range of labels begins that predictions are clipped to."""
        return self.loss.clip if self.step.clip else (-np.inf, np.inf)

    @property
    def waits(self) -> bool:
        """Whether a client learns only when the server has used its upload."""
        return self.alignment in ("aligned", "late")

    @property
    def looks_back(self) -> bool:
        """Whether the server takes its gradient at the pair that made the prediction."""
        return self.alignment in ("aligned", "asymmetric")

    def terms(self, weight: F32) -> Terms:
        """The same in numbers, with lambda_i of every client."""
        return Terms(
            self.loss.number,
            ALIGNMENTS.index(self.alignment),
            self.step.adaptive,
            np.float32(np.inf if self.radius is None else self.radius),
            self.residual_bits,
            np.float32(self.residual_span[0]),
            np.float32(self.residual_span[1]),
            weight,
        )

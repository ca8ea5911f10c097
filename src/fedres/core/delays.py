"""How late messages are, in rounds.

With `G_t` the global model after the server's work in round t, client i predicts in round t with
`G_{t-1-beta_i}`, and what it sends in round t the server uses at the end of round t + alpha_i. The
paper writes `w^g_{t-beta_i}` for the model of round t: its beta is ours + 1. With its own indices,
no delay at all (alpha = beta = 0) would be circular, since w^g_t is made by gradients at w^g_t;
here it is plain predict-then-learn. So a round trip of tau here is one of tau + 1 in the paper's
algorithms and bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedres.core.types import I32


@dataclass(frozen=True)
class Uniform:
    """A delay drawn anew for each message, low to high, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"a random delay needs 0 <= low <= high, not {self.low}, {self.high}")


Lag = int | Sequence[int] | NDArray[np.integer] | Uniform


@dataclass(frozen=True)
class Delay:
    """Rounds that messages are under way.

    Parameters
    ----------
    up
        alpha: from a client to the server. A number, one a client, or `Uniform(low, high)`.
    down
        beta: from the server to a client, likewise. 0 means that a round sees the model that the
        round before left; the paper's beta is this one + 1.

    Examples
    --------
    >>> Delay(up=10, down=10).round_trip
    20
    >>> Delay(up=[0, 3], down=1).round_trip
    4
    >>> Delay(up=Uniform(0, 20)).round_trip
    20
    """

    up: Lag = 0
    down: Lag = 0

    def __post_init__(self) -> None:
        for name, lag in (("up", self.up), ("down", self.down)):
            if not isinstance(lag, Uniform):
                # Whatever it was given as, a delay can be compared, and be part of a key.
                object.__setattr__(self, name, _checked(name, lag))

    @property
    def round_trip(self) -> int:
        """tau: the longest round trip of any client."""
        if isinstance(self.up, Uniform) or isinstance(self.down, Uniform):
            return _longest(self.up) + _longest(self.down)
        return int(np.max(np.add(self.up, self.down)))

    @property
    def random(self) -> bool:
        """Whether delays are drawn per message."""
        return isinstance(self.up, Uniform) or isinstance(self.down, Uniform)


def as_delay(delay: int | Sequence[int] | NDArray[np.integer] | Delay) -> Delay:
    """A round trip given as a number, or one a client, is split evenly, the odd round upwards.

    Examples
    --------
    >>> as_delay(5), as_delay([0, 3])
    (Delay(up=3, down=2), Delay(up=(0, 2), down=(0, 1)))
    """
    if isinstance(delay, Delay):
        return delay
    lags = np.asarray(_checked("delay", delay))
    return Delay(up=(lags + 1) // 2, down=lags // 2)


def per_client(lag: Lag, clients: int, batch: int = 1) -> I32:
    """One lag a client, in rounds of `batch` samples, rounded up.

    Examples
    --------
    >>> per_client(5, clients=2, batch=2)
    array([3, 3], dtype=int32)
    """
    if isinstance(lag, int):
        return np.full(clients, -(-lag // batch), np.int32)
    lags = np.asarray(_longest(lag) if isinstance(lag, Uniform) else lag)
    if lags.ndim and lags.shape != (clients,):
        raise ValueError(f"{lags.size} delays were given for {clients} clients: give one a client")
    return np.broadcast_to(-(-lags // batch), (clients,)).astype(np.int32)


def per_message(lag: Lag, clients: int, rounds: int, batch: int, rng: np.random.Generator) -> I32:
    """One lag a client and round, (clients, rounds), in rounds of `batch` samples."""
    if isinstance(lag, Uniform):
        drawn = rng.integers(lag.low, lag.high, size=(clients, rounds), endpoint=True)
        return (-(-drawn // batch)).astype(np.int32)
    return np.repeat(per_client(lag, clients, batch)[:, None], rounds, axis=1)


def _longest(lag: Lag) -> int:
    return lag.high if isinstance(lag, Uniform) else int(np.max(lag))


def _checked(name: str, lag: int | Sequence[int] | NDArray[np.integer]) -> int | tuple[int, ...]:
    lags = np.asarray(lag)
    if lags.ndim > 1 or lags.size == 0 or not np.issubdtype(lags.dtype, np.integer):
        raise ValueError(f"{name} must be a whole number of rounds, or one a client, not {lag!r}")
    if lags.min() < 0:
        raise ValueError(f"{name} must not be negative, and is {lags.min()}: use 0 for no delay")
    return tuple(lags.tolist()) if lags.ndim else int(lags)

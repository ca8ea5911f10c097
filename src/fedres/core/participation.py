"""Which clients take part in which rounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PerClient = int | Sequence[int] | NDArray[np.integer]
Present = NDArray[np.bool_]


@dataclass(frozen=True)
class Participation:
    """When clients join and leave, and in which share of the rounds between they take part.

    A client that is away sees no sample. What it has sent still arrives; what it has waited for
    (alignments ``aligned`` and ``late``) it learns when it is back; its rows go on where they
    stopped; and when it is back it fetches the newest global model, as all others do.

    Parameters
    ----------
    join, leave
        The first round (from 0) that clients take part in, and the first that they do not any
        more; a number, or one a client. `leave=None` for never.
    share
        The chance of a client to take part in a round, drawn anew for each: a number, or one a
        client.

    Examples
    --------
    >>> Participation(join=[0, 2], leave=[3, 4]).draw(clients=2, rounds=4, seed=0).astype(int)
    array([[1, 1, 1, 0],
           [0, 0, 1, 1]])
    """

    join: PerClient = 0
    leave: PerClient | None = None
    share: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        for name in ("join", "leave"):
            given = getattr(self, name)
            if given is None:
                continue
            rounds = np.asarray(given)
            if rounds.ndim > 1 or not np.issubdtype(rounds.dtype, np.integer) or rounds.min() < 0:
                raise ValueError(f"{name} must be rounds from 0 up, one or one a client: {given!r}")
            # Whatever it was given as, it can be compared.
            object.__setattr__(self, name, _plain(rounds))
        share = np.asarray(self.share, float)
        if share.ndim > 1 or not ((share > 0) & (share <= 1)).all():
            raise ValueError(f"share must be above 0 and at most 1, not {self.share!r}")
        object.__setattr__(self, "share", _plain(share))

    def draw(self, clients: int, rounds: int, seed: int) -> Present:
        """Who takes part when, (clients, rounds); each has to take part once at least."""
        t = np.arange(rounds)
        leave = rounds if self.leave is None else self.leave
        join_, leave_, share = (
            _each(name, values, clients)[:, None]
            for name, values in (("join", self.join), ("leave", leave), ("share", self.share))
        )
        present = (t >= join_) & (t < leave_)
        if (share < 1).any():
            present &= np.random.default_rng([seed, 3]).random((clients, rounds)) < share
        if (idle := np.flatnonzero(~present.any(axis=1))).size:
            raise ValueError(
                f"client number {idle[0]} takes part in none of {rounds} rounds: let it join "
                "earlier, leave later, or leave it out"
            )
        return np.asarray(present, np.bool_)


def _plain(values: NDArray[np.generic]) -> object:
    return tuple(values.tolist()) if values.ndim else values.item()


def _each(name: str, values: object, clients: int) -> NDArray[np.float64]:
    given = np.asarray(values, float)
    if given.ndim and given.shape != (clients,):
        raise ValueError(f"{name} has {given.size} values for {clients} clients: give one or each")
    return np.broadcast_to(given, (clients,))

"""How far a run is: rounds, and whether its loss still falls."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Progress:
    """Rounds so far, an upload from everyone being one, and the lowest mean loss over a round.

    Examples
    --------
    >>> progress = Progress()
    >>> [progress.upload(clients=2, loss=loss) for loss in (0.9, 0.7, 0.5, 0.8)]
    [False, True, False, True]
    >>> progress.rounds, round(progress.mean, 2), round(progress.best, 2), progress.best_round
    (2.0, 0.65, 0.6, 1.5)
    """

    rounds: float = 0.0
    best: float = np.inf
    best_round: float = 0.0
    _recent: deque[tuple[float, float]] = field(default_factory=deque)
    _sum: float = 0.0  # of these losses

    @property
    def mean(self) -> float:
        """The mean loss over the last round."""
        return self._sum / len(self._recent)

    def upload(self, clients: int, loss: float) -> bool:
        """Count an upload of one of so many clients; whether a round is over."""
        before, self.rounds = self.rounds, self.rounds + 1 / clients
        self._recent.append((self.rounds, loss))
        self._sum += loss
        while self._recent[0][0] <= self.rounds - 1:
            self._sum -= self._recent.popleft()[1]
        if self.mean < self.best:
            self.best, self.best_round = self.mean, self.rounds
        return int(self.rounds) > int(before)

"""Exploration policies: from predicted rewards to the probability of every action.

With scores s_1 .. s_K, m of which are equal to the best, and the client's own count of
decisions t = 1, 2, ...:

    Greedy         1/m for each of the best
    EpsilonGreedy  epsilon/K + (1 - epsilon) Greedy; or uniform if B divides t, else Greedy
    SquareCB       1 / (K + gamma t^exponent (best - s_a)) for a worse action, the rest to the best
    Softmax        exp(s_a / temperature) / sum_b exp(s_b / temperature)

Ties are broken at random: the best actions share in equal parts what the best one would get.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fedres.core.types import F64


@runtime_checkable
class Uniforms(Protocol):
    """A source of draws, as `numpy.random.Generator` is one."""

    def random(self) -> float:
        """A number from 0 up to but not including 1."""


class Draw(NamedTuple):
    """An action, the probability it and every other action had, and whether it explores."""

    action: int
    probabilities: F64
    explores: bool


class Policy(ABC):
    """What all policies offer; each needs only `_weigh`.

    Attributes
    ----------
    has_exploration
        Whether some decisions are pure exploration: uniform, whatever the scores.
    """

    has_exploration: ClassVar[bool] = False

    def probabilities(self, scores: ArrayLike, turn: int) -> F64:
        """The probability of every action in the turn-th decision, counted from 1."""
        return self._weigh(_checked(scores, turn), turn)

    def explores(self, turn: int) -> bool:  # noqa: ARG002
        """Whether that decision is pure exploration, known beforehand."""
        return False

    def draw(self, scores: ArrayLike, turn: int, rng: Uniforms) -> Draw:
        """Choose an action with one number u: the first with p_1 + .. + p_a > u."""
        probabilities = self.probabilities(scores, turn)
        return Draw(pick(probabilities, rng.random()), probabilities, self.explores(turn))

    @abstractmethod
    def _weigh(self, scores: F64, turn: int) -> F64:
        """The probabilities for scores that are fit for use."""


@dataclass(frozen=True)
class Greedy(Policy):
    """Always an action of the best score.

    Examples
    --------
    >>> Greedy().probabilities([0.2, 0.7, 0.7], turn=1)
    array([0. , 0.5, 0.5])
    """

    def _weigh(self, scores: F64, turn: int) -> F64:  # noqa: ARG002
        best = scores == scores.max()
        return np.where(best, 1 / best.sum(), 0.0)


@dataclass(frozen=True)
class EpsilonGreedy(Policy):
    """Mostly greedy, now and then uniform: section 5.1 of the paper, in both of its forms.

    Parameters
    ----------
    epsilon
        Explore at random, with this probability. A decision takes two numbers: it explores if
        the first is below epsilon, and the second picks the action.
    explore_every
        Or B: explore in decisions B, 2B, 3B, ... `fedres.core.theory.explore_every` gives the B of
        Theorem 3.

    Examples
    --------
    >>> EpsilonGreedy(epsilon=0.2).probabilities([0.2, 0.7], turn=1)
    array([0.1, 0.9])
    >>> EpsilonGreedy(explore_every=3).probabilities([0.2, 0.7], turn=6)
    array([0.5, 0.5])
    """

    epsilon: float | None = None
    explore_every: int | None = None
    has_exploration: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.explore_every is None):
            raise ValueError(
                f"epsilon={self.epsilon} and explore_every={self.explore_every}: "
                "give exactly one of the two"
            )
        if self.epsilon is not None and not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon must be from 0 to 1, not {self.epsilon}")
        if self.explore_every is not None and not _is_count(self.explore_every):
            raise ValueError(f"explore_every must be 1, 2, ..., not {self.explore_every}")

    def explores(self, turn: int) -> bool:
        """Whether B divides the turn."""
        return self.explore_every is not None and turn % self.explore_every == 0

    def draw(self, scores: ArrayLike, turn: int, rng: Uniforms) -> Draw:
        """Choose an action; with `epsilon`, first whether to explore."""
        if self.epsilon is None:
            return super().draw(scores, turn, rng)
        scores = _checked(scores, turn)
        explores = rng.random() < self.epsilon
        chosen_from = _uniform(scores) if explores else Greedy().probabilities(scores, turn)
        action = pick(chosen_from, rng.random())
        return Draw(action, self._weigh(scores, turn), explores)

    def _weigh(self, scores: F64, turn: int) -> F64:
        epsilon = float(self.explores(turn)) if self.epsilon is None else self.epsilon
        greedy = Greedy().probabilities(scores, turn)
        return epsilon * _uniform(scores) + (1 - epsilon) * greedy


@dataclass(frozen=True)
class SquareCB(Policy):
    """Inverse-gap weighting (Foster and Rakhlin, 2020; FALCON of Simchi-Levi and Xu, 2020).

    Parameters
    ----------
    gamma, exponent
        How sharply worse actions are avoided: gamma * t^exponent in decision t.

    Examples
    --------
    >>> SquareCB(gamma=4.0).probabilities([0.5, 1.0], turn=1)
    array([0.25, 0.75])
    """

    gamma: float = 10.0
    exponent: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.gamma < np.inf:
            raise ValueError(f"gamma must be a positive number, not {self.gamma}")
        if not 0 <= self.exponent < np.inf:
            raise ValueError(f"exponent must be a number from 0, not {self.exponent}")

    def _weigh(self, scores: F64, turn: int) -> F64:
        gap = scores.max() - scores
        best = gap == 0
        weights: F64 = 1 / (len(scores) + self.gamma * turn**self.exponent * gap)
        weights[best] = (1 - weights[~best].sum()) / best.sum()
        return weights


@dataclass(frozen=True)
class Softmax(Policy):
    """Boltzmann exploration.

    Parameters
    ----------
    temperature
        Small is greedy, large is uniform; in units of reward.

    Examples
    --------
    >>> Softmax(temperature=1.0).probabilities(np.log([1.0, 3.0]), turn=1)
    array([0.25, 0.75])
    """

    temperature: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.temperature < np.inf:
            raise ValueError(f"temperature must be a positive number, not {self.temperature}")

    def _weigh(self, scores: F64, turn: int) -> F64:  # noqa: ARG002
        weights: F64 = np.exp((scores - scores.max()) / self.temperature)
        weights /= weights.sum()
        return weights


def pick(probabilities: F64, u: float) -> int:
    """The first action with p_1 + .. + p_a > u.

    Examples
    --------
    >>> [pick(np.array([0.5, 0.0, 0.5]), u) for u in (0.49, 0.5)]
    [0, 2]
    """
    action = int(np.searchsorted(np.cumsum(probabilities), u, side="right"))
    # A sum rounded to just below 1 must not let u fall on an action without probability.
    return min(action, int(np.flatnonzero(probabilities)[-1]))


def _uniform(scores: F64) -> F64:
    return np.full(len(scores), 1 / len(scores))


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and bool(value >= 1)


def _checked(scores: ArrayLike, turn: int) -> F64:
    checked = np.asarray(scores, np.float64)
    if checked.ndim != 1 or checked.size == 0:
        raise ValueError(f"scores must be one number an action, not of shape {checked.shape}")
    if not np.isfinite(checked).all():
        wrong = int(np.flatnonzero(~np.isfinite(checked))[0])
        raise ValueError(f"the score of action {wrong} is {checked[wrong]}: give finite scores")
    if not _is_count(turn):
        raise ValueError(f"turn counts decisions from 1, and is {turn}")
    return checked

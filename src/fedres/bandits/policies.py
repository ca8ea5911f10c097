"""Exploration policies: from predicted rewards to the probability of every action.

With scores s_1 .. s_K, m of which are equal to the best, and the client's own count of
decisions t = 1, 2, ...:

    Greedy         1/m for each of the best
    EpsilonGreedy  epsilon/K + (1 - epsilon) Greedy; or uniform if B divides t, else Greedy
    SquareCB       1 / (K + gamma t^exponent (best - s_a)) for a worse action, the rest to the best
    Softmax        exp(s_a / temperature) / sum_b exp(s_b / temperature)

Ties are broken at random: the best actions share in equal parts what the best one would get.

The functions above the objects are both what these call and what simulations compile.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fedres.core.elementary import exp, power
from fedres.core.source import apart
from fedres.core.types import F64

GREEDY, EPSILON, EVERY, SQUARECB, SOFTMAX = range(5)


class Chooser(NamedTuple):
    """A policy in numbers: its kind, and what the kind makes of the other two."""

    kind: int
    first: float = 0.0
    second: float = 0.0


@apart
def strength(policy: Chooser, turn: int) -> float:
    """What a policy weighs with: its probability to explore, gamma t^exponent or temperature."""
    if policy.kind == EVERY:
        return 1.0 if turn % int(policy.first) == 0 else 0.0
    if policy.kind == SQUARECB:
        return policy.first * power(turn, policy.second)
    return policy.first


def explores(kind: int, strength: float, u: float) -> bool:
    """Whether a decision is pure exploration."""
    return kind <= EVERY and u < strength


def lead(scores: Any) -> tuple[float, int]:
    """The best score, and how many have it."""
    best, ties = -np.inf, 0
    # A choice of values, as below, needs no branch, which a processor would often guess wrong.
    for a in range(len(scores)):
        best = scores[a] if scores[a] > best else best
    for a in range(len(scores)):
        ties += 1 if scores[a] == best else 0
    return best, ties


def weight(kind: int, strength: float, gap: Any, count: int) -> Any:
    """What an action weighs whose score is less than the best by `gap`, a number or an array."""
    if kind == SOFTMAX:
        return exp(-gap / strength)
    if kind == SQUARECB:
        return 1 / (count + strength * gap)
    return strength / count + 0.0 * gap


def share(kind: int, scores: Any, best: float, ties: int, out: Any) -> None:
    """Make probabilities of weights: the best share what is left, or all are scaled."""
    total = 0.0
    for a in range(len(scores)):
        total += out[a] if kind == SOFTMAX or scores[a] != best else 0.0
    rest = (1 - total) / ties
    for a in range(len(scores)):
        if kind == SOFTMAX:
            out[a] /= total
        else:
            out[a] = rest if scores[a] == best else out[a]


@apart
def weigh(kind: int, strength: float, scores: Any, out: Any) -> None:
    """The probability of every action.

    Examples
    --------
    >>> out = np.empty(3)
    >>> weigh(EPSILON, 0.3, [0.1, 0.7, 0.1], out)
    >>> out
    array([0.1, 0.8, 0.1])
    """
    best, ties = lead(scores)
    for a in range(len(scores)):
        out[a] = weight(kind, strength, best - scores[a], len(scores))
    share(kind, scores, best, ties, out)


def pick(probabilities: Any, u: float) -> int:
    """The first action with p_1 + .. + p_a > u.

    Examples
    --------
    >>> [pick(np.array([0.5, 0.0, 0.5]), u) for u in (0.49, 0.5)]
    [0, 2]
    """
    total, last = 0.0, 0
    for a in range(len(probabilities)):
        # A sum rounded to just below 1 must not let u fall on an action without probability.
        if probabilities[a] > 0:
            total += probabilities[a]
            last = a
            if total > u:
                break
    return last


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
    """What all policies offer; each needs only `chooser`."""

    # Whether some decisions are pure exploration: uniform, whatever the scores.
    has_exploration: ClassVar[bool] = False

    @property
    @abstractmethod
    def chooser(self) -> Chooser:
        """The policy in numbers."""

    def probabilities(self, scores: ArrayLike, turn: int) -> F64:
        """The probability of every action in the turn-th decision, counted from 1."""
        checked = _checked(scores, turn)
        return np.array(_weighed(self.chooser.kind, strength(self.chooser, turn), checked))

    def draw(self, scores: ArrayLike, turn: int, rng: Uniforms) -> Draw:
        """Choose an action with one number u: the first with p_1 + .. + p_a > u."""
        checked, kind = _checked(scores, turn), self.chooser.kind
        strong = strength(self.chooser, turn)
        probabilities = chosen_from = _weighed(kind, strong, checked)
        explored = explores(kind, strong, rng.random() if kind == EPSILON else 0.0)
        if kind == EPSILON:
            chosen_from = _weighed(kind, float(explored), checked)
        return Draw(pick(chosen_from, rng.random()), np.array(probabilities), explored)


@dataclass(frozen=True)
class Greedy(Policy):
    """Always an action of the best score.

    Examples
    --------
    >>> Greedy().probabilities([0.2, 0.7, 0.7], turn=1)
    array([0. , 0.5, 0.5])
    """

    @property
    def chooser(self) -> Chooser:
        """The policy in numbers."""
        return Chooser(GREEDY)


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

    @property
    def chooser(self) -> Chooser:
        """The policy in numbers."""
        if self.explore_every is not None:
            return Chooser(EVERY, float(self.explore_every))
        return Chooser(EPSILON, float(self.epsilon or 0.0))


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

    @property
    def chooser(self) -> Chooser:
        """The policy in numbers."""
        return Chooser(SQUARECB, float(self.gamma), float(self.exponent))


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

    @property
    def chooser(self) -> Chooser:
        """The policy in numbers."""
        return Chooser(SOFTMAX, float(self.temperature))


def _weighed(kind: int, strength: float, scores: list[float]) -> list[float]:
    """As `weigh`, with all weights at once."""
    best, ties = lead(scores)
    out: list[float] = weight(kind, strength, best - np.array(scores), len(scores)).tolist()
    share(kind, scores, best, ties, out)
    return out


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and bool(value >= 1)


def _checked(scores: ArrayLike, turn: int) -> list[float]:
    checked = np.asarray(scores, np.float64)
    if checked.ndim != 1 or checked.size == 0:
        raise ValueError(f"scores must be one number an action, not of shape {checked.shape}")
    if not np.isfinite(checked).all():
        wrong = int(np.flatnonzero(~np.isfinite(checked))[0])
        raise ValueError(f"the score of action {wrong} is {checked[wrong]}: give finite scores")
    if not _is_count(turn):
        raise ValueError(f"turn counts decisions from 1, and is {turn}")
    # Python goes through a list faster than through an array.
    numbers: list[float] = checked.tolist()
    return numbers

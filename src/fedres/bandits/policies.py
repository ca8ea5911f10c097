"""Exploration policies: from predicted rewards to the probability of every action.

With scores s_1 .. s_K, m of which are equal to the best, and the client's own count of
decisions t = 1, 2, ...:

    Greedy         1/m for each of the best
    EpsilonGreedy  epsilon/K + (1 - epsilon) Greedy; or uniform if B divides t, else Greedy
    SquareCB       1 / (K + gamma (P t)^exponent (best - s_a)) for a worse one, the rest to the best
    Softmax        exp(s_a / temperature) / sum_b exp(s_b / temperature)

and, where models know the standard errors e_1 .. e_K of their scores (`fedres.core.ridge`),

    LinUCB         Greedy of s_a + alpha e_a
    Thompson       that a is the best, if s_a is normal with standard deviation scale e_a

Ties are broken at random: the best actions share in equal parts what the best one would get.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fedres.bandits.choosing import (
    EPSILON,
    EVERY,
    GREEDY,
    LINUCB,
    SOFTMAX,
    SQUARECB,
    THOMPSON,
    Chooser,
    explores,
    lead,
    pick,
    share,
    strength,
    weigh,
    weight,
)
from fedres.core.elementary import power
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
    """What all policies offer; each needs only `chooser`."""

    # Whether some decisions are pure exploration: uniform, whatever the scores.
    has_exploration: ClassVar[bool] = False
    # Whether it has to know how sure scores are.
    needs_errors: ClassVar[bool] = False

    @property
    @abstractmethod
    def chooser(self) -> Chooser:
        """The policy in numbers."""

    def probabilities(self, scores: ArrayLike, turn: int, errors: ArrayLike | None = None) -> F64:
        """The probability of every action in the turn-th decision, counted from 1.

        `errors` are the standard errors of the scores, which some policies need.
        """
        checked, strong = _checked(scores, turn), strength(self.chooser, turn)
        return np.array(_weighed(self.chooser.kind, strong, checked, self._sure(checked, errors)))

    def draw(
        self, scores: ArrayLike, turn: int, rng: Uniforms, errors: ArrayLike | None = None
    ) -> Draw:
        """Choose an action with one number u: the first with p_1 + .. + p_a > u."""
        checked, kind = _checked(scores, turn), self.chooser.kind
        strong, unsure = strength(self.chooser, turn), self._sure(checked, errors)
        probabilities = chosen_from = _weighed(kind, strong, checked, unsure)
        explored = explores(kind, strong, rng.random() if kind == EPSILON else 0.0)
        if kind == EPSILON:
            chosen_from = _weighed(kind, float(explored), checked, unsure)
        return Draw(pick(chosen_from, rng.random()), np.array(probabilities), explored)

    def shared_by(self, clients: int) -> "Policy":  # noqa: ARG002
        """The same where so many clients share a model, which learns faster then."""
        return self

    def _sure(self, scores: list[float], errors: ArrayLike | None) -> Any:
        """The standard errors, checked; None where they do not matter."""
        if not self.needs_errors:
            return None
        if errors is None:
            raise ValueError(f"{self} needs the standard errors of scores: learn with `Ridge`")
        checked = np.asarray(errors, np.float64)
        if checked.shape != (len(scores),) or not (np.isfinite(checked) & (checked >= 0)).all():
            raise ValueError(f"errors must be {len(scores)} numbers from 0 up, not {errors}")
        return checked


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
        How sharply worse actions are avoided: gamma (clients t)^exponent in decision t.
    clients
        How many clients share the global model, which learns from the decisions of all.

    Examples
    --------
    >>> SquareCB(gamma=4.0).probabilities([0.5, 1.0], turn=1)
    array([0.25, 0.75])
    """

    gamma: float = 100.0
    exponent: float = 0.5
    clients: int = 1

    def __post_init__(self) -> None:
        if not _is_count(self.clients):
            raise ValueError(f"clients must be 1, 2, ..., not {self.clients}")
        if not 0 < self.gamma < np.inf:
            raise ValueError(f"gamma must be a positive number, not {self.gamma}")
        if not 0 <= self.exponent < np.inf:
            raise ValueError(f"exponent must be a number from 0, not {self.exponent}")

    @property
    def chooser(self) -> Chooser:
        """The policy in numbers."""
        shared = self.gamma * power(self.clients, self.exponent)
        return Chooser(SQUARECB, float(shared), float(self.exponent))

    def shared_by(self, clients: int) -> "SquareCB":
        """The same where so many clients share a model, which learns faster then."""
        return replace(self, clients=clients)


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


@dataclass(frozen=True)
class LinUCB(Policy):
    """The action that may well be the best (Li, Chu, Langford and Schapire, 2010).

    Parameters
    ----------
    alpha
        How many standard errors an action may be better than its score, noise being 1.

    Examples
    --------
    >>> LinUCB(alpha=1.0).probabilities([0.2, 0.7], turn=1, errors=[0.9, 0.1])
    array([1., 0.])
    """

    alpha: float = 0.5
    needs_errors: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < np.inf:
            raise ValueError(f"alpha must be a number from 0 up, not {self.alpha}")

    @property
    def chooser(self) -> Chooser:
        """The policy in numbers."""
        return Chooser(LINUCB, float(self.alpha))


@dataclass(frozen=True)
class Thompson(Policy):
    """Each action as often as it is likely to be the best (Thompson, 1933).

    Scores count as independent normal ones.

    Parameters
    ----------
    scale
        What standard errors are multiplied by: the standard deviation of the noise.

    Examples
    --------
    >>> Thompson(scale=0.5).probabilities([0.5, 0.5, 0.2], turn=1, errors=[0.1, 0.1, 0.1]).round(3)
    array([0.5, 0.5, 0. ])
    """

    scale: float = 0.2
    needs_errors: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.scale < np.inf:
            raise ValueError(f"scale must be a number from 0 up, not {self.scale}")

    @property
    def chooser(self) -> Chooser:
        """The policy in numbers."""
        return Chooser(THOMPSON, float(self.scale))


def _weighed(kind: int, strength: float, scores: list[float], errors: Any) -> list[float]:
    """As `weigh`, with all weights at once."""
    if kind >= LINUCB:
        found = np.empty(len(scores))
        weigh(kind, strength, np.array(scores), errors, np.empty((2, len(scores))), found)
        return found.tolist()
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

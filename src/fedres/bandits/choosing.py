"""How policies choose, in functions: both what `Policy` objects call and what simulations compile.

The formulas are at the top of `fedres.bandits.policies`.
"""

from typing import Any, NamedTuple

import numpy as np

from fedres.core.elementary import exp, normal_share, power
from fedres.core.source import apart

GREEDY, EPSILON, EVERY, SQUARECB, SOFTMAX, LINUCB, THOMPSON = range(7)

# Thompson: how many standard deviations are looked at, and in how many steps.
FAR, CELLS = 4.0, 32


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
def be_hopeful(alpha: float, scores: Any, errors: Any, out: Any) -> None:
    """LinUCB: the best share in equal parts, each being as good as it may well be."""
    for a in range(len(scores)):
        out[a] = scores[a] + alpha * errors[a]
    best, ties = lead(out)
    for a in range(len(scores)):
        out[a] = 1.0 / ties if out[a] == best else 0.0


@apart
def be_the_best(scale: float, scores: Any, errors: Any, room: Any, out: Any) -> None:
    """Thompson: the probability of each action to be the best.

    In small steps from where none can be the best to where none can be better, it is the
    probability to lie there, times that of all others to lie below.
    """
    low = high = -np.inf
    for a in range(len(scores)):
        low = max(low, scores[a] - FAR * scale * errors[a])
        high = max(high, scores[a] + FAR * scale * errors[a])
    if not high > low:
        be_hopeful(0.0, scores, errors, out)
        return
    for a in range(len(scores)):
        out[a] = room[0, a] = 0.0
    total = 0.0
    for cell in range(CELLS):
        edge, all_below = low + (high - low) * ((cell + 1) / CELLS), 1.0
        for a in range(len(scores)):
            sigma = scale * errors[a]
            below = normal_share((edge - scores[a]) / sigma) if sigma > 0 else 1.0
            room[1, a] = max(below - room[0, a], 0.0)
            room[0, a] = below
            all_below *= below - 0.5 * room[1, a]
        for a in range(len(scores)):
            chance = room[1, a] * all_below / (room[0, a] - 0.5 * room[1, a])
            out[a] += chance
            total += chance
    for a in range(len(scores)):
        out[a] /= total


@apart
def weigh(kind: int, strength: float, scores: Any, errors: Any, room: Any, out: Any) -> None:
    """The probability of every action; `room` is scratch of two rows.

    Examples
    --------
    >>> out, none = np.empty(3), np.empty((2, 3))
    >>> weigh(EPSILON, 0.3, [0.1, 0.7, 0.1], none[0], none, out)
    >>> out
    array([0.1, 0.8, 0.1])
    """
    if kind == LINUCB:
        be_hopeful(strength, scores, errors, out)
        return
    if kind == THOMPSON:
        be_the_best(strength, scores, errors, room, out)
        return
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

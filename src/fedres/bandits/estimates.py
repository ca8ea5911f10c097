"""What a policy would have earned, estimated from decisions that another one logged.

With logged probabilities p, the target's probabilities q, and w = q(a) / p(a) of the logged a:

    IPS     mean of w r
    SNIPS   sum of w r / sum of w
    DR      mean of sum_b q(b) m(x(b)) + w (r - m(x(a))),   m a model of the reward

IPS and DR are unbiased if the target only takes actions that the log might have taken; SNIPS is
biased by order 1/n, and like DR often far less variable (Dudik, Langford and Li, 2011; Swaminathan
and Joachims, 2015).

Intervals are jackknives that leave out one client at a time, since decisions of one client have
much in common. Rare actions with large weights make them too narrow just when the log happens to
have few of them. But p and q of all actions are known, and with them what is to be expected,

    E w = 1   and   E w^2 = mean over decisions of sum_b q(b)^2 / p(b).

So intervals are widened where the sum of w^2 fell short of that, and there are none where the log
is worth too few decisions of the target's own, n / E w^2, or where the mean of w is too far from 1.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse, special

from fedres.bandits.logs import Event
from fedres.core.types import F64, I64, Matrix
from fedres.core.views import beside
from fedres.simulation.intervals import Interval

Target = Callable[[Event], ArrayLike]

LEAST = 30.0  # decisions of the target's own that a log must be worth
FEW_CLIENTS = 10  # with fewer, intervals are about these clients
MOST_SPREADS = 5.0  # that the mean weight may be from 1


@dataclass(frozen=True)
class Evaluation:
    """Estimates of a policy's mean reward, with 95% intervals.

    Attributes
    ----------
    ips, snips, dr
        Of the target policy, by inverse propensity scores, self-normalised, and doubly robust;
        NaN where they are refused.
    logged
        Of the policy that wrote the log.
    effective
        n / E w^2: how many decisions of its own the log is worth to the target.
    mean_weight
        The mean of w, which is near 1 if the log is right about its probabilities.
    events, left_out, clients
        How many events were used; how many were not, because their reward is not known; and of
        how many clients they are. Intervals are about clients like these if there are ten or
        more, otherwise about these very clients.
    refusal
        Why the log cannot tell; empty if it can.
    """

    ips: Interval
    snips: Interval
    dr: Interval
    logged: Interval
    effective: float
    mean_weight: float
    events: int
    left_out: int
    clients: int
    refusal: str = ""


class Weighed(NamedTuple):
    """Of every event: w, sum_b q(b)^2 / p(b), r, the number of its client, and both model terms."""

    weight: F64
    square: F64
    reward: F64
    client: I64
    chosen: F64  # m(x(a))
    expected: F64  # sum_b q(b) m(x(b))


def estimate(events: Iterable[Event], target: Target, least: float = LEAST) -> Evaluation:
    """Estimate what a target policy would have earned.

    Parameters
    ----------
    events
        Logged decisions, in order.
    target
        Gives the probability of every action of an event. It is called once an event, and must
        not look at its action and reward before it has made up its mind.
    least
        There is no estimate from a log that is worth fewer decisions of the target's own. Below
        30, intervals of 95% were seen to cover the truth less often than in 92% of all logs
        (`benchmarks/off_policy.py`).

    Examples
    --------
    >>> x, none = np.float32([[1.0, 0.0], [0.0, 1.0]]), np.empty((2, 0), np.float32)
    >>> events = [Event(0, t, x, none, t % 2, np.array([0.5, 0.5]), float(t % 2))
    ...           for t in range(1, 101)]
    >>> result = estimate(events, lambda event: [0.0, 1.0])
    >>> result.ips.mean, result.snips.mean, result.logged.mean, result.effective
    (1.0, 1.0, 0.5, 50.0)
    >>> print(estimate(events[:20], lambda event: [0.0, 1.0]).refusal)
    the log hardly ever took the actions that this policy prefers: its 20 decisions are worth 10 of
    the policy's own, and an estimate needs 30
    """
    weights, squares, rewards, chosen, expected = [], [], [], [], []
    clients: dict[int | str, int] = {}
    owner = []
    left_out = 0
    for event in events:
        if event.reward is None:
            left_out += 1
            continue
        wanted = _probabilities(target, event)
        contexts = beside(event.contexts_global, event.contexts_local)
        weights.append(wanted[event.action] / event.probability)
        possible = wanted > 0
        squares.append(float((wanted[possible] ** 2 / event.probabilities[possible]).sum()))
        rewards.append(event.reward)
        owner.append(clients.setdefault(event.client, len(clients)))
        chosen.append(contexts[event.action : event.action + 1])
        expected.append(_mean_row(contexts, wanted))
    if len(rewards) < 2:
        raise ValueError(
            f"the log has {len(rewards)} events with a reward: an estimate needs at least 2"
        )
    r, client = np.array(rewards), np.array(owner)
    models = _predict_rewards(_stack(chosen), _stack(expected), r, client)
    seen = Weighed(np.array(weights), np.array(squares), r, client, *models)
    return evaluate(seen, least, left_out)


def evaluate(seen: Weighed, least: float = LEAST, left_out: int = 0) -> Evaluation:
    """The estimates, from what every event comes to."""
    w, square, r, client, m_chosen, m_expected = seen
    ones, several = np.ones(len(r)), len(np.unique(client))
    if several < FEW_CLIENTS:
        client = np.arange(len(r))
    effective = len(r) / square.mean()
    refusal = _refusal(w, square, effective, least)
    short = np.sqrt(max(1.0, square.mean() / (w**2).mean())) if w.any() else np.nan
    nothing = Interval(np.nan, np.nan)

    def of_target(total: F64, of: F64) -> Interval:
        return nothing if refusal else _jackknife(total, of, client, short)

    return Evaluation(
        ips=of_target(w * r, ones),
        snips=of_target(w * r, w),
        dr=of_target(m_expected + w * (r - m_chosen), ones),
        logged=_jackknife(r, ones, client),
        effective=float(effective),
        mean_weight=float(w.mean()),
        events=len(r),
        left_out=left_out,
        clients=several,
        refusal=refusal,
    )


def _refusal(w: F64, square: F64, effective: float, least: float) -> str:
    """Why there is no estimate; empty if there is one."""
    if effective < least or not w.any():
        return (
            f"the log hardly ever took the actions that this policy prefers: its {len(w):,} "
            f"decisions are worth {effective:,.0f} of the policy's own, and an estimate needs "
            f"{max(least, 1):,.0f}"
        )
    # Given the contexts each w has mean 1 and a variance that is known.
    spread = np.sqrt(max((square - 1).sum(), 0.0)) / len(w)
    if abs(w.mean() - 1) > MOST_SPREADS * spread + 0.01:
        return (
            f"the mean weight of the log's decisions is {w.mean():.2f} and must be near 1: its "
            "probabilities are not those that its actions were taken with"
        )
    return ""


def _jackknife(total: F64, of: F64, client: I64, wider: float = 1.0) -> Interval:
    """The sum of one over that of the other, with an interval from leaving out each client."""
    one, other = (np.bincount(client, values) for values in (total, of))
    count, rest = len(one), other.sum() - other
    without = (total.sum() - one) / np.where(rest > 0, rest, np.nan)
    error = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    half = special.stdtrit(count - 1, 0.975) * error * wider
    return Interval(float(total.sum() / of.sum()), float(half))


def _probabilities(target: Target, event: Event) -> F64:
    wanted = np.asarray(target(event), np.float64)
    place = f"decision {event.id} of client {event.client}"
    if wanted.shape != event.probabilities.shape or not (
        (wanted >= 0).all() and abs(wanted.sum() - 1) < 1e-6
    ):
        raise ValueError(
            f"the target gives {wanted.tolist()} for {place}: give a probability for each of its "
            f"{len(event.probabilities)} actions"
        )
    if ((wanted > 0) & (event.probabilities == 0)).any():
        action = int(np.flatnonzero((wanted > 0) & (event.probabilities == 0))[0])
        raise ValueError(
            f"in {place} the log gives action {action} probability 0, the target "
            f"{wanted[action]:g}: use only events in which every action had some probability"
        )
    return wanted


def _predict_rewards(chosen: Any, expected: Any, rewards: F64, client: I64) -> tuple[F64, F64]:
    """A ridge model's rewards of both kinds of row, learned on the half they are not in.

    Where there are many clients, on other clients.
    """
    from sklearn.linear_model import Ridge

    split = client if len(np.unique(client)) >= FEW_CLIENTS else np.arange(len(rewards))
    half = np.random.default_rng(0).permutation(split.max() + 1)[split] % 2
    predicted = np.empty((2, len(rewards)))
    for one in (0, 1):
        model = Ridge().fit(chosen[half != one], rewards[half != one])
        for row, x in enumerate((chosen, expected)):
            predicted[row, half == one] = model.predict(x[half == one])
    return predicted[0], predicted[1]


def _mean_row(contexts: Matrix, probabilities: F64) -> Matrix:
    # A linear model's mean prediction is its prediction for the mean: one row does for K.
    if isinstance(contexts, np.ndarray):
        return (probabilities @ contexts)[None].astype(np.float32)
    return sparse.csr_array(sparse.csr_array(probabilities[None]) @ contexts)


def _stack(rows: list[Matrix]) -> Any:
    """All rows as one matrix, filled up with zeros where clients differ in width."""
    width = max(row.shape[1] for row in rows)
    if all(isinstance(row, np.ndarray) for row in rows):
        return np.vstack([np.pad(row, ((0, 0), (0, width - row.shape[1]))) for row in rows])
    several = [sparse.csr_array(row) for row in rows]
    for row in several:
        row.resize((1, width))
    return sparse.csr_array(sparse.vstack(several, format="csr"))

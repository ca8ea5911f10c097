"""What a policy would have earned, estimated from decisions that another one logged.

With logged probabilities p, the target's probabilities q, and w = q(a) / p(a) of the logged a:

    IPS     mean of w r
    SNIPS   sum of w r / sum of w
    DR      mean of sum_b q(b) m(x(b)) + w (r - m(x(a))),   m a model of the reward

IPS and DR are unbiased if the target only takes actions that the log might have taken; SNIPS is
biased by order 1/n, and like DR often far less variable (Dudik, Langford and Li, 2011; Swaminathan
and Joachims, 2015).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from fedres.bandits.client import STEP
from fedres.bandits.decisions import joint_scores
from fedres.bandits.logs import Event, read_events
from fedres.bandits.policies import Policy
from fedres.core.parties import Client, Server
from fedres.core.receipts import number_of
from fedres.core.rule import Rule
from fedres.core.steps import Step
from fedres.core.types import F32, F64, Matrix
from fedres.core.views import beside
from fedres.simulation.intervals import Interval, interval
from fedres.simulation.settings import SGD_METHODS, Method, choose

Target = Callable[[Event], ArrayLike]


@dataclass(frozen=True)
class Evaluation:
    """Estimates of a policy's mean reward, with 95% intervals.

    Attributes
    ----------
    ips, snips, dr
        Of the target policy, by inverse propensity scores, self-normalised, and doubly robust.
    logged
        Of the policy that wrote the log.
    effective
        (sum of w)^2 / (sum of w^2): how many events of its own the target's are worth. Where
        that is small, intervals are not to be trusted.
    events, left_out
        How many events were used, and how many were not, because their reward is not known.
    """

    ips: Interval
    snips: Interval
    dr: Interval
    logged: Interval
    effective: float
    events: int
    left_out: int


def estimate(events: Iterable[Event], target: Target) -> Evaluation:
    """Estimate what a target policy would have earned.

    Parameters
    ----------
    events
        Logged decisions, in order.
    target
        Gives the probability of every action of an event. It is called once an event, and must
        not look at its action and reward before it has made up its mind.

    Examples
    --------
    >>> x, none = np.float32([[1.0, 0.0], [0.0, 1.0]]), np.empty((2, 0), np.float32)
    >>> rewards = [0.0, 1.0, 0.0, 1.0]
    >>> events = [Event(0, t, x, none, t % 2, np.array([0.5, 0.5]), r)
    ...           for t, r in zip([2, 3, 4, 5], rewards)]
    >>> result = estimate(events, lambda event: [0.0, 1.0])
    >>> result.ips.mean, result.snips.mean, result.logged.mean, result.effective
    (1.0, 1.0, 0.5, 2.0)
    """
    weights, rewards, chosen, expected = [], [], [], []
    left_out = 0
    for event in events:
        if event.reward is None:
            left_out += 1
            continue
        wanted = _probabilities(target, event)
        contexts = beside(event.contexts_global, event.contexts_local)
        weights.append(wanted[event.action] / event.probability)
        rewards.append(event.reward)
        chosen.append(contexts[event.action : event.action + 1])
        expected.append(_mean_row(contexts, wanted))
    if len(rewards) < 2:
        raise ValueError(
            f"the log has {len(rewards)} events with a reward: an estimate needs at least 2"
        )
    w, r = np.array(weights), np.array(rewards)
    if not w.any():
        raise ValueError(
            "the target policy would have taken none of the logged actions: log more events"
        )
    snips = float((w * r).sum() / w.sum())
    m_chosen, m_expected = _predict_rewards(_stack(chosen), _stack(expected), r)
    return Evaluation(
        ips=interval(w * r),
        # by the delta method: the mean of these terms is exactly the ratio
        snips=interval(snips + w * (r - snips) / w.mean()),
        dr=interval(m_expected + w * (r - m_chosen)),
        logged=interval(r),
        effective=float(w.sum() ** 2 / (w**2).sum()),
        events=len(r),
        left_out=left_out,
    )


def joint_policy(policy: Policy, w_global: F32, w_local: Mapping[Any, F32]) -> Target:
    """A target that chooses by a fixed pair of models.

    Parameters
    ----------
    policy
        How it explores.
    w_global
        The global model, the constant's weight last: the `weights` of a `GlobalModel`.
    w_local
        The local model by client: each the `w_local` of a `BanditClient`.
    """

    def target(event: Event) -> F64:
        if event.client not in w_local:
            raise ValueError(f"client {event.client} of the log has no local model: give it one")
        scores = joint_scores(
            event.contexts_global, event.contexts_local, w_global, w_local[event.client]
        )
        return policy.probabilities(scores, event.turn)

    return target


class ReplayLearner:
    """A target that learns while the log is replayed: progressive evaluation.

    It gives its probabilities for an event, then learns from the logged action and reward, and
    sends the global model to all clients at once. It so sees the log's actions rather than its
    own: what it learns about is what the log explored.

    Parameters
    ----------
    policy
        How it explores.
    method
        "fedres"; "central": the global model alone; "independent": local models alone, on the
        features of both views.
    step
        How models move.
    """

    def __init__(self, policy: Policy, method: Method = "fedres", step: Step = STEP) -> None:
        choose("method", method, SGD_METHODS)
        self.policy = policy
        self.method = method
        self.step = step
        self.clients: dict[int | str, Client] = {}
        self.server: Server | None = None

    def __call__(self, event: Event) -> F64:
        """The probabilities of the event's actions, before it is learned from."""
        x_global, x_local = self._views(event)
        if self.server is None:
            self.server = Server(Rule(step=self.step), x_global.shape[1])
        if event.client not in self.clients:
            self.clients[event.client] = Client(
                self.server.rule,
                self.server.global_.width,
                x_local.shape[1],
                number_of(event.client),
            )
        client = self.clients[event.client]
        client.refresh(self.server.publish())
        scores = joint_scores(x_global, x_local, client.global_.weights, client.local.weights)
        probabilities = self.policy.probabilities(scores, client.round + 1)
        if event.reward is not None:
            row, y = slice(event.action, event.action + 1), np.array([event.reward], np.float32)
            upload = client.observe(x_global[row], x_local[row], y)
            if upload is not None and x_global.shape[1]:
                self.server.apply(upload)
        return probabilities

    def _views(self, event: Event) -> tuple[Matrix, Matrix]:
        x_global, x_local = event.contexts_global, event.contexts_local
        nothing = np.empty((x_global.shape[0], 0), np.float32)
        if self.method == "central":
            return x_global, nothing
        if self.method == "independent":
            return nothing, beside(x_global, x_local)
        return x_global, x_local


def evaluate_log(
    log: str | Path | Iterable[Event],
    policy: Policy,
    method: Method = "fedres",
    step: Step = STEP,
) -> Evaluation:
    """Estimate what a learning policy would have earned on a log; see `ReplayLearner`.

    Parameters
    ----------
    log
        A file of events, or events.
    policy, method, step
        As of `ReplayLearner`.
    """
    events = read_events(log) if isinstance(log, str | Path) else log
    return estimate(events, ReplayLearner(policy, method, step))


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


def _predict_rewards(chosen: Any, expected: Any, rewards: F64) -> tuple[F64, F64]:
    """A ridge model's rewards of both kinds of row, learned on the half they are not in."""
    from sklearn.linear_model import Ridge

    half = np.random.default_rng(0).permutation(len(rewards)) % 2
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

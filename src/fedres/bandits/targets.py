"""Targets to judge by a log (`estimates`): models that stay, and models that learn on the way."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedres.bandits.decisions import joint_scores
from fedres.bandits.estimates import LEAST, Evaluation, Target, estimate
from fedres.bandits.learners import STEP, Learner, check_errors, new_client, new_server
from fedres.bandits.logs import Event, read_events
from fedres.bandits.policies import Policy
from fedres.core.parties import Client, Server
from fedres.core.receipts import number_of
from fedres.core.ridge_parties import RidgeClient, RidgeServer
from fedres.core.types import F32, F64, Matrix
from fedres.core.views import beside
from fedres.simulation.settings import SGD_METHODS, Method, choose


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

    def __init__(self, policy: Policy, method: Method = "fedres", step: Learner = STEP) -> None:
        choose("method", method, SGD_METHODS)
        check_errors(policy, step)
        self.policy = policy
        self.method = method
        self.step = step
        self.clients: dict[int | str, Client | RidgeClient] = {}
        self.server: Server | RidgeServer | None = None

    def __call__(self, event: Event) -> F64:
        """The probabilities of the event's actions, before it is learned from."""
        x_global, x_local = self._views(event)
        if self.server is None:
            self.server = new_server(self.step, x_global.shape[1])
        if event.client not in self.clients:
            widths = self.server.global_.width, x_local.shape[1]
            self.clients[event.client] = new_client(self.step, *widths, number_of(event.client))
        client = self.clients[event.client]
        client.refresh(self.server.publish())
        scores = joint_scores(x_global, x_local, client.global_.weights, client.local.weights)
        turn = client.round + 1
        if isinstance(client, RidgeClient) and self.policy.needs_errors:
            errors = client.errors(x_global, x_local)
            probabilities = self.policy.probabilities(scores, turn, errors)
        else:
            probabilities = self.policy.probabilities(scores, turn)
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
    step: Learner = STEP,
    least: float = LEAST,
) -> Evaluation:
    """Estimate what a learning policy would have earned on a log; see `ReplayLearner`.

    Parameters
    ----------
    log
        A file of events, or events.
    policy, method, step
        As of `ReplayLearner`.
    least
        As of `estimate`.
    """
    events = read_events(log) if isinstance(log, str | Path) else log
    return estimate(events, ReplayLearner(policy, method, step), least)

"""`play`: a federation whose clients have local models of any kind, in one process."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedres.core import clock
from fedres.core.delays import Delay, as_delay
from fedres.core.parties import Server
from fedres.core.rule import Rule
from fedres.core.schedule import plan
from fedres.core.sgd import Play, new_flight, new_models
from fedres.core.types import F32
from fedres.core.views import client_rows
from fedres.learners.foreign_side import Foreign
from fedres.learners.learner_client import LearnerClient, check_learner
from fedres.learners.local_learner import LocalLearner
from fedres.simulation.dealing import new_deck
from fedres.simulation.federation import Federation
from fedres.simulation.settings import at_least_1
from fedres.simulation.sgd_sides import linear_side


@dataclass(frozen=True)
class Played:
    """What is left when a federation was played.

    Attributes
    ----------
    loss_by_client
        The average progressive loss of each client's joint predictions, by client.
    predictions
        (clients, rounds): the joint predictions as they were made; NaN where a client rested.
    clients, server
        Ready to predict, with the final models, and to go on.
    """

    loss_by_client: dict[Any, float]
    predictions: F32 = field(repr=False)
    clients: dict[Any, LearnerClient] = field(repr=False)
    server: Server = field(repr=False)


def play(
    federation: Federation,
    learners: Mapping[Any, LocalLearner],
    *,
    rule: Rule | None = None,
    rounds: int | None = None,
    delay: int | Delay = 0,
    seed: int = 0,
) -> Played:
    """Play FedRes.SGD with any local models, round by round.

    Parameters
    ----------
    federation
        Clients and their samples, which come in the order they have there.
    learners
        A local model of its own for every client.
    rule
        What clients and server agree on; `Rule()` if None.
    rounds
        T: samples that each client sees, going round and round through its rows. If None, every
        client sees each of its rows once; the rows of clients that have fewer are spread evenly.
    delay
        Rounds that messages are late: a `Delay`, or a round trip to be split evenly.
    seed
        Decides random delays; nothing else is random.

    Examples
    --------
    >>> from river.tree import HoeffdingTreeRegressor
    >>> from fedres.learners import LinearLearner, RiverLearner
    >>> rng = np.random.default_rng(0)
    >>> x_global, x_local = rng.uniform(-1, 1, (2, 600, 3))
    >>> client = np.repeat(["ann", "bob"], 300)
    >>> own = np.where(client == "ann", x_local[:, 0], np.sign(x_local[:, 0]))
    >>> y = x_global.sum(axis=1) + own
    >>> federation = Federation.from_arrays(x_global, x_local, y, client)
    >>> learners = {
    ...     "ann": LinearLearner(Rule(), width=3),
    ...     "bob": RiverLearner(HoeffdingTreeRegressor(grace_period=20)),
    ... }
    >>> played = play(federation, learners, delay=10)
    >>> {name: round(loss, 2) for name, loss in played.loss_by_client.items()}
    {'ann': 0.08, 'bob': 0.19}
    >>> shared, private = np.float32([[0.5, 0.5, 0.5]]), np.float32([[-0.5, 0.0, 0.0]])
    >>> played.clients["bob"].predict(shared, private).round(1)
    array([0.5], dtype=float32)
    """
    rule = rule or Rule()
    _check(federation, learners, rounds)
    rows, ids = federation.train, federation.clients
    for name in ids:
        check_learner(rule, learners[name], name)
    seen = rows.counts if rounds is None else np.full(len(ids), rounds)
    turns = int(-(-seen.max() // rule.batch))
    layout = plan(
        len(ids),
        turns,
        rule.batch,
        as_delay(delay),
        waits=rule.waits,
        frozen=not rule.step.adaptive,
        passes=None if rounds else (rows.counts, 1),
        seed=seed,
    )
    total = rounds or turns * rule.batch
    deck = new_deck(rows.y, rows.row_start, turns, total, cycle=rounds is not None)
    server = Server(rule, federation.width_global)
    x = rows.x_global
    global_ = linear_side(x, x.width[:1], rule, rule.step.eta, layout.times.history)
    local = Foreign(
        [learners[name] for name in ids],
        list(ids),
        [client_rows(rows.x_local, rows.row_start, i) for i in range(len(ids))],
        rows.row_start,
        new_models(np.zeros(len(ids), np.int64), False, rule.reach),
    )
    terms = rule.terms(np.ones(len(ids), np.float32))
    flight = new_flight(layout.depth, len(ids), rule.batch)
    with np.errstate(all="ignore"):
        rounds_of = Play(terms, layout.times, global_, local, flight)
        clock.play(deck, rounds_of, np.empty((0, 0), np.float32))
    server.go_on_from(global_.models, turns % layout.times.history, turns)
    clients = {}
    for i, name in enumerate(ids):
        clients[name] = LearnerClient(rule, federation.width_global, learners[name], i, name)
        clients[name].local.reach = local.models.low[i], local.models.high[i]
        clients[name].refresh(server.current())
    losses = (deck.loss_by_client / seen).tolist()
    return Played(dict(zip(ids, losses, strict=True)), deck.predictions.T, clients, server)


def _check(
    federation: Federation, learners: Mapping[Any, LocalLearner], rounds: int | None
) -> None:
    at_least_1(rounds=1 if rounds is None else rounds)
    if unknown := set(learners) - set(federation.clients):
        raise ValueError(f"learners names client {unknown.pop()!r}, who is not there")
    owner: dict[int, Any] = {}
    for client in federation.clients:
        if client not in learners:
            raise ValueError(f"there is no learner for client {client!r}: give every client one")
        other = owner.setdefault(id(learners[client]), client)
        if other != client:
            raise ValueError(
                f"clients {other!r} and {client!r} have one learner between them: give each its own"
            )

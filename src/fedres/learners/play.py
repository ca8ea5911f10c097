"""`play`: a federation whose clients have local models of any kind, in one process."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedres.core.delays import Delay, as_delay
from fedres.core.messages import GlobalModel
from fedres.core.schedule import draw_delays, spread
from fedres.core.sgd import Rule, Server
from fedres.core.types import F32
from fedres.core.views import client_rows
from fedres.learners.learner_client import LearnerClient
from fedres.learners.protocol import LocalLearner
from fedres.simulation.federation import Federation


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
    views = (rows.x_global, rows.x_local)
    samples = [
        (*(client_rows(view, rows.row_start, i) for view in views), y)
        for i, y in enumerate(np.split(rows.y, rows.row_start[1:-1]))
    ]
    clients = [
        LearnerClient(rule, federation.width_global, learners[name], i, name)
        for i, name in enumerate(ids)
    ]
    server = Server(rule, federation.width_global)

    last = rows.counts if rounds is None else np.full(len(ids), rounds)
    turns = int(-(-last.max() // rule.batch))
    up, down = draw_delays(as_delay(delay), len(ids), turns, rule.batch, seed)
    active: dict[int, list[int]] = defaultdict(list)
    for n, i in np.transpose(spread(last, 1, rule.batch)).tolist():
        active[n].append(i)
    to_server: dict[int, list[Any]] = defaultdict(list)
    to_client: dict[int, list[tuple[int, GlobalModel]]] = defaultdict(list)
    seen, losses = np.zeros(len(ids), int), np.zeros(len(ids))
    predictions = np.full((len(ids), rounds or turns * rule.batch), np.nan, np.float32)
    for n in range(turns):
        for i, model in to_client.pop(n, []):
            clients[i].refresh(model)
        for i in active[n]:
            k = np.arange(seen[i], min(seen[i] + rule.batch, last[i])) % rows.counts[i]
            seen[i] += len(k)
            x_global, x_local, y = (part[k] for part in samples[i])
            guess = clients[i].predict(x_global, x_local)
            predictions[i, n * rule.batch :][: len(k)] = guess
            losses[i] += rule.loss.value(guess, y).sum(dtype=np.float64)
            # the last batch may not be full
            upload = clients[i].observe(x_global, x_local, y) or clients[i].flush()
            to_server[n + int(up[i, n])].append(upload)
        for upload in sorted(to_server.pop(n, []), key=lambda one: (one.client, one.round)):
            server.apply(upload)
        model = server.publish()
        for i in range(len(ids)):
            to_client[n + 1 + int(down[i, n + 1])].append((i, model))
    for client in clients:
        client.refresh(model)
    return Played(
        dict(zip(ids, (losses / last).tolist(), strict=True)),
        predictions,
        dict(zip(ids, clients, strict=True)),
        server,
    )


def _check(
    federation: Federation, learners: Mapping[Any, LocalLearner], rounds: int | None
) -> None:
    if rounds is not None and rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
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

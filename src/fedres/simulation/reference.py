"""The objects of `fedres.core` played round by round, with messages that are late.

This is what the compiled loop has to agree with, and what runs an algorithm file that was just
changed.
"""

from collections import defaultdict
from time import perf_counter
from typing import Any

import numpy as np

from fedres.core import erm, fictitious_play, sgd
from fedres.core.baselines import Independent
from fedres.core.delays import Delay
from fedres.core.kernels import shuffle_rows
from fedres.core.messages import GlobalModel, Ledger
from fedres.core.models import linear
from fedres.core.schedule import draw_delays, everyone, spread
from fedres.core.types import F32, I32
from fedres.core.views import client_rows
from fedres.simulation.engine import finish
from fedres.simulation.federation import Federation, sides
from fedres.simulation.run import Run
from fedres.simulation.settings import SGD_METHODS, Settings

ALGORITHMS: dict[str, Any] = {"fedres-erm": erm, "fictitious-play": fictitious_play}


def simulate_reference(federation: Federation, settings: Settings) -> Run:
    """Play a run with the reference objects."""
    rule, weight = settings.rule(federation), settings.weights(federation)
    clients, rows = len(federation.clients), federation.train
    turns = settings.turns(federation)
    xg, xl = sides(federation, rows, settings.method)
    features = [
        (client_rows(xg, rows.row_start, i), client_rows(xl, rows.row_start, i))
        for i in range(clients)
    ]
    labels = np.split(rows.y, rows.row_start[1:-1])
    alone = xg.width[0] == 0
    begin_global, begin_local = settings.initial(federation, int(xg.width[0]), xl.width)
    algorithm = ALGORITHMS.get(settings.method, sgd)
    learners: list[Any]
    if alone:
        learners = [
            Independent(rule, int(xl.width[i]), float(weight[i]), begin_local[i])
            for i in range(clients)
        ]
    else:
        learners = [
            algorithm.Client(
                rule, int(xg.width[0]), int(xl.width[i]), i, float(weight[i]),
                begin_global, begin_local[i],
            )
            for i in range(clients)
        ]  # fmt: skip
    server: Any = algorithm.Server(
        rule, int(xg.width[0]), dict(enumerate(map(float, weight))), initial=begin_global
    )
    path = [begin_global]

    delay = Delay() if alone else settings.delay
    up, down = draw_delays(delay, clients, turns, settings.batch, settings.seed)
    active = defaultdict(list)
    sent, who = (
        everyone(clients, turns)
        if settings.cycle
        else spread(rows.counts, settings.passes, settings.batch)
    )
    for n, i in zip(sent.tolist(), who.tolist(), strict=True):
        active[n].append(i)
    to_server: dict[int, list[Any]] = defaultdict(list)
    to_client: dict[int, list[tuple[int, GlobalModel]]] = defaultdict(list)
    hands = [_Hand(len(labels[i]), i, settings) for i in range(clients)]

    total = settings.total(federation)
    predictions = np.full((clients, total), np.nan, np.float32)
    loss_by_round, weight_by_round = np.zeros((2, turns))
    loss_by_client = np.zeros(clients)
    ledger = Ledger()
    began = perf_counter()
    for n in range(turns + 1):
        for i, model in sorted(to_client.pop(n, []), key=lambda item: item[1].version):
            learners[i].refresh(model)
        if n == turns:
            break
        for i in sorted(active[n]):
            begin = n * settings.batch
            k = hands[i].deal(min(settings.batch, total - begin))
            x, y = (features[i][0][k], features[i][1][k]), labels[i][k]
            learner = learners[i]
            if isinstance(learner, Independent):
                guess = learner.predict(x[1])
                learner.observe(x[1], y)
                learner.flush()
            else:
                guess = learner.predict(*x)
                upload = learner.observe(*x, y) or learner.flush()
                to_server[n + int(up[i, n])].append(upload)
                ledger.up += len(upload.pack())
            predictions[i, begin : begin + len(k)] = guess
            losses = settings.loss.value(guess, y).sum(dtype=np.float64)
            loss_by_client[i] += losses
            loss_by_round[n] += weight[i] * losses
            weight_by_round[n] += weight[i] * len(k)
        if alone:
            continue
        for upload in sorted(
            to_server.pop(n, []), key=lambda upload: (upload.client, upload.round)
        ):
            server.apply(upload)
        model = server.publish()
        path.append(model.weights)
        for i in range(clients):
            to_client[n + 1 + int(down[i, n + 1])].append((i, model))
            # A client that rests fetches nothing; what was used of its uploads it hears later.
            used = 4 * len(model.used.get(i, ()))
            ledger.down += len(model.pack(i)) if i in active[n] else used
    seconds = perf_counter() - began

    w_global, w_local = _final(learners, server, settings)
    constant = settings.constant
    tested = None
    if federation.test is not None:
        test = federation.test
        views = sides(federation, test, settings.method)

        def joint(i: int) -> F32:
            x_global, x_local = (client_rows(view, test.row_start, i) for view in views)
            seen: F32 = linear(x_global, w_global, constant and bool(xg.width[0]))
            residual: F32 = linear(x_local, w_local[i], constant and bool(xl.width[i]))
            return seen + residual

        tested = np.concatenate([joint(i) for i in range(clients)])
    return finish(
        federation, settings, predictions, loss_by_round, weight_by_round, loss_by_client,
        w_global, w_local, ledger, tested, seconds, np.array(path) if settings.keep_path else None,
    )  # fmt: skip


def _final(learners: list[Any], server: Any, settings: Settings) -> tuple[F32, list[F32]]:
    """The models at the end; clients that minimise do so once more, for the final global model."""
    if settings.method in SGD_METHODS:
        local = [one.model if isinstance(one, Independent) else one.local for one in learners]
        return server.global_.weights, [model.weights for model in local]
    final = GlobalModel(server.version + 1, server.weights, -np.inf, np.inf)
    for learner in learners:
        learner.refresh(final)
        learner.settle()
    return server.weights.astype(np.float32), [one.weights.astype(np.float32) for one in learners]


class _Hand:
    """The rows of one client in the order it sees them."""

    def __init__(self, rows: int, client: int, settings: Settings) -> None:
        self.order: I32 = np.arange(rows, dtype=np.int32)
        self.client = client
        self.settings = settings
        self.position = self.epoch = 0

    def deal(self, most: int) -> I32:
        """The next rows; a pass that ends within a batch cuts it short unless rows repeat."""
        rows = len(self.order)
        dealt: list[int] = []
        while len(dealt) < most:
            if self.position == 0 and self.settings.shuffle:
                shuffle_rows(self.order, 0, rows, self.settings.seed, self.client, self.epoch)
            dealt.append(self.order[self.position])
            self.position += 1
            if self.position == rows:
                self.position = 0
                self.epoch += 1
                if not self.settings.cycle:
                    break
        return np.array(dealt, np.int32)

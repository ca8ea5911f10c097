"""``solver="sgd"`` on Ray: actors own shards, a server actor the global model (`shared_server`).

A worker learns rows of a shard with a copy of the global model and sends them to the server as one
message. It goes on at once: with its copy, which has learned those rows, or with a newer model as
soon as the server has answered with one that knows of others' messages. No one waits for others,
except that a worker does not have more than a few messages unanswered, and that the server has to
be settled (`SharedServer.settle`) before the local models of a shard are written, once a pass.

A worker alone has a copy that is the server's model, bit for bit, and so are its results those of
`shard_sgd.train`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedres.cluster.local_parts import GlobalState, messages_known, write_part
from fedres.cluster.ray_actors import actor_here, actors, owned, result
from fedres.cluster.shard_sgd import (
    OpenShard,
    SgdProblem,
    forget_models,
    open_shard,
    passes,
)
from fedres.cluster.shards import Shard
from fedres.cluster.shared_server import STATE, Message, Receipt, SharedServer, Used
from fedres.core.types import I32, Matrix
from fedres.core.views import whole
from fedres.simulation.ray_cluster import connect
from fedres.tables.sgd_tuning import Trial

ROWS_A_MESSAGE = 2**14  # Ray takes as long for a message as the server for some thousand rows
FEWEST_MESSAGES = 16  # of a shard in a pass, if it has so many rows
MOST_UNANSWERED = 2  # messages of a worker
POLL = 0.5  # seconds

Watch = Callable[[Sequence[int]], None]


class RaySgd(NamedTuple):
    """The global model, and what it was learned from."""

    global_: GlobalState
    used: Used


class _Unanswered(NamedTuple):
    reference: Any
    version: int  # that a server has when it has used the message, and others' none


class SgdWorker:
    """An actor that owns shards.

    Parameters
    ----------
    problem
        What all shards share.
    rows_a_message
        How many, at most.
    """

    def __init__(self, problem: SgdProblem, rows_a_message: int) -> None:
        self._problem, self._size = problem, rows_a_message
        self._ray = connect()
        self._unanswered: deque[_Unanswered] = deque()
        self._copy: GlobalState

    def train(self, server: Any, shards: Sequence[Shard], best: Trial, rng: Any) -> None:
        """All passes; what was learned in an earlier life of this actor is not learned again."""
        self._server = server
        self._fetch()
        for number, (eta, ordered) in enumerate(passes(shards, best, rng)):
            for shard in ordered:
                order = rng.permutation(shard.rows).astype(np.int32)
                size = message_rows(shard, self._size)
                parts = [order[i : i + size] for i in range(0, len(order), size)]
                first = number * len(parts)
                if messages_known(shard) > first:
                    continue
                while not self._learn(shard, eta, parts, first):
                    self._fetch()  # the server has died, and forgotten

    def _learn(self, shard: Shard, eta: float, parts: list[I32], first: int) -> bool:
        """One pass over a shard: whether the server knows of all its messages."""
        opened = open_shard(shard, self._problem, self._copy)
        opened.models.settings = self._problem.shape._replace(eta=eta)
        x_global = _global_rows(opened)
        for number, part in enumerate(parts, first):
            own = opened.models.learn_and_tell(opened.rows, opened.y, part)
            rows = x_global[part], np.ascontiguousarray(opened.y[:, part]), own
            self._send(shard.number, number, eta, *rows)
            if not self._hear(opened, MOST_UNANSWERED - 1):
                return False
        last = first + len(parts)
        if not self._hear(opened, 0) or not self._get(
            self._server.settle.remote(shard.number, last)
        ):
            return False
        write_part(shard, opened.models.pack(opened.clients)[1], last)
        self._copy = GlobalState(opened.models.w_global, opened.models.squares_global)
        return True

    def _send(self, shard: int, number: int, eta: float, x: Matrix, y: Any, own: Any) -> None:
        # Not more comes down than goes up, also where the global model is wide.
        self._sent_since += x.data.nbytes
        asks = self._sent_since >= self._copy.weights.nbytes
        message = Message(shard, number, self._version, eta, x, y, own, asks)
        self._version += 1  # the copy has learned these rows
        reference = self._server.receive.remote(message)
        self._unanswered.append(_Unanswered(reference, self._version))

    def _hear(self, opened: OpenShard, most: int) -> bool:
        """Take in answers, and wait while too many are due; False if one is a refusal."""
        newer: Receipt | None = None
        while self._unanswered:
            reference, expected = self._unanswered[0]
            if len(self._unanswered) <= most and not self._ray.wait([reference], timeout=0)[0]:
                break
            receipt = self._get(reference)
            self._unanswered.popleft()
            if not receipt.known:
                return False
            if receipt.version != expected and receipt.model is not None:
                newer = receipt
        if newer is not None:
            models = opened.models
            models.w_global[:], models.squares_global[:] = newer.model  # type: ignore[misc]
            self._version, self._sent_since = newer.version, 0
        return True

    def _fetch(self) -> None:
        """Begin with the server's model; answers to what was sent before are of no use."""
        self._unanswered.clear()
        self._version, self._copy = self._get(self._server.newest.remote())
        self._sent_since = 0

    def _get(self, reference: Any) -> Any:
        return self._ray.get(reference)


def message_rows(shard: Shard, most: int) -> int:
    """How many rows of a shard go to the server at once."""
    return min(most, -(-shard.rows // FEWEST_MESSAGES))


def _global_rows(opened: OpenShard) -> Matrix:
    """The rows that the global model sees, to be taken from."""
    view = opened.rows.global_
    if view.sparse:  # scipy would have indices of 64 bits as well, were these
        view = view._replace(indptr=view.indptr.astype(np.int32))
    x = whole(view)
    return np.empty((opened.rows.total, 0), np.float32) if x is None else x


def train_on_ray(
    shards: Sequence[Shard],
    problem: SgdProblem,
    best: Trial,
    rng: Any,
    workers: int,
    watch: Watch | None = None,
    rows_a_message: int = ROWS_A_MESSAGE,
    go_on: bool = False,
) -> RaySgd:
    """All passes; the global model, and local models beside their shards.

    Parameters
    ----------
    shards, problem, best, rng
        As `shard_sgd.train` takes them.
    workers
        How many actors own shards.
    watch
        Called now and then with how many rows of each worker have been learned from.
    rows_a_message
        How many rows go to the server at once, at most.
    go_on
        Whether to go on from what server and workers last wrote, as they do when they die.
    """
    ray, folder = connect(), shards[0].folder
    if not go_on:
        forget_models(shards)
        (folder / STATE).unlink(missing_ok=True)
    mine = owned(shards, workers)
    # A worker alone draws what one process without Ray draws.
    rngs = [rng] if len(mine) == 1 else [np.random.RandomState(rng.randint(2**31)) for _ in mine]
    with (
        actor_here(SharedServer, problem.shape, problem.outputs, folder) as server,
        actors(SgdWorker, len(mine), problem, rows_a_message) as made,
    ):
        running = [
            actor.train.remote(server, own, best, one)
            for actor, own, one in zip(made, mine, rngs, strict=True)
        ]
        while running:
            ready, running = ray.wait(running, timeout=POLL)
            for one in ready:
                result(one)
            if watch is not None:
                done = result(server.used.remote()).rows
                watch([sum(done.get(shard.number, 0) for shard in own) for own in mine])
        return RaySgd(result(server.newest.remote())[1], result(server.used.remote()))

"""FedRes.ERM and fictitious play (Agarwal, Langford and Wei, 2020, section 3.1).

FedRes.ERM (Algorithms 1 and 2): both argmins are over all samples so far, under the *newest* model
of the other side.

    client   w_{i,t}   = argmin_{||w|| <= D}  sum_{s < t} l_{i,s}(w^g_{t-beta}, w)
             sends z_{i,t} = (x^g, x^l, y) and w_{i,t}
    server   w^g_{t+1} = argmin_{||w|| <= D}  sum_i sum_{s <= t-alpha} l_{i,s}(w, w_{i,t-alpha})

Fictitious play (the rules after Theorem 1): each sample keeps the other side's prediction of *its
own* round. So residuals are all that has to be sent, but both sides remember each other's old
mistakes, and lock each other: appendix C.

    client   w_{i,t}   = argmin_{||w|| <= D}  sum_{s < t} l_{i,s}(w^g_{s-beta}, w)
             sends Z_{i,t} = (x^g, f(x^l; w_{i,t}), y)
    server   w^g_{t+1} = argmin_{||w|| <= D}  sum_i sum_{s <= t-alpha} l_{i,s}(w, w_{i,s})

Where samples do not determine w, the argmin is the one of minimum norm; without samples, a model
stays as it was. These are sides for the clock of rounds, as those of `fedres.core.sgd` are, and
run compiled or as they stand; all in double precision, since sums of products lose half the digits.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from fedres.core.losses import Loss
from fedres.core.messages import check_bits
from fedres.core.primitives import add_scaled, add_square
from fedres.core.schedule import back, held
from fedres.core.sgd import (
    Message,
    Play,
    Terms,
    bounds,
    deliver,
    evaluate,
    keep,
    learn,
    message_of,
    serve,
)
from fedres.core.solvers import inner, least_squares_in_ball, minimise_in_ball
from fedres.core.source import apart
from fedres.core.types import F64, I64


@dataclass(frozen=True)
class ErmRule:
    """What clients and server of FedRes.ERM agree on.

    Attributes
    ----------
    ridge
        The weight of ||w||^2 in every argmin.
    solve_every
        Rounds from one argmin to the next.
    """

    ridge: float = 0.0
    solve_every: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.ridge < np.inf:
            raise ValueError(f"ridge must be a number from 0 up, not {self.ridge}")
        if self.solve_every < 1:
            raise ValueError(f"solve_every must be at least 1, not {self.solve_every}")


@dataclass(frozen=True)
class PlayRule(ErmRule):
    """What clients and server of fictitious play agree on.

    Attributes
    ----------
    ridge, solve_every
        As in `ErmRule`.
    residual_bits
        Bits that a residual is sent with.
    """

    residual_bits: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bits(self.residual_bits)


class Sums(NamedTuple):
    """What the squared loss needs of samples: A = sum x x', c = sum x y, C_i = sum z x'."""

    A: F64  # (problems, weights, weights), upper triangles, the ridge on the diagonal
    c: F64  # (problems, weights)
    C: F64  # (clients, weights of the other side, weights)


class EverySample(NamedTuple):
    """What any other loss needs: the samples themselves. Minimised by scipy, never compiled."""

    loss: Loss
    ridge: float
    seen: list[list[tuple[int, int, float, float, float]]]  # a problem: see `take_in`


class Minimiser(NamedTuple):
    """One side: the features of both, its models, and what it has seen.

    Features are dense, as wide as those of the widest client, their constant last: a weight that
    a client has no feature for is 0 in a solution of minimum norm. The local side has a problem
    and a model a client; the global side has one problem, and a model a version, in a ring.
    """

    x: F64
    z: F64  # the other side's
    weights: F64
    problem: Sums | EverySample
    remembers: bool  # fictitious play: samples keep the other side's prediction
    solve_every: int
    radius: float
    turn: I64  # a client: rounds it has learned
    sent: F64  # local models under way, a message each
    newest: I64  # a client: the round of its newest message that has arrived, or -1
    received: F64  # a client: the local model in that message


@evaluate.register
def _(side: Minimiser, m: int, message: Message, out: F64) -> None:
    for c in range(message.first, message.last):
        out[c] = inner(side.x[message.flight.row[c]], side.weights[m])


@bounds.register
def _(side: Minimiser, m: int) -> tuple[float, float]:
    return -np.inf, np.inf


@deliver.register
def _(local: Minimiser, play: Play, n: int) -> None:
    """Each client that is about to predict minimises; all do once more when the run is over."""
    times, global_ = play.times, play.global_
    if n < times.rounds:
        for e in range(times.active.first[n], times.active.last[n]):
            i: Any = np.int64(times.active.who[e])
            settle(local, i, global_, held(times, n, n % times.history, i))
    else:
        for i in range(len(play.terms.weight)):
            settle(local, i, global_, n % times.history)


def settle(local: Minimiser, i: int, global_: Minimiser, version: int) -> None:
    """w_i = argmin over the client's samples so far, given a version of the global model."""
    if local.turn[i] > 0 and local.turn[i] % local.solve_every == 0:
        argmin(local.problem, local, i, global_.weights[version : version + 1], i)


@learn.register
def _(local: Minimiser, terms: Terms, message: Message) -> None:
    i, flight, first, last = message
    for c in range(first, last):
        row, y, theirs = flight.row[c], flight.label[c], flight.seen[c]
        take_in(local.problem, local, i, i, row, y, theirs, terms.weight[i])
    local.turn[i] += 1
    local.sent[first // flight.samples.batch] = local.weights[i]


@serve.register
def _(global_: Minimiser, play: Play, n: int) -> None:
    terms, times, flight, due = play.terms, play.times, play.flight, play.times.due_server
    old, new = n % times.history, (n + 1) % times.history
    global_.weights[new] = global_.weights[old]
    for e in range(due.first[n], due.last[n]):
        i: Any = np.int64(due.who[e])
        lag = due.lag[e]
        if lag <= n:
            message = message_of(play, back(n % flight.depth, lag, flight.depth), i)
            for c in range(message.first, message.last):
                row, y, theirs = flight.row[c], flight.label[c], flight.sent[c]
                take_in(global_.problem, global_, 0, i, row, y, theirs, terms.weight[i])
            if n - lag >= global_.newest[i]:
                global_.newest[i] = n - lag
                global_.received[i] = global_.sent[message.first // flight.samples.batch]
    if (n + 1) % global_.solve_every == 0 and global_.newest.max() >= 0:
        argmin(global_.problem, global_, 0, global_.received, new)


@keep.register
def _(global_: Minimiser, version: int, path: Any, n: int) -> None:
    path[n] = global_.weights[version]


@apart
@singledispatch
def take_in(
    problem: Any, side: Minimiser, m: int, i: int, row: int, y: float, theirs: float, weight: float
) -> None:
    """A sample of client i enters problem m, with the other side's prediction of it."""
    raise TypeError(f"{type(problem).__name__} is no problem of a Minimiser")


@take_in.register
def _(
    sums: Sums, side: Minimiser, m: int, i: int, row: int, y: float, theirs: float, weight: float
) -> None:
    x = side.x[row]
    scaled = weight * x
    add_scaled(sums.c[m], y - theirs if side.remembers else y, scaled)
    add_square(sums.A[m], weight, x, 0)
    if not side.remembers:
        for j in range(side.z.shape[1]):
            add_scaled(sums.C[i, j], side.z[row, j], scaled)


@take_in.register
def _(
    samples: EverySample,
    side: Minimiser,
    m: int,
    i: int,
    row: int,
    y: float,
    theirs: float,
    weight: float,
) -> None:
    samples.seen[m].append((row, i, y, theirs, weight))


@apart
@singledispatch
def argmin(problem: Any, side: Minimiser, m: int, others: F64, to: int) -> None:
    """The weights of model `to` become those that solve problem m.

    `others` are the models of the other side: that of the client whose problem it is, or of all.
    """
    raise TypeError(f"{type(problem).__name__} is no problem of a Minimiser")


@argmin.register
def _(sums: Sums, side: Minimiser, m: int, others: F64, to: int) -> None:
    if side.weights.shape[1] == 0:
        return
    r = sums.c[m].copy()
    if not side.remembers:
        for k in range(others.shape[0]):
            for j in range(others.shape[1]):
                add_scaled(r, -others[k, j], sums.C[m + k, j])
    side.weights[to] = least_squares_in_ball(sums.A[m], r, side.radius)


@argmin.register
def _(samples: EverySample, side: Minimiser, m: int, others: F64, to: int) -> None:
    if side.weights.shape[1] == 0:
        return
    row, client, y, theirs, weight = map(np.array, zip(*samples.seen[m], strict=True))
    if not side.remembers:
        theirs = (side.z[row] * others[client - m]).sum(axis=1)
    start = side.weights[to].copy()
    side.weights[to] = minimise_in_ball(
        samples.loss, side.x[row], y, theirs, weight, side.radius, samples.ridge, start
    )

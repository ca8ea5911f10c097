"""FedRes by ridge regression: second-order, and exact whatever is late.

In the additive model, least squares with a penalty on all weights,

    min  sum_i sum_s (y - x^g . w^g - x^l . w_i)^2 + penalty ||w^g||^2 + penalty_l sum_i ||w_i||^2

is, for a given w^g, a problem of each client alone, and what that leaves is one of w^g alone. So a
client keeps its best model under *any* global model, w_i = m_i + R_i w^g. With C_i the inverse of
penalty_l + sum x^l x^l', each of its samples does

    client   b = C_i x^l,    s = 1 + x^l . b,    a = x^g + R_i' x^l,    left = y - x^l . m_i
             sends Z = (a, x^l . m_i, y) / sqrt(s)
             m_i += b left / s,    R_i -= b a' / s,    C_i -= b b' / s
    server   b = Q a,    s = 1 + a . b,    left = y - x^l . m_i
             w^g += b (left - a . w^g) / s,    Q -= b b' / s

where the server's a, y and x^l . m_i are those of Z. An upload is what it always was, a row, a
residual and a label; but the row is rid of what the client's own model explains of it, and counts
less where that model is not sure. So nothing is learned twice, by client and server, and it does
not matter when uploads arrive, nor in which order: w^g is the solution for those that have.
C_i and Q, in units of the noise, are also how unsure the models are: the variance of a prediction
is x^l . C_i x^l + a . Q a.

All that takes squares of widths. The *diagonal* of C_i and Q alone takes no more than SGD does.
R_i is then left out, a is x^g, and the client learns from what the global model that it holds
leaves over, of whose variance it has to know: s = 1 + x^l . C_i x^l + x^g . Q x^g.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedres.core.primitives import Models, View, add_scaled, copy_model, predict_row
from fedres.core.schedule import back, held
from fedres.core.sgd import (
    Linear,
    Message,
    Play,
    Terms,
    U,
    deliver,
    evaluate,
    keep,
    learn,
    message_of,
    new_models,
    serve,
)
from fedres.core.solvers import inner
from fedres.core.source import apart
from fedres.core.types import F32, F64, I64


@dataclass(frozen=True)
class Ridge:
    """Ridge regression: second-order, where `Sgd` and `Adaptive` take steps along gradients.

    Parameters
    ----------
    penalty
        Of squared weights, beside squared errors.
    diagonal
        Whether weights count as unrelated: as fast as steps along gradients, and less exact.

    Examples
    --------
    >>> Ridge()
    Ridge(penalty=1.0, diagonal=False)
    """

    penalty: float = 1.0
    diagonal: bool = False
    adaptive: ClassVar[bool] = True  # uploads are learned from one by one
    clip: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.penalty < np.inf:
            raise ValueError(f"penalty must be a positive number, not {self.penalty}")


class Gaussian(NamedTuple):
    """One side: its features, its models, and what is known of their weights.

    Of the global side there is one model, and versions of it in a ring; of the local side, one a
    client. Features of an action are placed in one block of the weights, and what is known of
    different blocks is unrelated; a constant needs all to be one block. `published`, `sent` and
    `holds` are the same arrays on both sides.
    """

    x: View
    z: View  # the other side's
    models: Models  # the weights that predict
    blocks: int
    is_full: bool
    mean: F64  # (models, blocks * width): w^g, or m_i
    covariance: F64  # (models * blocks, width, width), or diagonals (models * blocks, 1, width)
    response: F64  # (clients * blocks, width, global width): R_i, if full
    published: F32  # (versions * blocks, ...): Q as clients know it, if they need it
    sent: F32  # Z, a message a row: a, x^l . m_i, y, all over sqrt(s)
    holds: I64  # a client: the version of the global model that it holds
    scratch: F64  # (3, the larger width)


@evaluate.register
def _(side: Gaussian, m: int, message: Message, out: F32) -> None:
    row, block = message.flight.row, message.flight.block
    for c in range(U(message.first), U(message.last)):
        out[c] = predict_row(side.models, m, side.x, message.client, row[c], block[c])


def gather(x: View, i: int, row: int, out: F64) -> None:
    """A row in double precision, and the constant if there is room for it."""
    width = x.width[U(i)]
    if x.sparse:
        for j in range(width):
            out[j] = 0.0
        for e in range(x.indptr[U(row)], x.indptr[U(row + 1)]):
            out[x.indices[U(e)]] = x.values[U(e)]
    else:
        start = x.start[U(i)] + row * width
        for j in range(width):
            out[j] = x.values[U(start + j)]
    if len(out) > width:
        out[width] = 1.0


def spread(covariance: Any, x: F64, out: F64) -> float:
    """C x, into `out`, and x . C x; the same of a diagonal."""
    if len(covariance) == len(x):
        for j in range(len(x)):
            out[j] = 0.0
        for j in range(len(x)):
            if x[j] != 0.0:
                add_scaled(out, x[j], covariance[j])
    else:
        for j in range(len(x)):
            out[j] = covariance[0, j] * x[j]
    return inner(x, out)


def narrow(covariance: F64, b: F64, s: float) -> None:
    """C -= b b' / s; the same of a diagonal."""
    if len(covariance) == len(b):
        for j in range(len(b)):
            if b[j] != 0.0:
                add_scaled(covariance[j], -b[j] / s, b)
    else:
        for j in range(len(b)):
            covariance[0, j] -= b[j] * b[j] / s


def meet_row(local: Gaussian, i: int, row: int, block: int) -> float:
    """x^l, C_i x^l and a of a row, into the scratch; returns x^l . C_i x^l."""
    m, own, shared = i * local.blocks + block, local.covariance.shape[2], width_sent(local)
    x, b, a = local.scratch[0, :own], local.scratch[1, :own], local.scratch[2, :shared]
    gather(local.z, i, row, a)
    gather(local.x, i, row, x)
    if local.is_full:
        for j in range(own):
            if x[j] != 0.0:
                add_scaled(a, x[j], local.response[m, j])
    return spread(local.covariance[m], x, b)


def width_sent(side: Gaussian) -> int:
    """How long the rows are that clients send."""
    return int(side.sent.shape[1]) - 2


def shared_variance(local: Gaussian, i: int, block: int) -> float:
    """A . Q a of the row in the scratch, Q being that of the version that the client holds."""
    a, b = local.scratch[2, : width_sent(local)], local.scratch[0, : width_sent(local)]
    return spread(local.published[local.holds[i] * local.blocks + block], a, b)


@apart
@singledispatch
def deviate(local: Any, message: Message, out: F64) -> None:
    """The standard errors of a client's predictions, in units of the noise."""
    raise TypeError(f"{type(local).__name__} does not know how sure it is")


@deviate.register
def _(local: Gaussian, message: Message, out: F64) -> None:
    i, flight = message.client, message.flight
    for c in range(message.first, message.last):
        block = flight.block[c]
        variance = meet_row(local, i, flight.row[c], block)
        variance += shared_variance(local, i, block)
        out[c - message.first] = np.sqrt(max(variance, 0.0))


@deviate.register
def _(local: Linear, message: Message, out: F64) -> None:
    for c in range(message.first, message.last):
        out[c - message.first] = np.nan


@learn.register
def _(local: Gaussian, terms: Terms, message: Message) -> None:
    for c in range(message.first, message.last):
        absorb(local, message.client, message.flight, c)


@apart
def absorb(local: Gaussian, i: int, flight: Any, c: int) -> None:
    """The client sends a sample whose label it has come to know, and learns from it."""
    block, label = flight.block[c], np.float64(flight.label[c])
    variance = meet_row(local, i, flight.row[c], block)
    own, shared = local.covariance.shape[2], width_sent(local)
    x, b, a = local.scratch[0, :own], local.scratch[1, :own], local.scratch[2, :shared]
    mean = local.mean[i, block * own : (block + 1) * own]
    m, s = i * local.blocks + block, 1.0 + variance
    residual = inner(x, mean)
    scale = 1.0 / np.sqrt(s)
    for k in range(shared):
        local.sent[c, k] = a[k] * scale
    local.sent[c, shared], local.sent[c, shared + 1] = residual * scale, label * scale
    if local.is_full:
        add_scaled(mean, (label - residual) / s, b)
        for j in range(own):
            if b[j] != 0.0:
                add_scaled(local.response[m, j], -b[j] / s, a)
    else:
        s += shared_variance(local, i, block)
        left = label - np.float64(flight.seen[c]) - residual
        add_scaled(mean, left / s, b)
        begin = local.models.start[U(i)] + block * own
        for j in range(own):
            local.models.weights[begin + j] = mean[j]
    narrow(local.covariance[m], b, s)


@deliver.register
def _(local: Gaussian, play: Play, n: int) -> None:
    """Clients that are about to predict take in what the server knows; at the end all do."""
    times, newest = play.times, n % play.times.history
    if n < times.rounds:
        for e in range(times.active.first[n], times.active.last[n]):
            i: Any = np.int64(times.active.who[U(e)])
            hold(local, i, play.global_.models, held(times, n, newest, i))
    else:
        for i in range(len(play.terms.weight)):
            hold(local, i, play.global_.models, newest)


@apart
def hold(local: Gaussian, i: int, shared: Models, version: int) -> None:
    """w_i = m_i + R_i w^g, with a version of w^g."""
    local.holds[i] = version
    if not local.is_full:
        return
    own, others, w = local.covariance.shape[2], width_sent(local), local.scratch[0]
    for block in range(local.blocks):
        begin, theirs = block * own, shared.start[U(version)] + block * others
        for j in range(own):
            w[j] = local.mean[i, begin + j]
        for k in range(others):
            e = np.float64(shared.weights[theirs + k])
            add_scaled(w[:own], e, local.response[i * local.blocks + block, :, k])
        for j in range(own):
            local.models.weights[local.models.start[U(i)] + begin + j] = w[j]


@serve.register
def _(global_: Gaussian, play: Play, n: int) -> None:
    times, flight, due = play.times, play.flight, play.times.due_server
    old, new = n % times.history, (n + 1) % times.history
    if new != old:
        copy_model(global_.models, old, new)
    for e in range(due.first[n], due.last[n]):
        i: Any = np.int64(due.who[U(e)])
        lag = due.lag[U(e)]
        if lag <= n:
            message = message_of(play, back(n % flight.depth, lag, flight.depth), i)
            for c in range(message.first, message.last):
                take_in(global_, flight.block[c], global_.sent[c])
    publish(global_, new)


@apart
def take_in(global_: Gaussian, block: int, sent: F32) -> None:
    """The server learns from one row that a client has sent."""
    width = width_sent(global_)
    a, b = global_.scratch[0, :width], global_.scratch[1, :width]
    for k in range(width):
        a[k] = sent[k]
    mean = global_.mean[0, block * width : (block + 1) * width]
    s = 1.0 + spread(global_.covariance[block], a, b)
    left = np.float64(sent[width + 1]) - np.float64(sent[width])
    add_scaled(mean, (left - inner(a, mean)) / s, b)
    narrow(global_.covariance[block], b, s)


@apart
def publish(global_: Gaussian, version: int) -> None:
    """Make what the server knows a version of the global model, in single precision."""
    start, blocks = global_.models.start[U(version)], global_.blocks
    for j in range(global_.mean.shape[1]):
        global_.models.weights[start + j] = global_.mean[0, j]
    if len(global_.published) > 0:
        for block in range(blocks):
            known, told = global_.covariance[block], global_.published[version * blocks + block]
            for j in range(known.shape[0]):
                for k in range(known.shape[1]):
                    told[j, k] = known[j, k]


keep.register(Gaussian)(keep.dispatch(Linear))


def new_sides(
    views: tuple[View, View],
    steps: tuple[Ridge, Ridge],
    clients: int,
    *,
    blocks: int = 1,
    constant: bool = False,
    versions: int = 1,
    messages: int = 1,
    tells: bool = True,
) -> tuple[Gaussian, Gaussian]:
    """The global and the local side, all weights at zero.

    Parameters
    ----------
    views, steps
        Of the global and the local side.
    clients
        How many.
    blocks
        Of the weights; see `Gaussian`.
    constant
        Whether models have one.
    versions
        Of the global model that are kept.
    messages
        Room for so many under way.
    tells
        Whether clients shall know how sure the global model is.
    """
    is_full = not steps[0].diagonal
    widths = [int(view.width[0]) for view in views]
    sizes = [width + (constant and width > 0) for width in widths]
    counts, rings = (1, clients), (versions, 1)
    models = [
        new_models(np.full(count, blocks * width), constant, (-np.inf, np.inf), ring)
        for count, width, ring in zip(counts, widths, rings, strict=True)
    ]

    def square(count: int, size: int, penalty: float) -> F64:
        one = np.eye(size) if is_full else np.ones((1, size))
        return np.tile(one / penalty, (count * blocks, 1, 1))

    covariances = [
        square(count, size, step.penalty)
        for count, size, step in zip(counts, sizes, steps, strict=True)
    ]
    shared = covariances[0].astype(np.float32)
    common = (
        np.tile(shared, (versions, 1, 1)) if tells or not is_full else shared[:0],
        np.zeros((messages, sizes[0] + 2), np.float32),
        np.zeros(clients, np.int64),
    )
    responses = [
        np.zeros((count * blocks if is_full and n else 0, sizes[1], sizes[0]))
        for n, count in enumerate(counts)
    ]
    return tuple(  # type: ignore[return-value]
        Gaussian(
            views[n], views[1 - n], models[n], blocks, is_full,
            np.zeros((counts[n], blocks * sizes[n])), covariances[n], responses[n], *common,
            np.zeros((3, max(*sizes, 1))),
        )
        for n in (0, 1)
    )  # fmt: skip

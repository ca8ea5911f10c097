"""FedRes.SGD (Agarwal, Langford and Wei, 2020, section 3.2, Algorithms 3 and 4).

In round t, client i holds the global model w^g_{t-beta_i} and its own w_{i,t}:

    client   w_{i,t} <- Pi_D{ w_{i,t-1} - eta_i grad^l_{i,t-tau_i} }
             sends Z_{i,t} = (x^g, f(x^l; w_{i,t}), y)
    server   w^g_t   <- Pi_D{ w^g_{t-1} - eta sum_i grad^g_{i,t-alpha_i} }

with grad_{i,s} the gradient of l(y, f(x^g; w^g_{s-beta_i}) + f(x^l; w_{i,s})). That is the
alignment ``aligned``: both sides step along a gradient at the pair that made the prediction, and
the client waits until the server's own use of it is visible. The others are

    ``asymmetric``  the client does not wait: it applies grad^l_{i,t-1} in round t;
    ``arrival``     nor does the client wait, and the server takes its gradient at its newest
                    model, at (w^g_t, w_{i,t-alpha_i}), when Z arrives;
    ``late``        the server as in ``arrival``; the client learns the *example* of round t - tau_i
                    in round t, at the pair that it holds then, as Vowpal Wabbit would.

Either side learns what the other leaves over, in the same way: its own prediction plus that of
the other, the slope of the loss there, one step along slope * x. So one function, `take_slopes`,
and one, `descend`, are both `learn` (the client) and `serve` (the server). This very source runs
in simulations, estimators, bandits, Flower and its replay: compiled where `fedres.core.compiled`
was imported, else as it stands.

Indices: `n` a round (of `batch` samples a client), `i` a client, `m` a model, `c` a place in a
`Flight`, which holds one sample.
"""

from functools import singledispatch
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fedres.core.losses import joint_slope
from fedres.core.primitives import (
    SMALLEST,
    Models,
    View,
    adapt_mean,
    adapt_row,
    add_to_sums,
    copy_model,
    descend_row,
    predict_rows,
    project,
)
from fedres.core.quantising import quantise
from fedres.core.schedule import Times, back, held
from fedres.core.source import apart
from fedres.core.types import F32, I32, I64

Alignment = Literal["aligned", "asymmetric", "arrival", "late"]
ALIGNMENTS: tuple[Alignment, ...] = get_args(Alignment)
_ALIGNED, _ASYMMETRIC, _ARRIVAL, _LATE = range(4)

# To the compiler, an unsigned index need not be tested for counting from the end.
U = np.uint64


class Terms(NamedTuple):
    """The numbers that clients and server agree on."""

    loss: Any  # its number, or a `PairLoss`
    alignment: int
    adaptive: bool
    radius: np.float32
    bits: int
    residual_low: np.float32
    residual_high: np.float32
    weight: F32  # lambda_i


class Linear(NamedTuple):
    """One side of the federation: its features, its models, their step size, and scratch.

    The global side has a model a version, in a ring; the local side has one a client.
    """

    x: View
    models: Models
    eta: np.float32
    sums: F32


class One(NamedTuple):
    """Every message holds one sample: the compiler can leave out all loops over a batch."""

    batch: int = 1


class Many(NamedTuple):
    """Messages hold up to `batch` samples, each its own number of them."""

    batch: int
    number: I32


class Flight(NamedTuple):
    """Messages under way: a ring over `depth` rounds, with `batch` places a client and round."""

    depth: int
    samples: One | Many
    row: I32
    block: I32  # of the weights, see `predict_row`
    label: F32
    seen: F32  # f(x^g; w^g) as the client saw it
    own: F32  # f(x^l; w_i)
    sent: F32  # the same as the server gets it
    slope: F32  # of the client's loss
    fresh: F32  # f(x^g; w^g) as the server sees it
    slope_there: F32  # of the server's loss


class Message(NamedTuple):
    """Samples `first:last` of a flight: those of one client and round."""

    client: int
    flight: Flight
    first: int
    last: int


class Play(NamedTuple):
    """All that rounds are played with, wherever samples come from."""

    terms: Terms
    times: Times
    global_: Any
    local: Any
    flight: Flight


@singledispatch
def count(samples: Any, slot: int) -> int:
    """How many samples a message holds."""
    raise TypeError(f"{type(samples).__name__} does not count samples")


@count.register
def _(samples: One, slot: int) -> int:
    return 1


@count.register
def _(samples: Many, slot: int) -> int:
    return samples.number[U(slot)]  # type: ignore[no-any-return]


@singledispatch
def set_count(samples: Any, slot: int, number: int) -> None:
    """Note how many samples a message holds."""
    raise TypeError(f"{type(samples).__name__} does not count samples")


@set_count.register
def _(samples: One, slot: int, number: int) -> None:
    pass


@set_count.register
def _(samples: Many, slot: int, number: int) -> None:
    samples.number[U(slot)] = number


def message_of(play: Play, place: int, client: int) -> Message:
    """What a client sends in the round at that place of the flight."""
    flight, slot = play.flight, place * len(play.terms.weight) + client
    first = slot * flight.samples.batch
    return Message(client, flight, first, first + count(flight.samples, slot))


@singledispatch
def evaluate(side: Any, m: int, message: Message, out: F32) -> None:
    """f(x; w_m) of the samples of a message, not clipped."""
    raise TypeError(f"{type(side).__name__} is no side of a federation")


@evaluate.register
def _(side: Linear, m: int, message: Message, out: F32) -> None:
    i, flight, first, last = message
    predict_rows(side.models, m, side.x, i, flight.row, flight.block, first, last, out)


@singledispatch
def bounds(side: Any, m: int) -> tuple[Any, Any]:
    """The range that predictions are clipped to where model m knows it."""
    raise TypeError(f"{type(side).__name__} is no side of a federation")


@bounds.register
def _(side: Linear, m: int) -> tuple[Any, Any]:
    return side.models.low[U(m)], side.models.high[U(m)]


def predict(terms: Terms, global_: Any, version: int, local: Any, message: Message) -> None:
    """Both halves of a prediction, f(x^g; w^g) and f(x^l; w_i), and what is sent of the second."""
    evaluate(global_, version, message, message.flight.seen)
    evaluate(local, message.client, message, message.flight.own)
    send(terms, message)


def send(terms: Terms, message: Message) -> None:
    """Round what leaves the client to as few bits as agreed; none where it has no model."""
    own, sent = message.flight.own, message.flight.sent
    for c in range(U(message.first), U(message.last)):
        sent[c] = own[c]
        if 0 < terms.bits < 32:
            sent[c] = quantise(own[c], terms.bits, terms.residual_low, terms.residual_high)


def widen(models: Models, m: int, message: Message) -> tuple[Any, Any]:
    """The range of labels that model m has seen, those of the message included."""
    label, low, high = message.flight.label, models.low[U(m)], models.high[U(m)]
    for c in range(U(message.first), U(message.last)):
        low, high = min(low, label[c]), max(high, label[c])
    models.low[U(m)], models.high[U(m)] = low, high
    return low, high


def take_slopes(
    terms: Terms,
    local: bool,
    reach: tuple[Any, Any],
    message: Message,
    mine: F32,
    theirs: F32,
    out: F32,
) -> None:
    """The slopes of the loss at the sum of both predictions, clipped to the labels seen."""
    label = message.flight.label
    for c in range(U(message.first), U(message.last)):
        out[c] = joint_slope(terms.loss, local, mine[c], theirs[c], reach, label[c])


def descend(terms: Terms, side: Linear, m: int, message: Message, slopes: F32) -> None:
    """w_m <- w_m - eta lambda_i (mean of slope * x over the samples), without projection."""
    i, flight, first, last = message
    weight = terms.weight[U(i)]
    if not terms.adaptive:
        share = side.eta * weight / np.float32(last - first)
        for c in range(U(first), U(last)):
            rate = share * slopes[c]
            descend_row(side.models, m, side.x, i, flight.row[c], flight.block[c], rate)
    else:
        adapt(flight.samples, side, m, weight, message, slopes)


@singledispatch
def adapt(
    samples: Any, side: Linear, m: int, weight: np.float32, message: Message, slopes: F32
) -> None:
    """The adaptive step along the mean gradient of the samples."""
    raise TypeError(f"{type(samples).__name__} does not count samples")


@adapt.register
def _(
    samples: One, side: Linear, m: int, weight: np.float32, message: Message, slopes: F32
) -> None:
    flight, c = message.flight, U(message.first)
    row, block = flight.row[c], flight.block[c]
    adapt_row(side.models, m, side.x, message.client, row, block, slopes[c], weight, side.eta)


@adapt.register
def _(
    samples: Many, side: Linear, m: int, weight: np.float32, message: Message, slopes: F32
) -> None:
    models, (i, flight, first, last) = side.models, message
    if last - first == 1:
        row, block, along = flight.row[U(first)], flight.block[U(first)], slopes[U(first)]
        adapt_row(models, m, side.x, i, row, block, along, weight, side.eta)
        return
    # Gradients are summed first and divided last: those that cancel exactly move nothing.
    for c in range(U(first), U(last)):
        add_to_sums(side.sums, models.constant[m], side.x, i, flight.row[c], slopes[c])
    adapt_mean(models, m, side.x, i, flight.row, first, last, weight, side.eta, side.sums)


def step_local(terms: Terms, local: Linear, message: Message) -> None:
    """w_i <- Pi_D{ w_i - eta_i grad^l }."""
    descend(terms, local, message.client, message, message.flight.slope)
    if terms.radius < np.inf:
        project(local.models, message.client, terms.radius)


@singledispatch
def learn(local: Any, terms: Terms, message: Message) -> None:
    """The client's step on samples it has just predicted; under ``aligned`` the step waits."""
    raise TypeError(f"{type(local).__name__} is no local side")


@learn.register
def _(local: Linear, terms: Terms, message: Message) -> None:
    if terms.alignment == _LATE or message.first == message.last:
        return
    i, flight = message.client, message.flight
    reach = widen(local.models, i, message)
    take_slopes(terms, True, reach, message, flight.own, flight.seen, flight.slope)
    if terms.alignment != _ALIGNED:
        step_local(terms, local, message)


@singledispatch
def deliver(local: Any, play: Play, n: int) -> None:
    """What clients do when round n begins: what they have waited a round trip for."""
    raise TypeError(f"{type(local).__name__} is no local side")


@deliver.register
def _(local: Linear, play: Play, n: int) -> None:
    times, flight, due = play.times, play.flight, play.times.due_local
    now, newest = n % flight.depth, n % times.history
    for e in range(due.first[n], due.last[n]):
        i: Any = np.int64(due.who[U(e)])
        lag = due.lag[U(e)]
        if lag <= n:
            message = message_of(play, back(now, lag, flight.depth), i)
            learn_waiting(local, play.terms, play.global_, held(times, n, newest, i), message)


@singledispatch
def learn_waiting(local: Any, terms: Terms, global_: Any, version: int, message: Message) -> None:
    """The step on samples whose use by the server has become visible to the client."""
    raise TypeError(f"{type(local).__name__} is no local side")


@learn_waiting.register
def _(local: Linear, terms: Terms, global_: Any, version: int, message: Message) -> None:
    if message.first == message.last:
        return
    if terms.alignment == _LATE:
        meet_again(terms, global_, version, local, message)
    step_local(terms, local, message)


@apart
def meet_again(terms: Terms, global_: Any, version: int, local: Any, message: Message) -> None:
    """The slopes of samples seen a round trip ago, at the pair of models that is held now."""
    i, flight = message.client, message.flight
    evaluate(global_, version, message, flight.seen)
    evaluate(local, i, message, flight.own)
    reach = widen(local.models, i, message)
    take_slopes(terms, True, reach, message, flight.own, flight.seen, flight.slope)


@singledispatch
def serve(global_: Any, play: Play, n: int) -> None:
    """The server works on what arrives in round n: G_n becomes G_{n+1}."""
    raise TypeError(f"{type(global_).__name__} is no global side")


@serve.register
def _(global_: Linear, play: Play, n: int) -> None:
    terms, times, flight, due = play.terms, play.times, play.flight, play.times.due_server
    now, old, new = n % flight.depth, n % times.history, (n + 1) % times.history
    if new != old:
        copy_model(global_.models, old, new)
    for e in range(due.first[n], due.last[n]):
        i: Any = np.int64(due.who[U(e)])
        lag = due.lag[U(e)]
        if lag <= n:
            message = message_of(play, back(now, lag, flight.depth), i)
            apply(terms, global_, old, new, message)
    if not terms.adaptive and terms.radius < np.inf:
        project(global_.models, new, terms.radius)


def apply(terms: Terms, global_: Linear, old: int, new: int, message: Message) -> None:
    """One message at the server: Sgd sums gradients taken at G_n, Adaptive goes one by one."""
    if message.first == message.last:
        return
    flight, slopes = message.flight, message.flight.slope_there
    reach = widen(global_.models, new, message)  # first: the next message waits for what follows
    if terms.alignment >= _ARRIVAL:
        evaluate(global_, new if terms.adaptive else old, message, flight.fresh)
        take_slopes(terms, False, reach, message, flight.fresh, flight.sent, slopes)
    else:
        take_slopes(terms, False, reach, message, flight.seen, flight.sent, slopes)
    descend(terms, global_, new, message, slopes)
    if terms.adaptive and terms.radius < np.inf:
        project(global_.models, new, terms.radius)


@apart
@singledispatch
def keep(global_: Any, version: int, path: Any, n: int) -> None:
    """Note the weights of a version in row n of `path`."""
    raise TypeError(f"{type(global_).__name__} is no global side")


@keep.register
def _(global_: Linear, version: int, path: Any, n: int) -> None:
    start = global_.models.start[version]
    for j in range(path.shape[1]):
        path[n, j] = global_.models.weights[start + j]


def new_models(
    width: I64,
    constant: bool,
    reach: tuple[float, float],
    versions: int = 1,
) -> Models:
    """Models at zero of these widths; `versions` of each share their sums of squares.

    Parameters
    ----------
    width
        Features a model; one without any has no constant either.
    constant
        Whether the others have one.
    reach
        Where the range of labels begins that predictions are clipped to.
    versions
        Copies of the weights of each model.
    """
    size = np.asarray(width, np.int64) + 1
    every = np.tile(size, versions)
    start = np.concatenate([[0], np.cumsum(every)])
    count = len(every)
    return Models(
        np.zeros(int(start[-1]), np.float32),
        np.full(int(size.sum()), SMALLEST, np.float32),
        start[:-1],
        np.tile(start[: len(size)], versions),
        every,
        np.tile(((size > 1) & constant).astype(np.float32), versions),
        np.full(count, reach[0], np.float32),
        np.full(count, reach[1], np.float32),
    )


def new_flight(
    depth: int, clients: int, batch: int, dtype: Any = np.float32, samples: Any = None
) -> Flight:
    """Room for the messages of so many rounds; `samples` counts those of each, if it is given."""
    cells = depth * clients * batch
    if samples is None:
        samples = One() if batch == 1 else Many(batch, np.zeros(depth * clients, np.int32))
    return Flight(
        depth,
        samples,
        *np.zeros((2, cells), np.int32),
        *np.zeros((7, cells), dtype),
    )

"""FedRes.SGD as one compiled loop: every client, every round, nothing allocated on the way.

The arithmetic is that of `fedres.core.losses`, `fedres.core.models` and `fedres.core`, written
once more so that a compiler can fuse it; `tests/test_reference_equals_simulation.py` holds the
two together. It is all in one file because numba's disk cache watches only the file of the
function that is called.

Indices: `n` a round (of `batch` samples a client), `s` the round a message was sent in, `i` a
client, `k` a row of that client, `q` a sample within a batch. A view of width zero has a
constant of weight 0, so that nothing in an inner loop has to ask.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedres.core.schedule import Schedule
from fedres.core.types import F32, F64, I32, I64
from fedres.core.views import View

SQUARED, LOGISTIC = 0, 1

# Sums may be reordered (that is what lets a dot product use vectors); NaN and infinity keep
# their meaning, because a diverging run must be seen to diverge. Without numba's runtime (`_nrt`)
# nothing can be allocated and no reference is counted, which took two thirds of the time.
_options: Any = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "_nrt": False,
}
_compile: Any = njit(**_options)
_inline: Any = njit(inline="always", **_options)

# An unsigned index need not be tested for counting from the end.
U = np.uint64

# So many clients are carried through a round together: their models stay in the first caches.
BLOCK = 128


class Models(NamedTuple):
    """Weights end to end, each model's constant last, with its running sums of squares."""

    weights: F32
    squares: F32
    start: I64
    constant: F32  # 1 where the model has a constant, else 0
    low: F32
    high: F32


class Rules(NamedTuple):
    """The scalars of a run."""

    loss: int
    adaptive: bool
    eta: np.float32
    eta_local: np.float32
    radius: np.float32
    aligned_server: bool
    client_at_once: bool
    cycle: bool
    total: int  # samples a client sees when it cycles through its rows
    shuffle: bool
    seed: int
    bits: int
    residual_low: np.float32
    residual_high: np.float32


class Flight(NamedTuple):
    """What is under way between clients and server: a ring over the last `depth` rounds."""

    depth: int
    count: I32
    row: I32
    label: F32
    seen: F32  # the global model's part of the prediction
    sent: F32  # the residual as the server gets it
    slope: F32


class Cursor(NamedTuple):
    """Where each client stands in its rows."""

    position: I64
    epoch: I64


class Record(NamedTuple):
    """What a run leaves behind."""

    predictions: F32
    loss_by_round: F64
    weight_by_round: F64
    loss_by_client: F64
    features_sent: I64
    path: F32  # the global model after each round, or nothing


@_compile
def shuffle_rows(order: I32, first: int, last: int, seed: int, client: int, epoch: int) -> None:
    """Fisher-Yates on order[first:last], from a stream of (seed, client, epoch) alone."""
    state = U(seed) * U(0x9E3779B97F4A7C15)
    state = (state ^ (state >> U(32))) + U(client + 1) * U(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> U(32))) + U(epoch + 1) * U(0x94D049BB133111EB)
    for k in range(last - first - 1, 0, -1):
        state = state * U(6364136223846793005) + U(1442695040888963407)
        high = (state ^ (state >> U(29))) >> U(32)
        j = np.int64((high * U(k + 1)) >> U(32))
        a, b = U(first + k), U(first + j)
        order[a], order[b] = order[b], order[a]


@_inline
def _samples(flight: Flight, slot: int, batch: int) -> int:
    """How many samples a message holds; the compiler drops the question when batch is 1."""
    return 1 if batch == 1 else flight.count[U(slot)]


@_inline
def _back(now: int, steps: int, depth: int) -> int:
    """The place in a ring so many steps (less than its depth) ago."""
    place = now - steps
    return place + depth if place < 0 else place


@_inline
def _slope(loss: int, prediction: np.float32, y: np.float32) -> np.float32:
    if loss == SQUARED:
        return np.float32(2) * (prediction - y)
    return -y / (np.float32(1) + np.exp(y * prediction))


@_inline
def _loss(loss: int, prediction: np.float32, y: np.float32) -> np.float32:
    if loss == SQUARED:
        return (prediction - y) * (prediction - y)
    margin = y * prediction
    return max(-margin, np.float32(0)) + np.log1p(np.exp(-abs(margin)))


@_compile
def quantise(residual: np.float32, bits: int, low: np.float32, high: np.float32) -> np.float32:
    """The value that a residual sent with so few bits has when it arrives."""
    cells = np.float32(1 << bits)
    cell = np.floor((residual - low) / (high - low) * cells)
    cell = min(max(cell, np.float32(0)), cells - np.float32(1))
    return low + (cell + np.float32(0.5)) * ((high - low) / cells)


@_inline
def dot(
    view: View, row_start: I64, i: int, k: int, w: F32, at: int, constant: np.float32
) -> np.float32:
    """f(x; w) for row k of client i."""
    d = view.width[U(i)]
    total = constant * w[U(at + d)]
    v = U(at)
    if view.sparse:
        r = row_start[U(i)] + k
        for e in range(U(view.indptr[U(r)]), U(view.indptr[U(r + 1)])):
            total += view.values[e] * w[v + U(view.indices[e])]
    else:
        x = U(view.start[U(i)] + k * d)
        for j in range(U(d)):
            total += view.values[x + j] * w[v + j]
    return total


@_inline
def _descend(
    view: View,
    row_start: I64,
    i: int,
    k: int,
    rate: np.float32,
    w: F32,
    at: int,
    constant: np.float32,
) -> None:
    """W -= rate * x."""
    d = view.width[U(i)]
    w[U(at + d)] -= rate * constant
    v = U(at)
    if view.sparse:
        r = row_start[U(i)] + k
        for e in range(U(view.indptr[U(r)]), U(view.indptr[U(r + 1)])):
            w[v + U(view.indices[e])] -= rate * view.values[e]
    else:
        x = U(view.start[U(i)] + k * d)
        for j in range(U(d)):
            w[v + j] -= rate * view.values[x + j]


@_inline
def _adapt_one(
    view: View,
    row_start: I64,
    i: int,
    k: int,
    slope: np.float32,
    weight: np.float32,
    eta: np.float32,
    w: F32,
    at: int,
    squares: F32,
    sq: int,
    constant: np.float32,
) -> None:
    """G_j += (g x_j)^2; w_j -= eta g x_j / sqrt(G_j), for one row."""
    d = view.width[U(i)]
    rate = eta * weight
    gradient = slope * constant
    squares[U(sq + d)] += weight * (gradient * gradient)
    w[U(at + d)] -= rate * gradient / np.sqrt(squares[U(sq + d)])
    v, g = U(at), U(sq)
    if view.sparse:
        r = row_start[U(i)] + k
        for e in range(U(view.indptr[U(r)]), U(view.indptr[U(r + 1)])):
            j = U(view.indices[e])
            gradient = slope * view.values[e]
            squares[g + j] += weight * (gradient * gradient)
            w[v + j] -= rate * gradient / np.sqrt(squares[g + j])
    else:
        x = U(view.start[U(i)] + k * d)
        for j in range(U(d)):
            gradient = slope * view.values[x + j]
            squares[g + j] += weight * (gradient * gradient)
            w[v + j] -= rate * gradient / np.sqrt(squares[g + j])


@_compile
def _adapt_many(
    view: View,
    row_start: I64,
    i: int,
    rows: I32,
    slopes: F32,
    m: int,
    weight: np.float32,
    eta: np.float32,
    w: F32,
    at: int,
    squares: F32,
    sq: int,
    constant: np.float32,
    sums: F32,
) -> None:
    """The adaptive step on the mean gradient of m rows; `sums` is zero before and after.

    Gradients are summed first and divided last: then those that cancel exactly do not move a
    coordinate, as in the reference.
    """
    d = view.width[i]
    rate = eta * weight
    share = np.float32(1) / np.float32(m)
    for q in range(m):
        _descend(view, row_start, i, rows[q], -slopes[q], sums, 0, constant)
    if view.sparse:
        gradient = sums[d] * share
        squares[sq + d] += weight * (gradient * gradient)
        w[at + d] -= rate * gradient / np.sqrt(squares[sq + d])
        sums[d] = np.float32(0)
        for q in range(m):
            r = row_start[i] + rows[q]
            for e in range(view.indptr[r], view.indptr[r + 1]):
                # A column met a second time finds its sum spent, and rests.
                j = view.indices[e]
                gradient = sums[j] * share
                sums[j] = np.float32(0)
                squares[sq + j] += weight * (gradient * gradient)
                w[at + j] -= rate * gradient / np.sqrt(squares[sq + j])
    else:
        v, g = U(at), U(sq)
        for j in range(U(d + 1)):
            gradient = sums[j] * share
            sums[j] = np.float32(0)
            squares[g + j] += weight * (gradient * gradient)
            w[v + j] -= rate * gradient / np.sqrt(squares[g + j])


@_compile
def _project(w: F32, at: int, size: int, radius: np.float32) -> None:
    """Pi_D: the nearest point of the ball."""
    norm = np.float32(0)
    for j in range(size):
        norm += w[at + j] * w[at + j]
    if norm > radius * radius:
        shrink = radius / np.sqrt(norm)
        for j in range(size):
            w[at + j] *= shrink


@_inline
def _move(
    rules: Rules,
    view: View,
    row_start: I64,
    i: int,
    rows: I32,
    slopes: F32,
    first: int,
    m: int,
    weight: np.float32,
    eta: np.float32,
    w: F32,
    at: int,
    squares: F32,
    sq: int,
    constant: np.float32,
    sums: F32,
) -> None:
    """One step on the mean gradient of m rows, without projection."""
    if not rules.adaptive:
        share = eta * weight / np.float32(m)
        for c in range(U(first), U(first + m)):
            _descend(view, row_start, i, rows[c], share * slopes[c], w, at, constant)
    elif m == 1:
        _adapt_one(
            view, row_start, i, rows[U(first)], slopes[U(first)], weight, eta,
            w, at, squares, sq, constant,
        )  # fmt: skip
    else:
        _adapt_many(
            view, row_start, i, rows[first : first + m], slopes[first : first + m], m, weight,
            eta, w, at, squares, sq, constant, sums,
        )  # fmt: skip


@_inline
def _step_local(
    rules: Rules,
    batch: int,
    xl: View,
    row_start: I64,
    i: int,
    slot: int,
    flight: Flight,
    weight: F32,
    local: Models,
    sums: F32,
) -> None:
    """w_i <- Pi_D{w_i - eta_i grad^l}."""
    at = local.start[U(i)]
    _move(
        rules, xl, row_start, i, flight.row, flight.slope, slot * batch,
        _samples(flight, slot, batch), weight[U(i)], rules.eta_local, local.weights, at,
        local.squares, at, local.constant[U(i)], sums,
    )  # fmt: skip
    if rules.radius < np.inf:
        _project(local.weights, at, xl.width[U(i)] + 1, rules.radius)


@_inline
def _draw(
    rules: Rules,
    batch: int,
    y: F32,
    row_start: I64,
    order: I32,
    cursor: Cursor,
    who: I32,
    first: int,
    last: int,
    most: int,
    base: int,
    flight: Flight,
) -> None:
    """Which rows each client sees in this round: the next of its current pass."""
    for e in range(first, last):
        i = U(who[U(e)])
        begin = row_start[i]
        rows = row_start[i + U(1)] - begin
        position = cursor.position[i]
        slot = base + np.int64(i)
        if batch > 1:
            flight.count[U(slot)] = most if rules.cycle else min(most, rows - position)
        for c in range(U(slot * batch), U(slot * batch + _samples(flight, slot, batch))):
            if position == 0 and rules.shuffle:
                shuffle_rows(order, begin, begin + rows, rules.seed, i, cursor.epoch[i])
            k = order[U(begin + position)]
            flight.row[c] = k
            flight.label[c] = y[U(begin + k)]
            position += 1
            if position == rows:
                position = 0
                cursor.epoch[i] += 1
        cursor.position[i] = position


@_inline
def _predict(
    rules: Rules,
    batch: int,
    xg: View,
    xl: View,
    row_start: I64,
    who: I32,
    first: int,
    last: int,
    n: int,
    base: int,
    down: I32,
    version: I32,
    weight: F32,
    global_: Models,
    local: Models,
    flight: Flight,
    record: Record,
) -> None:
    """Predict with G_{n - down} and w_i, suffer the loss, send Z."""
    history = global_.low.shape[0]
    clients = row_start.shape[0] - 1
    newest = n % history
    size = xg.width[0] + 1
    gc = global_.constant[0]
    total = mass = 0.0
    for e in range(first, last):
        i = np.int64(who[U(e)])
        begin = row_start[U(i)]
        stale = n - version[n * clients + i] if version.shape[0] > 0 else min(down[U(i)], n)
        held = _back(newest, stale, history)
        at = local.start[U(i)]
        lc = local.constant[U(i)]
        # Without a local model it is the server that knows the range of labels.
        alone = xl.width[U(i)] == 0
        low = global_.low[U(held)] if alone else local.low[U(i)]
        high = global_.high[U(held)] if alone else local.high[U(i)]
        slot = base + i
        for q in range(_samples(flight, slot, batch)):
            c = U(slot * batch + q)
            k = np.int64(flight.row[c])
            label = flight.label[c]
            seen = dot(xg, row_start, i, k, global_.weights, held * size, gc)
            residual = dot(xl, row_start, i, k, local.weights, at, lc)
            flight.seen[c] = seen
            flight.sent[c] = residual
            flight.slope[c] = seen + residual
            prediction = min(max(seen + residual, low), high)
            loss = _loss(rules.loss, prediction, label)
            record.predictions[U(n * batch + q), U(i)] = prediction
            record.loss_by_client[U(i)] += loss
            total += weight[U(i)] * loss
            mass += weight[U(i)]
            if xg.sparse:
                record.features_sent[0] += xg.indptr[begin + k + 1] - xg.indptr[begin + k]
            if rules.bits < 32 and not alone:
                flight.sent[c] = quantise(
                    residual, rules.bits, rules.residual_low, rules.residual_high
                )
    record.loss_by_round[n] += total
    record.weight_by_round[n] += mass


@_inline
def _learn(
    rules: Rules,
    batch: int,
    xl: View,
    row_start: I64,
    who: I32,
    first: int,
    last: int,
    base: int,
    weight: F32,
    local: Models,
    flight: Flight,
    sums: F32,
) -> None:
    """The slope of each client's loss, and its local step unless that has to wait."""
    for e in range(first, last):
        i = np.int64(who[U(e)])
        slot = base + i
        begun, done = U(slot * batch), U(slot * batch + _samples(flight, slot, batch))
        low, high = local.low[U(i)], local.high[U(i)]
        for c in range(begun, done):
            low, high = min(low, flight.label[c]), max(high, flight.label[c])
        local.low[U(i)], local.high[U(i)] = low, high
        for c in range(begun, done):
            prediction = min(max(flight.slope[c], low), high)
            flight.slope[c] = _slope(rules.loss, prediction, flight.label[c])
        if rules.client_at_once:
            _step_local(rules, batch, xl, row_start, i, slot, flight, weight, local, sums)


@_inline
def _serve(
    rules: Rules,
    batch: int,
    xg: View,
    row_start: I64,
    due: Schedule,
    n: int,
    weight: F32,
    global_: Models,
    flight: Flight,
    sums: F32,
) -> None:
    """The server works on what arrives in this round: G_n becomes G_{n+1}."""
    history = global_.low.shape[0]
    clients = row_start.shape[0] - 1
    size = xg.width[0] + 1
    gc = global_.constant[0]
    w = global_.weights
    now = n % flight.depth
    old, new = n % history, (n + 1) % history
    if new != old:
        to, of = U(new * size), U(old * size)
        for j in range(U(size)):
            w[to + j] = w[of + j]
    low, high = global_.low[old], global_.high[old]
    # Sgd sums gradients taken at G_n; Adaptive goes example by example.
    at = new * size
    base = at if rules.adaptive else old * size
    for e in range(due.first[n], due.last[n]):
        i = np.int64(due.who[U(e)])
        lag = due.lag[U(e)]
        if lag <= n:
            slot = _back(now, lag, flight.depth) * clients + i
            m = _samples(flight, slot, batch)
            first = slot * batch
            for c in range(U(first), U(first + m)):
                low, high = min(low, flight.label[c]), max(high, flight.label[c])
            for c in range(U(first), U(first + m)):
                k = np.int64(flight.row[c])
                seen = flight.seen[c]
                if not rules.aligned_server:
                    seen = dot(xg, row_start, i, k, w, base, gc)
                prediction = min(max(seen + flight.sent[c], low), high)
                # `seen` has been read: its place now holds the slope
                flight.seen[c] = _slope(rules.loss, prediction, flight.label[c])
            _move(
                rules, xg, row_start, i, flight.row, flight.seen, first, m, weight[U(i)],
                rules.eta, w, at, global_.squares, 0, gc, sums,
            )  # fmt: skip
            if rules.adaptive and rules.radius < np.inf:
                _project(w, at, size, rules.radius)
    if not rules.adaptive and rules.radius < np.inf:
        _project(w, at, size, rules.radius)
    global_.low[new], global_.high[new] = low, high


@_inline
def _play(
    rules: Rules,
    batch: int,
    xg: View,
    xl: View,
    y: F32,
    row_start: I64,
    order: I32,
    cursor: Cursor,
    active: Schedule,
    due_local: Schedule,
    due_server: Schedule,
    down: I32,
    version: I32,
    weight: F32,
    global_: Models,
    local: Models,
    flight: Flight,
    sums: F32,
    record: Record,
) -> int:
    """All rounds of a run. Returns the slot of `global_` that holds the final model."""
    rounds = active.first.shape[0]
    clients = row_start.shape[0] - 1
    for n in range(rounds + 1):
        now = n % flight.depth
        # Clients whose delayed gradient falls due (alignment `aligned` only).
        for e in range(due_local.first[n], due_local.last[n]):
            i = np.int64(due_local.who[e])
            if due_local.lag[e] <= n:
                slot = _back(now, due_local.lag[e], flight.depth) * clients + i
                _step_local(rules, batch, xl, row_start, i, slot, flight, weight, local, sums)
        if n == rounds:
            break
        most = min(batch, rules.total - n * batch)
        base = now * clients
        for first in range(active.first[n], active.last[n], BLOCK):
            last = min(first + BLOCK, active.last[n])
            _draw(
                rules, batch, y, row_start, order, cursor, active.who,
                first, last, most, base, flight,
            )  # fmt: skip
            _predict(
                rules, batch, xg, xl, row_start, active.who, first, last, n, base,
                down, version, weight, global_, local, flight, record,
            )  # fmt: skip
            _learn(
                rules, batch, xl, row_start, active.who, first, last, base,
                weight, local, flight, sums,
            )  # fmt: skip
        _serve(rules, batch, xg, row_start, due_server, n, weight, global_, flight, sums)
        if record.path.shape[0] > 0:
            size = record.path.shape[1]
            at = ((n + 1) % global_.low.shape[0]) * (xg.width[0] + 1)
            for j in range(size):
                record.path[n + 1, j] = global_.weights[at + j]
    return rounds % global_.low.shape[0]


@_compile
def play_samples(
    rules: Rules,
    xg: View,
    xl: View,
    y: F32,
    row_start: I64,
    order: I32,
    cursor: Cursor,
    active: Schedule,
    due_local: Schedule,
    due_server: Schedule,
    down: I32,
    version: I32,
    weight: F32,
    global_: Models,
    local: Models,
    flight: Flight,
    sums: F32,
    record: Record,
) -> int:
    """A run in which every sample is a round."""
    return _play(
        rules, 1,
        xg, xl, y, row_start, order, cursor, active, due_local, due_server, down, version,
        weight, global_, local, flight, sums, record,
    )  # fmt: skip


@_compile
def play_batches(
    rules: Rules,
    batch: int,
    xg: View,
    xl: View,
    y: F32,
    row_start: I64,
    order: I32,
    cursor: Cursor,
    active: Schedule,
    due_local: Schedule,
    due_server: Schedule,
    down: I32,
    version: I32,
    weight: F32,
    global_: Models,
    local: Models,
    flight: Flight,
    sums: F32,
    record: Record,
) -> int:
    """A run in which a round is `batch` samples a client."""
    return _play(
        rules, batch,
        xg, xl, y, row_start, order, cursor, active, due_local, due_server, down, version,
        weight, global_, local, flight, sums, record,
    )  # fmt: skip


@_compile
def number_columns(
    view: View, row_start: I64, width: I64, stamp: I32, number: I32, indices: I32, columns: I32
) -> None:
    """Number each client's columns anew, 0, 1, ... as they come: models need only those.

    `stamp` (all -1) and `number` are scratch as wide as the view. On return `width` holds how
    many columns each client has, `columns` which, client after client.
    """
    total = 0
    for i in range(row_start.shape[0] - 1):
        count = 0
        for e in range(view.indptr[row_start[i]], view.indptr[row_start[i + 1]]):
            j = view.indices[e]
            if stamp[j] != i:
                stamp[j] = i
                number[j] = count
                columns[total + count] = j
                count += 1
            indices[e] = number[j]
        width[i] = count
        total += count


@_compile
def joint(
    xg: View, xl: View, row_start: I64, global_: Models, slot: int, local: Models, out: F32
) -> None:
    """The sum of both models on every row, not clipped."""
    size = xg.width[0] + 1
    for i in range(row_start.shape[0] - 1):
        for k in range(row_start[i + 1] - row_start[i]):
            out[row_start[i] + k] = dot(
                xg, row_start, i, k, global_.weights, slot * size, global_.constant[0]
            ) + dot(xl, row_start, i, k, local.weights, local.start[i], local.constant[i])

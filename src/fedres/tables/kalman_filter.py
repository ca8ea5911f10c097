"""Learning row by row from what ``bayes`` found: its posterior is the prior of what comes next.

All weights together are Gaussian, with covariances in units of the noise:

    w_g = m_g + R_g e,    w_i = m_i + R_i e + (what only client i has, of covariance C_i),    e ~ Q

A row of client i says y = x_g . w_g + x_i . w_i + noise. Given e that is least squares of this
client alone; what it leaves is an observation of e, which all clients share:

    b = C_i x_i,    a = R_g' x_g + R_i' x_i,    left = y - x_g . m_g - x_i . m_i,    s = 1 + x_i . b
    m_i += b left / s,    R_i -= b a' / s,    C_i -= b b' / s
    e   += Q a (left - a . e) / (s + a' Q a),         Q -= Q a a' Q / (s + a' Q a)

No other client is touched, although all move with e, and the outcome is exactly that of a fit to
all rows under the same variances. Where the global side is too wide for R, R is left out, and every
global weight j counts as independent of all others: its variance q_j adds q_j x_j^2 to s, and it
learns as w_i does.

Other losses are squared ones near the score that is most likely once the row is known. A client may
forget: before each of its rows w_i moves toward zero, and its covariance toward that of the prior.
"""

from typing import NamedTuple

import numpy as np

from fedres.core.elementary import exp
from fedres.core.source import apart
from fedres.core.types import F32, F64, I32, I64
from fedres.tables.client_blocks import cell

KINDS = ("squared", "logistic", "poisson")
FARTHEST, LONGEST = 30.0, 2.0  # scores, and a step of Newton's
MOST_STEPS, CLOSE = 30, 1e-9
LEAST_WEIGHT = 1e-6


class Entries(NamedTuple):
    """One side of rows in the form of CSR: columns of the global side, slots of the local one."""

    values: F32
    at: I32
    begin: I64


class Blocks(NamedTuple):
    """Where each client's weights and covariances are.

    Attributes
    ----------
    first, size, corner
        Of each client: its first member, how many it has, and the first cell of its block.
    members
        Slots of weights, in the order of the block.
    place, column
        Of each slot: its place in the block of its client, and its column.
    used
        How many members, cells and slots there are; arrays may have room for more.
    """

    first: I64
    size: I64
    corner: I64
    members: I32
    place: I32
    column: I32
    used: I64


class Belief(NamedTuple):
    """What is known for one output: see above; `prior` are variances of local weights by column."""

    w_global: F32
    w_local: F32
    q: F64
    root_global: F32
    root_local: F32
    shared: F64
    cells: F32
    prior: F64


@apart
def most_likely(kind: int, y: float, score: float, variance: float) -> tuple[float, float]:
    """Target and weight of the squared loss that is like this one where the score will be.

    That is where (z - score)^2 / 2 variance + loss(z) is least.
    """
    if kind == 0:
        return y, 1.0
    wanted = max(y, 0.0) if kind == 1 else y
    z, mean, weight = min(max(score, -FARTHEST), FARTHEST), 0.0, 0.0
    for _ in range(MOST_STEPS):
        mean = 1.0 / (1.0 + exp(-z)) if kind == 1 else exp(z)
        weight = max(mean * (1.0 - mean) if kind == 1 else mean, LEAST_WEIGHT)
        step = (score - z + variance * (wanted - mean)) / (1.0 + variance * weight)
        step = min(max(step, -LONGEST), LONGEST)
        if abs(step) < CLOSE:
            break
        z = min(max(z + step, -FARTHEST), FARTHEST)
    return z + (wanted - mean) / weight, weight


@apart
def fade(blocks: Blocks, i: int, belief: Belief, keep: float) -> None:
    """Let a client forget: its weights keep this share of their variance, the prior adds the rest.

    A weight that no row tells of stays as the prior has it.
    """
    root = np.sqrt(keep)
    for a in range(blocks.size[i]):
        slot = blocks.members[blocks.first[i] + a]
        belief.w_local[slot] = np.float32(root * belief.w_local[slot])
        for k in range(belief.root_local.shape[1]):
            belief.root_local[slot, k] *= root
        row = blocks.corner[i] + a * (a + 1) // 2
        for b in range(a + 1):
            belief.cells[row + b] *= keep
        belief.cells[row + a] += (1.0 - keep) * belief.prior[blocks.column[slot]]


@apart
def assimilate(
    kind: int,
    rows: tuple[Entries, Entries],
    client: I64,
    y: F32,
    offset: F64,
    blocks: Blocks,
    belief: Belief,
    keep: float,
    out: F32,
) -> None:
    """Learn from rows one by one; `out` are the scores predicted on the way, offsets included."""
    x_global, x_local = rows
    width = belief.root_global.shape[1]
    e, a, qa = np.zeros(width), np.empty(width), np.empty(width)
    own = np.empty(blocks.size.max() if len(blocks.size) else 0)
    for n in range(len(client)):
        i = client[n]
        first, corner, size = blocks.first[i], blocks.corner[i], blocks.size[i]
        if keep < 1.0:
            fade(blocks, i, belief, keep)
        score, spread = offset[n], 0.0
        a[:] = 0.0
        own[:size] = 0.0
        for f in range(x_global.begin[n], x_global.begin[n + 1]):
            j, value = x_global.at[f], x_global.values[f]
            score += value * belief.w_global[j]
            spread += value * value * belief.q[j]
            for k in range(width):
                a[k] += value * belief.root_global[j, k]
        for f in range(x_local.begin[n], x_local.begin[n + 1]):
            slot, value = x_local.at[f], x_local.values[f]
            score += value * belief.w_local[slot]
            for k in range(width):
                a[k] += value * belief.root_local[slot, k]
            for b in range(size):
                own[b] += value * belief.cells[corner + cell(blocks.place[slot], b)]
        for f in range(x_local.begin[n], x_local.begin[n + 1]):
            spread += x_local.values[f] * own[blocks.place[x_local.at[f]]]
        spread, ahead, across = max(spread, 0.0), 0.0, 0.0
        for k in range(width):
            qa[k] = 0.0
            for m in range(width):
                qa[k] += belief.shared[k, m] * a[m]
            ahead += a[k] * e[k]
            across += a[k] * qa[k]
        out[n] = np.float32(score + ahead)
        target, weight = most_likely(kind, y[n], score + ahead, spread + across)
        noise = 1.0 / weight + spread
        gain = (target - score) / noise
        for f in range(x_global.begin[n], x_global.begin[n + 1]):
            j = x_global.at[f]
            move = belief.q[j] * x_global.values[f]
            belief.w_global[j] += np.float32(move * gain)
            belief.q[j] = max(belief.q[j] - move * move / noise, 0.0)
        for b in range(size):
            slot, row = blocks.members[first + b], corner + b * (b + 1) // 2
            belief.w_local[slot] += np.float32(own[b] * gain)
            for k in range(width):
                belief.root_local[slot, k] -= own[b] * a[k] / noise
            for c in range(b + 1):
                belief.cells[row + c] -= own[b] * own[c] / noise
        gain = (target - score - ahead) / (noise + across)
        for k in range(width):
            e[k] += qa[k] * gain
            for m in range(width):
                belief.shared[k, m] -= qa[k] * qa[m] / (noise + across)
    for j in range(len(belief.root_global)):
        move = 0.0
        for k in range(width):
            move += belief.root_global[j, k] * e[k]
        belief.w_global[j] += np.float32(move)
    for slot in range(len(belief.root_local)):
        move = 0.0
        for k in range(width):
            move += belief.root_local[slot, k] * e[k]
        belief.w_local[slot] += np.float32(move)


@apart
def add_members(client: I64, slot: I32, blocks: Blocks, cells: F32, prior: F64) -> None:
    """Give clients more weights, of no covariance with others: to each a new and larger block.

    Parameters
    ----------
    client, slot
        Of each new weight, sorted by client.
    blocks
        With room for them.
    cells, prior
        (outputs, cells) and (outputs, columns).
    """
    begin, used = 0, blocks.used
    used[2] += len(client)
    while begin < len(client):
        i, end = client[begin], begin
        while end < len(client) and client[end] == i:
            end += 1
        old, size, corner = blocks.first[i], blocks.size[i], blocks.corner[i]
        blocks.first[i], blocks.corner[i] = used[0], used[1]
        for a in range(size):
            blocks.members[used[0] + a] = blocks.members[old + a]
        for k in range(len(cells)):
            for c in range(size * (size + 1) // 2):
                cells[k, used[1] + c] = cells[k, corner + c]
        for n in range(begin, end):
            blocks.members[used[0] + size], blocks.place[slot[n]] = slot[n], size
            row = used[1] + size * (size + 1) // 2
            for k in range(len(cells)):
                for c in range(size):
                    cells[k, row + c] = 0.0
                cells[k, row + size] = prior[k, blocks.column[slot[n]]]
            size += 1
        blocks.size[i] = size
        used[0] += size
        used[1] += size * (size + 1) // 2
        begin = end

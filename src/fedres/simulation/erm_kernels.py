"""FedRes.ERM and fictitious play with the squared loss, as one compiled loop.

The same sums and argmins as in `fedres.core.erm` and `.fictitious_play`. Views are dense,
in double precision, and have their constant as last column; clients with fewer local features
than others are padded with zeros, which a solution of minimum norm leaves at zero.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedres.core.kernels import quantise, shuffle_rows
from fedres.core.schedule import Schedule
from fedres.core.types import F32, F64, I32, I64

_compile: Any = njit(cache=True, nogil=True, error_model="numpy")


class ErmRules(NamedTuple):
    """The scalars of a run."""

    fictitious: bool
    radius: float
    solve_every: int
    batch: int
    cycle: bool
    total: int
    shuffle: bool
    seed: int
    bits: int
    residual_low: np.float32
    residual_high: np.float32


class Sums(NamedTuple):
    """What determines the argmins: A w = c - C (the other side's weights)."""

    A: F64
    c: F64
    C: F64


class ErmRecord(NamedTuple):
    """What a run leaves behind."""

    predictions: F32
    loss_by_round: F64
    weight_by_round: F64
    loss_by_client: F64
    path: F64
    features_sent: I64


@_compile
def solve_in_ball(A: F64, r: F64, radius: float) -> F64:
    """As `fedres.core.solvers.least_squares_in_ball`."""
    values, vectors = np.linalg.eigh(A)
    d = len(values)
    along = vectors.T @ r
    least = d * 2.220446049250313e-16 * max(values[d - 1], 0.0)
    norm = 0.0
    for j in range(d):
        if values[j] <= least:
            along[j], values[j] = 0.0, 1.0
        norm += (along[j] / values[j]) ** 2
    mu = 0.0
    if norm > radius * radius:
        for _ in range(100):
            square = cube = 0.0
            for j in range(d):
                scaled = along[j] / (values[j] + mu)
                square += scaled * scaled
                cube += scaled * scaled / (values[j] + mu)
            step = (np.sqrt(square) / radius - 1) * square / cube
            mu += step
            if step <= 1e-15 * mu:
                break
    return vectors @ (along / (values + mu))


@_compile
def play_erm(
    rules: ErmRules,
    xg: F64,
    xl: F64,
    features: I64,
    y: F32,
    row_start: I64,
    order: I32,
    position: I64,
    epoch: I64,
    active: Schedule,
    due: Schedule,
    down: I32,
    version: I32,
    weight: F32,
    own: Sums,
    server: Sums,
    wg: F64,
    wl: F64,
    sent_w: F64,
    sent_row: I32,
    sent_residual: F64,
    count: I32,
    newest: I64,
    newest_w: F64,
    record: ErmRecord,
) -> int:
    """All rounds of a run. Returns the row of `wg` that holds the final global model."""
    rounds = active.first.shape[0]
    clients = row_start.shape[0] - 1
    history, depth, b = wg.shape[0], sent_w.shape[0], rules.batch
    turn = np.zeros(clients, np.int64)
    arrived = False
    for n in range(rounds):
        now = n % depth
        most = min(b, rules.total - n * b)
        for e in range(active.first[n], active.last[n]):
            i = active.who[e]
            begin = row_start[i]
            rows = row_start[i + 1] - begin
            stale = n - version[n * clients + i] if version.shape[0] > 0 else min(down[i], n)
            held = wg[(n - stale) % history]
            # w_{i,t} = argmin over the samples so far
            if turn[i] > 0 and turn[i] % rules.solve_every == 0:
                r = own.c[i] if rules.fictitious else own.c[i] - own.C[i] @ held
                wl[i] = solve_in_ball(own.A[i], r, rules.radius)
            turn[i] += 1
            sent_w[now, i] = wl[i]
            m = most if rules.cycle else min(most, rows - position[i])
            count[now, i] = m
            for q in range(m):
                if position[i] == 0 and rules.shuffle:
                    shuffle_rows(order, begin, begin + rows, rules.seed, i, epoch[i])
                k = begin + order[begin + position[i]]
                position[i] += 1
                if position[i] == rows:
                    position[i] = 0
                    epoch[i] += 1
                seen = residual = 0.0
                for j in range(xg.shape[1]):
                    seen += xg[k, j] * held[j]
                for j in range(xl.shape[1]):
                    residual += xl[k, j] * wl[i, j]
                error = seen + residual - y[k]
                record.predictions[n * b + q, i] = seen + residual
                record.loss_by_round[n] += weight[i] * error * error
                record.weight_by_round[n] += weight[i]
                record.loss_by_client[i] += error * error
                record.features_sent[0] += features[k]
                sent_row[now, i, q] = k
                sent_residual[now, i, q] = residual
                if rules.bits < 32:
                    sent_residual[now, i, q] = quantise(
                        np.float32(residual), rules.bits, rules.residual_low, rules.residual_high
                    )
                target = y[k] - seen if rules.fictitious else np.float64(y[k])
                for a in range(xl.shape[1]):
                    scaled = weight[i] * xl[k, a]
                    own.c[i, a] += scaled * target
                    for j in range(xl.shape[1]):
                        own.A[i, a, j] += scaled * xl[k, j]
                    if not rules.fictitious:
                        for j in range(xg.shape[1]):
                            own.C[i, a, j] += scaled * xg[k, j]

        for e in range(due.first[n], due.last[n]):
            if due.lag[e] > n:
                continue
            arrived = True
            i = due.who[e]
            s = (n - due.lag[e]) % depth
            for q in range(count[s, i]):
                k = sent_row[s, i, q]
                target = y[k] - sent_residual[s, i, q] if rules.fictitious else np.float64(y[k])
                for a in range(xg.shape[1]):
                    scaled = weight[i] * xg[k, a]
                    server.c[a] += scaled * target
                    for j in range(xg.shape[1]):
                        server.A[a, j] += scaled * xg[k, j]
                    if not rules.fictitious:
                        for j in range(xl.shape[1]):
                            server.C[i, a, j] += scaled * xl[k, j]
            if n - due.lag[e] >= newest[i]:
                newest[i] = n - due.lag[e]
                newest_w[i] = sent_w[s, i]

        new = (n + 1) % history
        wg[new] = wg[n % history]
        if arrived and (n + 1) % rules.solve_every == 0:
            r = server.c.copy()
            if not rules.fictitious:
                for i in range(clients):
                    r -= server.C[i] @ newest_w[i]
            wg[new] = solve_in_ball(server.A, r, rules.radius)
        if record.path.shape[0] > 0:
            record.path[n + 1] = wg[new]

    # Each client's model as it would be in the next round, given the final global model.
    last = wg[rounds % history]
    for i in range(clients):
        if turn[i] % rules.solve_every == 0:
            r = own.c[i] if rules.fictitious else own.c[i] - own.C[i] @ last
            wl[i] = solve_in_ball(own.A[i], r, rules.radius)
    return rounds % history

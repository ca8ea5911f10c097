"""Least squares in the shape of an arrow: what every client has for itself, done client by client.

Rows are sorted by client. With row weights W and ridges, the normal equations of both sides are

    (X_g' W X_g + ridge_g) w_g + X_g' W X_l w_l = X_g' W y
    X_l' W X_g w_g + (X_l' W X_l + ridge_l) w_l = X_l' W y

and the second matrix is block-diagonal, a block a client: its inverse C is found exactly, block by
block. What is left for w_g has the matrix S = X_g' W X_g + ridge_g - X_g' W X_l C X_l' W X_g.

A client with fewer rows than weights has a smaller matrix of its rows instead (Woodbury),

    M = (1 / W + X_l X_l' / ridge_l)^-1,    C = 1 / ridge_l - X_l' M X_l / ridge_l^2

with which S = X_g' M X_g + ridge_g, and the best w_l = X_l' M r / ridge_l leaves W (r - X_l w_l) =
M r of what the global model left.
"""

from typing import NamedTuple

import numpy as np

from fedres.core.sgd import U
from fedres.core.source import apart
from fedres.core.types import F32, F64, I32, I64


class SortedRows(NamedTuple):
    """Rows of all clients, both views in the form of CSR.

    Attributes
    ----------
    x_global, columns, begin_global
        Values, columns and begins of rows.
    x_local, slots, begin_local
        The same; a slot is the place of a pair of client and column, and each client's follow one
        another.
    first_row, first_slot, first_cell
        Where each client's rows, slots and cells of its block begin; the last is the end. A block
        is symmetric, and its lower triangle is kept row by row: of C, or where that is smaller
        of M.
    """

    x_global: F32
    columns: I32
    begin_global: I64
    x_local: F32
    slots: I32
    begin_local: I64
    first_row: I64
    first_slot: I64
    first_cell: I64


def cell(a: int, b: int) -> int:
    """The place of row a and column b in a lower triangle, whichever is larger."""
    return a * (a + 1) // 2 + b if a >= b else b * (b + 1) // 2 + a


@apart
def assign_slots(
    begin: I64, columns: I32, first_row: I64, width: int, first_slot: I64, column_of: I32
) -> None:
    """Number the pairs of client and column, client by client, in the order of columns.

    `columns` turn into slots, `first_slot` tells where those of each client begin, and `column_of`
    of each slot has room for as many as there are entries.
    """
    slot_of, count = np.full(width, -1, np.int32), 0
    for i in range(len(first_row) - 1):
        first_slot[i] = count
        entries = columns[begin[first_row[i]] : begin[first_row[i + 1]]]
        for column in entries:
            if slot_of[column] < 0:
                slot_of[column], column_of[count] = 0, column
                count += 1
        column_of[first_slot[i] : count].sort()
        for slot in range(first_slot[i], count):
            slot_of[column_of[slot]] = slot
        for e in range(len(entries)):
            entries[e] = slot_of[entries[e]]
        for slot in range(first_slot[i], count):
            slot_of[column_of[slot]] = -1
    first_slot[-1] = count


@apart
def sum_squares(begin: I64, place: I32, x: F32, weight: F64, out: F64) -> None:
    """Add up weight * x^2 over all rows, by place: of one view, columns or slots."""
    for n in range(len(begin) - 1):
        for e in range(begin[n], begin[n + 1]):
            out[place[e]] += weight[n] * x[e] * x[e]


@apart
def add_scores(begin: I64, place: I32, x: F32, w: F64, out: F64) -> None:
    """Add what the weights of one view, by place, say of every row."""
    for n in range(len(begin) - 1):
        total = 0.0
        for e in range(begin[n], begin[n + 1]):
            total += x[e] * w[place[e]]
        out[n] += total


@apart
def add_variances(begin: I64, place: I32, x: F32, variance: F64, out: F64) -> None:
    """Add the variance that independent weights of one view give to the score of every row."""
    for n in range(len(begin) - 1):
        for e in range(begin[n], begin[n + 1]):
            out[n] += x[e] * x[e] * variance[place[e]]


def is_by_rows(rows: SortedRows, i: int) -> bool:
    """Whether the block of a client is M."""
    size = rows.first_slot[i + 1] - rows.first_slot[i]
    return bool(rows.first_cell[i + 1] - rows.first_cell[i] < size * (size + 1) // 2)


def most_slots(rows: SortedRows) -> int:
    """Of any client."""
    most = 0
    for i in range(len(rows.first_slot) - 1):
        most = max(most, rows.first_slot[i + 1] - rows.first_slot[i])
    return most


@apart
def local_products(rows: SortedRows, weight: F64, out: F64) -> None:
    """X_l' W X_l, block by block, of clients whose block is C."""
    for i in range(len(rows.first_row) - 1):
        if is_by_rows(rows, i):
            continue
        slot, corner = rows.first_slot[i], rows.first_cell[i]
        for n in range(rows.first_row[i], rows.first_row[i + 1]):
            first, last = rows.begin_local[n], rows.begin_local[n + 1]
            for e in range(first, last):
                a, value = rows.slots[e] - slot, weight[n] * rows.x_local[e]
                for f in range(first, e + 1):
                    out[corner + cell(a, rows.slots[f] - slot)] += value * rows.x_local[f]


@apart
def find_blocks(rows: SortedRows, products: F64, weight: F64, ridge: F64, out: F64) -> None:
    """C, the inverse of X_l' W X_l + ridge, or M, block by block."""
    sums = np.zeros(most_slots(rows))
    for i in range(len(rows.first_slot) - 1):
        slot, k = rows.first_slot[i], rows.first_cell[i]
        size = rows.first_slot[i + 1] - slot
        if is_by_rows(rows, i):
            find_by_rows(rows, i, weight, ridge, out, sums)
            continue
        for c in range(k, rows.first_cell[i + 1]):
            out[c] = products[c]
        for a in range(size):
            out[k + cell(a, a)] += ridge[slot + a]
        invert(out, k, size, sums)


@apart
def find_by_rows(rows: SortedRows, i: int, weight: F64, ridge: F64, out: F64, sums: F64) -> None:
    """M of one client, as root(W) (1 + root(W) X_l X_l' root(W) / ridge)^-1 root(W).

    So rows may have no weight. `sums` is room for one number a slot.
    """
    slot, k, first = rows.first_slot[i], rows.first_cell[i], rows.first_row[i]
    count = rows.first_row[i + 1] - first
    sums[: rows.first_slot[i + 1] - slot] = 0.0
    for n in range(count):
        begin, end = rows.begin_local[first + n], rows.begin_local[first + n + 1]
        for e in range(begin, end):
            sums[rows.slots[e] - slot] = rows.x_local[e] / ridge[rows.slots[e]]
        for m in range(n + 1):
            total = 0.0
            for e in range(rows.begin_local[first + m], rows.begin_local[first + m + 1]):
                total += rows.x_local[e] * sums[rows.slots[e] - slot]
            out[k + cell(n, m)] = np.sqrt(weight[first + n] * weight[first + m]) * total
        out[k + cell(n, n)] += 1.0
        for e in range(begin, end):
            sums[rows.slots[e] - slot] = 0.0
    invert(out, k, count, sums)
    for n in range(count):
        for m in range(n + 1):
            out[k + cell(n, m)] *= np.sqrt(weight[first + n] * weight[first + m])


@apart
def invert(out: F64, k: int, size: int, sums: F64) -> None:
    """Invert a lower triangle that begins at k: L, then L^-1, then L^-1' L^-1.

    Whole rows are added at once, since one sum after the other would wait: thrice as fast.
    """
    for a in range(size):
        row = k + a * (a + 1) // 2
        for b in range(a):
            other = k + b * (b + 1) // 2
            out[row + b] = (out[row + b] - dot(out, row, other, b)) / out[other + b]
        out[row + a] = np.sqrt(out[row + a] - dot(out, row, row, a))
    for a in range(size):
        row = k + a * (a + 1) // 2
        scale = 1.0 / out[row + a]
        sums[:a] = 0.0
        for c in range(a):
            add_row(sums, out[row + c], out, k + c * (c + 1) // 2, c + 1)
        for b in range(a):
            out[row + b] = -scale * sums[b]
        out[row + a] = scale
    for a in range(size):
        row = k + a * (a + 1) // 2
        sums[: a + 1] = 0.0
        for c in range(a, size):
            below = k + c * (c + 1) // 2
            add_row(sums, out[below + a], out, below, a + 1)
        for b in range(a + 1):
            out[row + b] = sums[b]


def dot(values: F64, first: int, second: int, count: int) -> float:
    """The product of two stretches of one array, in four lanes."""
    a = b = c = d = 0.0
    e, f = U(first), U(second)
    for j in range(U(0), U(count // 4 * 4), U(4)):
        a += values[e + j] * values[f + j]
        b += values[e + j + U(1)] * values[f + j + U(1)]
        c += values[e + j + U(2)] * values[f + j + U(2)]
        d += values[e + j + U(3)] * values[f + j + U(3)]
    for j in range(U(count // 4 * 4), U(count)):
        a += values[e + j] * values[f + j]
    return (a + b) + (c + d)


def add_row(sums: F64, scale: float, values: F64, first: int, count: int) -> None:
    """Sums += scale times a stretch of values."""
    for j in range(U(count)):
        sums[j] += scale * values[U(first) + j]


def sweep(
    rows: SortedRows,
    blocks: F64,
    weight: F64,
    ridge: F64,
    target: F64,
    w_global: F64,
    w_local: F64,
    out: F64,
    own: F64,
    room: F64,
) -> None:
    """Fit local models to what is left of targets, and send up what they leave.

    With r = target - X_g w_global it turns w_local = t into C (X_l' W r + t), and adds
    X_g' W (r - X_l w_local) to `out`. All have a column for each of several problems. A target or
    w_global without rows is zero; so is a w_local without slots, which is then not wanted either.
    `own` and `room` have room for one client.
    """
    for i in range(len(rows.first_row) - 1):
        if is_by_rows(rows, i):
            sweep_rows(rows, i, blocks, ridge, target, w_global, w_local, out, own, room)
        else:
            sweep_slots(rows, i, blocks, weight, target, w_global, w_local, out, own, room)


@apart
def sweep_slots(
    rows: SortedRows,
    i: int,
    blocks: F64,
    weight: F64,
    target: F64,
    w_global: F64,
    w_local: F64,
    out: F64,
    own: F64,
    room: F64,
) -> None:
    """The same for a client whose block is C."""
    slot, left = rows.first_slot[i], room[-1]
    size = rows.first_slot[i + 1] - slot
    for a in range(size):
        for k in range(len(left)):
            own[a, k] = w_local[slot + a, k] if len(w_local) else 0.0
    for n in range(rows.first_row[i], rows.first_row[i + 1]):
        leftover(rows, n, target, w_global, left)
        scale_row(left, weight[n])
        send(rows.x_local, rows.slots, slot, *stretch(rows.begin_local, n), left, own)
    times_block(blocks, rows.first_cell[i], size, own, room)
    if len(w_local):
        for a in range(size):
            for k in range(len(left)):
                w_local[slot + a, k] = room[a, k]
    for n in range(rows.first_row[i], rows.first_row[i + 1]):
        leftover(rows, n, target, w_global, left)
        subtract(rows.x_local, rows.slots, slot, *stretch(rows.begin_local, n), room, left)
        scale_row(left, weight[n])
        send(rows.x_global, rows.columns, 0, *stretch(rows.begin_global, n), left, out)


@apart
def sweep_rows(
    rows: SortedRows,
    i: int,
    blocks: F64,
    ridge: F64,
    target: F64,
    w_global: F64,
    w_local: F64,
    out: F64,
    own: F64,
    room: F64,
) -> None:
    """The same for a client whose block is M.

    Then w_local = (t + X_l' M (r - X_l t / ridge)) / ridge.
    """
    first, slots = rows.first_row[i], range(0)
    count = rows.first_row[i + 1] - first
    if len(w_local):
        slots = range(rows.first_slot[i], rows.first_slot[i + 1])
    for slot in slots:
        scale_row(w_local[slot], 1 / ridge[slot])
    for n in range(count):
        leftover(rows, first + n, target, w_global, own[n])
        if len(w_local):
            begin, end = stretch(rows.begin_local, first + n)
            subtract(rows.x_local, rows.slots, 0, begin, end, w_local, own[n])
    times_block(blocks, rows.first_cell[i], count, own, room)
    for slot in slots:
        scale_row(w_local[slot], ridge[slot])
    for n in range(count):
        begin, end = stretch(rows.begin_global, first + n)
        send(rows.x_global, rows.columns, 0, begin, end, room[n], out)
        if len(w_local):
            begin, end = stretch(rows.begin_local, first + n)
            send(rows.x_local, rows.slots, 0, begin, end, room[n], w_local)
    for slot in slots:
        scale_row(w_local[slot], 1 / ridge[slot])


def stretch(begin: I64, n: int) -> tuple[int, int]:
    """Where the entries of row n begin and end."""
    return begin[n], begin[n + 1]


def leftover(rows: SortedRows, n: int, target: F64, w_global: F64, left: F64) -> None:
    """What the global model leaves of a row's targets; none is zero, of both."""
    for k in range(len(left)):
        left[k] = target[n, k] if len(target) else 0.0
    if len(w_global):
        begin, end = stretch(rows.begin_global, n)
        subtract(rows.x_global, rows.columns, 0, begin, end, w_global, left)


def subtract(x: F32, place: I32, base: int, begin: int, end: int, w: F64, left: F64) -> None:
    """Take off what weights, by place from a base on, say of one row."""
    e, last = U(begin), U(end)
    if len(left) == 1:
        a = b = 0.0
        while e + U(1) < last:
            a += x[e] * w[U(place[e] - base), 0]
            b += x[e + U(1)] * w[U(place[e + U(1)] - base), 0]
            e += U(2)
        if e < last:
            a += x[e] * w[U(place[e] - base), 0]
        left[0] -= a + b
        return
    while e + U(3) < last:  # four at once, since each loop takes its time to begin
        f, g, h = e + U(1), e + U(2), e + U(3)
        we, wf = w[U(place[e] - base)], w[U(place[f] - base)]
        wg, wh = w[U(place[g] - base)], w[U(place[h] - base)]
        xe, xf, xg, xh = x[e], x[f], x[g], x[h]
        for k in range(U(len(left))):
            left[k] -= (xe * we[k] + xf * wf[k]) + (xg * wg[k] + xh * wh[k])
        e += U(4)
    while e < last:
        we, xe = w[U(place[e] - base)], x[e]
        for k in range(U(len(left))):
            left[k] -= xe * we[k]
        e += U(1)


def send(x: F32, place: I32, base: int, begin: int, end: int, left: F64, out: F64) -> None:
    """Add one row's entries times what is left to sums, by place from a base on."""
    if len(left) == 1:
        value = left[0]
        for e in range(U(begin), U(end)):
            out[U(place[e] - base), 0] += x[e] * value
        return
    for e in range(U(begin), U(end)):
        sums, value = out[U(place[e] - base)], x[e]
        for k in range(U(len(left))):
            sums[k] += value * left[k]


def scale_row(values: F64, scale: float) -> None:
    """Multiply all."""
    for k in range(U(len(values))):
        values[k] *= scale


@apart
def times_block(blocks: F64, corner: int, size: int, own: F64, out: F64) -> None:
    """Let out be a symmetric block times own, a column for each problem."""
    problems = own.shape[1]
    if problems == 1:
        for a in range(size):
            row, total, value = corner + a * (a + 1) // 2, 0.0, own[a, 0]
            for b in range(a):
                total += blocks[row + b] * own[b, 0]
                out[b, 0] += blocks[row + b] * value
            out[a, 0] = total + blocks[row + a] * value
        return
    for a in range(size):
        row, value = corner + a * (a + 1) // 2, blocks[corner + a * (a + 3) // 2]
        for k in range(problems):
            out[a, k] = value * own[a, k]
        for b in range(a):
            value, mine, other = blocks[row + b], own[a], own[b]
            to_mine, to_other = out[a], out[b]
            for k in range(U(problems)):
                to_mine[k] += value * other[k]
                to_other[k] += value * mine[k]


def condense(
    rows: SortedRows,
    blocks: F64,
    weight: F64,
    place: I64,
    out: F64,
    mine: I64,
    met: I64,
    swept: F64,
    seen: F64,
    less: F64,
) -> None:
    """Add the lower triangle of S without its ridge, of those columns that have a place in it.

    `mine` (places) is -1 everywhere; `met` and `swept` (places), `seen` (slots of a client, places)
    and `less` (places, places) are room for one client.
    """
    for i in range(len(rows.first_row) - 1):
        count = 0
        for e in range(
            rows.begin_global[rows.first_row[i]], rows.begin_global[rows.first_row[i + 1]]
        ):
            p = place[rows.columns[e]]
            if p >= 0 and mine[p] < 0:
                mine[p], met[count] = count, p
                count += 1
        if is_by_rows(rows, i):
            condense_rows(rows, i, blocks, place, out, mine, met[:count], swept, seen, less)
        else:
            condense_slots(
                rows, i, blocks, weight, place, out, mine, met[:count], swept, seen, less
            )
        for p in met[:count]:
            mine[p] = -1


@apart
def condense_rows(
    rows: SortedRows,
    i: int,
    blocks: F64,
    place: I64,
    out: F64,
    mine: I64,
    met: I64,
    swept: F64,
    seen: F64,
    more: F64,
) -> None:
    """The same for a client whose block is M: X_g' M X_g."""
    first, corner, count = rows.first_row[i], rows.first_cell[i], len(met)
    size = rows.first_row[i + 1] - first
    seen[:size, :count] = 0.0
    for n in range(size):
        for e in range(rows.begin_global[first + n], rows.begin_global[first + n + 1]):
            p = place[rows.columns[e]]
            if p >= 0:
                seen[n, mine[p]] += rows.x_global[e]
    surround(blocks, corner, size, seen, count, swept, more)
    for p in range(count):
        for q in range(p + 1):
            out[max(met[p], met[q]), min(met[p], met[q])] += more[p, q]


@apart
def condense_slots(
    rows: SortedRows,
    i: int,
    blocks: F64,
    weight: F64,
    place: I64,
    out: F64,
    mine: I64,
    met: I64,
    swept: F64,
    seen: F64,
    less: F64,
) -> None:
    """The same for a client whose block is C."""
    slot, corner, count = rows.first_slot[i], rows.first_cell[i], len(met)
    size = rows.first_slot[i + 1] - slot
    seen[:size, :count] = 0.0
    for n in range(rows.first_row[i], rows.first_row[i + 1]):
        first, last = rows.begin_global[n], rows.begin_global[n + 1]
        for e in range(first, last):
            p = place[rows.columns[e]]
            if p < 0:
                continue
            value = weight[n] * rows.x_global[e]
            for f in range(first, e + 1):
                q = place[rows.columns[f]]
                if q >= 0:
                    out[max(p, q), min(p, q)] += value * rows.x_global[f]
            for f in range(rows.begin_local[n], rows.begin_local[n + 1]):
                seen[rows.slots[f] - slot, mine[p]] += value * rows.x_local[f]
    surround(blocks, corner, size, seen, count, swept, less)
    for p in range(count):
        for q in range(p + 1):
            out[max(met[p], met[q]), min(met[p], met[q])] -= less[p, q]


@apart
def surround(blocks: F64, corner: int, size: int, x: F64, count: int, swept: F64, out: F64) -> None:
    """Let out be the lower triangle of x' B x, of a symmetric block B and so many columns of x."""
    out[:count, :count] = 0.0
    for a in range(size):
        swept[:count] = 0.0
        for b in range(size):
            add_row(swept, blocks[corner + cell(a, b)], x[b], 0, count)
        for p in range(count):
            if x[a, p] != 0.0:
                add_row(out[p], x[a, p], swept, 0, p + 1)


@apart
def swept_row(rows: SortedRows, i: int, n: int, blocks: F64, out: F64) -> None:
    """X_l' times row n of M, of client i."""
    slot, first = rows.first_slot[i], rows.first_row[i]
    out[:] = 0.0
    for m in range(rows.first_row[i + 1] - first):
        value = blocks[rows.first_cell[i] + cell(n, m)]
        for e in range(rows.begin_local[first + m], rows.begin_local[first + m + 1]):
            out[rows.slots[e] - slot] += value * rows.x_local[e]


@apart
def own_variances(rows: SortedRows, blocks: F64, ridge: F64, out: F64) -> None:
    """The diagonal of C, by slot."""
    swept = np.empty(most_slots(rows))
    for i in range(len(rows.first_row) - 1):
        slot, first = rows.first_slot[i], rows.first_row[i]
        size = rows.first_slot[i + 1] - slot
        if not is_by_rows(rows, i):
            for a in range(size):
                out[slot + a] = blocks[rows.first_cell[i] + cell(a, a)]
            continue
        for a in range(slot, slot + size):
            out[a] = 1.0 / ridge[a]
        for n in range(rows.first_row[i + 1] - first):
            swept_row(rows, i, n, blocks, swept[:size])
            for e in range(rows.begin_local[first + n], rows.begin_local[first + n + 1]):
                a = rows.slots[e]
                out[a] -= rows.x_local[e] * swept[a - slot] / ridge[a] ** 2


@apart
def write_covariances(rows: SortedRows, blocks: F64, ridge: F64, corner: I64, out: F32) -> None:
    """C of every client, each at its corner."""
    widest = most_slots(rows)
    swept, scaled = np.empty(widest), np.empty(widest * (widest + 1) // 2)
    for i in range(len(rows.first_row) - 1):
        slot, first, k = rows.first_slot[i], rows.first_row[i], corner[i]
        size = rows.first_slot[i + 1] - slot
        if not is_by_rows(rows, i):
            for c in range(rows.first_cell[i], rows.first_cell[i + 1]):
                out[k + c - rows.first_cell[i]] = blocks[c]
            continue
        scaled[: size * (size + 1) // 2] = 0.0
        for a in range(size):
            scaled[cell(a, a)] = ridge[slot + a]
        for n in range(rows.first_row[i + 1] - first):
            swept_row(rows, i, n, blocks, swept[:size])
            for e in range(rows.begin_local[first + n], rows.begin_local[first + n + 1]):
                a = rows.slots[e] - slot
                for b in range(a + 1):
                    scaled[a * (a + 1) // 2 + b] -= rows.x_local[e] * swept[b]
        for a in range(size):
            for b in range(a + 1):
                c = a * (a + 1) // 2 + b
                out[k + c] = scaled[c] / (ridge[slot + a] * ridge[slot + b])


@apart
def row_variances(
    rows: SortedRows,
    place: I32,
    corner: I64,
    client: I64,
    blocks: F32,
    root_global: F32,
    root_local: F32,
    out: F64,
) -> None:
    """x_l' C x_l + |x_g' root_global + x_l' root_local|^2 of every row; a slot of -1 is not there.

    Rows may be in any order, so that each names its client, -1 for one that is not known; `place`
    is that of each slot in the block of its client, and `corner` the first cell of each block.
    """
    across = np.zeros(root_global.shape[1])
    for n in range(len(client)):
        across[:] = 0.0
        for e in range(rows.begin_global[n], rows.begin_global[n + 1]):
            column, value = rows.columns[e], rows.x_global[e]
            for k in range(len(across)):
                across[k] += value * root_global[column, k]
        total, i = 0.0, client[n]
        if i >= 0:
            for e in range(rows.begin_local[n], rows.begin_local[n + 1]):
                if rows.slots[e] < 0:
                    continue
                a, value = place[rows.slots[e]], rows.x_local[e]
                for k in range(len(across)):
                    across[k] += value * root_local[rows.slots[e], k]
                for f in range(rows.begin_local[n], rows.begin_local[n + 1]):
                    if rows.slots[f] >= 0:
                        b = place[rows.slots[f]]
                        total += value * rows.x_local[f] * blocks[corner[i] + cell(a, b)]
        for k in range(len(across)):
            total += across[k] * across[k]
        out[n] = total

"""Least squares in the shape of an arrow: what every client has for itself, done client by client.

Rows are sorted by client. With row weights W and ridges, the normal equations of both sides are

    (X_g' W X_g + ridge_g) w_g + X_g' W X_l w_l = X_g' W y
    X_l' W X_g w_g + (X_l' W X_l + ridge_l) w_l = X_l' W y

and the second matrix is block-diagonal, a block a client: its inverse C is found exactly, block by
block. What is left for w_g has the matrix S = X_g' W X_g + ridge_g - X_g' W X_l C X_l' W X_g.
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
        is symmetric, and its lower triangle is kept row by row.
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


@apart
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


@apart
def local_products(rows: SortedRows, weight: F64, out: F64) -> None:
    """X_l' W X_l, block by block."""
    for i in range(len(rows.first_row) - 1):
        slot, corner = rows.first_slot[i], rows.first_cell[i]
        for n in range(rows.first_row[i], rows.first_row[i + 1]):
            first, last = rows.begin_local[n], rows.begin_local[n + 1]
            for e in range(first, last):
                a, value = rows.slots[e] - slot, weight[n] * rows.x_local[e]
                for f in range(first, e + 1):
                    out[corner + cell(a, rows.slots[f] - slot)] += value * rows.x_local[f]


@apart
def invert_blocks(rows: SortedRows, products: F64, ridge: F64, out: F64) -> None:
    """C, the inverse of X_l' W X_l + ridge, block by block: L, then L^-1, then L^-1' L^-1.

    Whole rows are added at once, since one sum after the other would wait: thrice as fast.
    """
    sums = np.empty(np.diff(rows.first_slot).max())
    for i in range(len(rows.first_slot) - 1):
        slot, k = rows.first_slot[i], rows.first_cell[i]
        size = rows.first_slot[i + 1] - slot
        for a in range(size):
            row = k + a * (a + 1) // 2
            for b in range(a):
                other = k + b * (b + 1) // 2
                out[row + b] = (products[row + b] - dot(out, row, other, b)) / out[other + b]
            out[row + a] = np.sqrt(products[row + a] + ridge[slot + a] - dot(out, row, row, a))
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


@apart
def sweep(
    rows: SortedRows,
    blocks: F64,
    weight: F64,
    target: F64,
    w_global: F64,
    w_local: F64,
    out: F64,
    own: F64,
) -> None:
    """Fit local models to what is left of targets, and send up what they leave.

    With r = target - X_g w_global it turns w_local = t into C (X_l' W r + t), and adds
    X_g' W (r - X_l w_local) to `out`. All have a column for each of several problems. A target
    without rows is zero; `own` is room for one client.
    """
    problems = w_global.shape[1]
    left = np.zeros(problems)
    for i in range(len(rows.first_row) - 1):
        slot, corner = rows.first_slot[i], rows.first_cell[i]
        size = rows.first_slot[i + 1] - slot
        own[:size] = w_local[slot : slot + size]
        for n in range(rows.first_row[i], rows.first_row[i + 1]):
            leftover(rows, n, weight, target, w_global, left)
            for e in range(rows.begin_local[n], rows.begin_local[n + 1]):
                a, value = rows.slots[e] - slot, rows.x_local[e]
                for k in range(problems):
                    own[a, k] += value * left[k]
        w_local[slot : slot + size] = 0.0
        for a in range(size):
            row = corner + a * (a + 1) // 2
            for b in range(a):
                value = blocks[row + b]
                for k in range(problems):
                    w_local[slot + a, k] += value * own[b, k]
                    w_local[slot + b, k] += value * own[a, k]
            for k in range(problems):
                w_local[slot + a, k] += blocks[row + a] * own[a, k]
        for n in range(rows.first_row[i], rows.first_row[i + 1]):
            leftover(rows, n, weight, target, w_global, left)
            for e in range(rows.begin_local[n], rows.begin_local[n + 1]):
                value = weight[n] * rows.x_local[e]
                for k in range(problems):
                    left[k] -= value * w_local[rows.slots[e], k]
            for e in range(rows.begin_global[n], rows.begin_global[n + 1]):
                column, value = rows.columns[e], rows.x_global[e]
                for k in range(problems):
                    out[column, k] += value * left[k]


@apart
def sweep_one(
    rows: SortedRows,
    blocks: F64,
    weight: F64,
    target: F64,
    w_global: F64,
    w_local: F64,
    out: F64,
    own: F64,
) -> None:
    """The same for one problem, whose columns are arrays of one axis: no loop over problems."""
    for i in range(len(rows.first_row) - 1):
        slot, corner = rows.first_slot[i], rows.first_cell[i]
        size = rows.first_slot[i + 1] - slot
        for a in range(size):
            own[a], w_local[slot + a] = w_local[slot + a], 0.0
        for n in range(rows.first_row[i], rows.first_row[i + 1]):
            left = target[n] if len(target) else 0.0
            for e in range(rows.begin_global[n], rows.begin_global[n + 1]):
                left -= rows.x_global[e] * w_global[rows.columns[e]]
            left *= weight[n]
            for e in range(rows.begin_local[n], rows.begin_local[n + 1]):
                own[rows.slots[e] - slot] += rows.x_local[e] * left
        for a in range(size):
            row, total = corner + a * (a + 1) // 2, 0.0
            for b in range(a):
                total += blocks[row + b] * own[b]
                w_local[slot + b] += blocks[row + b] * own[a]
            w_local[slot + a] += total + blocks[row + a] * own[a]
        for n in range(rows.first_row[i], rows.first_row[i + 1]):
            left = target[n] if len(target) else 0.0
            for e in range(rows.begin_global[n], rows.begin_global[n + 1]):
                left -= rows.x_global[e] * w_global[rows.columns[e]]
            for e in range(rows.begin_local[n], rows.begin_local[n + 1]):
                left -= rows.x_local[e] * w_local[rows.slots[e]]
            left *= weight[n]
            for e in range(rows.begin_global[n], rows.begin_global[n + 1]):
                out[rows.columns[e]] += rows.x_global[e] * left


@apart
def leftover(rows: SortedRows, n: int, weight: F64, target: F64, w_global: F64, left: F64) -> None:
    """What the global model leaves of a row's targets, times its weight."""
    for k in range(len(left)):
        left[k] = target[n, k] if len(target) else 0.0
    for e in range(rows.begin_global[n], rows.begin_global[n + 1]):
        column, value = rows.columns[e], rows.x_global[e]
        for k in range(len(left)):
            left[k] -= value * w_global[column, k]
    for k in range(len(left)):
        left[k] *= weight[n]


@apart
def condense(
    rows: SortedRows,
    blocks: F64,
    weight: F64,
    place: I64,
    out: F64,
    mine: I64,
    seen: F64,
    less: F64,
) -> None:
    """Add the lower triangle of S without its ridge, of those columns that have a place in it.

    `mine` (places) is -1 everywhere; `seen` (slots of a client, places) and `less` (places, places)
    are room for one client.
    """
    met = np.empty(len(out), np.int64)
    for i in range(len(rows.first_row) - 1):
        count = 0
        for e in range(
            rows.begin_global[rows.first_row[i]], rows.begin_global[rows.first_row[i + 1]]
        ):
            p = place[rows.columns[e]]
            if p >= 0 and mine[p] < 0:
                mine[p], met[count] = count, p
                count += 1
        if rows.first_row[i + 1] - rows.first_row[i] < rows.first_slot[i + 1] - rows.first_slot[i]:
            condense_rows(rows, i, blocks, weight, place, out, mine, met[:count])
        else:
            condense_slots(rows, i, blocks, weight, place, out, mine, met[:count], seen, less)
        for p in met[:count]:
            mine[p] = -1


@apart
def condense_rows(
    rows: SortedRows,
    i: int,
    blocks: F64,
    weight: F64,
    place: I64,
    out: F64,
    mine: I64,
    met: I64,
) -> None:
    """The same for a client with fewer rows than slots: X_g' (W - W X_l C X_l' W) X_g, by rows."""
    slot, corner = rows.first_slot[i], rows.first_cell[i]
    own, swept = np.empty(rows.first_slot[i + 1] - slot), np.empty(len(met))
    for n in range(rows.first_row[i], rows.first_row[i + 1]):
        own[:] = 0.0
        for f in range(rows.begin_local[n], rows.begin_local[n + 1]):
            b, value = rows.slots[f] - slot, weight[n] * rows.x_local[f]
            for a in range(len(own)):
                own[a] += value * blocks[corner + cell(a, b)]
        swept[:] = 0.0
        for m in range(rows.first_row[i], rows.first_row[i + 1]):
            left = 1.0 if m == n else 0.0
            for f in range(rows.begin_local[m], rows.begin_local[m + 1]):
                left -= rows.x_local[f] * own[rows.slots[f] - slot]
            left *= weight[m]
            for e in range(rows.begin_global[m], rows.begin_global[m + 1]):
                p = place[rows.columns[e]]
                if p >= 0:
                    swept[mine[p]] += left * rows.x_global[e]
        for e in range(rows.begin_global[n], rows.begin_global[n + 1]):
            p, value = place[rows.columns[e]], rows.x_global[e]
            for k in range(len(met)):
                if met[k] <= p:
                    out[p, met[k]] += value * swept[k]


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
    seen: F64,
    less: F64,
) -> None:
    """The same for a client with as many rows as slots or more, by slots."""
    slot, corner, count = rows.first_slot[i], rows.first_cell[i], len(met)
    size = rows.first_slot[i + 1] - slot
    swept = np.empty(count)
    seen[:size, :count] = 0.0
    less[:count, :count] = 0.0
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
    for a in range(size):
        swept[:] = 0.0
        for b in range(size):
            value = blocks[corner + cell(a, b)]
            for q in range(count):
                swept[q] += value * seen[b, q]
        for p in range(count):
            value = seen[a, p]
            if value != 0.0:
                for q in range(p + 1):
                    less[p, q] += value * swept[q]
    for p in range(count):
        for q in range(p + 1):
            out[max(met[p], met[q]), min(met[p], met[q])] -= less[p, q]


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

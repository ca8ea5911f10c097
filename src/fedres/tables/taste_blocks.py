"""Sums over the rows of clients and of items that factors of both are found from.

The factors of a client are its last local weights before the constant, as many as a row has factors
of its item there. Triangles of covariances are kept row by row, as in `client_blocks`.
"""

from fedres.core.source import apart
from fedres.core.types import F64, I64
from fedres.tables.client_blocks import SortedRows, cell


@apart
def add_spreads(rows: SortedRows, item: I64, weight: F64, spread: F64, size: int, out: F64) -> None:
    """Add to X_l' W X_l, block by block, what items' factors scatter around their means.

    `spread` are covariances of the factors of each item, (items, cells); `size` is their number.
    """
    for i in range(len(rows.first_row) - 1):
        corner = rows.first_cell[i]
        place = rows.first_slot[i + 1] - rows.first_slot[i] - 1 - size
        for n in range(rows.first_row[i], rows.first_row[i + 1]):
            for a in range(size):
                for b in range(a + 1):
                    at = corner + cell(place + a, place + b)
                    out[at] += weight[n] * spread[item[n], cell(a, b)]


@apart
def sum_by_item(
    rows: SortedRows,
    item: I64,
    weight: F64,
    left: F64,
    w_local: F64,
    blocks: F64,
    noise: float,
    products: F64,
    sums: F64,
) -> None:
    """Add up, item by item, E[u u'] and E[u (y - all but u v)] over the noise.

    Parameters
    ----------
    rows, item, weight
        The rows, with the item of each.
    left
        What is left of targets when all scores are taken off, u v among them.
    w_local, blocks
        Means of local weights, and their covariances over the noise.
    noise
        Its variance.
    products, sums
        (items, cells) and (items, factors): what is added to.
    """
    size = sums.shape[1]
    for i in range(len(rows.first_row) - 1):
        slot, corner = rows.first_slot[i], rows.first_cell[i]
        place = rows.first_slot[i + 1] - slot - 1 - size
        for n in range(rows.first_row[i], rows.first_row[i + 1]):
            first, last = rows.begin_local[n], rows.begin_local[n + 1]
            mine, rest = last - 1 - size, left[n]
            for a in range(size):
                rest += rows.x_local[mine + a] * w_local[slot + place + a]
            for a in range(size):
                u, row = w_local[slot + place + a], place + a
                total = u * rest / noise
                for e in range(first, last):
                    if e < mine or e == last - 1:
                        at = corner + cell(row, rows.slots[e] - slot)
                        total -= rows.x_local[e] * blocks[at]
                sums[item[n], a] += weight[n] * total
                for b in range(a + 1):
                    both = u * w_local[slot + place + b] / noise
                    both += blocks[corner + cell(row, place + b)]
                    products[item[n], cell(a, b)] += weight[n] * both

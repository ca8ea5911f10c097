"""The few operations on rows that everything else is made of, in NumPy.

    predict_row   f(x; w) = w . (x, 1)
    descend_row   w -= rate x
    adapt_row     G_j += (g x_j)^2,   w_j -= eta g x_j / sqrt(G_j)
    add_scaled    y += a x            and
    add_square    A += a x x'         are what ERM needs, in double precision

`fedres.core.compiled` gives the compiler its own version of each, with the same bits: products
are added in a fixed number of lanes, lane by lane, and then the lanes two by two. So a sum does
not depend on how wide the vectors of a CPU are, nor on who computes it. A process that lives for
one message uses these, since loading compiled code would take it longer.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fedres.core.types import F32, F64, I32, I64, Matrix

LANES, SPARSE_LANES = 16, 4
SHORTER = (8, 4, 2, 1)  # what is left over makes at most one vector of each width
ZERO = np.float32(0)
NOTHING = np.float32(-0.0)  # to which everything adds exactly, even a zero with its sign

# Running sums of squares begin at the smallest normal number, so that a feature that was always
# zero divides zero by something.
SMALLEST = np.finfo(np.float32).tiny


class View(NamedTuple):
    """One side's features of all clients, dense rows end to end, or CSR.

    Clients may differ in width: dense row k, counted over all clients, begins at `start[i] + k *
    width[i]` if it is one of client i.
    """

    values: F32
    indices: I32
    indptr: I64
    start: I64
    width: I64
    sparse: bool


class Models(NamedTuple):
    """Linear models end to end, each one's constant last, and the range of labels it has seen.

    Versions of one model may share their sums of squares.
    """

    weights: F32
    squares: F32
    start: I64  # where the weights of each model begin
    squares_start: I64
    size: I64  # weights a model, that of the constant included
    constant: F32  # 1 where a model has a constant, else 0: then its weight stays 0
    low: F32
    high: F32


def fold(products: F32, more: Any) -> Any:
    """Sums along the last axis, in a fixed order, and `more` at the end.

    Vectors of 16 lanes are added and folded; what is left over joins on the way.
    """
    terms = products.T
    count = len(terms)
    place = count // LANES * LANES
    total: Any = None
    if place == LANES:  # as below, without what a reduction costs by itself
        total = terms[:LANES]
    elif place:
        total = np.add.reduce(terms[:place].reshape(-1, LANES, *terms.shape[1:]), initial=NOTHING)
    for lanes in SHORTER[:-1]:
        if total is not None:
            total = total[:lanes] + total[lanes:]
        if count & lanes:
            part = terms[place : place + lanes]
            total = part if total is None else total + part
            place += lanes
    last: Any = np.full(terms.shape[1:], NOTHING) if total is None else total[0] + total[1]
    return (last + terms[place] if count & 1 else last) + more


def fold_sparse(products: F32, more: np.float32) -> np.float32:
    """The same of a sparse row: in four lanes."""
    full = len(products) // SPARSE_LANES * SPARSE_LANES
    total: Any = np.add.reduce(products[:full].reshape(-1, SPARSE_LANES), initial=NOTHING)
    total[: len(products) - full] += products[full:]
    return np.float32(((total[0] + total[2]) + (total[1] + total[3])) + more)


_NO_INDICES, _NO_INDPTR = np.empty(0, np.int32), np.empty(0, np.int64)
_at_zero = cache(lambda width: (np.zeros(1, np.int64), np.array([width], np.int64)))


def view_of(x: Matrix) -> View:
    """The rows of one matrix, dense or CSR, as those of one client."""
    start, width = _at_zero(x.shape[1])
    if isinstance(x, np.ndarray):
        values = np.ascontiguousarray(x, np.float32)
        if not values.flags.writeable:  # another type to the compiler
            values = values.copy()
        return View(values.reshape(-1), _NO_INDICES, _NO_INDPTR, start, width, False)
    indices, indptr = x.indices.astype(np.int32), x.indptr.astype(np.int64)
    return View(x.data, indices, indptr, start, width, True)


def _row(view: View, i: int, row: int) -> tuple[F32, Any]:
    """The values of a row, and their places among the weights of a model."""
    if view.sparse:
        first, last = view.indptr[row], view.indptr[row + 1]
        return view.values[first:last], view.indices[first:last].astype(np.int64)
    width = view.width.item(i)  # Python's numbers: twice as fast to count with as NumPy's
    first = view.start.item(i) + int(row) * width
    return view.values[first : first + width], slice(0, width)


def _at(start: int, places: Any) -> Any:
    if isinstance(places, slice):
        return slice(start + places.start, start + places.stop)
    return start + places


def _block(view: View, i: int, block: int) -> int:
    """Where a block of the weights begins."""
    return int(block) * view.width.item(i)


def _last(models: Models, m: int) -> int:
    """The place of the constant's weight."""
    return models.start.item(m) + models.size.item(m) - 1


def predict_row(models: Models, m: int, view: View, i: int, row: int, block: int) -> np.float32:
    """f(x; w) of model m for a row of client i, placed in that block of the weights."""
    values, places = _row(view, i, row)
    w, start = models.weights, models.start.item(m)
    products = values * w[_at(start + _block(view, i, block), places)]
    constant = models.constant[m] * w[_last(models, m)]
    return (fold_sparse if view.sparse else fold)(products, constant)


def predict_rows(
    models: Models,
    m: int,
    view: View,
    i: int,
    row: I32,
    block: I32,
    first: int,
    last: int,
    out: F32,
) -> None:
    """The same of row[first:last], in block[first:last]."""
    for c in range(first, last):
        out[c] = predict_row(models, m, view, i, row[c], block[c])


def descend_row(
    models: Models, m: int, view: View, i: int, row: int, block: int, rate: np.float32
) -> None:
    """W -= rate x."""
    values, places = _row(view, i, row)
    w, start = models.weights, models.start.item(m)
    w[_at(start + _block(view, i, block), places)] -= rate * values
    w[_last(models, m)] -= rate * models.constant[m]


def adapt_row(
    models: Models,
    m: int,
    view: View,
    i: int,
    row: int,
    block: int,
    slope: np.float32,
    weight: np.float32,
    eta: np.float32,
) -> None:
    """The adaptive step along the gradient of one row, slope * x."""
    values, places = _row(view, i, row)
    _adapt(models, m, _at(_block(view, i, block), places), slope, values, weight, eta)
    _adapt(models, m, models.size.item(m) - 1, slope, models.constant[m], weight, eta)


def adapt_mean(
    models: Models,
    m: int,
    view: View,
    i: int,
    rows: I32,
    first: int,
    last: int,
    weight: np.float32,
    eta: np.float32,
    sums: F32,
) -> None:
    """The adaptive step along the mean gradient of rows[first:last], whose sum is in `sums`.

    That of the constant is last in `sums`, which is zero again afterwards.
    """
    if view.sparse:
        places: Any = np.unique(np.concatenate([_row(view, i, r)[1] for r in rows[first:last]]))
    else:
        places = slice(0, view.width[i])
    share = np.float32(1) / np.float32(last - first)
    _adapt(models, m, places, share, sums[places], weight, eta)
    _adapt(models, m, models.size[m] - 1, share, sums[-1], weight, eta)
    sums[places] = sums[-1] = 0


def _adapt(
    models: Models, m: int, places: Any, slope: Any, x: Any, weight: np.float32, eta: np.float32
) -> None:
    """G += weight g^2; w -= eta weight g / sqrt(G), with g = slope * x.

    The weight joins x before the slope is known: the next message waits for this one's result.
    """
    w, g = _at(models.start.item(m), places), _at(models.squares_start.item(m), places)
    gradient = slope * x
    models.squares[g] = grown = models.squares[g] + gradient * (slope * (weight * x))
    models.weights[w] -= (eta * weight) * gradient / np.sqrt(grown)


def add_to_sums(sums: F32, constant: np.float32, view: View, i: int, row: int, slope: Any) -> None:
    """Sums += slope (x, 1); that of the constant is last in `sums`."""
    values, places = _row(view, i, row)
    sums[places] += slope * values
    sums[-1] += slope * constant


def project(models: Models, m: int, radius: np.float32) -> None:
    """Pi_D: bring model m to the nearest point of the ball of that radius."""
    start = models.start[m]
    w = models.weights[start : start + models.size[m]]
    square = fold(w * w, ZERO)
    if square > radius * radius:
        w *= radius / np.sqrt(square)


def copy_model(models: Models, of: int, to: int) -> None:
    """Weights and range of one version become those of another."""
    first, second, size = models.start[of], models.start[to], models.size[of]
    models.weights[second : second + size] = models.weights[first : first + size]
    models.low[to], models.high[to] = models.low[of], models.high[of]


def add_scaled(to: F64, scale: float, x: F64) -> None:
    """To += scale x."""
    to += scale * x


def add_square(to: F64, scale: float, x: F64, first: int) -> None:
    """To += scale x x', from row and column `first` on; only the upper triangle counts."""
    to[first:, first:] += np.multiply.outer(scale * x[first:], x[first:])

"""Rows of all clients, ready to be solved for both models at once.

Local models are eliminated exactly, client by client (`client_blocks`); what is left for the global
model is solved by Cholesky, or by conjugate gradients where it is wide, and its posterior is known
by a root of its covariance, whole where it is narrow, otherwise drawn at random.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from fedres.core.types import F32, F64, I64
from fedres.tables.client_blocks import (
    SortedRows,
    add_scores,
    assign_slots,
    condense,
    find_blocks,
    local_products,
    own_variances,
    row_variances,
    sum_squares,
    sweep,
    write_covariances,
)
from fedres.tables.csr_sides import only, varying, with_constant
from fedres.tables.online_models import ModelShape
from fedres.tables.sgd_tuning import Encoded
from fedres.tables.weight_groups import Groups, group_sums

WIDEST_SOLVED = 1500  # columns of the global side that are factorised, not iterated over
WIDEST_BLOCK = 1000  # of those that are, the narrow groups of a side that is wider
WHOLE_ROOT, MOST_WHOLE = 64, 2**20  # columns, and numbers, of a posterior that is kept whole
DRAWS, FEWEST_DRAWS, MOST_DRAWN = 16, 8, 2**22  # of a wider one; numbers that may be kept
MOST_SEARCHED = 2**16  # numbers drawn while variances are searched for
MOST_CELLS, MOST_WORK = 2**27, 1e12  # covariances of local weights; products to find them
FREE = 1e-9  # of the rows' weight: the ridge of the global constant, which steadies it alone
STEADY = (
    1e-11,
    1e-9,
    1e-7,
    1e-5,
    1e-3,
)  # of a column's own square: what differences lose by rounding


class Covariance(NamedTuple):
    """The covariance of all weights, over the noise.

    Attributes
    ----------
    global_, local, across
        Variances of weights; local ones by slot, clients one after the other, and the part of them
        that is the global model's.
    blocks
        Covariances of each client's weights given the global model: lower triangles, each client's
        at its corner of the arrow; empty if they are not kept.
    root_global, root_local
        R with RR' the covariance of the global model, and of what it makes of local ones.
    """

    global_: F64
    local: F64
    across: F64
    blocks: F32
    root_global: Any
    root_local: Any


class TooWideError(ValueError):
    """Local models of so many columns that their covariances would not fit."""


class Draws(NamedTuple):
    """Standard normal numbers for each global feature, row and slot, over the root of how many."""

    shared: F64
    of_rows: F64 | None
    of_slots: F64 | None


class Arrow:
    """Rows of all clients, ready to be solved for any weights of rows and any ridges.

    Parameters
    ----------
    shape
        Widths.
    data
        The rows; every client has some.
    groups
        Groups of weights.
    alive
        Which of them may have a variance; all if None. Columns of others are left out.
    used
        Which local columns vary within clients, where these rows are not all that tell.
    """

    takes_rows = True  # whether the block of a client may be one of its rows

    def __init__(
        self,
        shape: ModelShape,
        data: Encoded,
        groups: Groups,
        alive: Any = None,
        used: I64 | None = None,
    ) -> None:
        from fedres.core.compiled import compiled

        order = np.argsort(data.client, kind="stable")
        client = data.client[order]
        self.order, self.groups, self.outputs = order, groups, len(data.y)
        x_global = with_constant(data.x_global[order], len(groups.of_global))
        if alive is not None and not alive.all():
            in_use = np.append(alive, True)[groups.of_global]  # the constant's group is -1
            x_global = only(x_global, np.flatnonzero(in_use))
        if used is None:
            used = varying(data.x_local, data.client, groups.of_local)
        if alive is not None:
            used = used[alive[groups.of_local[used]]]
        size = 0 if shape.width_local is None else shape.width_local + 1
        x_local = with_constant(only(data.x_local, used, order), size)
        first_row = np.searchsorted(client, np.arange(int(client[-1]) + 2))
        begin_local, first_slot = x_local.indptr.astype(np.int64), np.zeros_like(first_row)
        slots = x_local.indices.astype(np.int32, copy=False)
        columns = np.empty_like(slots)
        run = compiled(assign_slots, allocates=True)
        run(begin_local, slots, first_row, size, first_slot, columns)
        self.columns = columns[: first_slot[-1]].copy()
        widths = np.diff(first_slot)
        counts = np.minimum(widths, np.diff(first_row)) if self.takes_rows else widths
        self.rows = SortedRows(
            x_global.data,
            x_global.indices.astype(np.int32, copy=False),
            x_global.indptr.astype(np.int64),
            x_local.data,
            slots,
            begin_local,
            first_row,
            first_slot,
            _corners(counts),
        )
        self.corner = _corners(widths)
        cells, work = self.corner[-1], float((counts * widths.astype(float) ** 2).sum())
        if cells > MOST_CELLS or work > MOST_WORK:
            raise TooWideError(
                f"solver='bayes' would keep {cells} covariances of local weights: make fewer "
                "features local, or use solver='sgd'"
            )
        self.client, self.width = client, x_global.shape[1]
        self.slots, self.widest = len(self.columns), int(widths.max(initial=0))
        self.group_of_slot = groups.of_local[self.columns]
        self.alive = np.zeros(len(groups.names), bool)
        self.alive[groups.of_global[groups.of_global >= 0]] = True
        self.alive[groups.of_local[used]] = True
        if len(groups.of_local) and (np.bincount(client) > 1).any():
            self.alive[groups.of_local[-1]] = True
        self.place = places(groups.of_global)

    def weigh(self, weight: F64) -> None:
        """Take weights of rows, in the order of clients."""
        from fedres.core.compiled import compiled

        self.weight = weight
        self.products = np.zeros(self.rows.first_cell[-1])
        compiled(local_products, allocates=True)(self.rows, weight, self.products)
        self.diagonal = self._squares(weight)[0]

    def set_ridges(self, ridges: F64, again: bool = False) -> None:
        """Take the ridge of each group: eliminate local models, and factorise what is left.

        Unless `again`, rows have to be weighed anew before other ridges are taken.
        """
        self.eliminate(ridges, again)
        self.ridge_global = shared_ridges(ridges, self.weight.sum(), self.groups)
        self.inside = np.flatnonzero(self.place >= 0)
        products = self.condensed()
        self.factor = factorised(products, self.ridge_global, self.diagonal, self.inside)

    def eliminate(self, ridges: F64, again: bool = False) -> None:
        """Take the ridge of each group, as in `set_ridges`, and eliminate local models."""
        from fedres.core.compiled import compiled

        self.ridge_local = ridges[self.group_of_slot]
        self.blocks = np.empty_like(self.products) if again else self.products
        find = compiled(find_blocks, allocates=True)
        find(self.rows, self.products, self.weight, self.ridge_local, self.blocks)

    def condensed(self) -> F64:
        """What these rows add to S, of those columns that have a place: its lower triangle."""
        from fedres.core.compiled import compiled

        inside = int((self.place >= 0).sum())
        shared = np.zeros((inside, inside))
        if inside:
            mine, met, less = np.full(inside, -1), np.empty(inside, np.int64), np.empty_like(shared)
            swept, seen = np.empty(inside), np.empty((self.widest, inside))
            parts = self.rows, self.blocks, self.weight, self.place, shared
            compiled(condense)(*parts, mine, met, swept, seen, less)
        return shared

    def _squares(self, weight: F64) -> tuple[F64, F64]:
        """The sum over rows of weight times square, of each column and each slot."""
        from fedres.core.compiled import compiled

        rows, (shared, own) = self.rows, (np.zeros(self.width), np.zeros(self.slots))
        run = compiled(sum_squares, allocates=True)
        run(rows.begin_global, rows.columns, rows.x_global, weight, shared)
        run(rows.begin_local, rows.slots, rows.x_local, weight, own)
        return shared, own

    def sweep(self, target: F64, w_global: F64, w_local: F64) -> tuple[F64, F64]:
        """What is left for the global side, and the local models, which replace w_local if any."""
        from fedres.core.compiled import compiled

        problems = w_local.shape[1]
        out = np.zeros((self.width, problems))
        own, room = (np.empty((self.widest + 1, problems)) for _ in range(2))
        compiled(sweep)(
            self.rows,
            self.blocks,
            self.weight,
            self.ridge_local,
            target,
            np.require(w_global, requirements="W"),  # if not, another type to the compiler
            w_local,
            out,
            own,
            room,
        )
        return out, w_local

    def solve(self, right: F64, begin: F64, close: float) -> F64:
        """S^-1 right, a column for each problem."""

        def sent(x: F64) -> F64:
            return self.sweep(np.zeros((0, 0)), x, np.zeros((0, x.shape[1])))[0]

        ridge, diagonal = self.ridge_global, self.diagonal
        return solved(self.factor, self.inside, ridge, diagonal, sent, right, begin, close)

    def means(self, target: F64, begin: F64, close: float) -> tuple[F64, F64]:
        """The best global model and local models for targets, in the order of clients."""
        right, _ = self.sweep(target[:, None], np.zeros((0, 1)), np.zeros((0, 1)))
        w_global = self.solve(right, begin[:, None], close)
        _, w_local = self.sweep(target[:, None], w_global, np.zeros((self.slots, 1)))
        return w_global[:, 0], w_local[:, 0]

    @property
    def is_whole(self) -> bool:
        """Whether the root of the covariance is found, and not drawn."""
        numbers = self.width * self.slots * self.outputs
        return bool(self.width <= WHOLE_ROOT and numbers <= MOST_WHOLE)

    def draws(self, seed: int, is_kept: bool = True) -> "Draws":
        """Random numbers that a root of the covariance is made of; none where it is whole.

        To search variances by, small tables take more of them, and large ones fewer.
        """
        if self.is_whole:
            return Draws(np.eye(self.width), None, None)
        rng = np.random.default_rng(seed)
        room, most = (MOST_DRAWN, DRAWS) if is_kept else (MOST_SEARCHED, 4 * DRAWS)
        count = int(np.clip(room // max(1, self.slots), FEWEST_DRAWS, most))
        shared = rng.standard_normal((self.width, count)) / np.sqrt(count)
        if self.width <= WIDEST_SOLVED:
            return Draws(shared, None, None)
        of_rows = rng.standard_normal((len(self.client), count)) / np.sqrt(count)
        of_slots = rng.standard_normal((self.slots, count)) / np.sqrt(count)
        return Draws(shared, of_rows, of_slots)

    def covariance(
        self, draws: "Draws", begin: F64, close: float, is_kept: bool = True
    ) -> Covariance:
        """The posterior's covariance, over the noise; between local weights only if it is kept."""
        from fedres.core.compiled import compiled

        shared, of_rows, of_slots = draws
        if of_rows is None or of_slots is None:
            if self.width:
                half = solve_triangular(self.factor[0], np.eye(self.width), lower=True)
                root, variances = half.T @ shared, (half**2).sum(axis=0)
            else:
                root, variances = shared, np.zeros(0)
        else:
            own = np.sqrt(self.ridge_local)[:, None] * of_slots
            nothing = np.zeros((0, shared.shape[1]))
            root_weight = np.sqrt(np.maximum(self.weight, np.finfo(float).tiny))
            right, _ = self.sweep(of_rows / root_weight[:, None], nothing, own)
            right += np.sqrt(self.ridge_global)[:, None] * shared
            root = self.solve(right, begin, close)
            variances = (root**2).sum(axis=1)
        _, across = self.sweep(np.zeros((0, 0)), root, np.zeros((self.slots, root.shape[1])))
        added, own = np.einsum("ij,ij->i", across, across), np.empty(self.slots)
        known = self.rows, self.blocks, self.ridge_local
        compiled(own_variances, allocates=True)(*known, own)
        blocks = np.empty(self.corner[-1] if is_kept else 0, np.float32)
        if is_kept:
            compiled(write_covariances, allocates=True)(*known, self.corner, blocks)
        return Covariance(variances, own + added, added, blocks, root, across)

    def places(self) -> I64:
        """The place of each slot in the block of its client."""
        first = self.rows.first_slot
        return np.asarray(np.arange(self.slots) - np.repeat(first[:-1], np.diff(first)))

    def mean_squares(self) -> F64:
        """Of each group: the mean over rows of the sum of squares of its features."""
        shared, own = self._squares(np.ones(len(self.client)))
        known, count = self.groups.of_global >= 0, len(self.groups.names)
        sums = group_sums(self.groups.of_global[known], shared[known], count)
        return (sums + group_sums(self.group_of_slot, own, count)) / len(self.client)

    def scores(self, w_global: F64, w_local: F64) -> F64:
        """The sums of both models, in the order of clients."""
        from fedres.core.compiled import compiled

        rows, out, run = self.rows, np.zeros(len(self.client)), compiled(add_scores, allocates=True)
        run(rows.begin_global, rows.columns, rows.x_global, w_global, out)
        run(rows.begin_local, rows.slots, rows.x_local, w_local, out)
        return out

    def variances_of_rows(self, side: Covariance, is_known: bool = True) -> F64:
        """Variances of the scores of rows over the noise; of the global part if not `is_known`."""
        from fedres.core.compiled import compiled

        out = np.zeros(len(self.client))
        compiled(row_variances, allocates=True)(
            self.rows,
            self.places().astype(np.int32),
            self.corner,
            self.client if is_known else np.full_like(self.client, -1),
            side.blocks,
            side.root_global,
            side.root_local,
            out,
        )
        return out


def _corners(sizes: I64) -> I64:
    """Where the lower triangle of each of several matrices begins; the last is the end."""
    return np.append(0, np.cumsum(sizes * (sizes + 1) // 2))


def shared_ridges(ridges: F64, weight: float, groups: Groups) -> F64:
    """The ridge of every global feature, given those of groups and the weight of all rows."""
    return np.asarray(np.append(ridges, FREE * weight)[groups.of_global])


def factorised(shared: F64, ridge: F64, diagonal: F64, inside: I64) -> Any:
    """Cholesky's factor of S, of the columns inside, given what all rows add to it."""
    shared[np.diag_indices_from(shared)] += ridge[inside]
    return _factor(shared, diagonal[inside])


def solved(
    factor: Any,
    inside: I64,
    ridge: F64,
    diagonal: F64,
    sent: Callable[[F64], F64],
    right: F64,
    begin: F64,
    close: float,
) -> F64:
    """S^-1 right, a column for each problem: by the factor, or where it is not whole by iteration.

    `sent` is what all rows send up (`Arrow.sweep`) of no targets, given a global model.
    """
    if len(inside) == len(ridge):
        return np.asarray(cho_solve(factor, right)) if len(ridge) else right
    rest = 1 / (diagonal + ridge)[:, None]

    def prepare(x: F64) -> F64:
        ready: F64 = rest * x
        if len(inside):
            ready[inside] = cho_solve(factor, x[inside])
        return ready

    def times(x: F64) -> F64:
        return ridge[:, None] * x - sent(x)

    found: F64 = _conjugate_gradients(times, prepare, right, begin, close)
    return found


def _factor(shared: F64, size: F64) -> Any:
    """Cholesky's factor, with as little added to the diagonal as makes up for lost digits."""
    diagonal = np.diag_indices_from(shared)
    for share in STEADY:
        shared[diagonal] += share * size + np.finfo(float).tiny
        try:
            return cho_factor(shared, lower=True) if len(size) else None
        except np.linalg.LinAlgError:
            continue
    raise ArithmeticError("the columns are so alike that no digits are left to tell them apart")


def places(group: I64) -> I64:
    """The place of each column among those that are factorised, -1 for the others."""
    if len(group) <= WIDEST_SOLVED:
        return np.arange(len(group))
    sizes = np.bincount(group + 1)
    room = np.argsort(sizes, kind="stable")
    narrow = room[np.cumsum(sizes[room]) <= WIDEST_BLOCK]
    inside = np.isin(group + 1, narrow)
    return np.where(inside, np.cumsum(inside) - 1, -1)


def _conjugate_gradients(times: Any, prepare: Any, right: F64, begin: F64, close: float) -> F64:
    """Solve for every column of `right`, from `begin` on, until residuals are `close` to none."""
    x = begin.copy()
    left = right - times(x)
    ready = prepare(left)
    along, gain = ready.copy(), (left * ready).sum(axis=0)
    enough = close**2 * (right * prepare(right)).sum(axis=0)
    for _ in range(200):
        if (gain <= enough).all():
            break
        onward = times(along)
        curve = (along * onward).sum(axis=0)
        length = np.divide(gain, curve, out=np.zeros_like(gain), where=curve > 0)
        x += length * along
        left -= length * onward
        ready = prepare(left)
        last, gain = gain, (left * ready).sum(axis=0)
        along = ready + np.divide(gain, last, out=np.zeros_like(gain), where=last > 0) * along
    return x

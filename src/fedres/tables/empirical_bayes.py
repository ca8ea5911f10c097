"""Both models at once, with as much shrinkage as the rows themselves ask for: ``solver="bayes"``.

    y = offset + w_g . (x_g, 1) + w_i . (x_l, 1) + noise,   a weight ~ N(0, variance of its group)

Groups are the constants of clients, their slopes column by column, each categorical column of the
global side, and its numbers together; the global constant is free. The variances are those under
which the labels are most likely once all weights are integrated out (REML, were numbers as free as
the constant): MacKay's fixed point, where for each group

    variance = |w|^2 / g,    g = sum of 1 - (posterior / prior variance of each weight),

the number of weights that the rows really determine, and the noise is |residuals|^2 over rows less
all g. Local models are eliminated exactly, client by client (`client_blocks`); what is left for the
global model is solved by Cholesky, or by conjugate gradients where it is wide, and its posterior is
known by a root of its covariance, whole where it is narrow, otherwise drawn at random.

Logistic and Poisson losses are approximated by Laplace: squared ones at the present prediction,
weighted by the curvature, with a noise of 1.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import expit, ndtri

from fedres.core.primitives import SMALLEST
from fedres.core.types import F32, F64, I32, I64, Matrix
from fedres.tables.client_blocks import (
    SortedRows,
    add_scores,
    assign_slots,
    condense,
    invert_blocks,
    local_products,
    row_variances,
    sum_squares,
    sweep,
)
from fedres.tables.columns import Category, Column, Number
from fedres.tables.online_models import ModelShape, OnlineModels
from fedres.tables.sgd_tuning import Encoded, of_some_clients

WIDEST_SOLVED = 1500  # columns of the global side that are factorised, not iterated over
WIDEST_BLOCK = 1000  # of those that are, the narrow groups of a side that is wider
WHOLE_ROOT, MOST_WHOLE = 64, 2**20  # columns, and numbers, of a posterior that is kept whole
DRAWS, FEWEST_DRAWS, MOST_DRAWN = 16, 8, 2**22  # of a wider one; numbers that may be kept
MOST_STEPS, CLOSE = 60, 5e-3  # of the fixed point: steps, and the change that ends them
MOST_CELLS, MOST_WORK = 2**27, 1e12  # covariances of local weights; products to find them
MOST_ROWS = 60_000  # tell variances to a few percent, which is enough to predict by
MEMORY = 6  # steps that the next is found from
LONGEST = 3.0  # step of a logarithm
GONE = 0.5  # weights determined: a group with less, and falling, has no variance
FREE = 1e-9  # of the rows' weight: the ridge of the global constant, which steadies it alone
STEADY = (
    1e-11,
    1e-9,
    1e-7,
    1e-5,
    1e-3,
)  # of a column's own square: what differences lose by rounding
NOTHING = 1e-12  # a variance that is none
LEAST_NOISE = 1e-6  # of the labels' variance
LEVELS = np.arange(1, 400) / 400  # whose quantiles of errors are kept
ENOUGH_ERRORS = 200  # fewer are taken to be normal
FARTHEST = 30.0  # logarithm of odds or rates


class Groups(NamedTuple):
    """Which weights share a variance.

    Attributes
    ----------
    names
        Of each group: ``shared`` or ``client``, and the column.
    of_global, of_local
        The group of each feature, the constant's last; that of the global constant is -1.
    """

    names: list[tuple[str, str]]
    of_global: I64
    of_local: I64

    @classmethod
    def of(cls, shared: Sequence[Column] | None, own: Sequence[Column] | None) -> "Groups":
        """Groups of the columns of both sides; None for a side without a model.

        Examples
        --------
        >>> age, sex = Number("age", 0.0, 1.0, False), Number("sex", 0.0, 1.0, False)
        >>> Groups.of([age, sex], [age]).names
        [('shared', 'numbers'), ('client', 'age'), ('client', 'constant')]
        """
        names: list[tuple[str, str]] = []
        sides = []
        for side, columns, alone in (
            ("shared", shared, Category),
            ("client", own, Category | Number),
        ):
            features: list[int] = []
            together = -1
            for column in columns or ():
                if isinstance(column, alone) or together < 0:
                    names.append((side, column.name if isinstance(column, alone) else "numbers"))
                if not isinstance(column, alone) and together < 0:
                    together = len(names) - 1
                group = len(names) - 1 if isinstance(column, alone) else together
                features += [group] * column.width
            sides.append(features)
        of_global, of_local = sides
        of_global += [-1] * (shared is not None)
        if own is not None:
            names.append(("client", "constant"))
            of_local.append(len(names) - 1)
        return cls(names, np.array(of_global, np.int64), np.array(of_local, np.int64))


class Covariance(NamedTuple):
    """The covariance of all weights, over the noise.

    Attributes
    ----------
    global_, local
        Variances of weights; local ones by slot, clients one after the other.
    blocks
        Covariances of each client's weights given the global model: lower triangles.
    root_global, root_local
        R with RR' the covariance of the global model, and of what it makes of local ones.
    """

    global_: F64
    local: F64
    blocks: F64 | F32
    root_global: Any
    root_local: Any


class Solution(NamedTuple):
    """What is known of the weights of one output, in units of the models.

    Attributes
    ----------
    variances
        Of groups and noise.
    w_global, w_local
        Means; local ones by slot, clients one after the other, constants last.
    covariance
        Of all weights, over the noise.
    precisions
        One over the variance of each weight given all others, times the noise: of both sides.
    errors
        Quantiles (`LEVELS`) of what each row's label differs from its prediction without it, in
        units of its standard deviation.
    """

    variances: "Variances"
    w_global: F64
    w_local: F64
    covariance: Covariance
    precisions: tuple[F64, F64]
    errors: F64


class TooWideError(ValueError):
    """Local models of so many columns that their covariances would not fit."""


def working(loss: str, y: F64, score: F64) -> tuple[F64, F64]:
    """Labels and weights of the squared loss that is like this loss near these scores.

    Examples
    --------
    >>> working("logistic", np.array([1.0, -1.0]), np.array([0.0, 0.0]))
    (array([ 2., -2.]), array([0.25, 0.25]))
    """
    if loss == "squared":
        return y, np.ones(len(y))
    score = score.clip(-FARTHEST, FARTHEST)
    mean = expit(score) if loss == "logistic" else np.exp(score)
    weight = np.maximum(mean * (1 - mean) if loss == "logistic" else mean, 1e-6)
    return score + ((y > 0 if loss == "logistic" else y) - mean) / weight, weight


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
    """

    def __init__(self, shape: ModelShape, data: Encoded, groups: Groups, alive: Any = None) -> None:
        from fedres.core.compiled import compiled

        order = np.argsort(data.client, kind="stable")
        client = data.client[order]
        self.order, self.groups = order, groups
        x_global = with_constant(data.x_global[order], len(groups.of_global))
        if alive is not None and not alive.all():
            in_use = np.append(alive, True)[groups.of_global]  # the constant's group is -1
            x_global = only(x_global, np.flatnonzero(in_use))
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
        self.rows = SortedRows(
            x_global.data,
            x_global.indices.astype(np.int32, copy=False),
            x_global.indptr.astype(np.int64),
            x_local.data,
            slots,
            begin_local,
            first_row,
            first_slot,
            np.concatenate([[0], np.cumsum(widths * (widths + 1) // 2)]),
        )
        cells, work = self.rows.first_cell[-1], float((widths.astype(float) ** 3).sum())
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
        self.place = _places(groups.of_global)

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
        from fedres.core.compiled import compiled

        free = FREE * self.weight.sum()
        self.ridge_global = np.append(ridges, free)[self.groups.of_global]
        self.ridge_local = ridges[self.group_of_slot]
        self.blocks = np.empty_like(self.products) if again else self.products
        invert = compiled(invert_blocks, allocates=True)
        invert(self.rows, self.products, self.ridge_local, self.blocks)
        inside = np.flatnonzero(self.place >= 0)
        shared = np.zeros((len(inside), len(inside)))
        mine, seen = np.full(len(inside), -1), np.zeros((self.widest, len(inside)))
        if len(inside):
            run = compiled(condense, allocates=True)
            less = np.zeros_like(shared)
            run(self.rows, self.blocks, self.weight, self.place, shared, mine, seen, less)
        shared[np.diag_indices_from(shared)] += self.ridge_global[inside]
        self.inside, self.factor = inside, _factor(shared, self.diagonal[inside])

    def precisions(self) -> tuple[F64, F64]:
        """The diagonal of the normal equations, of both sides."""
        own = self._squares(self.weight)[1]
        return self.diagonal + self.ridge_global, own + self.ridge_local

    def _squares(self, weight: F64) -> tuple[F64, F64]:
        """The sum over rows of weight times square, of each column and each slot."""
        from fedres.core.compiled import compiled

        rows, (shared, own) = self.rows, (np.zeros(self.width), np.zeros(self.slots))
        run = compiled(sum_squares, allocates=True)
        run(rows.begin_global, rows.columns, rows.x_global, weight, shared)
        run(rows.begin_local, rows.slots, rows.x_local, weight, own)
        return shared, own

    def sweep(self, target: F64, w_global: F64, w_local: F64) -> tuple[F64, F64]:
        """What is left for the global side, and the local models, which replace w_local."""
        from fedres.core.compiled import compiled

        out = np.zeros((self.width, w_global.shape[1]))
        own = np.empty((self.widest, w_global.shape[1]))
        run = compiled(sweep, allocates=True)
        run(self.rows, self.blocks, self.weight, target, w_global, w_local, out, own)
        return out, w_local

    def solve(self, right: F64, begin: F64, close: float) -> F64:
        """S^-1 right, a column for each problem."""
        if len(self.inside) == self.width:
            return np.asarray(cho_solve(self.factor, right)) if self.width else right
        rest = 1 / (self.diagonal + self.ridge_global)[:, None]

        def prepare(x: F64) -> F64:
            ready: F64 = rest * x
            if len(self.inside):
                ready[self.inside] = cho_solve(self.factor, x[self.inside])
            return ready

        def times(x: F64) -> F64:
            out, _ = self.sweep(np.zeros((0, 0)), x, np.zeros((self.slots, x.shape[1])))
            return self.ridge_global[:, None] * x - out

        solved: F64 = _conjugate_gradients(times, prepare, right, begin, close)
        return solved

    def means(self, target: F64, begin: F64, close: float) -> tuple[F64, F64]:
        """The best global model and local models for targets, in the order of clients."""
        nothing = np.zeros((self.width, 1)), np.zeros((self.slots, 1))
        right, _ = self.sweep(target[:, None], *nothing)
        w_global = self.solve(right, begin[:, None], close)
        _, w_local = self.sweep(target[:, None], w_global, nothing[1] * 0)
        return w_global[:, 0], w_local[:, 0]

    def draws(self, seed: int) -> "Draws":
        """Random numbers that a root of the covariance is made of; none where it is whole."""
        if self.width <= WHOLE_ROOT and self.width * self.slots <= MOST_WHOLE:
            return Draws(np.eye(self.width), None, None)
        rng = np.random.default_rng(seed)
        count = int(np.clip(MOST_DRAWN // max(1, self.slots), FEWEST_DRAWS, DRAWS))
        shared = rng.standard_normal((self.width, count)) / np.sqrt(count)
        if self.width <= WIDEST_SOLVED:
            return Draws(shared, None, None)
        of_rows = rng.standard_normal((len(self.client), count)) / np.sqrt(count)
        of_slots = rng.standard_normal((self.slots, count)) / np.sqrt(count)
        return Draws(shared, of_rows, of_slots)

    def covariance(self, draws: "Draws", begin: F64, close: float) -> Covariance:
        """The posterior's covariance, over the noise."""
        shared, of_rows, of_slots = draws
        if of_rows is None or of_slots is None:
            if self.width:
                half = solve_triangular(self.factor[0], np.eye(self.width), lower=True)
                root, variances = half.T @ shared, (half**2).sum(axis=0)
            else:
                root, variances = shared, np.zeros(0)
        else:
            own = np.sqrt(self.ridge_local)[:, None] * of_slots
            nothing = np.zeros((self.width, shared.shape[1]))
            right, _ = self.sweep(of_rows / np.sqrt(self.weight)[:, None], nothing, own)
            right += np.sqrt(self.ridge_global)[:, None] * shared
            root = self.solve(right, begin, close)
            variances = (root**2).sum(axis=1)
        _, across = self.sweep(np.zeros((0, 0)), root, np.zeros((self.slots, root.shape[1])))
        place = np.arange(self.slots) - np.repeat(
            self.rows.first_slot[:-1], np.diff(self.rows.first_slot)
        )
        corner = np.repeat(self.rows.first_cell[:-1], np.diff(self.rows.first_slot))
        own = self.blocks[corner + place * (place + 3) // 2]
        own += np.einsum("ij,ij->i", across, across)
        return Covariance(variances, own, self.blocks, root, across)

    def mean_squares(self) -> F64:
        """Of each group: the mean over rows of the sum of squares of its features."""
        shared, own = self._squares(np.ones(len(self.client)))
        known, count = self.groups.of_global >= 0, len(self.groups.names)
        sums = _sums(self.groups.of_global[known], shared[known], count)
        return (sums + _sums(self.group_of_slot, own, count)) / len(self.client)

    def scores(self, w_global: F64, w_local: F64) -> F64:
        """The sums of both models, in the order of clients."""
        from fedres.core.compiled import compiled

        rows, out, run = self.rows, np.zeros(len(self.client)), compiled(add_scores, allocates=True)
        run(rows.begin_global, rows.columns, rows.x_global, w_global, out)
        run(rows.begin_local, rows.slots, rows.x_local, w_local, out)
        return out

    def variances_of_rows(self, side: Covariance) -> F64:
        """The posterior variance of every row's score, over the noise."""
        from fedres.core.compiled import compiled

        out = np.zeros(len(self.client))
        compiled(row_variances, allocates=True)(
            self.rows,
            self.client,
            side.blocks,
            side.root_global,
            side.root_local,
            out,
        )
        return out


class Draws(NamedTuple):
    """Standard normal numbers for each global feature, row and slot, over the root of how many."""

    shared: F64
    of_rows: F64 | None
    of_slots: F64 | None


class Variances(NamedTuple):
    """Of all groups, and of the noise; how many weights of each group the rows determine."""

    of_groups: F64
    noise: float
    determined: F64


class Labels(NamedTuple):
    """Labels of one output, offsets and weights of rows, in the order of an `Arrow`."""

    loss: str
    y: F64
    offset: F64
    weight: F64

    def working(self, score: F64) -> tuple[F64, F64]:
        """Targets and weights of the squared loss near these scores."""
        target, weight = working(self.loss, self.y, score + self.offset)
        return target - self.offset, weight * self.weight


def find_variances(
    shape: ModelShape,
    data: Encoded,
    groups: Groups,
    k: int,
    seed: int,
    close: float = CLOSE,
    begin: Variances | None = None,
) -> Variances:
    """The variances under which the labels of output k are most likely.

    The search goes on from `begin`, if given; groups without a variance there stay without.
    """
    arrow = Arrow(shape, data, groups, None if begin is None else begin.of_groups > 0)
    labels, draws = labels_of(shape, data, arrow, k), arrow.draws(seed)
    alive, squared = arrow.alive.copy(), labels.loss == "squared"
    if begin is None:
        share = 0.5 / max(1, alive.sum())
        logs, noise = -np.log(np.maximum(arrow.mean_squares() / share, 1)), 0.5
    else:
        logs, noise = np.log(np.maximum(begin.of_groups, NOTHING)), begin.noise
        alive &= begin.of_groups > 0
    noise = noise if squared else 1.0
    score, w_global, root = np.zeros(len(labels.y)), np.zeros(arrow.width), draws.shared * 0
    path: deque[tuple[F64, F64]] = deque(maxlen=MEMORY)
    for step in range(MOST_STEPS):
        target, weight = labels.working(score)
        if not squared or not step:
            arrow.weigh(weight)
        arrow.set_ridges(noise / np.where(alive, np.exp(logs), NOTHING), again=squared)
        w_global, w_local = arrow.means(target, w_global, 1e-3)
        found = arrow.covariance(draws, root, 1e-2)
        root = found.root_global
        determined, squares = _by_group(arrow, w_global, w_local, found)
        last, score = score, toward(score, arrow.scores(w_global, w_local), squared)
        if squared:
            free = determined[alive].sum() + (groups.of_global < 0).sum()
            rest = float(weight @ (target - score) ** 2)
            noise = max(rest / max(weight.sum() - free, 1e-3 * weight.sum()), LEAST_NOISE)
        with np.errstate(divide="ignore", invalid="ignore"):
            pull = np.log(squares / determined) - logs
        pull = np.where(np.isfinite(pull), pull, -LONGEST).clip(-LONGEST, LONGEST)
        gone = alive & (determined < GONE) & (pull < 0)
        alive &= ~gone
        if gone.any():
            path.clear()
            if _idle(arrow, alive):
                arrow = Arrow(shape, data, groups, alive)
                draws = arrow.draws(seed)
                arrow.weigh(weight)
        path.append((logs, np.where(alive, pull, 0.0)))
        # A variance matters as much as what it adds to the labels.
        parts = np.where(alive, np.exp(logs) * arrow.mean_squares(), 0.0)
        change = np.abs(pull) * np.sqrt(parts / (parts.sum() + noise))
        logs = (logs + _accelerated(path)).clip(np.log(NOTHING), np.log(1e6))
        still = squared or np.abs(score - last).max() < 10 * close
        if change[alive].max(initial=0) < close and still:
            break
    return Variances(np.where(alive, np.exp(logs), 0.0), noise, np.where(alive, determined, 0.0))


def toward(score: F64, new: F64, squared: bool) -> F64:
    """Where the loss is approximated next: not so far away that Newton's steps overshoot."""
    return new if squared else score + (new - score).clip(-2, 2)


def _idle(arrow: Arrow, alive: Any) -> bool:
    """Whether so many local weights have no variance any more that they are better left out."""
    weights = np.bincount(arrow.group_of_slot, minlength=len(alive))
    return bool(weights[~alive].sum() > 0.2 * weights.sum())


def _accelerated(path: Sequence[tuple[F64, F64]]) -> F64:
    """Anderson's step: to where the steps so far, as a plane, would be zero.

    A group that falls no more slowly than before is on its way to no variance at all, and falls
    faster.
    """
    (x, step), *before = list(path)[::-1]
    if not before:
        return step
    moved = np.stack([x - one for one, _ in before], axis=1)
    turned = np.stack([step - one for _, one in before], axis=1)
    share = np.linalg.lstsq(turned, step, rcond=1e-6)[0]
    onward = step - (moved + turned) @ share
    falls = (step < 0) & (moved[:, 0] < 0) & (turned[:, 0] <= -0.1 * step)
    onward[falls] = np.minimum(onward, 4 * step)[falls]
    # Where noise in the differences sends a step astray, the plain one is taken.
    onward = np.where(np.abs(onward) > LONGEST, step, onward)
    return np.asarray(onward.clip(-LONGEST, LONGEST))


def _sums(group: I64 | I32, values: F64 | F32, count: int) -> F64:
    return np.asarray(np.bincount(group, values, count), np.float64)


def _by_group(arrow: Arrow, w_global: F64, w_local: F64, side: Covariance) -> tuple[F64, F64]:
    """How many weights of each group the rows determine, and the sum of squares of all."""
    count = len(arrow.groups.names)
    shared = arrow.groups.of_global >= 0
    group = np.concatenate([arrow.groups.of_global[shared], arrow.group_of_slot])
    ridge = np.concatenate([arrow.ridge_global[shared], arrow.ridge_local])
    variance = np.concatenate([side.global_[shared], side.local])
    w = np.concatenate([w_global[shared], w_local])
    known = (1 - ridge * variance).clip(0, 1)
    return _sums(group, known, count), _sums(group, w**2, count)


def solve_for(arrow: Arrow, labels: Labels, variances: Variances, seed: int) -> Solution:
    """The posterior of all weights under these variances."""
    squared, score = labels.loss == "squared", np.zeros(len(labels.y))
    ridges = variances.noise / np.maximum(variances.of_groups, NOTHING)
    w_global = np.zeros(arrow.width)
    for _ in range(1 if squared else MOST_STEPS):
        target, weight = labels.working(score)
        arrow.weigh(weight)
        arrow.set_ridges(ridges)
        w_global, w_local = arrow.means(target, w_global, 1e-5)
        last, score = score, toward(score, arrow.scores(w_global, w_local), squared)
        if np.abs(score - last).max(initial=0) < 1e-5:
            break
    draws = arrow.draws(seed)
    side = arrow.covariance(draws, np.zeros_like(draws.shared), 1e-2)
    # Half the digits are enough to predict by, and the rest is no longer needed.
    names = ("blocks", "root_global", "root_local")
    side = side._replace(**{name: getattr(side, name).astype(np.float32) for name in names})
    arrow.blocks = arrow.products = np.zeros(0)
    errors = _errors(arrow, labels, side, score, variances.noise)
    return Solution(variances, w_global, w_local, side, arrow.precisions(), errors)


def _errors(arrow: Arrow, labels: Labels, found: Covariance, score: F64, noise: float) -> F64:
    """Quantiles of standardised errors of each row's prediction had it not been learned from."""
    target, weight = labels.working(score)
    leverage = (weight * arrow.variances_of_rows(found)).clip(0, 1 - 1e-6)
    errors = (target - score) * np.sqrt(weight / noise / (1 - leverage))
    if labels.loss != "squared" or len(errors) < ENOUGH_ERRORS:
        return np.asarray(ndtri(LEVELS))
    return np.asarray(np.quantile(errors, LEVELS))


def train(
    shape: ModelShape, data: Encoded, groups: Groups, rng: Any
) -> tuple[Arrow, list[Solution]]:
    """Find variances, on some clients if rows are many, and the posterior given all rows."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    part, seed = data, int(rng.randint(2**31))
    if len(data.client) > MOST_ROWS:
        part = data.only(of_some_clients(data.client, rng, MOST_ROWS))
        part = part._replace(client=np.unique(part.client, return_inverse=True)[1])
    # One thread: what is found does not depend on the number of cores.
    with threadpool_limits(1, "blas"):
        outputs = range(len(data.y))
        variances = [find_variances(shape, part, groups, k, seed) for k in outputs]
        alive = np.any([one.of_groups > 0 for one in variances], axis=0)
        arrow = Arrow(shape, data, groups, alive)
        return arrow, [
            solve_for(arrow, labels_of(shape, data, arrow, k), variances[k], seed) for k in outputs
        ]


def models_of(shape: ModelShape, arrow: Arrow, found: list[Solution]) -> OnlineModels:
    """The means as models that predict, and that go on learning from there.

    The sums of squares begin where the next adaptive step of each weight is that of Bayes for it
    alone, all others being known.
    """
    slope = 2 if shape.loss == "squared" else 1

    def squares(precisions: Any) -> F32:
        return np.asarray((slope * shape.eta * np.asarray(precisions)) ** 2, np.float32)

    w_global = np.stack([one.w_global for one in found]).astype(np.float32)
    shared = np.stack([squares(one.precisions[0]) for one in found])
    if not w_global.shape[1]:  # a side without a model has room for one number
        w_global, shared = (np.zeros((len(found), 1), np.float32) for _ in range(2))
    first = found[0].variances
    prior = max(float(first.of_groups[-1]) if len(first.of_groups) else 0.0, NOTHING)
    return OnlineModels.unpack(
        shape._replace(shrinkage=float(squares(first.noise / prior))),
        {"weights": w_global, "squares": np.maximum(shared, SMALLEST)},
        {
            "start": arrow.rows.first_slot,
            "columns": arrow.columns,
            "weights": np.stack([one.w_local for one in found], axis=1).astype(np.float32),
            "squares": np.stack([squares(one.precisions[1]) for one in found], axis=1),
        },
    )


def labels_of(shape: ModelShape, data: Encoded, arrow: Arrow, k: int) -> Labels:
    """The labels of output k, in the order of an arrow."""
    rows = len(data.client)
    offset = np.zeros(rows) if data.offset is None else data.offset
    weight = np.ones(rows) if data.weight is None else data.weight
    y = data.y[k].astype(np.float64)
    return Labels(shape.loss, y[arrow.order], offset[arrow.order], weight[arrow.order])


def varying(x: Matrix, client: I64, group: I64) -> I64:
    """Those columns of groups that vary within some client: others are of no use to local models.

    Examples
    --------
    >>> x = np.float32([[1, 5], [2, 5], [3, 6], [3, 6]])
    >>> varying(x, np.array([0, 0, 1, 1]), np.array([0, 1, 2]))
    array([0])
    """
    if not len(group):
        return np.zeros(0, np.int64)
    counts = np.bincount(client)
    if sparse.issparse(x):
        member = sparse.csr_array((1 / np.sqrt(counts)[client], (client, range(len(client)))))
        values = x.data.astype(np.float64)
        sums = member @ sparse.csr_array((values, x.indices, x.indptr), x.shape)
        between = sums.power(2).sum(axis=0)
        values *= values
        squares = _sums(x.indices, values, x.shape[1])
    else:
        between, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for j in range(x.shape[1]):
            column = x[:, j].astype(np.float64)
            between[j] = (_sums(client, column, len(counts)) ** 2 / np.maximum(counts, 1)).sum()
            squares[j] = (column**2).sum()
    within = squares - between > 1e-6 * squares
    return np.flatnonzero(np.isin(group[:-1], group[:-1][within]))


def only(x: Matrix, columns: I64, order: I64 | slice = slice(None)) -> Matrix:
    """These columns of x, all others empty, and its rows in this order."""
    if sparse.issparse(x):
        x = x[order]
        wanted = np.zeros(x.shape[1], bool)
        wanted[columns] = True
        keep = wanted[x.indices] & (x.data != 0)
        begin = np.append(0, np.cumsum(keep))[x.indptr]
        return sparse.csr_array((x.data[keep], x.indices[keep], begin), x.shape)
    n, width = len(x), len(columns)
    values = np.empty((n, width), x.dtype)
    for j, column in enumerate(columns):
        values[:, j] = x[order, column]
    numbers = np.tile(columns.astype(np.int32), n)
    return sparse.csr_array((values.ravel(), numbers, np.arange(n + 1) * width), x.shape)


def as_csr(x: Matrix) -> sparse.csr_array:
    """The same, without the detour over 64-bit numbers of rows and columns that scipy takes."""
    if sparse.issparse(x):
        return sparse.csr_array(x)
    there = x != 0
    columns = np.broadcast_to(np.arange(x.shape[1], dtype=np.int32), x.shape)[there]
    begin = np.append(0, np.cumsum(there.sum(axis=1)))
    return sparse.csr_array((x[there], columns, begin), x.shape)


def with_constant(x: Matrix, size: int) -> sparse.csr_array:
    """Rows with their constant, so many features; none where there is no model."""
    if not size:
        return sparse.csr_array((x.shape[0], 0), dtype=np.float32)
    x = as_csr(x)
    begin = x.indptr + np.arange(len(x.indptr), dtype=np.int64)
    is_feature = np.ones(begin[-1], bool)
    is_feature[begin[1:] - 1] = False
    values = np.ones(begin[-1], np.float32)
    columns = np.full(begin[-1], size - 1, np.int32)
    values[is_feature], columns[is_feature] = x.data, x.indices
    return sparse.csr_array((values, columns, begin), (x.shape[0], size))


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


def _places(group: I64) -> I64:
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

"""Tastes: factors of items that all clients share, and of clients, which each has for itself.

    y = both models + u_i . v_j + noise,    u_i ~ N(0, strength * noise / factors),    v_j ~ N(0, 1)

With the factors v of items known they are so many local features more, and u are weights like any
others (`empirical_bayes`). With u known, v is found item by item in the same way. Neither is known:
so each side is found given the mean *and* the covariance of the other, in turns (variational
Bayes). With means alone an item of few rows would have factors that explain their noise, and
clients would believe them.

Variances are those of the models without tastes. Rows left out tell the strength, whether tastes
pay at all, and the noise.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import ndtri

from fedres.core.types import F32, F64, I64, Matrix
from fedres.tables.arrow import Arrow
from fedres.tables.client_blocks import find_blocks
from fedres.tables.empirical_bayes import (
    ENOUGH_ERRORS,
    LEVELS,
    NOTHING,
    OutputLabels,
    Solution,
    Variances,
    find_all_variances,
    labels_of,
    row_losses,
    solve_all,
    solve_for,
    toward,
)
from fedres.tables.online_models import ModelShape
from fedres.tables.sgd_tuning import Encoded, of_some_clients, split_for_tuning
from fedres.tables.taste_blocks import add_spreads, sum_by_item
from fedres.tables.weight_groups import Groups

STRENGTH, STEP, MOST_STEPS = 0.1, 3.0, 3  # the first that is tried, and factors up or down from it
TURNS, MORE_TURNS = 16, 4  # from a random start, and from factors that are known
MOST_ROWS = 100_000  # tell the strength
CORRECTIONS = 2  # of the noise
FEWEST_HELD = 20  # rows left out, to tell it by
ROUGHLY = 1e-2  # error of weights between turns, which the next turn makes good


class Factors(NamedTuple):
    """Means of items' factors, (items, factors), and lower triangles of covariances."""

    mean: F64
    spread: F64

    @classmethod
    def start(cls, items: int, size: int, rng: Any) -> "Factors":
        """At random, as the prior has them."""
        a, b = np.tril_indices(size)
        return cls(rng.normal(size=(items, size)), np.tile((a == b).astype(float), (items, 1)))

    def turned(self, rows: I64) -> "Factors":
        """The same, in axes that are sorted by how much of these rows' scores they explain."""
        size = self.mean.shape[1]
        count = np.bincount(rows, minlength=len(self.mean))
        axes = np.linalg.eigh((self.mean.T * count) @ self.mean)[1][:, ::-1]
        whole = axes.T @ squares(self.spread, size) @ axes
        a, b = np.tril_indices(size)
        return Factors(self.mean @ axes, whole[:, a, b])


def squares(triangles: F64, size: int) -> F64:
    """Symmetric matrices, of which lower triangles are given.

    Examples
    --------
    >>> squares(np.array([[1.0, 2.0, 3.0]]), 2).tolist()
    [[[1.0, 2.0], [2.0, 3.0]]]
    """
    whole = np.empty((len(triangles), size, size))
    a, b = np.tril_indices(size)
    whole[:, a, b] = whole[:, b, a] = triangles
    return whole


class Items(NamedTuple):
    """Items of rows.

    Attributes
    ----------
    of_rows
        The feature that stands for each row's item.
    width
        How many features the column of items has.
    factors
        How many factors each is to have.
    """

    of_rows: I64
    width: int
    factors: int


class TasteArrow(Arrow):
    """An arrow whose last local features before the constant are factors of items.

    Blocks have what is not known of these factors, which rows do not tell.
    """

    takes_rows = False

    def __init__(
        self,
        shape: ModelShape,
        data: Encoded,
        groups: Groups,
        alive: Any,
        item: I64,
        factors: Factors,
    ) -> None:
        super().__init__(shape, data, groups, alive)
        self.item = item[self.order]
        self.take(factors)

    def take(self, factors: Factors) -> None:
        """Let rows have these factors."""
        self.factors, rows = factors, self.rows
        size = factors.mean.shape[1]
        at = rows.begin_local[1:, None] - 1 - size + np.arange(size)
        rows.x_local[at] = factors.mean[self.item]

    def weigh(self, weight: F64) -> None:
        """Take weights of rows, in the order of clients."""
        from fedres.core.compiled import compiled

        super().weigh(weight)
        size = self.factors.mean.shape[1]
        run = compiled(add_spreads)
        run(self.rows, self.item, weight, self.factors.spread, size, self.products)

    def fit_items(self, left: F64, w_local: F64, noise: float) -> Factors:
        """Factors of items, given clients' weights and what all scores leave of targets."""
        from fedres.core.compiled import compiled

        items, size = self.factors.mean.shape
        products, sums = np.zeros_like(self.factors.spread), np.zeros((items, size))
        rows, spread = self.rows, np.empty(products.size)
        parts = rows, self.item, self.weight, left, w_local, self.blocks, noise
        compiled(sum_by_item)(*parts, products, sums)
        first = np.arange(items + 1)
        blocks = rows._replace(first_slot=first * size, first_cell=first * products.shape[1])
        ones = np.ones(items * size)  # one over the prior's variance
        find = compiled(find_blocks, allocates=True)
        find(blocks, products.ravel(), self.weight, ones, spread)
        triangles = spread.reshape(products.shape)
        return Factors(np.einsum("jab,jb->ja", squares(triangles, size), sums), triangles)


class Turns:
    """Both sides in turns, on kept rows only; `strength` may change between turns."""

    def __init__(
        self, arrow: TasteArrow, labels: OutputLabels, variances: Variances, kept: F64
    ) -> None:
        self.arrow, self.labels, self.kept = arrow, labels, kept
        self.variances = variances  # without tastes
        self.w_global, self.w_local = np.zeros(arrow.width), np.zeros(arrow.slots)
        self.score = np.zeros(len(labels.y))

    def take(self, strength: float, turns: int) -> None:
        """So many turns, which end with clients' weights; items need strength to move."""
        arrow, noise = self.arrow, self.variances.noise
        size = arrow.factors.mean.shape[1]
        known = with_tastes(self.variances, strength, size, arrow.groups)
        ridges = noise / np.maximum(known.of_groups, NOTHING)
        squared = self.labels.loss == "squared"
        for turn in range(turns):
            target, weight = self.labels.working(self.score)
            if turn and strength > NOTHING:
                arrow.take(arrow.fit_items(target - self.score, self.w_local, noise))
            arrow.weigh(weight * self.kept)
            arrow.set_ridges(ridges)
            self.w_global, self.w_local = arrow.means(target, self.w_global, ROUGHLY)
            new = arrow.scores(self.w_global, self.w_local)
            self.score = toward(self.score, new, squared)

    def losses(self) -> F64:
        """The losses of rows that are not kept."""
        return np.asarray(row_losses(self.labels, self.score)[self.kept == 0])

    def errors(self, seed: int) -> F64:
        """Errors of rows that are not kept, in units of their standard deviation."""
        arrow, labels, held = self.arrow, self.labels, self.kept == 0
        draws = arrow.draws(seed)
        side = arrow.covariance(draws, np.zeros_like(draws.shared), ROUGHLY)
        spread = self.variances.noise * (1 / labels.weight + arrow.variances_of_rows(side))
        return np.asarray(((labels.y - labels.offset - self.score) / np.sqrt(spread))[held])


def with_tastes(variances: Variances, strength: float, size: int, groups: Groups) -> Variances:
    """The same variances, and that of clients' factors, which come before their constant.

    Examples
    --------
    >>> names = [("client", "taste"), ("client", "constant")]
    >>> known = Variances(np.array([3.0]), 4.0, np.zeros(1))
    >>> with_tastes(known, 0.5, 2, Groups(names, np.zeros(0, int), np.arange(2))).of_groups
    array([1., 3.])
    """
    at = groups.of_local[-1] - 1
    tastes = strength * variances.noise / size
    return variances._replace(
        of_groups=np.insert(variances.of_groups, at, tastes),
        determined=np.insert(variances.determined, at, 0.0),
    )


class Choice(NamedTuple):
    """What rows left out say of tastes.

    Attributes
    ----------
    strength
        The best; 0 if tastes do not pay.
    factors, variances
        What was found with it; the noise is smaller than without tastes.
    errors
        Quantiles of errors: see `empirical_bayes.Solution`.
    losses
        Mean losses by strength; 0 is without tastes.
    """

    strength: float
    factors: Factors
    variances: Variances
    errors: F64
    losses: dict[float, float]


def choose_strength(turns: Turns, seed: int) -> Choice:
    """Try all strengths."""
    arrow, squared = turns.arrow, turns.labels.loss == "squared"
    normal = ndtri(LEVELS)
    if not (turns.kept == 0).sum() >= FEWEST_HELD:
        return Choice(0.0, arrow.factors, turns.variances, normal, {})
    turns.take(NOTHING, 1 if squared else MORE_TURNS)
    losses, factors = {0.0: turns.losses()}, {0.0: arrow.factors}
    weight = turns.labels.working(turns.score)[1] / turns.labels.weight
    begin = STRENGTH / float(weight.mean())  # as the noise of other losses is larger than 1

    def attempt(strength: float, turns_: int) -> float:
        turns.take(strength, turns_)
        losses[strength], factors[strength] = turns.losses(), arrow.factors
        return float(losses[strength].mean())

    least = attempt(begin, TURNS)
    for step in (STEP, 1 / STEP):
        strength = begin
        for _ in range(MOST_STEPS):
            strength *= step
            if (loss := attempt(strength, MORE_TURNS)) >= least:
                break
            least = loss
        if strength != begin * step:  # that was the right direction
            break
        arrow.take(factors[begin])
    means = {strength: float(loss.mean()) for strength, loss in losses.items()}
    best = min(means, key=means.__getitem__)
    gain = losses[0.0] - losses[best]
    if not gain.mean() > gain.std() / np.sqrt(len(gain)):
        return Choice(0.0, arrow.factors, turns.variances, normal, means)
    arrow.take(factors[best])
    turns.take(best, 1)
    if not squared:
        return Choice(best, factors[best], turns.variances, normal, means)
    for _ in range(CORRECTIONS):
        scale = float((turns.errors(seed) ** 2).mean())
        best, noise = best / scale, scale * turns.variances.noise  # tastes vary as before
        turns.variances = turns.variances._replace(noise=noise)
        turns.take(best, MORE_TURNS)
    errors = turns.errors(seed)
    if len(errors) >= ENOUGH_ERRORS:
        normal = np.quantile(errors, LEVELS)
    return Choice(best, arrow.factors, turns.variances, normal, means)


class TasteOutcome(NamedTuple):
    """What training found.

    Attributes
    ----------
    arrow, found
        As `empirical_bayes.train` gives them.
    factors
        Of items, (features of their column, factors); none of them where tastes do not pay.
    losses
        Mean losses on rows left out, by strength; 0 is without tastes.
    """

    arrow: Arrow
    found: list[Solution]
    factors: F32
    losses: dict[float, float]


def train_tastes(
    shape: ModelShape,
    data: Encoded,
    groups: tuple[Groups, Groups],
    items: Items,
    rng: Any,
) -> TasteOutcome:
    """Find variances, factors of items and the posterior given all rows, of one output.

    Parameters
    ----------
    shape, data
        As for `empirical_bayes.train`, without tastes.
    groups
        Without tastes and with them.
    items
        The items of rows.
    rng
        Decides where factors begin, and which rows are left out.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    seed, without, size = int(rng.randint(2**31)), groups[0], items.factors
    known, item = np.unique(items.of_rows, return_inverse=True)
    start = Factors.start(len(known), size, rng)
    with threadpool_limits(1, "blas"):
        variances = find_all_variances(shape, data, without, seed, rng)[0]

        def turns(rows: Any, factors: Factors, held: Any) -> Turns:
            part = data if rows is None else data.of_clients(rows)
            mine = item if rows is None else item[rows]
            wider = shape._replace(width_local=(shape.width_local or 0) + size)
            part = part._replace(x_local=beside(part.x_local, start.mean[mine]))
            alive = with_tastes(variances, 1.0, size, groups[1]).of_groups > 0
            arrow = TasteArrow(wider, part, groups[1], alive, mine, factors)
            kept = (~np.isin(arrow.order, held)).astype(np.float64)
            return Turns(arrow, labels_of(shape, part, arrow, 0), variances, kept)

        rows = None
        if len(item) > MOST_ROWS:
            rows = of_some_clients(data.client, rng, MOST_ROWS)
        held = split_for_tuning(data.client if rows is None else data.client[rows], rng)[1]
        choice = choose_strength(turns(rows, start, held), seed)
        if not choice.strength:
            arrow, found = solve_all(shape, data, without, [variances], seed)
            return TasteOutcome(arrow, found, np.zeros((items.width, 0), np.float32), choice.losses)
        variances = choice.variances
        last = turns(None, choice.factors, [])
        last.take(choice.strength, MORE_TURNS if rows is None else TURNS)
        last.arrow.take(last.arrow.factors.turned(item))
        variances = with_tastes(variances, choice.strength, size, groups[1])
        one = solve_for(last.arrow, last.labels, variances, seed)
        # Factors follow the rows they were learned from, whose errors are therefore too small.
        clients = len(np.unique(data.client))
        new = one.errors[1] if clients >= ENOUGH_ERRORS else choice.errors
        found = [one._replace(errors=np.stack([choice.errors, new]))]
    factors = np.zeros((items.width, size), np.float32)
    factors[known] = last.arrow.factors.mean
    return TasteOutcome(last.arrow, found, factors, choice.losses)


def beside(x: Matrix, factors: F64) -> Matrix:
    """Local features, and factors after them."""
    more = factors.astype(np.float32)
    if not sparse.issparse(x):
        return np.hstack([x, more])
    return sparse.hstack([x, sparse.csr_array(more)], format="csr")

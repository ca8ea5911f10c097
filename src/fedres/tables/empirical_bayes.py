"""Both models at once, with as much shrinkage as the rows themselves ask for: ``solver="bayes"``.

    y = offset + w_g . (x_g, 1) + w_i . (x_l, 1) + noise,   a weight ~ N(0, variance of its group)

Groups are the constants of clients, their slopes column by column, each categorical column of the
global side, and its numbers together; the global constant is free. The variances are those under
which the labels are most likely once all weights are integrated out (REML, were numbers as free as
the constant): MacKay's fixed point, where for each group

    variance = |w|^2 / g,    g = sum of 1 - (posterior / prior variance of each weight),

the number of weights that the rows really determine, and the noise is |residuals|^2 over rows less
all g. `arrow` solves for all weights and their covariances.

Logistic and Poisson losses are approximated by Laplace: squared ones at the present prediction,
weighted by the curvature, with a noise of 1.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from fedres.core.primitives import SMALLEST
from fedres.core.types import F64
from fedres.tables.arrow import Arrow, Covariance
from fedres.tables.client_blocks import add_variances
from fedres.tables.online_models import ModelShape, OnlineModels
from fedres.tables.sgd_tuning import Encoded, of_some_clients
from fedres.tables.weight_groups import Groups, group_sums

MOST_STEPS, CLOSE = 60, 5e-3  # of the fixed point: steps, and the change that ends them
MOST_ROWS = 60_000  # tell variances to a few percent, which is enough to predict by
NEAR_MEANS, NEAR_DRAWS = 1e-3, 1e-2  # errors of weights and of draws between steps
MEMORY = 6  # steps that the next is found from
LONGEST = 3.0  # step of a logarithm
GONE = 0.5  # weights determined: a group with less, and falling, has no variance
NOTHING = 1e-12  # a variance that is none
LEAST_NOISE = 1e-6  # of the labels' variance
LEVELS = np.arange(1, 400) / 400  # whose quantiles of errors are kept
ENOUGH_ERRORS = 200  # fewer are taken to be normal
FARTHEST = 30.0  # logarithm of odds or rates


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
    errors
        Quantiles (`LEVELS`) of what each row's label differs from its prediction without it, and
        without its client, in units of its standard deviation: (2, levels).
    """

    variances: "Variances"
    w_global: F64
    w_local: F64
    covariance: Covariance
    errors: F64


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


class Variances(NamedTuple):
    """Of all groups, and of the noise; how many weights of each group the rows determine."""

    of_groups: F64
    noise: float
    determined: F64


class OutputLabels(NamedTuple):
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
    labels, draws = labels_of(shape, data, arrow, k), arrow.draws(seed, is_kept=False)
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
        w_global, w_local = arrow.means(target, w_global, NEAR_MEANS)
        found = arrow.covariance(draws, root, NEAR_DRAWS, is_kept=False)
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
                draws = arrow.draws(seed, is_kept=False)
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


def _by_group(arrow: Arrow, w_global: F64, w_local: F64, side: Covariance) -> tuple[F64, F64]:
    """How many weights of each group the rows determine, and the sum of squares of all."""
    count = len(arrow.groups.names)
    shared = arrow.groups.of_global >= 0
    group = np.concatenate([arrow.groups.of_global[shared], arrow.group_of_slot])
    ridge = np.concatenate([arrow.ridge_global[shared], arrow.ridge_local])
    variance = np.concatenate([side.global_[shared], side.local])
    w = np.concatenate([w_global[shared], w_local])
    # Drawn variances scatter, and single ones may well be above the prior's: sums are unbiased.
    known = group_sums(group, 1 - ridge * variance, count)
    return known.clip(0, group_sums(group, np.ones_like(w), count)), group_sums(group, w**2, count)


def solve_for(arrow: Arrow, labels: OutputLabels, variances: Variances, seed: int) -> Solution:
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
    names = ("root_global", "root_local")
    side = side._replace(**{name: getattr(side, name).astype(np.float32) for name in names})
    arrow.blocks = arrow.products = np.zeros(0)
    errors = _errors(arrow, labels, side, score, w_global, variances)
    return Solution(variances, w_global, w_local, side, errors)


def _errors(
    arrow: Arrow,
    labels: OutputLabels,
    found: Covariance,
    score: F64,
    w_global: F64,
    variances: Variances,
) -> F64:
    """Quantiles of standardised errors of each row's prediction had it not been learned from.

    The second ones are those of rows whose client is not known, which are spread otherwise: as the
    clients are, and not as the noise. A single client hardly moves the global model.
    """
    target, weight = labels.working(score)
    if labels.loss != "squared" or len(target) < ENOUGH_ERRORS:
        return np.stack([ndtri(LEVELS)] * 2)
    noise = variances.noise
    leverage = (weight * arrow.variances_of_rows(found)).clip(0, 1 - 1e-6)
    known = np.quantile((target - score) * np.sqrt(weight / noise / (1 - leverage)), LEVELS)
    if len(np.unique(arrow.client)) < ENOUGH_ERRORS:
        return np.stack([known, known])
    from fedres.core.compiled import compiled

    spread = 1 / weight + arrow.variances_of_rows(found, is_known=False)
    rows, of_slot = arrow.rows, variances.of_groups[arrow.group_of_slot] / noise
    run = compiled(add_variances, allocates=True)
    run(rows.begin_local, rows.slots, rows.x_local, of_slot, spread)
    left = target - arrow.scores(w_global, np.zeros(arrow.slots))
    return np.stack([known, np.quantile(left / np.sqrt(noise * spread), LEVELS)])


def find_all_variances(
    shape: ModelShape, data: Encoded, groups: Groups, seed: int, rng: Any
) -> list[Variances]:
    """The variances for every output, told by some clients if rows are many."""
    if len(data.client) > MOST_ROWS:
        data = data.of_clients(of_some_clients(data.client, rng, MOST_ROWS))
    return [find_variances(shape, data, groups, k, seed) for k in range(len(data.y))]


def train(
    shape: ModelShape, data: Encoded, groups: Groups, rng: Any
) -> tuple[Arrow, list[Solution]]:
    """Find variances, and the posterior given all rows."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    seed = int(rng.randint(2**31))
    # One thread: what is found does not depend on the number of cores.
    with threadpool_limits(1, "blas"):
        variances = find_all_variances(shape, data, groups, seed, rng)
        return solve_all(shape, data, groups, variances, seed)


def solve_all(
    shape: ModelShape, data: Encoded, groups: Groups, variances: list[Variances], seed: int
) -> tuple[Arrow, list[Solution]]:
    """The posterior of every output, given all rows."""
    alive = np.any([one.of_groups > 0 for one in variances], axis=0)
    arrow = Arrow(shape, data, groups, alive)
    return arrow, [
        solve_for(arrow, labels_of(shape, data, arrow, k), one, seed)
        for k, one in enumerate(variances)
    ]


def models_of(shape: ModelShape, arrow: Arrow, found: list[Solution]) -> OnlineModels:
    """The means as models that predict."""
    w_global = np.stack([one.w_global for one in found]).astype(np.float32)
    w_local = np.stack([one.w_local for one in found], axis=1).astype(np.float32)
    if not w_global.shape[1]:  # a side without a model has room for one number
        w_global = np.zeros((len(found), 1), np.float32)
    return OnlineModels.unpack(
        shape,
        {"weights": w_global, "squares": np.full_like(w_global, SMALLEST)},
        {
            "start": arrow.rows.first_slot,
            "columns": arrow.columns,
            "weights": w_local,
            "squares": np.full_like(w_local, SMALLEST),
        },
    )


def labels_of(shape: ModelShape, data: Encoded, arrow: Arrow, k: int) -> OutputLabels:
    """The labels of output k, in the order of an arrow."""
    rows = len(data.client)
    offset = np.zeros(rows) if data.offset is None else data.offset
    weight = np.ones(rows) if data.weight is None else data.weight
    y = data.y[k].astype(np.float64)
    return OutputLabels(shape.loss, y[arrow.order], offset[arrow.order], weight[arrow.order])


def row_losses(labels: OutputLabels, score: F64) -> F64:
    """The loss of each row's score, its offset not included, times its weight over the mean one.

    Examples
    --------
    >>> zero, one = np.zeros(2), np.ones(2)
    >>> row_losses(OutputLabels("squared", np.array([1.0, 3.0]), one, one), zero)
    array([0., 4.])
    """
    score = score + labels.offset
    if labels.loss == "squared":
        losses = (labels.y - score) ** 2
    elif labels.loss == "logistic":
        losses = np.logaddexp(0, -labels.y * score)
    else:
        losses = np.exp(score) - labels.y * score
    return np.asarray(losses * (labels.weight / labels.weight.mean()))

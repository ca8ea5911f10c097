"""A shared model that is not linear, and the linear side: each is fitted to what the other leaves.

    y = F(x) + w_g . (x_g, 1) + w_i . (x_l, 1) + noise,   a weight ~ N(0, variance of its group)

F is the shared model, x_g the columns of many categories, which F does not see. Given F and the
variances, all weights are known in closed form (`empirical_bayes`).

**Boosted trees** grow by steps. Each is fitted to what F and the weights so far leave, and then the
weights are solved for again: gradient descent of F on the likelihood with all weights integrated
out. It is done on all rows but a fold, for every fold at once, and the rows left out tell how many
steps to take. Their predictions F are such as new rows get, so the variances are found from what
these leave: what a model leaves of rows that it learned from is too small. Then the same number of
steps is taken on all rows.

**Any other model** is fitted to what the weights leave, fold by fold, and the weights to what its
predictions of the rows left out leave, in turns. Nothing is known of how closely it follows the
rows it learned from, so that its weights only ever see such predictions.
"""

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedres.core.types import F64, I64, Matrix
from fedres.tables.arrow import Arrow
from fedres.tables.csr_sides import only
from fedres.tables.empirical_bayes import (
    NOTHING,
    OutputLabels,
    Solution,
    Variances,
    find_variances,
    labels_of,
    row_losses,
    solve_for,
    toward,
)
from fedres.tables.online_models import ModelShape
from fedres.tables.sgd_tuning import Encoded, of_some_clients
from fedres.tables.shared_models import (
    BoostedTrees,
    ForeignModel,
    LightGbmTrees,
    SharedModel,
    seen_part,
    taken_by,
)
from fedres.tables.weight_groups import Groups

FOLDS = 3
MOST_ROWS = 15_000  # tell the number of steps and the variances well enough
MOST_STEPS = 40  # of trees; the first without a gain ends them
GAIN = 1e-3  # share of the loss that counts as a gain
LITTLE = 1e-2  # share of the first loss: of less, no share counts, as where classes are separable
TURNS = 3  # of a model that is fitted anew each time
CLOSE = 1e-2  # change of variances that ends the search for them
ROUGHLY = 1e-2  # error of weights between steps, which the next step makes good


class Trained(NamedTuple):
    """What training found.

    Attributes
    ----------
    arrow, found
        The linear side, as `empirical_bayes.train` gives it; None if a linear model is better.
    shared
        The shared models: one for all outputs, or one each.
    losses
        Mean losses on rows left out: of trees, and of a linear model where both were tried.
    spread
        Variances of what the shared models predict, by output.
    """

    arrow: Arrow | None
    found: list[Solution]
    shared: list[SharedModel]
    losses: dict[str, float]
    spread: F64


class LinearSide:
    """All weights, given the variances and the scores of the shared model, and kept rows only."""

    def __init__(self, arrow: Arrow, labels: OutputLabels, variances: Variances, kept: Any) -> None:
        self.arrow, self.labels, self.kept = copy(arrow), labels, np.asarray(kept, np.float64)
        self.ridges = variances.noise / np.maximum(variances.of_groups, NOTHING)
        self.w_global, self.score = np.zeros(arrow.width), np.zeros(len(labels.y))
        self.is_ready = False
        self.fit(self.score)

    def left(self, shared: F64) -> tuple[F64, F64]:
        """What both sides leave of every row's label, and how much that counts."""
        labels = self.labels._replace(offset=self.labels.offset + shared)
        target, weight = labels.working(self.score)
        return target - self.score, weight

    def fit(self, shared: F64) -> None:
        """Solve for the weights anew, of a loss that is not squared by a step of Newton's."""
        left, weight = self.left(shared)
        squared = self.labels.loss == "squared"
        if not (squared and self.is_ready):
            self.arrow.weigh(weight * self.kept)
            self.arrow.set_ridges(self.ridges)
            self.is_ready = True
        self.w_global, w_local = self.arrow.means(left + self.score, self.w_global, ROUGHLY)
        self.score = toward(self.score, self.arrow.scores(self.w_global, w_local), squared)


class Course(NamedTuple):
    """What rows left out say of trees for one output.

    Attributes
    ----------
    steps
        How many pay.
    variances, errors
        Those that go with them: see `empirical_bayes.Solution`.
    losses
        Mean losses on rows left out.
    """

    steps: int
    variances: Variances
    errors: F64
    losses: dict[str, float]


def train_trees(
    shape: ModelShape,
    data: Encoded,
    groups: Groups,
    seen: NDArray[np.bool_],
    rng: Any,
    or_linear: bool = False,
) -> Trained:
    """Fit boosted trees and the linear side.

    Parameters
    ----------
    shape, data, groups
        As for `empirical_bayes.train`.
    seen
        Which of the global features trees see; the linear side has the others.
    rng
        Decides which rows are left out.
    or_linear
        Whether to give up where a linear shared model does as well on rows left out.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    seed, part = int(rng.randint(2**31)), data
    if len(data.client) > MOST_ROWS:
        part = data.of_clients(of_some_clients(data.client, rng, MOST_ROWS))
    with threadpool_limits(1, "blas"):
        courses = [
            _take_course(shape, part, groups, seen, k, seed, rng, or_linear)
            for k in range(len(data.y))
        ]
        losses = {
            name: float(np.sum([one.losses[name] for one in courses])) for name in courses[0].losses
        }
        if or_linear and losses["trees"] > (1 - GAIN) * losses["linear"]:
            return Trained(None, [], [], losses, np.zeros(0))
        alive = np.any([one.variances.of_groups > 0 for one in courses], axis=0)
        arrow = Arrow(shape, _unseen(data, seen), groups, alive)
        x = seen_part(data.x_global, seen)[arrow.order]
        new = LightGbmTrees.prepare(x, seed)
        shared: list[SharedModel] = []
        found, spread = [], np.zeros(len(courses))
        for k, course in enumerate(courses):
            labels = labels_of(shape, data, arrow, k)
            side = LinearSide(arrow, labels, course.variances, np.ones(len(labels.y)))
            grower = Grower(new(), side)
            for _ in range(course.steps):
                grower.step(x)
            offset = labels.offset + grower.score
            one = solve_for(arrow, labels._replace(offset=offset), course.variances, seed)
            found.append(one._replace(errors=course.errors))
            shared.append(grower.trees)
            spread[k] = grower.score.var()
    return Trained(arrow, found, shared, losses, spread)


class Grower:
    """Trees and the linear side, in turns, on those rows that the linear side keeps."""

    def __init__(self, trees: BoostedTrees, side: LinearSide) -> None:
        self.trees, self.side = trees, side
        self.rows, self.score = np.flatnonzero(side.kept), np.zeros(len(side.kept))

    def step(self, x: Matrix) -> None:
        """Some trees more, and the weights that go with them."""
        left, weight = self.side.left(self.score)
        self.score = self.trees.grow(x, self.rows, left, weight, self.score)
        self.side.fit(self.score)


def _take_course(
    shape: ModelShape,
    data: Encoded,
    groups: Groups,
    seen: NDArray[np.bool_],
    k: int,
    seed: int,
    rng: Any,
    or_linear: bool,
) -> Course:
    linear = find_variances(shape, data, groups, k, seed, CLOSE)
    whole = Arrow(shape, data, groups, linear.of_groups > 0)
    labels, fold = labels_of(shape, data, whole, k), _folds(whole.client, rng)
    predicted, losses = np.zeros(len(fold)), {}
    if or_linear:
        for j in range(FOLDS):
            side = LinearSide(whole, labels, linear, fold != j)
            predicted[fold == j] = side.score[fold == j]
        losses["linear"] = float(row_losses(labels, predicted).mean())
    # What trees see has no weights: then their variances end, and the others' begin from here.
    of_groups = linear.of_groups.copy()
    of_groups[groups.of_global[:-1][seen]] = 0
    variances, rest = linear._replace(of_groups=of_groups), _unseen(data, seen)
    arrow = Arrow(shape, rest, groups, of_groups > 0)
    x = seen_part(data.x_global, seen)[arrow.order]
    new = LightGbmTrees.prepare(x, seed)
    growers = [Grower(new(), LinearSide(arrow, labels, variances, fold != j)) for j in range(FOLDS)]
    unseen_score, best, steps, first = np.zeros(len(fold)), np.zeros(len(fold)), 0, np.inf
    for step in range(MOST_STEPS + 1):
        for j, grower in enumerate(growers):
            if step:
                grower.step(x)
            unseen_score[fold == j] = grower.score[fold == j]
            predicted[fold == j] = (grower.score + grower.side.score)[fold == j]
        loss = float(row_losses(labels, predicted).mean())
        first = loss if not step else first
        if not step or loss < losses["trees"] - GAIN * max(losses["trees"], LITTLE * first):
            losses["trees"], steps, best = loss, step, unseen_score.copy()
        else:
            break
    rest = rest._replace(offset=_unsorted(arrow, labels.offset + best))
    variances = find_variances(shape, rest, groups, k, seed, CLOSE, variances)
    arrow = Arrow(shape, rest, groups, variances.of_groups > 0)
    errors = solve_for(arrow, labels_of(shape, rest, arrow, k), variances, seed).errors
    return Course(steps, variances, errors, losses)


def train_foreign(
    shape: ModelShape,
    data: Encoded,
    groups: Groups,
    seen: NDArray[np.bool_],
    rng: Any,
    model: Any,
) -> Trained:
    """Fit a model of scikit-learn's kind and the linear side; parameters as of `train_trees`.

    A classifier cannot be told what the linear side says already: it is fitted once, to the labels.
    """
    from sklearn.base import clone, is_classifier
    from threadpoolctl import threadpool_limits

    if len(data.client) < 2 * FOLDS:
        raise ValueError(
            f"shared={type(model).__name__} needs {2 * FOLDS} rows or more, not "
            f"{len(data.client)}: use shared='linear'"
        )
    seed, outputs = int(rng.randint(2**31)), range(len(data.y))
    rest = _unseen(data, seen)
    arrow = Arrow(shape, rest, groups)
    labels = [labels_of(shape, data, arrow, k) for k in outputs]
    x = taken_by(model, seen_part(data.x_global, seen))[arrow.order]
    fold = _folds(arrow.client, rng)
    own = np.zeros((len(outputs), len(fold)))  # scores of the linear side
    score = np.zeros_like(own)  # scores of rows by models that did not learn from them
    classes = data.y[0] > 0 if len(outputs) == 1 else data.y.argmax(axis=0)

    def fitted(rows: I64) -> ForeignModel:
        if is_classifier(model):
            one = _fit(clone(model), x[rows], classes[arrow.order][rows], labels[0].weight[rows])
            return ForeignModel(one, len(outputs))
        models = []
        for k in outputs:
            offset = labels[k].offset + score[k]
            target, weight = labels[k]._replace(offset=offset).working(own[k])
            wanted = score[k] + target - own[k]
            models.append(_fit(clone(model), x[rows], wanted[rows], weight[rows]))
        return ForeignModel(models)

    with threadpool_limits(1, "blas"):
        found: list[Solution] = []
        variances: list[Variances | None] = [None] * len(outputs)
        for _ in range(1 if is_classifier(model) else TURNS):
            new = np.zeros_like(own)
            for j in range(FOLDS):
                new[:, fold == j] = fitted(np.flatnonzero(fold != j)).predict(x[fold == j])
            score, found = new, []
            sides = []
            for k in outputs:
                mine = rest._replace(offset=_unsorted(arrow, labels[k].offset + score[k]))
                variances[k] = find_variances(shape, mine, groups, k, seed, CLOSE, variances[k])
                sides.append(mine)
            alive = np.any([one.of_groups > 0 for one in variances if one], axis=0)
            last = Arrow(shape, rest, groups, alive)
            for k in outputs:
                known = variances[k]
                assert known is not None
                found.append(solve_for(last, labels_of(shape, sides[k], last, k), known, seed))
                own[k] = last.scores(found[k].w_global, found[k].w_local)
        shared = fitted(np.arange(len(fold)))
        return Trained(last, found, [shared], {}, np.asarray(score.var(axis=1)))


def _fit(model: Any, x: Any, y: Any, weight: F64) -> Any:
    from sklearn.utils.validation import has_fit_parameter

    if np.ptp(weight) == 0:
        return model.fit(x, y)
    if not has_fit_parameter(model, "sample_weight"):
        raise ValueError(
            f"{type(model).__name__} takes no sample_weight, which it needs as a shared model for "
            "this loss, or for rows of unequal weight: give one that does"
        )
    return model.fit(x, y, sample_weight=weight)


def _folds(client: I64, rng: Any) -> I64:
    """The fold in which each row is left out: the rows of a client are spread over all."""
    fold = np.empty(len(client), np.int64)
    fold[np.lexsort((rng.uniform(size=len(client)), client))] = np.arange(len(client)) % FOLDS
    return fold


def _unseen(data: Encoded, seen: NDArray[np.bool_]) -> Encoded:
    return data._replace(x_global=only(data.x_global, np.flatnonzero(~seen)))


def _unsorted(arrow: Arrow, values: F64) -> F64:
    back = np.empty_like(values)
    back[arrow.order] = values
    return back

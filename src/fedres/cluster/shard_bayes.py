"""``solver="bayes"`` shard by shard: the shared system is a sum over clients (`client_blocks`).

Under given variances the global model solves S w_g = r, where

    S = ridge_g + sum over clients of X_g' W X_g - X_g' W X_l C X_l' W X_g,
    r =           sum over clients of X_g' W (y - X_l C X_l' W y).

A shard adds up its clients' parts (`begin`) and forgets its rows; whoever has the sums of all
solves for w_g (`solve_shared`); each shard then solves for its clients' own models (`advance`).
Where S is too wide to be factorised it is solved by iteration, for which shards multiply with their
part of it (`send`). A loss that is not squared is approximated anew from step to step, as in
`empirical_bayes.solve_for`: what a shard keeps between steps is the score of each of its rows. The
scores of the step before stay, so that a step which is broken off is made again, and not a second.

All functions of a shard take it and what all shards share, and return what is to be added up: they
may run in any process that can read the shard's files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from fedres.cluster.checkpoint import kept
from fedres.cluster.local_parts import GlobalState, write_part
from fedres.cluster.over_shards import OverShards, over_shards
from fedres.cluster.shards import Shard
from fedres.core.files import whole_file
from fedres.core.primitives import SMALLEST
from fedres.core.types import F64
from fedres.tables.arrow import Arrow, factorised, places, shared_ridges, solved
from fedres.tables.empirical_bayes import (
    MOST_STEPS,
    NOTHING,
    OutputLabels,
    Variances,
    labels_of,
    toward,
)
from fedres.tables.encoder import Encoder
from fedres.tables.online_models import ModelShape
from fedres.tables.weight_groups import Groups

CLOSE = 1e-5  # errors of weights, and the change of scores that ends the steps
T = TypeVar("T")


@dataclass(frozen=True)
class BayesProblem:
    """What all shards share.

    Attributes
    ----------
    encoder
        The two views.
    shape
        Their widths, and the loss.
    groups
        Which weights share a variance.
    variances
        Of every output.
    """

    encoder: Encoder
    shape: ModelShape
    groups: Groups
    variances: Sequence[Variances]

    @property
    def squared(self) -> bool:
        """Whether one step is enough."""
        return self.shape.loss == "squared"

    def ridges(self, k: int) -> F64:
        """Of every group, for output k."""
        of = self.variances[k]
        return np.asarray(of.noise / np.maximum(of.of_groups, NOTHING))


class SharedSums(NamedTuple):
    """What some rows add to the system of the global model, of one output.

    Attributes
    ----------
    weight
        Of the rows.
    diagonal
        Of X_g' W X_g.
    products
        S without its ridge, of those columns that are factorised: its lower triangle.
    right
        The right side.
    """

    weight: float
    diagonal: F64
    products: F64
    right: F64

    def plus(self, other: "SharedSums") -> "SharedSums":
        """The sums of both."""
        return SharedSums(
            self.weight + other.weight,
            self.diagonal + other.diagonal,
            self.products + other.products,
            self.right + other.right,
        )


class Advance(NamedTuple):
    """What a step has done to a shard: the largest change of a score, and its sums from there."""

    change: float
    sums: list[SharedSums]

    def plus(self, other: "Advance") -> "Advance":
        """Of both."""
        return Advance(max(self.change, other.change), _plus(self.sums, other.sums))


RECORDS = (SharedSums, Advance)


def begin(shard: Shard, problem: BayesProblem) -> list[SharedSums]:
    """The sums of a shard, for every output, before anything is known."""
    arrow, labels = _arrow(shard, problem)
    score = np.zeros((len(labels), shard.rows))
    if not problem.squared:
        _keep_score(shard, 0, score)
    return [_sums(arrow, problem, k, *one.working(score[k])) for k, one in enumerate(labels)]


def advance(shard: Shard, problem: BayesProblem, step: int, w_global: Sequence[F64]) -> Advance:
    """Solve for the local models under a global one and write them; where it goes on from there."""
    arrow, labels = _arrow(shard, problem)
    score = _score(shard, problem, step)
    own = np.empty((arrow.slots, len(labels)), np.float32)
    change, sums = 0.0, []
    for k, one in enumerate(labels):
        target = _weigh(arrow, problem, k, one, score[k])
        own[:, k] = w_local = _own(arrow, target, w_global[k])
        if problem.squared:
            continue
        new = toward(score[k], arrow.scores(w_global[k], w_local), squared=False)
        change = max(change, float(np.abs(new - score[k]).max(initial=0)))
        score[k] = new
        sums.append(_sums(arrow, problem, k, *one.working(score[k])))
    if not problem.squared:
        _keep_score(shard, step + 1, score)
    write_part(
        shard,
        {
            "start": arrow.rows.first_slot,
            "columns": arrow.columns,
            "weights": own,
            "squares": np.full_like(own, SMALLEST),
        },
    )
    return Advance(change, sums)


def send(shard: Shard, problem: BayesProblem, step: int, k: int, w_global: F64) -> F64:
    """What the rows of a shard send up of no targets, (columns, problems)."""
    arrow, labels = _arrow(shard, problem)
    _weigh(arrow, problem, k, labels[k], _score(shard, problem, step)[k])
    return arrow.sweep(np.zeros((0, 0)), w_global, np.zeros((arrow.slots, w_global.shape[1])))[0]


def solve_shared(
    problem: BayesProblem,
    k: int,
    sums: SharedSums,
    w_global: F64,
    sent: Callable[[F64], F64],
) -> F64:
    """The global model of output k, from sums of all shards; `sent` adds up their `send`."""
    inside = np.flatnonzero(places(problem.groups.of_global) >= 0)
    ridge = shared_ridges(problem.ridges(k), sums.weight, problem.groups)
    factor = factorised(sums.products.copy(), ridge, sums.diagonal, inside)
    columns = sums.right[:, None], w_global[:, None]
    return solved(factor, inside, ridge, sums.diagonal, sent, *columns, CLOSE)[:, 0]


def solve(
    shards: Sequence[Shard],
    problem: BayesProblem,
    n_jobs: int = 1,
    progress: str | None = None,
    each: OverShards = over_shards,
    go_on: bool = False,
) -> list[F64]:
    """The global model of every output; the local models are written beside their shards.

    With `go_on`, what shards had added up before this was killed is not added up again.
    """
    outputs = range(len(problem.variances))
    w_global = [np.zeros(len(problem.groups.of_global)) for _ in outputs]
    numbers = count()

    def total(work: Callable[[Shard], T], plus: Callable[[T, T], T], what: str) -> T:
        told = None if progress is None else f"{progress}: {what}"

        def add(work: Callable[[Shard], T]) -> T:
            added: T = reduce(plus, each(work, shards, n_jobs, told))
            return added

        if not go_on:
            return add(work)
        name = f"pass{next(numbers)}"
        once = partial(_kept_of_shard, work=work, name=name)
        added = kept(shards[0].folder / name, partial(add, once), RECORDS)
        for shard in shards:
            shard.path(name).unlink(missing_ok=True)
        return added

    sums = total(partial(begin, problem=problem), _plus, "what clients share")
    for step in range(1 if problem.squared else MOST_STEPS):

        def sent(x: F64, k: int, step: int = step) -> F64:
            part = partial(send, problem=problem, step=step, k=k, w_global=x)
            return total(part, np.add, "one step of many")

        w_global = [
            solve_shared(problem, k, sums[k], w_global[k], partial(sent, k=k)) for k in outputs
        ]
        own = partial(advance, problem=problem, step=step, w_global=w_global)
        change, sums = total(own, Advance.plus, "clients' own")
        if change < CLOSE:
            break
    return w_global


def _kept_of_shard(shard: Shard, work: Callable[[Shard], T], name: str) -> T:
    return kept(shard.path(name), partial(work, shard), RECORDS)


def as_state(w_global: Sequence[F64]) -> GlobalState:
    """Means as a model that predicts; a side without a model has room for one number."""
    weights = np.stack(w_global).astype(np.float32)
    if not weights.shape[1]:
        weights = np.zeros((len(w_global), 1), np.float32)
    return GlobalState(weights, np.full_like(weights, SMALLEST))


def _plus(some: list[SharedSums], others: list[SharedSums]) -> list[SharedSums]:
    return [one.plus(other) for one, other in zip(some, others, strict=True)]


def _arrow(shard: Shard, problem: BayesProblem) -> tuple[Arrow, list[OutputLabels]]:
    """The rows of a shard ready to be solved, and their labels for every output."""
    data, groups = shard.encoded(problem.encoder), problem.groups
    alive = np.any([one.of_groups > 0 for one in problem.variances], axis=0)
    # What has a variance varies within some client, though perhaps within none of this shard.
    used = np.flatnonzero(alive[groups.of_local[:-1]])
    arrow = Arrow(problem.shape, data, groups, alive, used)
    return arrow, [labels_of(problem.shape, data, arrow, k) for k in range(len(data.y))]


def _weigh(arrow: Arrow, problem: BayesProblem, k: int, labels: OutputLabels, score: F64) -> F64:
    """Eliminate local models at these scores, and return the targets there."""
    target, weight = labels.working(score)
    arrow.weigh(weight)
    arrow.eliminate(problem.ridges(k))
    return target


def _own(arrow: Arrow, target: F64, w_global: F64) -> F64:
    nothing = np.zeros((arrow.slots, 1))
    return arrow.sweep(target[:, None], w_global[:, None], nothing)[1][:, 0]


def _sums(arrow: Arrow, problem: BayesProblem, k: int, target: F64, weight: F64) -> SharedSums:
    arrow.weigh(weight)
    arrow.eliminate(problem.ridges(k))
    nothing = np.zeros((arrow.width, 1)), np.zeros((arrow.slots, 1))
    right = arrow.sweep(target[:, None], *nothing)[0][:, 0]
    return SharedSums(float(weight.sum()), arrow.diagonal, arrow.condensed(), right)


def _score(shard: Shard, problem: BayesProblem, step: int) -> F64:
    """The score of every row of a shard before a step, in the order of an arrow."""
    if problem.squared:
        return np.zeros((len(problem.variances), shard.rows))
    return np.asarray(np.load(_scores(shard, step), allow_pickle=False))


def _keep_score(shard: Shard, step: int, score: F64) -> None:
    with whole_file(_scores(shard, step)) as file:
        np.save(file, score, allow_pickle=False)


def _scores(shard: Shard, step: int) -> Path:
    return shard.path(f"score{step % 2}")

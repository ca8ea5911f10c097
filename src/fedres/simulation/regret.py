"""The regret of a run: how much it lost to the best pair of models in hindsight (section 2)."""

from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from fedres.core.best_pair import Samples, best_pair
from fedres.core.schedule import spread
from fedres.core.types import F32, F64, I64, Matrix
from fedres.core.views import client_rows
from fedres.simulation.federation import Federation, sides
from fedres.simulation.settings import Settings, choose

RegretOver = Literal["weight", "PT"]


def regret_curve(
    federation: Federation, settings: Settings, predictions: F32, over: RegretOver = "weight"
) -> F64:
    """The average regret after each round of `batch` samples.

    The loss of the run less that of the best pair of models for all the samples it saw, both
    weighted by lambda. The pair has the run's radius, constant and features. The sum is divided by
    the ``weight`` of the samples so far, or by ``PT``, clients times rounds of one sample so far,
    as in equation (1) of the paper, where a client that rests suffers no loss in that round. The
    two are the same where all clients see a sample each round and weigh 1.

    Examples
    --------
    >>> import fedres
    >>> run = fedres.simulate(fedres.federate("digits", clients=10, seed=0), rounds=500)
    >>> curve = regret_curve(run.federation, run.settings, run.predictions)
    >>> curve.shape
    (500,)
    >>> bool(curve[-1] < curve[49])
    True
    """
    choose("over", over, get_args(RegretOver))
    rows = rows_seen(federation, settings)
    seen = rows >= 0
    times = np.bincount(rows[seen], minlength=len(federation.train.y))
    fit_loss = _losses_of_best(federation, settings, times)
    y = federation.train.y[rows].astype(float)
    suffered = settings.loss.of_sum.value(np.where(seen, predictions, 0).astype(float), y)
    lost = np.where(seen, suffered - fit_loss[rows], 0.0)
    weight = settings.weights(federation).astype(float)
    rounds = np.arange(0, rows.shape[1], settings.batch)
    lost_by_round = np.cumsum(np.add.reduceat(weight @ lost, rounds))
    each = weight @ seen if over == "weight" else np.full(rows.shape[1], len(weight), float)
    weight_by_round = np.cumsum(np.add.reduceat(each, rounds))
    with np.errstate(invalid="ignore"):  # only clients of weight zero so far
        return np.asarray(lost_by_round / weight_by_round, np.float64)


def rows_seen(federation: Federation, settings: Settings) -> I64:
    """Which training row each client saw in each round, (clients, rounds); -1 where it rested.

    Examples
    --------
    >>> import fedres
    >>> x, y = np.eye(3), [1.0, 2.0, 3.0]
    >>> federation = fedres.Federation.from_arrays(x, x, y, client=["ann", "bob", "bob"])
    >>> rows_seen(federation, fedres.simulate(federation, passes=2, shuffle=False).settings)
    array([[ 0, -1,  0, -1],
           [ 1,  2,  1,  2]])
    """
    # Compiled code takes a moment to load.
    from fedres.core.compiled import compiled
    from fedres.simulation.dealing import deal_all

    counts, start, total = (
        federation.train.counts,
        federation.train.row_start,
        settings.total(federation),
    )
    each = settings.seen(federation)
    first = np.concatenate([[0], np.cumsum(each)])
    dealt = np.empty(first[-1], np.int64)
    order = np.empty(counts.max(), np.int32)
    compiled(deal_all)(start, first, settings.shuffle, settings.seed, order, dealt)
    present = settings.present(federation)
    if settings.cycle and present is None:
        return dealt.reshape(len(counts), total)
    seen = np.full((len(counts), total), -1, np.int64)
    if present is not None:
        seen[np.repeat(present, settings.batch, axis=1)[:, :total]] = dealt
        return seen
    messages, batch = -(-counts // settings.batch), settings.batch
    sent, _ = spread(counts, settings.passes, batch)
    sent = sent.reshape(settings.passes, -1)
    begun = np.concatenate([[0], np.cumsum(messages)])
    for i, n in enumerate(counts.tolist()):
        k = np.arange(n)
        when = (sent[:, begun[i] + k // batch] * batch + k % batch).ravel()
        seen[i, when] = dealt[first[i] : first[i + 1]]
    return seen


def _losses_of_best(federation: Federation, settings: Settings, times: I64) -> F64:
    """The losses, row by row, of the best pair for rows seen so many times each."""
    train = federation.train
    x_global, x_local = sides(federation, train, settings.method)
    weight = times * np.repeat(settings.weights(federation).astype(float), train.counts)
    clients = [
        Samples(
            client_rows(x_global, train.row_start, i),
            client_rows(x_local, train.row_start, i),
            train.y[first:last],
            weight[first:last],
        )
        for i, (first, last) in enumerate(pairwise(train.row_start))
    ]
    fit = best_pair(
        clients, settings.loss.of_sum, constant=settings.constant, radius=settings.radius
    )
    predicted = [
        _linear(rows.x_global, fit.w_global) + _linear(rows.x_local, own)
        for rows, own in zip(clients, fit.w_local, strict=True)
    ]
    losses = settings.loss.of_sum.value(np.concatenate(predicted), train.y.astype(float))
    return np.asarray(losses, np.float64)


def _linear(x: Matrix, w: F64) -> F64:
    width = x.shape[1]
    return np.asarray(x @ w[:width] + w[width:].sum(), np.float64)

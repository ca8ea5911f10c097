"""A client that mixes experts: never much worse than the best of them, however long it goes on.

An expert is whatever predicts: the client's own model on all it has, the shared model alone,
FedRes. Vovk's aggregating algorithm (1990) gives each a weight q_k, at first 1/K, and

    p     = (A + B)/2 + (g(A) - g(B)) / (2 (B - A)),  labels from A to B, eta = 2 / (B - A)^2,
            for the squared loss, and Bayes' mixture P(1) = sum_k q_k P_k(1), eta = 1,
            for the logistic loss, where g(y) = -log(sum_k q_k exp(-eta l(y, p_k))) / eta
    q_k  <- q_k exp(-eta l(y, p_k)), and all over their sum.

Then l(y, p) <= g(y) whatever y is, and the losses of a client add up to at most those of its best
expert plus log(1 / its first weight) / eta.

Which expert is best changes: FedRes begins behind a model on fewer features, or late messages hold
it up, and it is the best one from some round on (van Erven, Grünwald and de Rooij, "Catching up
faster by switching sooner", 2012). So q_k is a sum of two halves. The *staying* one is as above.
Of the *moving* one, after the n-th label, a share 1 / (n + 1) is dealt out evenly again (Herbster
and Warmuth's fixed share with a falling rate), so that another expert can take over; `switching`
is a share of one's own instead, for worlds that never cease to change. The better half prevails:
the losses add up to at most log(2 K) / eta more than those of the best expert, for ever, and to
little more than those of the best *sequence* of experts (`fedres.core.theory.mixture_bound`). All
of it is the client's own: 2 K numbers of state, a count, and not one message.

With predictions and labels scaled so that A is -1 and B is 1, eta is 1/2, and exp(-eta l(v, s)) is
exp(-s^2/2) exp(v s) but for a factor that no expert's share depends on.
"""

from typing import NamedTuple

import numpy as np

from fedres.core.elementary import exp, exp_of_small, log, log_of_middling
from fedres.core.losses import SQUARED_NUMBER, clip
from fedres.core.sgd import U
from fedres.core.types import F32, F64, I64

# An expert that was wrong for so long counts no less: weights must not vanish.
LEAST = 1e-300
SUREST = np.float32(80)  # log odds beyond which an expert is taken at this: exp of it is a float32
EXPERTS = 3  # that a client of FedRes mixes: its own model alone, the shared one alone, FedRes
FALLING = -1.0  # the share that is dealt out again: 1 / (n + 1)
ONE, MINUS_HALF = np.float32(1), np.float32(-0.5)
# So many samples are judged together: in long loops, for vectors, but within the first caches.
TOGETHER = 512


class Mixture(NamedTuple):
    """What clients know of their experts."""

    loss: int
    middle: float  # of the range of labels, which predictions of experts are brought into
    half: float
    switching: float
    staying: F64  # (experts, clients)
    moving: F64
    labels: F64  # n, a client


def new_mixture(
    loss: int,
    labels: tuple[float, float],
    clients: int,
    experts: int,
    switching: float | None = None,
) -> Mixture:
    """All experts alike. Labels lie in that range, which the logistic loss does not ask for."""
    low, high = labels
    half = (high - low) / 2 or 1.0  # any range that holds it, where there is but one label
    staying, moving = np.full((2, experts, clients), 0.5 / experts)
    share = FALLING if switching is None else switching
    return Mixture(loss, (low + high) / 2, half, share, staying, moving, np.zeros(clients))


class Judged(NamedTuple):
    """Likelihoods of labels by every expert, (experts, samples), and by all of them together."""

    at_low: F32  # of the lowest label
    at_high: F32  # of the highest
    at_label: F32  # of that which came
    low: F64
    high: F64


def room(experts: int, samples: int) -> Judged:
    """Room for the judgement of so many samples."""
    each = np.empty((3, experts, samples), np.float32)
    return Judged(each[0], each[1], each[2], np.empty(samples), np.empty(samples))


def judge(mixture: Mixture, experts: F32, labels: F32, first: int, judged: Judged) -> None:
    """What each expert has thought of the labels of samples from `first` on."""
    middle, scale = np.float32(mixture.middle), np.float32(1.0 / mixture.half)
    many = min(judged.low.shape[0], len(labels) - first)
    for k in range(U(experts.shape[0])):
        if mixture.loss == SQUARED_NUMBER:
            for e in range(U(many)):
                s = clip((experts[k, U(first) + e] - middle) * scale, -ONE, ONE)
                v = clip((labels[U(first) + e] - middle) * scale, -ONE, ONE)
                common = exp_of_small(MINUS_HALF * (s * s))
                judged.at_low[k, e] = common * exp_of_small(-s)
                judged.at_high[k, e] = common * exp_of_small(s)
                judged.at_label[k, e] = common * exp_of_small(v * s)
        else:
            for e in range(U(many)):
                odds = exp(clip(experts[k, U(first) + e], -SUREST, SUREST))
                low, high = np.float32(1.0 / (1.0 + odds)), np.float32(odds / (1.0 + odds))
                judged.at_low[k, e], judged.at_high[k, e] = low, high
                judged.at_label[k, e] = high if labels[U(first) + e] > 0 else low


def weigh(weight: F64, judged: Judged, at: int) -> None:
    """What all experts together think of one sample a client, from place `at` on."""
    for k in range(U(weight.shape[0])):
        for i in range(U(weight.shape[1])):
            low = weight[k, i] * judged.at_low[k, U(at) + i]
            high = weight[k, i] * judged.at_high[k, U(at) + i]
            judged.low[U(at) + i] = low + (judged.low[U(at) + i] if k > 0 else 0.0)
            judged.high[U(at) + i] = high + (judged.high[U(at) + i] if k > 0 else 0.0)


def predict(mixture: Mixture, judged: Judged, first: int, out: F32) -> None:
    """The predictions of samples from `first` on."""
    middle, quarter = np.float32(mixture.middle), np.float32(0.5 * mixture.half)
    for e in range(U(min(judged.low.shape[0], len(out) - first))):
        if mixture.loss == SQUARED_NUMBER:
            odds = np.float32(judged.high[e]) / np.float32(judged.low[e])
            out[U(first) + e] = middle + quarter * log_of_middling(odds)
        else:
            out[U(first) + e] = log(judged.high[e] / judged.low[e])


def learn(
    mixture: Mixture, judged: Judged, at: int, labels: F32, first: int, weight: F64, sums: F64
) -> None:
    """All clients learn a label: experts lose weight by their losses. NaN is no label.

    `weight` are the weights of both halves together, before and after; `sums` is scratch.
    """
    experts, clients = weight.shape
    staying, moving, n = mixture.staying, mixture.moving, mixture.labels
    total, even = sums[0], sums[1]
    for i in range(U(clients)):
        total[i] = even[i] = 0.0
    for k in range(U(experts)):
        for i in range(U(clients)):
            kept = judged.at_label[k, U(at) + i]
            total[i] += weight[k, i] * kept
            even[i] += moving[k, i] * kept
    for i in range(U(clients)):
        learned = 0.0 if np.isnan(labels[U(first) + i]) else 1.0
        n[i] += learned
        share = 1.0 / (n[i] + 1.0) if mixture.switching == FALLING else mixture.switching
        total[i] = 1.0 / total[i]
        even[i] *= share * total[i] / experts
        sums[2, i] = (1.0 - share) * total[i]
    for k in range(U(experts)):
        for i in range(U(clients)):
            kept = judged.at_label[k, U(at) + i]
            stays = max(staying[k, i] * kept * total[i], LEAST)
            moves = max(moving[k, i] * kept * sums[2, i] + even[i], LEAST)
            rests = np.isnan(labels[U(first) + i])
            staying[k, i] = staying[k, i] if rests else stays
            moving[k, i] = moving[k, i] if rests else moves
            weight[k, i] = staying[k, i] + moving[k, i]


def mix(mixture: Mixture, experts: F32, labels: F32, out: F32) -> None:
    """All samples, round by round and client by client; a label that is NaN is a round of rest.

    What experts think of a label does not depend on their weights: it is found for many samples
    at once.
    """
    count, clients = mixture.staying.shape
    weight, sums = mixture.staying + mixture.moving, np.empty((3, clients))
    judged = room(count, max(TOGETHER // clients, 1) * clients)
    for first in range(0, len(labels), judged.low.shape[0]):
        judge(mixture, experts, labels, first, judged)
        for at in range(0, min(judged.low.shape[0], len(labels) - first), clients):
            weigh(weight, judged, at)
            learn(mixture, judged, at, labels, first + at, weight, sums)
        predict(mixture, judged, first, out)


def mix_rows(mixture: Mixture, who: I64, experts: F32, out: F32) -> None:
    """The predictions of rows of clients `who`, by the weights of now."""
    judged = room(experts.shape[0], len(who))
    judge(mixture, experts, np.full(len(who), np.float32(np.nan)), 0, judged)
    weigh((mixture.staying + mixture.moving)[:, who], judged, 0)
    predict(mixture, judged, 0, out)


def soften(weights: F64, power: F64) -> None:
    """q_k <- q_k^power, all over their sum: what weights would be had eta been smaller by that.

    `weights` are those of both halves, (2, experts, clients), with a power each client. The bound
    is that of the smaller eta.
    """
    halves, experts, clients = weights.shape
    for i in range(clients):
        total = 0.0
        for h in range(halves):
            for k in range(experts):
                weights[h, k, i] = exp(power[i] * log(weights[h, k, i]))
                total += weights[h, k, i]
        for h in range(halves):
            for k in range(experts):
                weights[h, k, i] /= total

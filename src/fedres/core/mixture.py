"""A client that mixes experts: never much worse than the best of them, however long it goes on.

An expert is whatever predicts: the client's own model on all it has, the shared model alone,
FedRes. Vovk's aggregating algorithm (1990) gives each a weight q_k, at first 1/K, and

    p     = (A + B)/2 + (g(A) - g(B)) / (2 (B - A)),  labels from A to B, eta = 2 / (B - A)^2,
            for the squared loss, and Bayes' mixture P(1) = sum_k q_k P_k(1), eta = 1,
            for the logistic loss, where g(y) = -log(sum_k q_k exp(-eta l(y, p_k))) / eta
    q_k  <- q_k exp(-eta l(y, p_k)), and all over their sum.

Then l(y, p) <= g(y) whatever y is, and the losses of a client add up to at most those of its best
expert plus log(K) / eta (`fedres.theory.mixture_bound`). All of it is the client's own: K numbers
of state and not one message. With `switching`, after each label a share of all weight is dealt out
evenly again, so that another expert can take over (Herbster and Warmuth's fixed share).

With predictions and labels scaled so that A is -1 and B is 1, eta is 1/2.
"""

from typing import Any, NamedTuple

import numpy as np

from fedres.core.elementary import exp, exp_of_small, log, log_of_middling
from fedres.core.losses import SQUARED_NUMBER
from fedres.core.sgd import U
from fedres.core.types import F32, F64, I64

# An expert that was wrong for so long counts no less: weights must not vanish.
LEAST = 1e-300


class Mixture(NamedTuple):
    """What clients know of their experts."""

    loss: int
    middle: float  # of the range of labels, which predictions of experts are brought into
    half: float
    switching: float
    weight: F64  # q_k, (experts, clients)


def new_mixture(
    loss: int, labels: tuple[float, float], clients: int, experts: int, switching: float = 0.0
) -> Mixture:
    """All experts alike. Labels lie in that range, which the logistic loss does not ask for."""
    low, high = labels
    half = (high - low) / 2 or 1.0  # any range that holds it, where there is but one label
    even = np.full((experts, clients), 1.0 / experts)
    return Mixture(loss, (low + high) / 2, half, switching, even)


def scaled(mixture: Mixture, number: Any) -> Any:
    """A prediction or label, the range of labels being -1 to 1, and brought into it."""
    return min(max((np.float64(number) - mixture.middle) / mixture.half, -1.0), 1.0)


def likelihood(v: Any, s: Any) -> Any:
    """exp(-eta l(v, s)) of the squared loss, times e, which cancels: then the exponent is small."""
    return exp_of_small(1.0 - 0.5 * ((v - s) * (v - s)))


def blend(mixture: Mixture, who: I64, experts: F32, first: int, out: F32) -> None:
    """The predictions of clients `who`, each from those of its experts.

    They are in experts[:, first : first + len(who)], and go to the same places of `out`. Loops
    over clients are innermost, for vectors.
    """
    count = experts.shape[0]
    low, high = np.zeros(len(who)), np.zeros(len(who))
    for k in range(U(count)):
        for e in range(U(len(who))):
            weight = mixture.weight[k, U(who[e])]
            said = np.float64(experts[k, U(first) + e])
            if mixture.loss == SQUARED_NUMBER:
                s = scaled(mixture, said)
                low[e] += weight * likelihood(-1.0, s)
                high[e] += weight * likelihood(1.0, s)
            else:
                p = exp(said)
                low[e] += weight / (1.0 + p)
                high[e] += weight * (p / (1.0 + p))
    for e in range(U(len(who))):
        if mixture.loss == SQUARED_NUMBER:
            between = 0.5 * log_of_middling(high[e] / low[e])
            out[U(first) + e] = mixture.middle + mixture.half * between
        else:
            out[U(first) + e] = log(high[e] / low[e])


def reweigh(mixture: Mixture, experts: F32, first: int, labels: F32) -> None:
    """All clients learn a label: experts lose weight by their losses. NaN is no label."""
    q, (count, clients) = mixture.weight, mixture.weight.shape
    total = np.zeros(clients)
    for k in range(U(count)):
        for i in range(U(clients)):
            label = np.float64(labels[U(first) + i])
            said = np.float64(experts[k, U(first) + i])
            if mixture.loss == SQUARED_NUMBER:
                kept = q[k, i] * likelihood(scaled(mixture, label), scaled(mixture, said))
            else:
                kept = q[k, i] / (1.0 + exp(-label * said))
            q[k, i] = q[k, i] if np.isnan(label) else kept
            total[i] += q[k, i]
    even = mixture.switching / count
    for k in range(U(count)):
        for i in range(U(clients)):
            share = max((1.0 - mixture.switching) / total[i] * q[k, i] + even, LEAST)
            q[k, i] = q[k, i] if np.isnan(labels[U(first) + i]) else share


def mix(mixture: Mixture, experts: F32, labels: F32, out: F32) -> None:
    """All samples, round by round and client by client; a label that is NaN is a round of rest."""
    everyone = np.arange(mixture.weight.shape[1])
    for first in range(0, len(labels), len(everyone)):
        blend(mixture, everyone, experts, first, out)
        reweigh(mixture, experts, first, labels)


def mix_rows(mixture: Mixture, experts: F32, row_start: I64, out: F32) -> None:
    """Rows without labels, client by client, by the weights of now."""
    who = np.zeros(row_start[-1], np.int64)
    for i in range(len(row_start) - 1):
        who[row_start[i] : row_start[i + 1]] = i
    blend(mixture, who, experts, 0, out)

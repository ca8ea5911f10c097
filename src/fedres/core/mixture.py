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

from fedres.core.elementary import exp, exp_of_small, log
from fedres.core.losses import SQUARED_NUMBER
from fedres.core.types import F32, F64, I64

# An expert that was wrong for so long counts no less: weights must not vanish.
LEAST = 1e-300


class Mixture(NamedTuple):
    """What clients know of their experts."""

    loss: int
    middle: float  # of the range of labels, which predictions of experts are brought into
    half: float
    switching: float
    weight: F64  # q_k, (clients, experts)


def new_mixture(
    loss: int, labels: tuple[float, float], clients: int, experts: int, switching: float = 0.0
) -> Mixture:
    """All experts alike. Labels lie in that range, which the logistic loss does not ask for."""
    low, high = labels
    half = (high - low) / 2 or 1.0  # any range that holds it, where there is but one label
    even = np.full((clients, experts), 1.0 / experts)
    return Mixture(loss, (low + high) / 2, half, switching, even)


def scaled(mixture: Mixture, number: Any) -> Any:
    """A prediction or label, the range of labels being -1 to 1, and brought into it."""
    return min(max((np.float64(number) - mixture.middle) / mixture.half, -1.0), 1.0)


def likelihood(v: Any, s: Any) -> Any:
    """exp(-eta l(v, s)) of the squared loss, times e, which cancels: then the exponent is small."""
    return exp_of_small(1.0 - 0.5 * ((v - s) * (v - s)))


def blend(mixture: Mixture, i: int, experts: F32, c: int) -> Any:
    """The prediction of client i from those of its experts, (experts, samples), of sample c."""
    low = high = np.float64(0.0)
    for k in range(experts.shape[0]):
        weight = mixture.weight[i, k]
        if mixture.loss == SQUARED_NUMBER:
            s = scaled(mixture, experts[k, c])
            low += weight * likelihood(-1.0, s)
            high += weight * likelihood(1.0, s)
        else:
            p = exp(np.float64(experts[k, c]))
            low += weight / (1.0 + p)
            high += weight * (p / (1.0 + p))
    if mixture.loss == SQUARED_NUMBER:
        return mixture.middle + mixture.half * 0.5 * log(high / low)
    return log(high / low)


def reweigh(mixture: Mixture, i: int, experts: F32, c: int, label: Any) -> None:
    """Client i learns the label of sample c: experts lose weight by their losses."""
    q, count, total = mixture.weight, experts.shape[0], np.float64(0.0)
    v = scaled(mixture, label)
    for k in range(count):
        if mixture.loss == SQUARED_NUMBER:
            q[i, k] *= likelihood(v, scaled(mixture, experts[k, c]))
        else:
            q[i, k] /= 1.0 + exp(-np.float64(label) * np.float64(experts[k, c]))
        total += q[i, k]
    keep, even = (1.0 - mixture.switching) / total, mixture.switching / count
    for k in range(count):
        q[i, k] = max(keep * q[i, k] + even, LEAST)


def mix(mixture: Mixture, experts: F32, labels: F32, out: F32) -> None:
    """All samples, round by round and client by client; a label that is NaN is a round of rest."""
    clients = mixture.weight.shape[0]
    for first in range(0, len(labels), clients):
        for i in range(clients):
            c = first + i
            if labels[c] == labels[c]:
                out[c] = blend(mixture, i, experts, c)
                reweigh(mixture, i, experts, c, labels[c])


def mix_rows(mixture: Mixture, experts: F32, row_start: I64, out: F32) -> None:
    """Rows without labels, client by client, by the weights of now."""
    for i in range(len(row_start) - 1):
        for row in range(row_start[i], row_start[i + 1]):
            out[row] = blend(mixture, i, experts, row)

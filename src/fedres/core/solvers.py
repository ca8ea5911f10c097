"""Convex problems over a ball: the argmins of the ERM-based algorithms.

Least squares are solved by Cholesky's factors, written out: LAPACK's results depend on the CPU and
on the number of cores, and learning must not.
"""

import numpy as np

from fedres.core.losses import Loss
from fedres.core.primitives import add_scaled, add_square
from fedres.core.source import apart
from fedres.core.types import F64, I64

EPSILON = float(np.finfo(float).eps)
ENOUGH = 1e-9  # Newton's steps square their error: after one so small, rounding is all that is left


@apart
def least_squares_in_ball(A: F64, r: F64, radius: float = np.inf) -> F64:
    """Argmin of w'Aw - 2 r'w over ||w|| <= radius, A being positive semi-definite.

    Without a binding ball it is the solution of minimum norm; with one, the root mu of the secular
    equation ||(A + mu)^-1 r|| = radius. Only the upper triangle of A is looked at.

    Examples
    --------
    >>> A, r = np.diag([1.0, 4.0]), np.array([3.0, 4.0])
    >>> least_squares_in_ball(A, r)
    array([3., 1.])
    >>> float(np.linalg.norm(least_squares_in_ball(A, r, radius=1.0)).round(12))
    1.0
    """
    mu = 0.0
    U, order, rank = factor(A, mu)
    w = solve_factored(U, order, rank, r)
    square = inner(w, w)
    if square > radius * radius:
        # 1 / ||w(mu)|| is nearly linear in mu: Newton's steps on it rise to the root from the left.
        for _ in range(100):
            curve = inner(w, solve_factored(U, order, rank, w))
            step = (np.sqrt(square) / radius - 1) * square / curve
            mu += step
            U, order, rank = factor(A, mu)
            w = solve_factored(U, order, rank, r)
            square = inner(w, w)
            if step <= ENOUGH * mu:
                break
    return w


@apart
def factor(A: F64, mu: float) -> tuple[F64, I64, int]:
    """U, an order and a rank, with (A + mu)[order, order] = U'U, U upper triangular.

    The largest pivot goes first, so that what is left when pivots are no more than rounding
    errors is nothing else either.
    """
    U, size = A.copy(), len(A)
    order = np.arange(size)
    most = 0.0
    for j in range(size):
        U[j, j] += mu
        most = max(most, U[j, j])
    for k in range(size):
        p = k
        for j in range(k + 1, size):
            if U[j, j] > U[p, p]:
                p = j
        if not U[p, p] > size * EPSILON * most:
            return U, order, k
        if p > k:
            order[k], order[p] = order[p], order[k]
            U[k, k], U[p, p] = U[p, p], U[k, k]
            exchange(U[:k, k], U[:k, p])
            exchange(U[k, k + 1 : p], U[k + 1 : p, p])
            exchange(U[k, p + 1 :], U[p, p + 1 :])
        U[k, k] = np.sqrt(U[k, k])
        U[k, k + 1 :] /= U[k, k]
        add_square(U, -1.0, U[k], k + 1)
    return U, order, size


@apart
def solve_factored(U: F64, order: I64, rank: int, r: F64) -> F64:
    """The solution of minimum norm of A w = r, given the factor of A."""
    size = len(r)
    some = substitute(U, rank, r[order])
    if rank < size:
        # Of all solutions it is the one that lies in the range of A: that of U'.
        rows = U[:rank].T.copy()
        square, right = np.zeros((rank, rank)), np.zeros(rank)
        for j in range(size):
            rows[j, j + 1 :] = 0.0  # below the diagonal of U is what was there of A
            add_square(square, 1.0, rows[j], 0)
            add_scaled(right, some[j], rows[j])
        V, turned, full = factor(square, 0.0)
        along = np.zeros(rank)
        along[turned] = substitute(V, full, right[turned])
        for j in range(size):
            some[j] = inner(rows[j], along)
    w = np.zeros(size)
    w[order] = some
    return w


@apart
def substitute(U: F64, rank: int, b: F64) -> F64:
    """A solution of U'U w = b, in place: zero from `rank` on."""
    for j in range(rank):
        b[j] /= U[j, j]
        add_scaled(b[j + 1 :], -b[j], U[j, j + 1 :])
    b[rank:] = 0.0
    for j in range(rank - 1, -1, -1):
        b[j] = (b[j] - inner(U[j, j + 1 : rank], b[j + 1 : rank])) / U[j, j]
    return b


def inner(a: F64, b: F64) -> float:
    """The sum of products, in their order."""
    total = np.float64(0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


def exchange(a: F64, b: F64) -> None:
    """Swap the contents of two arrays."""
    kept = a.copy()
    a[:] = b
    b[:] = kept


def minimise_in_ball(
    loss: Loss,
    x: F64,
    y: F64,
    offset: F64,
    weight: F64,
    radius: float,
    ridge: float,
    start: F64,
) -> F64:
    """Argmin of sum weight * l(y, w.x + offset) + ridge ||w||^2 over ||w|| <= radius.

    By L-BFGS from `start`; a binding ball is met by the ridge term that makes it just hold.

    Examples
    --------
    >>> from fedres.core.losses import LOGISTIC
    >>> x, y = np.float32([[1.0], [-1.0]]), np.float32([1.0, -1.0])
    >>> w = minimise_in_ball(LOGISTIC, x, y, np.zeros(2), np.ones(2), 2.0, 0.0, np.zeros(1))
    >>> float(w[0].round(6))
    2.0
    """
    from scipy.optimize import brentq, minimize

    def solve(penalty: float, start: F64) -> F64:
        def objective(w: F64) -> tuple[float, F64]:
            prediction = x @ w + offset
            gradient = x.T @ (weight * loss.slope(prediction, y))
            value = (weight * loss.value(prediction, y)).sum() + penalty * (w @ w)
            return float(value), np.asarray(gradient + 2 * penalty * w, float)

        found: F64 = minimize(
            objective, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9}
        ).x
        return found

    if radius == np.inf:
        return solve(ridge, start)
    # Without any penalty the minimum may lie at infinity; a ball of this size leaves it inside.
    best = solve(max(ridge, 1e-12), start)
    if np.linalg.norm(best) <= radius:
        return best
    most = float(weight.sum() * np.sqrt((x * x).sum()))

    def excess(penalty: float) -> float:
        return float(np.linalg.norm(solve(penalty, best)) - radius)

    penalty = brentq(excess, max(ridge, 1e-12), ridge + (1 + most) / radius, rtol=1e-10)
    found = solve(float(penalty), best)
    return found * (radius / np.linalg.norm(found))

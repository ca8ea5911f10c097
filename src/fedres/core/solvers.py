"""Convex problems over a ball: the argmins of the ERM-based algorithms."""

import numpy as np

from fedres.core.losses import Loss
from fedres.core.types import F64

EPSILON = float(np.finfo(float).eps)


def least_squares_in_ball(A: F64, r: F64, radius: float = np.inf) -> F64:
    """Argmin of w'Aw - 2 r'w over ||w|| <= radius, A being positive semi-definite.

    Exact, from the eigenvectors of A. Without a binding ball it is the solution of minimum norm;
    with one, the root mu of the secular equation ||(A + mu)^-1 r|| = radius.

    Examples
    --------
    >>> A, r = np.diag([1.0, 4.0]), np.array([3.0, 4.0])
    >>> least_squares_in_ball(A, r)
    array([3., 1.])
    >>> float(np.linalg.norm(least_squares_in_ball(A, r, radius=1.0)).round(12))
    1.0
    """
    values, vectors = np.linalg.eigh(A)
    along = vectors.T @ r
    solid = values > len(values) * EPSILON * max(values[-1], 0.0)
    along = np.where(solid, along, 0.0)
    values = np.where(solid, values, 1.0)
    mu = 0.0
    if ((along / values) ** 2).sum() > radius**2:
        # 1 / ||w(mu)|| is nearly linear in mu: Newton's steps on it rise to the root from the left.
        for _ in range(100):
            squares = (along / (values + mu)) ** 2
            square = squares.sum()
            step = (np.sqrt(square) / radius - 1) * square / (squares / (values + mu)).sum()
            mu += step
            if step <= 1e-15 * mu:
                break
    return vectors @ (along / (values + mu))


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

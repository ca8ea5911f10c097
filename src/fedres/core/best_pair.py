"""The best pair of models in hindsight: what the regret of section 2 compares with.

    min  sum_i sum_s weight_is l(y_is, u^g . (x^g, 1) + u_i . (x^l, 1))
         + ridge_global |u^g|^2 + ridge_local sum_i |u_i|^2        with all |u| <= radius

where ridges leave constants alone (else the answer would depend on where the zero of each feature
lies), and the radius, as everywhere, does not. With ridges it is a personalised model in its own
right: `ridge_local` decides how much each client takes from the others. Newton's method solves it.
A client's weights meet those of other clients only through u^g, so the Hessian has the shape of an
arrow, and local blocks are eliminated one by one (the Schur complement): the work grows linearly
with the clients. A radius enters through a logarithmic barrier, whose Hessian keeps the shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fedres.core.losses import LOGISTIC, SQUARED, Loss
from fedres.core.types import F32, F64, Matrix
from fedres.core.views import is_sparse

GAP = 1e-10  # of the loss at zero: how far from the optimum a solution within a ball may be
ENOUGH = 1e-12  # of the loss at zero: the gain that ends Newton's method
STEPS = 200
SAFE = 1e-8  # of a matrix's trace: a ridge that makes it well enough conditioned to factorise
RANK = 1e-12  # singular values below so much of the largest are zero


@dataclass(frozen=True)
class Samples:
    """The rows of one client, dense or CSR; a view of width zero has no model on its side."""

    x_global: Matrix
    x_local: Matrix
    y: F32
    weight: F64 | None = None


@dataclass(frozen=True)
class JointFit:
    """The pair, the constants' weights last, and its weighted sum of losses, without ridges."""

    w_global: F64
    w_local: list[F64]
    loss: float


def best_pair(
    clients: Sequence[Samples],
    loss: Loss = SQUARED,
    *,
    constant: bool = True,
    ridge_global: float = 0.0,
    ridge_local: float = 0.0,
    radius: float | None = None,
) -> JointFit:
    """Fit the global model and all local models at once.

    Parameters
    ----------
    clients
        The samples of each.
    loss
        Of the sum of both predictions.
    constant
        Whether every model has a feature that is always 1.
    ridge_global, ridge_local
        The weight of |u^g|^2, and that of every |u_i|^2, constants not counted.
    radius
        The most that each |u| may be, constants counted; None for no bound.

    Examples
    --------
    Two clients share a slope of 2 and differ in their constants.

    >>> x, one = np.float32([[0.0], [1.0], [2.0]]), np.ones((3, 1), np.float32)
    >>> ann = Samples(x, one, np.float32([0.0, 2.0, 4.0]))
    >>> bob = Samples(x, one, np.float32([5.0, 7.0, 9.0]))
    >>> fit = best_pair([ann, bob], constant=False)
    >>> np.round(fit.w_global, 6) + 0.0
    array([2.])
    >>> [np.round(w, 6) + 0.0 for w in fit.w_local]
    [array([0.]), array([5.])]
    """
    _check(clients, loss, ridge_global, ridge_local, radius)
    problem = _Problem(clients, loss, constant, 2 * ridge_global, 2 * ridge_local)
    point, scale = problem.zero(), problem.value(problem.zero())
    found = problem.minimise(point, ENOUGH * scale)
    if radius is not None and max(map(_norm, found)) > radius:
        found, balls = point, len(point)
        strength = scale / balls
        while True:
            problem.barrier, problem.radius = strength, radius
            found = problem.minimise(found, 1e-3 * strength)
            # The optimum of a barrier is within its strength a ball of the constrained one.
            if strength * balls <= GAP * scale:
                break
            strength /= 10
    w_global, *w_local = problem.expand(found)
    return JointFit(w_global, w_local, problem.loss_at(found))


def _curvature_squared(slope: F64) -> F64:
    return np.full_like(slope, 2.0)


def _curvature_logistic(slope: F64) -> F64:
    """That of the logistic loss, kept off zero where a row is hopelessly wrong."""
    sure = np.abs(slope)
    return np.asarray(np.maximum(sure * (1 - sure), 1e-12), np.float64)


_CURVATURES = {SQUARED.name: _curvature_squared, LOGISTIC.name: _curvature_logistic}


class _Problem:
    """A point is a list: u^g, then u_i of each client, in coordinates of no more than its rows."""

    def __init__(
        self,
        clients: Sequence[Samples],
        loss: Loss,
        constant: bool,
        ridge_global: float,
        ridge_local: float,
    ) -> None:
        self.loss, self.curvature = loss, _CURVATURES[loss.name]
        self.barrier, self.radius = 0.0, np.inf
        self.y = np.concatenate([client.y for client in clients]).astype(float)
        self.weight = np.concatenate(
            [np.ones(len(c.y)) if c.weight is None else c.weight for c in clients]
        )
        ends = np.cumsum([len(client.y) for client in clients]).tolist()
        self.parts = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
        shared = _Block(np.concatenate([_dense(c.x_global) for c in clients]), constant)
        own = [_Block(_dense(client.x_local), constant) for client in clients]
        self.blocks = [shared, *own]
        self.ridges = [shared.ridge(ridge_global), *(block.ridge(ridge_local) for block in own)]
        self.x_global, self.x_local = shared.x, [block.x for block in own]
        # The solution does not depend on the units of features, nor should what counts as zero.
        size = np.sqrt((self.weight[:, None] * shared.x**2).sum(axis=0))
        self.units = np.where(size > 0, size, 1.0)

    def zero(self) -> list[F64]:
        return [np.zeros(x.shape[1]) for x in (self.x_global, *self.x_local)]

    def expand(self, point: list[F64]) -> list[F64]:
        return [block.expand(w) for w, block in zip(point, self.blocks, strict=True)]

    def predict(self, point: list[F64]) -> F64:
        w_global, *w_local = point
        prediction: F64 = self.x_global @ w_global
        for part, x, w in zip(self.parts, self.x_local, w_local, strict=True):
            prediction[part] += x @ w
        return prediction

    def loss_at(self, point: list[F64]) -> float:
        losses = self.loss.value(self.predict(point), self.y)
        return float(self.weight @ losses)

    def value(self, point: list[F64]) -> float:
        """What is minimised: infinite outside the balls of a barrier."""
        value = self.loss_at(point)
        value += sum(float(r @ w**2) for r, w in zip(self.ridges, point, strict=True)) / 2
        if self.barrier:
            room = 1 - np.array([w @ w for w in point]) / self.radius**2
            value -= self.barrier * np.log(room).sum() if (room > 0).all() else -np.inf
        return value

    def minimise(self, point: list[F64], enough: float) -> list[F64]:
        """Newton's method with a backtracking line search."""
        value = self.value(point)
        for _ in range(STEPS):
            step, gain = self._newton(point)
            if gain <= enough:  # so near the optimum a whole step is right
                last = _along(point, step, 1.0)
                return last if self.value(last) <= value + enough else point
            length = 1.0
            while (after := self.value(_along(point, step, length))) > value - 1e-4 * length * gain:
                length /= 2
                if length < 1e-12:  # rounding is all that is left to gain
                    return point
            point, value = _along(point, step, length), after
        return point

    def _newton(self, point: list[F64]) -> tuple[list[F64], float]:
        """The step -H^-1 g, and g . H^-1 g: twice what it should gain."""
        raw = self.loss.slope(self.predict(point), self.y)
        slope = self.weight * raw
        root = np.sqrt(self.weight * self.curvature(np.asarray(raw, np.float64)))
        # Each block's Hessian is A'A + ridge, the wall of its ball one row more of A.
        walls = [self._wall(w, ridge) for w, ridge in zip(point, self.ridges, strict=True)]
        ridge_global, row, pull = walls[0]
        gradient = [self.x_global.T @ slope + pull]
        a_global = root[:, None] * self.x_global
        schur = a_global.T @ a_global + np.outer(row, row) + np.diag(ridge_global)
        right = -gradient[0]
        eliminated = []
        for part, x, (ridge, row, pull) in zip(self.parts, self.x_local, walls[1:], strict=True):
            gradient.append(x.T @ slope[part] + pull)
            a = root[part, None] * x
            half = _half_inverse(np.vstack([a, row]) if self.barrier else a, ridge)
            eliminated.append((half, half @ (a.T @ a_global[part]), half @ gradient[-1]))
        seen_by_all = np.vstack([seen for _, seen, _ in eliminated])
        schur -= seen_by_all.T @ seen_by_all
        right += seen_by_all.T @ np.concatenate([own for _, _, own in eliminated])
        step = [_solve(schur, right, float(ridge_global.max(initial=0)), self.units)]
        step += [-half.T @ (own + seen @ step[0]) for half, seen, own in eliminated]
        return step, -sum(float(g @ d) for g, d in zip(gradient, step, strict=True))

    def _wall(self, w: F64, ridge: F64) -> tuple[F64, F64, F64]:
        """Of ridge and barrier: the diagonal and the row of the Hessian, and the gradient."""
        if not self.barrier:
            return ridge, np.zeros_like(w), ridge * w
        room = self.radius**2 - float(w @ w)
        firm = ridge + 2 * self.barrier / room
        return firm, 2 * np.sqrt(self.barrier) / room * w, firm * w


class _Block:
    """One model's rows in as many coordinates as there are rows, at most, and the constant.

    Whatever of a model is at right angles to all rows changes no prediction and only adds to
    its norm, so the solution has none of it.
    """

    def __init__(self, x: F64, constant: bool) -> None:
        self.basis, self.constant = None, constant and x.shape[1] > 0
        if x.shape[1] > x.shape[0]:
            self.basis, rows = np.linalg.qr(x.T)
            x = rows.T
        self.x = np.hstack([x, np.ones((len(x), 1))]) if self.constant else x

    def ridge(self, ridge: float) -> F64:
        ridges = np.full(self.x.shape[1], ridge)
        ridges[len(ridges) - self.constant :] = 0
        return ridges

    def expand(self, w: F64) -> F64:
        if self.basis is None:
            return w
        width = self.basis.shape[1]
        return np.concatenate([self.basis @ w[:width], w[width:]])


def _half_inverse(a: F64, ridge: F64) -> F64:
    """R with R'R the inverse of A'A + ridge, or its pseudo-inverse where there is none."""
    if not ridge.size:
        return np.zeros((0, 0))
    matrix = a.T @ a
    if ridge[0] > SAFE * matrix.trace():
        try:
            return np.asarray(np.linalg.inv(np.linalg.cholesky(matrix + np.diag(ridge))))
        except np.linalg.LinAlgError:  # a constant without weight
            pass
    _, s, v = np.linalg.svd(np.vstack([a, np.diag(np.sqrt(ridge))]), full_matrices=False)
    kept = s > RANK * s[0]
    return np.asarray(v[kept] / s[kept][:, None])


def _solve(matrix: F64, right: F64, ridge: float, units: F64) -> F64:
    """A solution of a positive semidefinite system that holds a ridge, also if there are many."""
    if not right.size:
        return right
    if ridge > SAFE * (units @ units):
        # The constants of clients leave nothing to the global one: what steadies it moves nothing.
        steady = matrix + np.diag(1e-9 * units**2)
        return np.asarray(scipy.linalg.cho_solve(scipy.linalg.cho_factor(steady), right))
    values, vectors = np.linalg.eigh(matrix / np.outer(units, units))
    kept = values > RANK * max(1.0, values[-1])
    vectors = vectors[:, kept]
    return np.asarray(vectors @ ((vectors.T @ (right / units)) / values[kept]) / units)


def _dense(x: Matrix) -> F64:
    rows = x.toarray() if is_sparse(x) else np.asarray(x)
    return np.asarray(rows, np.float64)


def _along(point: list[F64], step: list[F64], length: float) -> list[F64]:
    return [w + length * d for w, d in zip(point, step, strict=True)]


def _norm(w: F64) -> float:
    return float(np.linalg.norm(w))


def _check(
    clients: Sequence[Samples],
    loss: Loss,
    ridge_global: float,
    ridge_local: float,
    radius: float | None,
) -> None:
    if not sum(len(client.y) for client in clients):
        raise ValueError("there are no samples: best_pair needs at least one")
    if loss.name not in _CURVATURES:
        raise ValueError(
            f"best_pair cannot fit the {loss.name} loss: use {' or '.join(_CURVATURES)}"
        )
    for name, ridge in (("ridge_global", ridge_global), ("ridge_local", ridge_local)):
        if not 0 <= ridge < np.inf:
            raise ValueError(f"{name} must be a number from 0 up, not {ridge}")
    if radius is not None and not 0 < radius < np.inf:
        raise ValueError(f"radius must be a positive number or None, not {radius}")
    width = clients[0].x_global.shape[1]
    for i, client in enumerate(clients):
        loss.check(client.y)
        if client.x_global.shape[1] != width:
            raise ValueError(
                f"client {i} has {client.x_global.shape[1]} global features, client 0 has {width}: "
                "all share one global model"
            )
        for name in ("x_global", "x_local", "weight"):
            part = getattr(client, name)
            if part is not None and part.shape[0] != len(client.y):
                raise ValueError(
                    f"{name} of client {i} has {part.shape[0]} rows, y has {len(client.y)}: "
                    "give one row a label"
                )
        if (
            client.weight is not None
            and not (np.isfinite(client.weight) & (client.weight >= 0)).all()
        ):
            raise ValueError(f"weights must be numbers from 0 up, not {client.weight.min()}")

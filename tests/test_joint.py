import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, Ridge

from fedres.core.best_pair import Samples, best_pair
from fedres.core.losses import LOGISTIC, SQUARED


def some_clients(rows=(9, 14, 11), width_global=3, width_local=2, signs=False, seed=0):
    rng = np.random.default_rng(seed)

    def client(n):
        y = rng.normal(size=n)
        return Samples(
            rng.normal(size=(n, width_global)).astype(np.float32),
            rng.normal(size=(n, width_local)).astype(np.float32),
            (np.sign(y) if signs else y).astype(np.float32),
            rng.uniform(0.5, 2, n),
        )

    return [client(n) for n in rows]


def with_constant(x):
    return np.hstack([x, np.ones((len(x), 1))]) if x.shape[1] else x


def stacked(clients, constant=True):
    """One row of features for all models side by side, labels and weights."""
    add = with_constant if constant else np.asarray
    left = np.vstack([add(c.x_global) for c in clients])
    right = block_diag(*(add(c.x_local) for c in clients))
    y, weight = (np.concatenate([getattr(c, name) for c in clients]) for name in ("y", "weight"))
    return np.hstack([left, right]).astype(float), y.astype(float), weight


def flat(fit):
    return np.concatenate([fit.w_global, *fit.w_local])


def gradient(clients, fit, loss, constant=True):
    x, y, weight = stacked(clients, constant)
    return x.T @ (weight * loss.slope(x @ flat(fit), y))


@pytest.mark.parametrize("constant", [True, False])
def test_squared_loss_against_lstsq(constant):
    clients = some_clients()
    x, y, weight = stacked(clients, constant)
    root = np.sqrt(weight)
    w = np.linalg.lstsq(root[:, None] * x, root * y)[0]
    fit = best_pair(clients, constant=constant)
    np.testing.assert_allclose(x @ flat(fit), x @ w, atol=1e-10)
    assert fit.loss == pytest.approx(weight @ (x @ w - y) ** 2, rel=1e-12)
    if not constant:  # else the two constants can be exchanged
        np.testing.assert_allclose(flat(fit), w, atol=1e-10)


def test_squared_loss_against_ridge():
    clients = some_clients()
    x, y, weight = stacked(clients, constant=False)
    # Ridge has one strength: the widths of columns make two of it
    shrink = np.r_[np.full(3, 1 / np.sqrt(0.7)), np.full(6, 1 / np.sqrt(4.0))]
    w = shrink * Ridge(alpha=1, fit_intercept=False).fit(x * shrink, y, weight).coef_
    fit = best_pair(clients, constant=False, ridge_global=0.7, ridge_local=4.0)
    np.testing.assert_allclose(flat(fit), w, atol=1e-10)


def test_logistic_loss_against_scikit_learn():
    clients = some_clients(rows=(30, 40, 50), signs=True)
    x, y, weight = stacked(clients, constant=False)
    shrink = np.r_[np.full(3, 1 / np.sqrt(0.7)), np.full(6, 1 / np.sqrt(4.0))]
    model = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000)
    w = shrink * model.fit(x * shrink, y, weight).coef_[0]
    fit = best_pair(clients, LOGISTIC, constant=False, ridge_global=0.7, ridge_local=4.0)
    np.testing.assert_allclose(flat(fit), w, atol=1e-6)


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC])
@pytest.mark.parametrize("ridges", [(0.0, 0.0), (0.1, 0.0), (0.0, 3.0), (2.0, 50.0)])
def test_the_gradient_is_zero_at_the_optimum(loss, ridges):
    clients = some_clients(rows=(30, 40, 50), signs=True)
    fit = best_pair(clients, loss, ridge_global=ridges[0], ridge_local=ridges[1])
    shrunk = np.r_[1, 1, 1, 0], np.tile([1, 1, 0], 3)  # constants are not
    ridge = 2 * np.r_[ridges[0] * shrunk[0], ridges[1] * shrunk[1]]
    np.testing.assert_allclose(gradient(clients, fit, loss) + ridge * flat(fit), 0, atol=1e-6)


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC])
@pytest.mark.parametrize("radius", [0.05, 0.3])
def test_karush_kuhn_tucker_within_a_radius(loss, radius):
    """Each model is inside its ball with no gradient, or on it with the gradient straight out."""
    clients = some_clients(rows=(30, 40, 50), signs=True)
    fit = best_pair(clients, loss, constant=False, radius=radius)
    slopes = np.split(gradient(clients, fit, loss, constant=False), [3, 5, 7])
    on_the_ball = 0
    for w, g in zip([fit.w_global, *fit.w_local], slopes, strict=True):
        norm = np.linalg.norm(w)
        assert norm <= radius
        if norm > radius * (1 - 1e-5):
            on_the_ball += 1
            np.testing.assert_allclose(g / np.linalg.norm(g), -w / norm, atol=1e-4)
        else:
            np.testing.assert_allclose(g, 0, atol=1e-3)
    assert on_the_ball


def test_a_radius_against_a_general_solver():
    from scipy.optimize import minimize

    clients = some_clients()
    x, y, weight = stacked(clients, constant=False)
    blocks = np.split(np.arange(9), [3, 5, 7])
    fit = best_pair(clients, constant=False, radius=0.2)
    slow = minimize(
        lambda w: weight @ (x @ w - y) ** 2,
        np.zeros(9),
        jac=lambda w: 2 * x.T @ (weight * (x @ w - y)),
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": lambda w, b=b: 0.04 - w[b] @ w[b]} for b in blocks],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert fit.loss == pytest.approx(slow.fun, rel=1e-8)


def test_a_radius_that_does_not_bind_changes_nothing():
    clients = some_clients()
    np.testing.assert_array_equal(flat(best_pair(clients, radius=1e3)), flat(best_pair(clients)))


def test_equal_views_within_a_radius_share_the_load():
    """Alone each model is too short; together they reach: the optimum is not unique."""
    x = np.eye(2, dtype=np.float32)
    fit = best_pair([Samples(x, x, np.float32([3, 0]))], constant=False, radius=2.0)
    assert fit.loss == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC])
@pytest.mark.parametrize("sides", [(3, 0), (0, 2), (0, 0)])
def test_a_view_of_width_zero_has_no_model(sides, loss):
    clients = some_clients((20, 30), *sides, signs=True)
    fit = best_pair(clients, loss)
    widths = [w + 1 if w else 0 for w in sides]
    assert [len(fit.w_global), len(fit.w_local[0])] == widths
    np.testing.assert_allclose(gradient(clients, fit, loss), 0, atol=1e-6)


def test_clients_differ_in_width_and_number_of_rows():
    clients = [*some_clients((12,)), *some_clients((5, 1), width_local=8, seed=1)]
    x, y, weight = stacked(clients)
    root = np.sqrt(weight)
    w = np.linalg.lstsq(root[:, None] * x, root * y)[0]
    assert best_pair(clients).loss == pytest.approx(weight @ (x @ w - y) ** 2, abs=1e-10)


@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC])
def test_csr_equals_dense(loss):
    clients = some_clients(signs=True)
    sparse = [Samples(csr_array(c.x_global), csr_array(c.x_local), c.y, c.weight) for c in clients]
    ridges = {"ridge_global": 0.1, "ridge_local": 0.1}
    np.testing.assert_array_equal(
        flat(best_pair(sparse, loss, **ridges)), flat(best_pair(clients, loss, **ridges))
    )


def test_a_weight_is_a_number_of_copies():
    (client,) = some_clients((8,))
    times = np.array([0, 1, 2, 3, 1, 1, 2, 0])
    rows = np.repeat(np.arange(8), times)
    copies = Samples(client.x_global[rows], client.x_local[rows], client.y[rows])
    weighted = Samples(client.x_global, client.x_local, client.y, times.astype(float))
    same = {"constant": False, "ridge_global": 0.1, "ridge_local": 0.1}
    np.testing.assert_allclose(
        flat(best_pair([weighted], **same)), flat(best_pair([copies], **same)), atol=1e-10
    )


def test_separable_classes_end_near_zero_loss():
    x = np.float32([[-1], [1]])
    fit = best_pair([Samples(x, x, np.float32([-1, 1]))], LOGISTIC)
    assert 0 <= fit.loss < 1e-9


def test_a_large_ridge_leaves_one_side_only():
    """Only local is scikit-learn a client, only global is scikit-learn on all rows."""
    clients = some_clients((30, 40), signs=True)
    client = clients[1]
    model = LogisticRegression(C=1, tol=1e-10, max_iter=1000)
    model.fit(client.x_local.astype(float), client.y, client.weight)
    fit = best_pair(clients, LOGISTIC, ridge_global=1e9, ridge_local=0.5)
    np.testing.assert_allclose(fit.w_global[:-1], 0, atol=1e-6)
    np.testing.assert_allclose(fit.w_local[1][:-1], model.coef_[0], atol=1e-5)
    constant = fit.w_local[1][-1] + fit.w_global[-1]
    assert constant == pytest.approx(model.intercept_[0], abs=1e-5)

    x, y, weight = (
        np.concatenate([getattr(c, name) for c in clients]) for name in ("x_global", "y", "weight")
    )
    model.set_params(fit_intercept=False).fit(x.astype(float), y, weight)
    fit = best_pair(clients, LOGISTIC, constant=False, ridge_global=0.5, ridge_local=1e9)
    np.testing.assert_allclose(fit.w_global, model.coef_[0], atol=1e-5)


def test_two_thousand_clients():
    clients = some_clients((40,) * 2000, 8, 8, signs=True)
    fit = best_pair(clients, LOGISTIC, ridge_global=1.0, ridge_local=1.0)
    assert len(fit.w_local) == 2000
    assert best_pair(clients).loss < sum(c.weight.sum() for c in clients)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radius": 0.0}, "radius must be a positive number or None, not 0.0"),
        ({"ridge_local": -1.0}, "ridge_local must be a number from 0 up, not -1.0"),
        ({"loss": LOGISTIC}, "the logistic loss takes labels"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        best_pair(some_clients(), **change)


def test_bad_clients():
    good, wide = some_clients((4,)), some_clients((4,), width_global=5)
    x = np.zeros((4, 1), np.float32)
    y = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="no samples"):
        best_pair([])
    with pytest.raises(ValueError, match="client 1 has 5 global features, client 0 has 3"):
        best_pair([*good, *wide])
    with pytest.raises(ValueError, match="x_local of client 0 has 3 rows, y has 4"):
        best_pair([Samples(x, x[:3], y)])
    with pytest.raises(ValueError, match="weights must be numbers from 0 up, not -1"):
        best_pair([Samples(x, x, y, np.full(4, -1.0))])

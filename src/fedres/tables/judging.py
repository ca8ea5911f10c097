"""All methods trained on some rows of a table, and judged on the others."""

from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedres.core.types import F64, I64
from fedres.simulation.parallel import with_bar
from fedres.simulation.settings import choose
from fedres.tables.cell_values import factorise
from fedres.tables.holdout import hold_out
from fedres.tables.read_table import Table
from fedres.tables.verdict import METHODS, Task, Verdict

if TYPE_CHECKING:
    from fedres.tables.estimator import FedResEstimator

Part = tuple[Any, NDArray[Any], I64]  # features, labels and clients of some rows


def judge(
    X: Any,
    y: Any,
    groups: Any,
    time: Any = None,
    *,
    model: "FedResEstimator | None" = None,
    share: float = 0.2,
    seed: int = 0,
    progress: bool = False,
) -> Verdict:
    """Train Independent, Central and FedRes on some rows, and judge them on the others.

    Each of them chooses step size, shrinkage and passes from the same candidates, by training rows
    only. Beside them is a constant: the mean of labels, or the share of each class.

    Parameters
    ----------
    X, y, groups
        Features, label and client of each row, as for `FedResRegressor.fit`.
    time
        The time of each row: if given, the last rows are held out, otherwise random ones of each
        client.
    model
        An estimator whose parameters are used; if None, what `estimator_for` makes of y.
    share
        The share of rows to hold out.
    seed
        Decides which rows are held out where there is no time.
    progress
        Whether to show a progress bar.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> user, X = rng.integers(0, 30, 3000), rng.normal(size=(3000, 3))
    >>> taste = rng.normal(size=30)
    >>> y = X[:, 0] + taste[user] * X[:, 1] + rng.normal(scale=0.5, size=3000)
    >>> verdict = judge(X, y, user)
    >>> for method in ("constant", "independent", "central", "fedres"):
    ...     print(f"{method:11} {verdict.score(method, 'rmse').mean:.1f}")
    constant    1.7
    independent 0.5
    central     1.4
    fedres      0.5
    """
    from sklearn.base import clone
    from sklearn.utils import check_consistent_length

    y = np.asarray(y)
    model = estimator_for(y) if model is None else model
    client = _numbered(groups)
    check_consistent_length(X, y, client, time)
    if time is None:
        train, held = hold_out(Table(X, client=client), share, seed)
    else:
        order = np.argsort(np.asarray(time), kind="stable")
        last = hold_out(Table(X, time=order.astype(np.float64)), share)
        train, held = (order[rows] for rows in last)
    parts = [(_take(X, rows), y[rows], client[rows]) for rows in (train, held)]
    ours = [clone(model).set_params(method=method) for method in METHODS[1:]]
    calls = [partial(_constant_errors, hasattr(model, "predict_proba"), *parts)]
    calls += [partial(_errors, one, *parts) for one in ours]
    bar = "judging on held-out rows" if progress else None
    errors = list(with_bar((call() for call in calls), len(calls), bar))
    clients, numbers = np.unique(client[held], return_inverse=True)
    return Verdict(
        "classes" if hasattr(model, "predict_proba") else "numbers",
        time is not None,
        len(train),
        numbers,
        np.bincount(client[train], minlength=int(client.max()) + 1)[clients],
        dict(zip(METHODS, errors, strict=True)),
        ours[-1],
    )


def estimator_for(y: NDArray[Any], task: Task | None = None, **parameters: Any) -> Any:
    """An estimator for these labels: texts, truth values or two different numbers are classes.

    Parameters
    ----------
    y
        The labels.
    task
        ``numbers`` or ``classes``, where the labels alone would mislead.
    parameters
        Those of the estimator.

    Examples
    --------
    >>> type(estimator_for(np.array([1, 2, 3]))).__name__
    'FedResRegressor'
    """
    import pandas as pd

    from fedres.tables.classifier import FedResClassifier
    from fedres.tables.regressor import FedResRegressor

    if task is None:
        task = "numbers" if y.dtype.kind in "iuf" and len(pd.unique(y)) > 2 else "classes"
    choose("task", task, get_args(Task))
    if task == "numbers" and y.dtype.kind not in "biuf":
        raise ValueError(f"labels such as {y[0]!r} are no numbers: let the task be classes")
    return (FedResRegressor if task == "numbers" else FedResClassifier)(**parameters)


def _numbered(groups: Any) -> I64:
    values = groups if hasattr(groups, "dtype") else np.asarray(groups, object)
    client = np.asarray(factorise(values)[0], np.int64)
    if (lost := np.flatnonzero(client < 0)).size:
        raise ValueError(f"groups has no client in row {lost[0]}: give every row one")
    return client


def _take(X: Any, rows: I64) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return sparse.csr_array(X)[rows] if sparse.issparse(X) else np.asarray(X)[rows]


def _errors(model: Any, train: Part, held: Part) -> dict[str, F64]:
    x, y, client = held
    model.fit(*train)
    if hasattr(model, "predict_proba"):
        return _class_errors(y, model.predict_proba(x, client), model.classes_)
    return _number_errors(y, model.predict(x, client))


def _constant_errors(are_classes: bool, train: Part, held: Part) -> dict[str, F64]:
    seen, y = train[1], held[1]
    if not are_classes:
        return _number_errors(y, np.full(len(y), seen.astype(np.float64).mean()))
    classes, counts = np.unique(seen, return_counts=True)
    return _class_errors(y, np.tile(counts / counts.sum(), (len(y), 1)), classes)


def _number_errors(y: NDArray[Any], predicted: F64) -> dict[str, F64]:
    error = y.astype(np.float64) - predicted
    return {"rmse": error**2, "mae": np.abs(error)}


def _class_errors(y: NDArray[Any], probability: F64, classes: NDArray[Any]) -> dict[str, F64]:
    """Log losses and hits; a class that no training row had has no probability with any method."""
    is_class = y[:, None] == classes
    least = np.finfo(np.float64).eps  # as scikit-learn has it
    own = np.where(is_class, probability, 0).sum(axis=1).clip(least, 1)
    right = is_class[np.arange(len(y)), probability.argmax(axis=1)]
    return {"log_loss": -np.log(own), "accuracy": right.astype(np.float64)}

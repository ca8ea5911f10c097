"""All methods trained on some rows of a table, and judged on the others."""

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from fedres.core.types import F32, F64, I64
from fedres.core.warn import warn
from fedres.simulation.parallel import with_bar
from fedres.simulation.settings import choose
from fedres.tables.cell_values import factorise, refuse_labels
from fedres.tables.column_notes import LabelColumn, LabelWarning, label_outliers
from fedres.tables.holdout import hold_out
from fedres.tables.read_table import Table
from fedres.tables.table_comparison import (
    METRICS,
    ComparedMethod,
    Example,
    TableComparison,
    Task,
)
from fedres.tables.unseen import UnseenWarning

if TYPE_CHECKING:
    from fedres.tables.encoder import EstimatorMethod
    from fedres.tables.estimator import FedResEstimator

ENOUGH_TO_CHOOSE = 10_000  # rows, of which some are shown as examples
CHOSEN = ("eta", "shrinkage", "passes")
TRAINED: tuple["EstimatorMethod", ...] = ("independent", "central", "fedres")


def compare_on_table(
    table: Table,
    *,
    model: "FedResEstimator | None" = None,
    share: float = 0.2,
    seed: int = 0,
    progress: bool = False,
) -> TableComparison:
    """Train Independent, Central and FedRes on some rows, and judge them on the others.

    Each of them chooses step size, shrinkage and passes from the same candidates, by training rows
    only. Beside them is a constant: the mean of labels, or the share of each class.

    Parameters
    ----------
    table
        The rows. If they have times the last of each client are held out, and all of clients who
        come last; otherwise random ones of each client.
    model
        An estimator whose parameters are used; if None, what `estimator_for` makes of the labels.
    share
        The share of each client's rows to hold out.
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
    >>> found = compare_on_table(Table(X, y, user))
    >>> for method in ("constant", "independent", "central", "fedres"):
    ...     print(f"{method:11} {found.score(method, 'rmse').mean:.1f}")
    constant    1.7
    independent 0.5
    central     1.4
    fedres      0.5
    """
    from sklearn.utils import check_consistent_length

    check_consistent_length(table.frame, table.y, table.client, table.time)
    model = estimator_for(np.asarray(table.y)) if model is None else model
    rows = Table(table.frame, table.y, _numbered(table.client), table.time)
    by_time = rows.time is not None
    order = np.arange(len(rows)) if rows.time is None else np.argsort(rows.time, kind="stable")
    in_training, in_held = (order[part] for part in hold_out(rows.take(order), share, seed))
    train, held = rows.take(in_training), rows.take(in_held)
    y, client, trained_on = held.y, np.asarray(held.client), np.asarray(train.client)
    are_classes = hasattr(model, "predict_proba")
    _warn_of_held_outliers(rows, train, are_classes)
    errors: dict[ComparedMethod, dict[str, F64]]
    errors = {"constant": _constant_errors(are_classes, train.y, y)}
    chosen: dict[ComparedMethod, dict[str, Any]] = {}
    shared_losses: dict[ComparedMethod, dict[str, float]] = {}
    bar = "judging on held-out rows" if progress else None
    fits = model.fit_each(TRAINED, train, held)
    del rows, train  # of which all that is needed is encoded
    for one, scores in with_bar(fits, len(TRAINED), bar):
        errors[one.method] = _errors(one, scores, y)
        chosen[one.method] = {name: getattr(one, name + "_") for name in CHOSEN}
        if isinstance(model.shared, str):
            chosen[one.method]["shared"] = one.shared_
        shared_losses[one.method] = {
            trial["shared"]: trial["loss"] for trial in one.validation_ if "shared" in trial
        }
    training_rows = np.bincount(trained_on, minlength=int(client.max()) + 1)

    def judged(are_judged: NDArray[np.bool_]) -> TableComparison:
        clients, numbers = np.unique(client[are_judged], return_inverse=True)
        return TableComparison(
            "classes" if are_classes else "numbers",
            by_time,
            len(trained_on),
            numbers,
            training_rows[clients],
            {
                method: {metric: error[are_judged] for metric, error in of_method.items()}
                for method, of_method in errors.items()
            },
        )

    is_known = training_rows[client] > 0
    new = None if is_known.all() else judged(~is_known)
    found = replace(judged(is_known), new=new, model=one, chosen=chosen)
    one.verdict_ = found.verdict()
    examples = _examples(one, held, np.asarray(table.client)[in_held], errors, is_known)
    return replace(found, shared_losses=shared_losses, examples=examples)


def _warn_of_held_outliers(rows: Table, train: Table, are_classes: bool) -> None:
    """Warn of labels far out that only held-out rows have, of which no fit warns."""
    every, seen = (
        label_outliers(some.frame, LabelColumn("y", some.y, are_classes)) for some in (rows, train)
    )
    if every and not seen:
        warn(f"label: {every}", LabelWarning)


def _examples(
    model: "FedResEstimator",
    held: Table,
    ids: NDArray[Any],
    errors: dict[ComparedMethod, dict[str, F64]],
    is_known: NDArray[np.bool_],
) -> tuple[Example, ...]:
    """A row whose personal part is of the usual size, and those it helped and harmed most."""
    known = np.flatnonzero(is_known)
    if model._labels.outputs > 1 or not len(known):
        return ()
    some = known[np.linspace(0, len(known) - 1, min(len(known), ENOUGH_TO_CHOOSE)).astype(int)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenWarning)
        parts = model.contributions(held.take(some).frame, np.asarray(held.client)[some])
    metric = METRICS["classes" if hasattr(model, "predict_proba") else "numbers"][0]
    gain = (errors["central"][metric] - errors["fedres"][metric])[some]
    names: list[Any] = parts.columns.to_list()
    values = parts.to_numpy()
    size = np.abs(values[:, [side == "client" for side, _ in names]].sum(axis=1))
    usual = int(np.abs(size - np.median(size)).argmin())
    chosen = {
        "A typical prediction": usual,
        "Where the personal part helped most": int(gain.argmax()),
    }
    if gain.min() < 0:
        chosen["Where the personal part harmed most"] = int(gain.argmin())
    rows = held.take(some[list(chosen.values())])
    bounds: Any = [None] * len(chosen)
    if model._posterior is not None and hasattr(model, "predict_interval"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnseenWarning)
            bounds = model.predict_interval(rows.frame, rows.client).tolist()
    assert rows.y is not None
    return tuple(
        Example(
            why,
            ids[some[at]].item() if hasattr(ids[some[at]], "item") else ids[some[at]],
            rows.y[k].item() if hasattr(rows.y[k], "item") else rows.y[k],
            [(*name, part) for name, part in zip(names, values[at].tolist(), strict=True)],
            bounds[k] if bounds[k] is None else tuple(bounds[k]),
        )
        for k, (why, at) in enumerate(chosen.items())
    )


def estimator_for(y: NDArray[Any], task: Task | None = None, **parameters: Any) -> Any:
    """An estimator for labels: texts, truth values or two different whole numbers are classes.

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
    from fedres.tables.classifier import FedResClassifier
    from fedres.tables.regressor import FedResRegressor

    return (FedResRegressor if task_of(y, task) == "numbers" else FedResClassifier)(**parameters)


def task_of(y: NDArray[Any], task: Task | None = None) -> Task:
    """The task that labels are for; a sentence, if they are for none or not for the one asked.

    Examples
    --------
    >>> task_of(np.array([1, 2, 3])), task_of(np.array(["a", "b", "c"]))
    ('numbers', 'classes')
    """
    import pandas as pd

    refuse_labels(y)
    different = pd.unique(y)
    if len(different) == 1:
        raise ValueError(
            f"the label is {different.tolist()[0]!r} in every row: there is nothing to learn, so "
            "name another column"
        )
    are_numbers = y.dtype.kind in "iuf"
    fractions = different[different % 1 != 0] if y.dtype.kind == "f" else different[:0]
    if task is None:
        task = "numbers" if are_numbers and (len(different) > 2 or len(fractions)) else "classes"
        if task == "numbers" and len(different) == 2:
            first, second = sorted(different.tolist())
            warn(
                f"the labels {first} and {second} are taken for numbers, not for two classes: "
                "write classes as texts or whole numbers"
            )
    choose("task", task, get_args(Task))
    if task == "numbers" and not are_numbers and y.dtype.kind != "b":
        raise ValueError(
            f"labels such as {y[0]!r} are no numbers: let the task be classes (--task classes)"
        )
    if task == "classes" and len(fractions):
        raise ValueError(
            f"labels such as {fractions.tolist()[0]} are no classes: write classes as texts or "
            "whole numbers, or let the task be numbers"
        )
    return task


def _numbered(client: Any) -> I64:
    values = client if hasattr(client, "dtype") else np.asarray(client, object)
    numbers = np.asarray(factorise(values)[0], np.int64)
    if (lost := np.flatnonzero(numbers < 0)).size:
        raise ValueError(f"client is missing in row {lost[0]}: give every row one")
    return numbers


def _errors(model: Any, scores: F32, y: Any) -> dict[str, F64]:
    if hasattr(model, "predict_proba"):
        return class_errors(y, model._labels.probabilities(scores), model.classes_)
    return number_errors(y, model._labels.values(scores))


def _constant_errors(are_classes: bool, seen: Any, y: Any) -> dict[str, F64]:
    if not are_classes:
        return number_errors(y, np.full(len(y), seen.astype(np.float64).mean()))
    classes, counts = np.unique(seen, return_counts=True)
    return class_errors(y, np.tile(counts / counts.sum(), (len(y), 1)), classes)


def number_errors(y: NDArray[Any], predicted: F64) -> dict[str, F64]:
    """Squared and absolute errors."""
    error = y.astype(np.float64) - predicted
    return {"rmse": error**2, "mae": np.abs(error)}


def class_errors(y: NDArray[Any], probability: F64, classes: NDArray[Any]) -> dict[str, F64]:
    """Log losses and hits; a class that no training row had has no probability with any method."""
    is_class = y[:, None] == classes
    least = np.finfo(np.float64).eps  # as scikit-learn has it
    own = np.where(is_class, probability, 0).sum(axis=1).clip(least, 1)
    right = is_class[np.arange(len(y)), probability.argmax(axis=1)]
    return {"log_loss": -np.log(own), "accuracy": right.astype(np.float64)}

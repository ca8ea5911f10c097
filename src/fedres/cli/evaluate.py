"""`fedres evaluate`."""

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedres.cli import table_options as shared

if TYPE_CHECKING:
    import pandas as pd

    from fedres.tables.read_table import Table


def evaluate(
    model: Annotated[Path, shared.MODEL],
    table: Annotated[Path, typer.Argument(help="New rows with labels.")],
    json: Annotated[bool, shared.JSON] = False,
) -> None:
    """Measure how well a model predicts new rows.

    Example: fedres evaluate model new.parquet --json
    """
    import numpy as np

    from fedres.tables.read_table import read_table
    from fedres.tables.table_files import shown

    loaded = shared.open_model(model)
    columns = getattr(loaded, "columns_", None)
    if columns is None:
        raise ValueError(
            f"the model in {model} was saved in Python and does not know which column is the "
            "label: use its score method, or make it by `fedres fit`"
        )
    rows = read_table(
        table,
        client=columns["client"],
        label=columns["label"],
        categorical=loaded.encoder_.categorical,
        optional=["client"],
        known_clients=np.array(loaded.clients_),
        width=loaded.n_features_in_,
    )
    ids = [] if rows.client is None else rows.client.tolist()
    unseen = {*ids} - {*loaded.clients_, None}
    counts = {"rows": len(rows), "unseen_clients": len(unseen)}
    found = {**_metrics(loaded, shown(table), rows, columns["label"]), **counts}
    if json:
        print(json_.dumps(found))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):15}", f"{value:,}" if name in counts else f"{value:.4g}")


def _metrics(model: Any, path: Path, rows: "Table", label: str) -> dict[str, float]:
    from sklearn import metrics

    x = shared.known_columns(model, path, rows)
    client = shared.or_nobody(rows.client, model, path)
    if not hasattr(model, "predict_proba"):
        y, predicted = _numbers(path, rows, label), model.predict(x, client)
        return {
            "rmse": float(metrics.root_mean_squared_error(y, predicted)),
            "mae": float(metrics.mean_absolute_error(y, predicted)),
        }
    number, probability = _numbers_of_classes(model, path, rows), model.predict_proba(x, client)
    return {
        "accuracy": float(metrics.accuracy_score(number, probability.argmax(axis=1))),
        "log_loss": float(metrics.log_loss(number, probability, labels=range(len(model.classes_)))),
    }


def _labels(rows: "Table") -> "pd.Series[Any]":
    """The labels, each where its row is in the file."""
    import pandas as pd

    return pd.Series(rows.y, getattr(rows.frame, "index", None))


def _numbers(path: Path, rows: "Table", label: str) -> Any:
    from fedres.tables.cell_values import as_floats

    try:
        return as_floats(label, _labels(rows))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _numbers_of_classes(model: Any, path: Path, rows: "Table") -> Any:
    """Which of the model's classes each label is."""
    import pandas as pd

    from fedres.tables.cell_values import place_of

    classes, y = pd.Index(model.classes_), _labels(rows)
    if isinstance(model.classes_[0], str):  # a file may hold only such as look like numbers
        y = y.astype(str)
    number = classes.get_indexer(pd.Index(y))
    if (number < 0).any():
        row = int((number < 0).argmax())
        raise ValueError(
            f"{path}: {place_of(y, row)} has the label {y.iloc[row]!r}, and the classes of the "
            f"model are {', '.join(map(repr, classes.tolist()))}: remove such rows, or train anew"
        )
    return number

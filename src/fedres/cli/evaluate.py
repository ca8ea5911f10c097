"""`fedres evaluate`."""

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedres.cli import table_options as shared

COUNTS = ("rows", "unseen_clients")

if TYPE_CHECKING:
    import pandas as pd

    from fedres.tables.read_table import Table


def evaluate(
    model: Annotated[Path, shared.MODEL],
    table: Annotated[str, typer.Argument(help="New rows with labels.")],
    memory: Annotated[str | None, shared.MEMORY] = None,
    json: Annotated[bool, shared.JSON] = False,
) -> None:
    """Measure how well a model predicts new rows.

    Example: fedres evaluate model new.parquet --json
    """
    shared.refuse_missing(table, model)
    found = (
        _of_parts(model, table, memory)
        if memory is not None or shared.is_large(table)
        else _of_table(model, table)
    )
    if json:
        print(json_.dumps(found))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):15}", f"{value:,}" if name in COUNTS else f"{value:.4g}")


def _of_table(model: Path, table: str) -> dict[str, float]:
    import numpy as np

    from fedres.tables.read_table import read_table

    loaded = shared.open_model(model)
    columns = _columns(model, loaded)
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
    counts = dict(zip(COUNTS, (len(rows), len(unseen)), strict=True))
    path = shared.shown(table)
    with shared.naming(path):
        return {**_metrics(loaded, path, rows, columns["label"]), **counts}


def _of_parts(folder: Path, table: str, memory: str | None) -> dict[str, float]:
    """The same of a table that is read in batches: errors are added up."""
    import numpy as np

    from fedres.cluster.batch_models import BatchModel
    from fedres.cluster.memory import parse_size
    from fedres.reading.table_files import TableFiles
    from fedres.tables.cell_values import as_floats
    from fedres.tables.judging import class_errors, number_errors
    from fedres.tables.read_table import Table, refuse_absent, refuse_missing

    stored = BatchModel(folder)
    whole: Any = stored.model
    roles = _columns(folder, whole)
    parts = TableFiles.find(table, [*whole.encoder_.categorical, roles["client"]])
    refuse_absent(parts.files[0].name, parts.names, {"label": roles["label"]})
    needed = [*shared.needed_columns(whole), roles["client"], roles["label"]]
    room = None if memory is None else parse_size(memory)
    sums: dict[str, float] = {}
    for path, frame, model, client in stored.batches(parts, needed, room, "evaluating"):
        refuse_missing(path, "label", frame[roles["label"]])
        rows = Table(frame.drop(columns=roles["label"]), frame[roles["label"]].to_numpy())
        x = shared.known_columns(model, path, rows)
        with shared.naming(path):
            if hasattr(model, "predict_proba"):
                number = _numbers_of_classes(model, rows)
                every = np.arange(len(model.classes_))
                errors = class_errors(number, model.predict_proba(x, client), every)
            else:
                y = as_floats(roles["label"], _labels(rows))
                errors = number_errors(y, model.predict(x, client))
        for name, of_rows in errors.items():
            sums[name] = sums.get(name, 0.0) + float(of_rows.sum())
    shared.say_unseen(table, stored)
    means = {name: total / max(1, stored.rows) for name, total in sums.items()}
    if "rmse" in means:
        means["rmse"] **= 0.5
    return {**means, **dict(zip(COUNTS, (stored.rows, stored.unseen.count), strict=True))}


def _columns(folder: Path, model: Any) -> dict[str, Any]:
    """Which column of a table is what."""
    columns: dict[str, Any] | None = getattr(model, "columns_", None)
    if columns is None:
        raise ValueError(
            f"the model in {folder} was saved in Python and does not know which column is the "
            "label: use its score method, or make it by `fedres fit`"
        )
    return columns


def _metrics(model: Any, path: str, rows: "Table", label: str) -> dict[str, float]:
    from sklearn import metrics

    from fedres.tables.cell_values import as_floats

    x = shared.known_columns(model, path, rows)
    client = shared.or_nobody(rows.client, model, path)
    if not hasattr(model, "predict_proba"):
        y, predicted = as_floats(label, _labels(rows)), model.predict(x, client)
        return {
            "rmse": float(metrics.root_mean_squared_error(y, predicted)),
            "mae": float(metrics.mean_absolute_error(y, predicted)),
        }
    number, probability = _numbers_of_classes(model, rows), model.predict_proba(x, client)
    return {
        "accuracy": float(metrics.accuracy_score(number, probability.argmax(axis=1))),
        "log_loss": float(metrics.log_loss(number, probability, labels=range(len(model.classes_)))),
    }


def _labels(rows: "Table") -> "pd.Series[Any]":
    """The labels, each where its row is in the file."""
    import pandas as pd

    return pd.Series(rows.y, getattr(rows.frame, "index", None))


def _numbers_of_classes(model: Any, rows: "Table") -> Any:
    """Which of the model's classes each label is."""
    import pandas as pd

    from fedres.reading.files import listed, shortened
    from fedres.tables.cell_values import place_of

    classes, y = pd.Index(model.classes_), _labels(rows)
    if isinstance(model.classes_[0], str):  # a file may hold only such as look like numbers
        y = y.astype(str)
    number = classes.get_indexer(pd.Index(y))
    if (number < 0).any():
        row = int((number < 0).argmax())
        raise ValueError(
            f"{place_of(y, row)} has the label {shortened(repr(y.iloc[row]))}, and the classes of "
            f"the model are {listed([*map(repr, classes.tolist())])}: remove such rows, or train "
            "anew"
        )
    return number

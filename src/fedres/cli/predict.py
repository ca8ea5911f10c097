"""`fedres predict`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedres.cli import table_options as shared

if TYPE_CHECKING:
    import pandas as pd


def predict(
    model: Annotated[Path, shared.MODEL],
    table: Annotated[str, typer.Argument(help="New rows.")],
    out: Annotated[
        Path | None, typer.Option(help="A .csv or .parquet file (default: CSV to the terminal).")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(help="Add bounds that hold so large a share of labels, such as 0.9."),
    ] = None,
    memory: Annotated[str | None, shared.MEMORY] = None,
) -> None:
    """Predict the labels of new rows: the table again, with a column `prediction`.

    Classes have a column `probability_...` each as well. Clients that the model never saw are
    predicted by the global model, and so are all rows if none names its client. With --interval
    there are columns `prediction_low` and `prediction_high`.

    Example: fedres predict model new.csv --out scored.csv
    """
    shared.refuse_missing(table, model)
    if interval is not None and not 0 < interval < 1:
        raise ValueError(f"--interval must be between 0 and 1, such as 0.9, not {interval}")
    if out is not None:
        shared.refuse_unwritable(out, is_table=True)
        shared.refuse_overwriting(out, table)
    if memory is not None or shared.is_large(table):
        _score_parts(model, table, out, interval, memory)
        return
    shared.write_table(_scored(shared.open_model(model), table, interval), out)


def _scored(model: Any, path: str, interval: float | None) -> "pd.DataFrame":
    import numpy as np
    import pandas as pd

    from fedres.tables.read_table import client_ids, read_table

    names = [*model.encoder_.categorical, *filter(None, [model.client])]
    rows = read_table(
        path,
        client=None,
        label=None,
        categorical=names,
        width=model.n_features_in_,
        as_is=True,
    )
    path = shared.shown(path)
    x, ids = shared.known_columns(model, path, rows), rows.client
    if isinstance(rows.frame, pd.DataFrame):
        scored = rows.frame
        if model.client in scored:
            ids = client_ids(scored[model.client], np.array(model.clients_))
    else:
        scored = pd.DataFrame({} if ids is None else {"client": ids}, range(len(rows)))
    with shared.naming(path):
        ids = shared.or_nobody(ids, model, path)
        return _with_predictions(model, path, scored, x, ids, interval)


def _score_parts(
    folder: Path, table: str, out: Path | None, interval: float | None, memory: str | None
) -> None:
    """Predict a table in batches, and write each as it is done."""
    from fedres.cluster.batch_models import BatchModel
    from fedres.cluster.memory import parse_size
    from fedres.reading.table_files import TableFiles
    from fedres.tables.read_table import Table

    stored = BatchModel(folder)
    whole: Any = stored.model
    parts = TableFiles.find(table, [*whole.encoder_.categorical, *filter(None, [whole.client])])
    room = None if memory is None else parse_size(memory)
    with shared.table_writer(out) as write:
        for path, frame, model, client in stored.batches(parts, None, room, "predicting"):
            x = shared.known_columns(model, path, Table(frame))
            with shared.naming(path):
                scored = _with_predictions(model, path, frame, x, client, interval)
            write(scored)
    shared.say_unseen(table, stored)


def _with_predictions(
    model: Any, path: str, scored: "pd.DataFrame", x: Any, client: Any, interval: float | None
) -> "pd.DataFrame":
    new = {"prediction": model.predict(x, client)}
    if interval is not None:
        if not hasattr(model, "predict_interval"):
            raise ValueError("classes have probabilities and no intervals: leave out --interval")
        if model._posterior is None:
            raise ValueError(
                "this model keeps no variances, as one of sgd or one that was fitted in shards: "
                "leave out --interval, or fit a table that fits into memory by bayes"
            )
        with shared.quiet():
            bounds = model.predict_interval(x, client, level=interval).T
        new |= dict(zip(("prediction_low", "prediction_high"), bounds, strict=True))
    if hasattr(model, "predict_proba"):
        with shared.quiet():
            probabilities = model.predict_proba(x, client).T
        for class_, probability in zip(model.classes_.tolist(), probabilities, strict=True):
            new[f"probability_{class_}"] = probability
    for name in new:
        if name in scored:
            raise ValueError(f"{path} has a column {name!r} already: rename it")
    return scored.assign(**new)

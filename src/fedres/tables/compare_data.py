"""`fedres.compare`: does personal + shared pay, on a data set or on a table of one's own?"""

from collections.abc import Collection
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from fedres.simulation.dataset import Dataset

if TYPE_CHECKING:
    from fedres.core.sgd import Alignment
    from fedres.simulation.comparison import SimulatedComparison
    from fedres.tables.estimator import FedResEstimator
    from fedres.tables.read_table import Table
    from fedres.tables.table_comparison import TableComparison


def compare(
    data: Any = "digits",
    *,
    client: Any = None,
    label: Any = None,
    time: Any = None,
    model: "FedResEstimator | None" = None,
    share: float | None = None,
    seed: int | None = None,
    clients: int | None = None,
    delay: int | None = None,
    seeds: int | None = None,
    rounds: int | None = None,
    alignment: "Alignment | None" = None,
    local: Literal["rest", "all"] | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> "SimulatedComparison | TableComparison":
    """Does personal + shared beat only personal and only shared?

    A table has clients: Independent, Central, FedRes and a constant are trained on some rows and
    judged on the others. A data set has none: its rows are dealt to clients, and these three and
    their mixture are simulated on the same federations, one a seed. What is found has a
    `verdict()`, `metrics`, `score(method, metric)`, `gain_over(method)` and `to_dict()` either way.

    Parameters
    ----------
    data
        A table: a DataFrame (of pandas, polars or pyarrow), an array, a sparse matrix, the path of
        a file (all with `client` and `label`) or a `Table`. Or a data set: a `Dataset`, a name, or
        a path without `client`.
    client, label, time
        Of a table, the columns that name the client of a row, what to predict, and if known the
        time; or instead of a name, a value a row. The last rows of each client are held out if
        there is a time, and all of clients who come last; otherwise random ones of each client.
    model
        Of a table, an estimator whose parameters are used; by default one that suits the labels.
    share, seed
        Of a table, the share of rows to hold out (0.2), and what decides which (0).
    clients, delay, rounds, alignment, local
        Of a data set, as in `federate` and `simulate`: 10 clients, no delay, 500 rounds,
        ``arrival``, and all features local by default. Independent has no delay.
    seeds
        Of a data set, how many federations; 20 by default.
    n_jobs
        Of a data set, how many cores to use; None for all.
    progress
        Whether to show a progress bar.

    Examples
    --------
    >>> found = compare("digits", seeds=2, rounds=60)
    >>> print(found.verdict()[:17])
    On digits, FedRes

    >>> from fedres.tables.ratings import generate
    >>> ratings = generate(users=50, items=50, rows=3000)
    >>> found = compare(ratings, client="user_id", label="rating", time="timestamp")
    >>> found.gain_over("central").mean > 0
    True
    """
    of_table = {"client": client, "label": label, "time": time}
    on_table = {"model": model, "share": share, "seed": seed}
    simulated = {
        "clients": clients,
        "delay": delay,
        "seeds": seeds,
        "rounds": rounds,
        "alignment": alignment,
        "local": local,
        "n_jobs": n_jobs,
    }
    if isinstance(data, Dataset) or (isinstance(data, str | PathLike) and client is None):
        _refuse({**of_table, **on_table}, "a table: give its client too")
        from fedres.simulation.comparison import compare_simulated

        return compare_simulated(data, **_given(simulated), progress=progress)
    _refuse(simulated, "data sets without clients: leave it out")
    from fedres.tables.judging import compare_on_table

    named = getattr(model, "categorical_features", None) or ()
    item = getattr(model, "item", None)
    categories = [*([named] if isinstance(named, str) else named), *([item] if item else [])]
    table = _table(data, of_table, categories)
    return compare_on_table(table, **_given(on_table), progress=progress)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: dict[str, Any], kind: str) -> None:
    for name in _given(options):
        raise ValueError(f"{name} is for {kind}")


def _table(data: Any, parts: dict[str, Any], categorical: Collection[str]) -> "Table":
    """Rows whose client, label and time are columns, or given apart."""
    import numpy as np

    from fedres.tables.cell_values import as_floats
    from fedres.tables.input_rows import as_pandas, check_aligned
    from fedres.tables.read_table import Table, read_table, refuse_two_roles

    if isinstance(data, Table):
        _refuse(parts, "other kinds of tables: a Table has its own")
        parts = {"client": data.client, "label": data.y}
    for name in ("client", "label"):
        if parts[name] is None:
            raise ValueError(f"a table needs a {name}: name its column, or give a value a row")
    if isinstance(data, Table):
        return data
    if isinstance(data, str | PathLike):
        return read_table(data, **parts, categorical=categorical)
    refuse_two_roles(parts)
    check_aligned(data=data, **parts)
    data, parts = as_pandas(data), {name: as_pandas(values) for name, values in parts.items()}
    named = {name: column for name, column in parts.items() if isinstance(column, str)}
    for name, column in named.items():
        if column not in getattr(data, "columns", ()):
            raise ValueError(
                f"there is no column {column!r} for the {name}: name one, or give a value a row"
            )
        parts[name] = data[column]
    time = None if parts["time"] is None else np.asarray(parts["time"])
    return Table(
        data.drop(columns=list(named.values())) if named else data,
        np.asarray(parts["label"]),
        parts["client"],
        None if time is None else as_floats("time", time),
    )

"""`fedres compare`."""

import json as json_
from pathlib import Path
from typing import Annotated, Any

import typer

from fedres.cli import table_options as shared

OF_NAMED_SETS = ("clients", "delay", "seeds", "rounds", "alignment", "jobs")
OF_TABLES = (
    "label",
    "time",
    "categorical",
    "local",
    "global_",
    "task",
    "ignore",
    "solver",
    "shared_",
    "latent",
    "item",
    "seed",
)


def compare(
    context: typer.Context,
    data: Annotated[
        str, typer.Option(help="A data set by name, or a file of rows together with --client.")
    ] = "digits",
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 10,
    delay: Annotated[int, typer.Option(help="Round-trip delay in rounds.")] = 0,
    seeds: Annotated[int, typer.Option(help="Federations to average over.")] = 20,
    rounds: Annotated[int, typer.Option(help="Samples that each client sees.")] = 500,
    alignment: Annotated[
        str, typer.Option(help="arrival, the paper's aligned or asymmetric, or late.")
    ] = "arrival",
    report: Annotated[Path | None, shared.REPORT] = None,
    json: Annotated[bool, shared.JSON] = False,
    jobs: Annotated[int | None, typer.Option(help="Cores to use (default: all).")] = None,
    client: Annotated[str | None, shared.CLIENT] = None,
    label: Annotated[str | None, shared.LABEL] = None,
    time: Annotated[str | None, shared.TIME] = None,
    categorical: Annotated[str | None, shared.CATEGORICAL] = None,
    local: Annotated[str | None, shared.LOCAL] = None,
    global_: Annotated[str | None, shared.GLOBAL] = None,
    task: Annotated[str | None, shared.TASK] = None,
    ignore: Annotated[str | None, shared.IGNORE] = None,
    solver: Annotated[str | None, shared.SOLVER] = None,
    shared_: Annotated[str, shared.SHARED] = "auto",
    latent: Annotated[int | None, shared.LATENT] = None,
    item: Annotated[str | None, shared.ITEM] = None,
    seed: Annotated[int, shared.SEED] = 0,
) -> None:
    """Compare Independent, Central, FedRes and their mixture: does personal + shared pay?

    Example: fedres compare --data digits --clients 10 --delay 20 --report report.html

    On a table of your own, as `fedres fit` does, but without a model:
    fedres compare --data ratings.csv --client user_id --label rating
    """
    from fedres.tables.compare_data import compare as run

    if report is not None:
        shared.refuse_unwritable(report)
    if client is None and Path(data).is_file():
        raise ValueError(f"{data} is a table: name its --client and --label")
    _refuse_options_of_the_other_kind(context, client is not None)
    if client is not None:
        if label is None:
            raise ValueError("--client is given without --label: name the column to predict")
        columns = shared.ColumnOptions(
            client, label, time, categorical, local, global_, ignore, item
        )
        columns.refuse_bad(task, solver, shared_, latent, seed)
        rows = columns.read(data)
        model = columns.estimator(rows.y, task, solver, shared_, seed, latent)
        with shared.quiet():
            readings = shared.how_columns_are_read(rows, label, model, json)
            found: Any = run(rows, model=model, seed=seed, progress=True)
        shared.show(found, data, report, json, readings)
        return
    result: Any = run(
        data,
        clients=clients,
        delay=delay,
        seeds=seeds,
        rounds=rounds,
        alignment=alignment,  # type: ignore[arg-type]
        n_jobs=jobs,
        progress=True,
    )
    if json:
        print(json_.dumps(result.to_dict(), indent=2))
    else:
        from fedres.report.comparison_table import print_comparison

        print_comparison(result)
    if report is not None:
        from fedres.report.page import write_comparison

        write_comparison(result, report)
        if not json:
            print(f"Report: {report.resolve()}")


def _refuse_options_of_the_other_kind(context: typer.Context, is_table: bool) -> None:
    for name in OF_NAMED_SETS if is_table else OF_TABLES:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            kind = "named data sets: leave it out" if is_table else "a table: give --client too"
            raise ValueError(f"--{name.rstrip('_')} is for {kind}")

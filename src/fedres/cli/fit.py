"""`fedres fit`."""

import sys
from contextlib import suppress
from ctypes import CDLL
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedres.cli import table_options as shared
from fedres.core.extras import require

AUTO = "auto"
MMAP_THRESHOLD = -3  # of glibc's malloc.h


def fit(
    table: Annotated[
        str,
        typer.Argument(
            help="A file of rows: CSV, JSON, Parquet, Feather, ORC, also compressed, or svmlight "
            "text; - is CSV from standard input. Or a folder, a pattern in quotes or a URL such as "
            "s3://..., read in batches."
        ),
    ],
    client: Annotated[str, shared.CLIENT],
    label: Annotated[str, shared.LABEL],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    time: Annotated[str | None, shared.TIME] = None,
    categorical: Annotated[str | None, shared.CATEGORICAL] = None,
    local: Annotated[str | None, shared.LOCAL] = None,
    global_: Annotated[str | None, shared.GLOBAL] = None,
    task: Annotated[str | None, shared.TASK] = None,
    ignore: Annotated[str | None, shared.IGNORE] = None,
    method: Annotated[
        str,
        typer.Option(help="What to save: fedres, central, independent, or auto for the best."),
    ] = AUTO,
    solver: Annotated[str | None, shared.SOLVER] = None,
    shared_: Annotated[str, shared.SHARED] = AUTO,
    latent: Annotated[int | None, shared.LATENT] = None,
    item: Annotated[str | None, shared.ITEM] = None,
    seed: Annotated[int, shared.SEED] = 0,
    report: Annotated[Path | None, shared.REPORT] = None,
    memory: Annotated[str | None, shared.MEMORY] = None,
    backend: Annotated[
        str, typer.Option(help="joblib, or ray: clients in shards on a Ray cluster.")
    ] = "joblib",
    address: Annotated[
        str | None,
        typer.Option(help="Of the Ray cluster (default: RAY_ADDRESS, or Ray on this machine)."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Ray actors that own shards (default: a core each).")
    ] = None,
    json: Annotated[bool, shared.JSON] = False,
) -> None:
    """Judge FedRes on held-out rows of your table, then train what is best on all rows and save it.

    Example: fedres fit ratings.csv --client user_id --label rating --categorical item_id
    --local genres --time timestamp --out model --report report.html

    A table larger than memory: fedres fit 'events/*.parquet' --client user --label clicks
    --memory 2GB --out model

    On a Ray cluster: fedres fit 'events/*.parquet' --client user --label clicks --backend ray
    --address auto --workers 16 --out /shared/model
    """
    shared.refuse_missing(table)
    from fedres.simulation.parallel import working
    from fedres.simulation.settings import choose
    from fedres.tables.judging import TRAINED, compare_on_table
    from fedres.tables.storage import refuse_foreign

    _give_back_large_arrays()
    choose("method", method, (AUTO, *TRAINED))
    refuse_foreign(out)
    if report is not None:
        shared.refuse_unwritable(report)
    columns = shared.ColumnOptions(client, label, time, categorical, local, global_, ignore, item)
    choose("backend", backend, ("joblib", "ray"))
    on_ray = backend == "ray"
    if on_ray:
        require("ray", "--backend ray")
    for option, value in (("--address", address), ("--workers", workers)):
        if value is not None and not on_ray:
            raise ValueError(f"{option} {value} is for --backend ray: add that, or leave it out")
    columns.refuse_bad(task, solver, shared_, latent, seed)
    if memory is not None or on_ray or shared.is_large(table):
        for option, value in (("--shared trees", shared_ == "trees"), ("--latent", latent)):
            if value:
                raise ValueError(
                    f"{option} needs all rows in memory: leave it out, or give one file without "
                    "--memory and --backend ray"
                )
        cluster = (address, workers) if on_ray else None
        if shared_ == AUTO and not json:
            print("Shared model: linear; trees need all rows in memory.")
        _fit_parts(table, columns, out, memory, method, task, solver, seed, report, json, cluster)
        return
    rows = columns.read(table)
    model = columns.estimator(rows.y, task, solver, shared_, seed, latent)
    _say_replaced(out)
    with shared.quiet():
        readings = shared.how_columns_are_read(rows, label, model, json)
        found = compare_on_table(rows, model=model, seed=seed, progress=True)
    found = replace(found, model=None)  # which makes room
    saved: Any = found.recommended if method == AUTO else method
    with working("training on all rows"), shared.quiet():
        # What is saved is what was judged: the same choices, and more rows.
        chosen = found.chosen[saved]
        model.set_params(method=saved, **chosen).fit(rows.frame, rows.y, rows.client)
        model.columns_ = {"client": client, "label": label, "time": time}
        model.verdict_ = found.verdict()
        model.save(out)
    summary = {
        "model": str(out.resolve()),
        "method": saved,
        "rows": len(rows),
        "clients": len(model.clients_),
        "global_features": model.encoder_.width_global,
        "local_features": model.encoder_.width_local,
        **chosen,
        "latent": model.latent_,
        "shared_because": shared.shared_because(found, saved),
        "tastes_because": shared.tastes_because(model),
    }
    shared.show(found, table, report, json, readings, summary)


def _say_replaced(out: Path) -> None:
    if (out / "model.json").exists():
        print(
            f"fedres: the model in {out} will be replaced when the new one is written",
            file=sys.stderr,
        )


def _fit_parts(
    table: str,
    columns: shared.ColumnOptions,
    out: Path,
    memory: str | None,
    method: Any,
    task: Any,
    solver: str | None,
    seed: int,
    report: Path | None,
    json: bool,
    cluster: tuple[str | None, int | None] | None,
) -> None:
    """Fit a table in shards, on a Ray cluster if one is given."""
    from fedres.cluster.fit_parts import ColumnRoles, PreparedParts, fit_parts
    from fedres.cluster.memory import parse_size, peak_memory, shown_size
    from fedres.reading.table_files import TableFiles
    from fedres.tables.labels import NumberLabels

    room = None if memory is None else parse_size(memory)
    parameters = columns.parameters(solver)
    named = [*(parameters["categorical_features"] or []), columns.client]
    parts = TableFiles.find(table, named)
    roles = ColumnRoles(columns.client, columns.label, columns.time, columns.ignored)
    roles.features(parts)  # raises if one is absent
    _say_replaced(out)
    backend = None
    if cluster is not None:
        from fedres.cluster.ray_backend import RayBackend

        backend = RayBackend.connect(*cluster)
    readings: list[Any] = []

    def show_columns(prepared: PreparedParts) -> None:
        encoder = prepared.shards[0].layout.encoder
        rows, model = prepared.sample, prepared.model
        labels = prepared.shards[0].layout.labels
        ends = (labels.low, labels.high) if isinstance(labels, NumberLabels) else None
        told = shared.how_columns_are_read(rows, columns.label, model, json, encoder, ends)
        readings.extend(told)

    with shared.quiet():
        done = fit_parts(
            parts,
            roles,
            out,
            memory=room,
            method=method,
            task=task,
            parameters=parameters,
            seed=seed,
            backend=backend,
            progress=True,
            when_prepared=show_columns,
        )
    summary = {
        "model": str(out.resolve()),
        "method": done.method,
        "rows": done.rows,
        "clients": done.clients,
        "judged_rows": done.compared_rows,
        "shards": done.shards,
        "peak_memory_bytes": peak_memory(),
        "global_features": done.model.encoder_.width_global,
        "local_features": done.model.encoder_.width_local,
        **done.found.chosen[done.method],  # type: ignore[index]
        **({} if backend is None else backend.facts()),
    }
    shared.show(done.found, table, report, json, readings, summary)
    if not json:
        print(
            f"The model saved was trained on all {done.rows:,} rows of {done.clients:,} clients, "
            f"in {done.shards} shard{'s' * (done.shards > 1)}; the comparison took "
            f"{done.compared_rows:,} of them."
        )
        if backend is not None:
            print(backend.words())
        print(f"Peak memory: {shown_size(peak_memory())}.")


def _give_back_large_arrays() -> None:
    """Let arrays that are freed go back to the system, and not wait between others for new ones.

    Left to itself glibc raises this threshold to the size of what is freed, up to 32 MB: then a
    table of a million rows takes 1.1 GB and not 0.9.
    """
    with suppress(OSError, AttributeError, TypeError):
        CDLL(None).mallopt(MMAP_THRESHOLD, 2**20)

"""What commands do with tables that are read in batches."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedres.cli import table_options as shared

if TYPE_CHECKING:
    from fedres.cli.table_options import ColumnOptions


def large_fit(
    table: Path,
    columns: "ColumnOptions",
    out: Path,
    memory: str | None,
    method: Any,
    task: Any,
    solver: str | None,
    seed: int,
    report: Path | None,
    json: bool,
) -> None:
    """Fit a table in shards."""
    from fedres.cluster.fit_parts import ColumnRoles, fit_parts
    from fedres.cluster.memory import free_memory, parse_size, peak_memory, shown_size
    from fedres.cluster.table_parts import TableParts

    room = free_memory() // 2 if memory is None else parse_size(memory)
    parameters = columns.parameters(solver)
    named = [*(parameters["categorical_features"] or []), columns.client]
    parts = TableParts.find(str(table), named)
    roles = ColumnRoles(columns.client, columns.label, columns.time, columns.ignored)
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
            progress=True,
        )
        readings = shared.how_columns_are_read(done.sample, done.model, json, done.encoder)
    summary = {
        "model": str(out.resolve()),
        "method": done.method,
        "rows": done.rows,
        "clients": done.clients,
        "judged_rows": len(done.sample),
        "shards": done.shards,
        "peak_memory_bytes": peak_memory(),
        "global_features": done.model.encoder_.width_global,
        "local_features": done.model.encoder_.width_local,
        **done.found.chosen[done.method],  # type: ignore[index]
    }
    shared.show(done.found, table, report, json, readings, summary)
    if not json:
        print(
            f"Trained on {done.rows:,} rows of {done.clients:,} clients in {done.shards} shards; "
            f"methods were judged on the {len(done.sample):,} rows of some clients."
        )
        print(f"Peak memory: {shown_size(peak_memory())}.")

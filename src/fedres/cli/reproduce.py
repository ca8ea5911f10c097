"""`fedres reproduce`."""

from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    figure: Annotated[
        str | None, typer.Option(help="Figures by name, with commas (default: all).")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Data sets, with commas (default: all of the paper's that are here)."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Federations each number is an average over.")] = 50,
    jobs: Annotated[int | None, typer.Option(help="Cores to use (default: all).")] = None,
    backend: Annotated[str, typer.Option(help="joblib, or ray for a Ray cluster.")] = "joblib",
    out: Annotated[Path, typer.Option(help="Folder for the report and finished runs.")] = Path(
        "reproduction"
    ),
    open_: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Reproduce the paper: figures, claims judged, one report. Stopped, it resumes.

    Figures: overall, clients, delay, clients-delay, bits, bytes, local-all, vw-default,
    appendix-c, regret.

    Example: fedres reproduce --figure delay --data letter,pendigits --seeds 50 --jobs 2
    """
    from fedres.paper.reproduction import reproduce as run
    from fedres.report.comparison_table import print_claims
    from fedres.report.reproduction_page import write_reproduction
    from fedres.simulation.run_store import RunStore

    result = run(
        None if data is None else data.split(","),
        None if figure is None else figure.split(","),
        seeds=seeds,
        store=RunStore(out / "runs.sqlite"),
        n_jobs=jobs,
        backend=backend,  # type: ignore[arg-type]
        progress=True,
    )
    page = write_reproduction(result, out)
    print_claims(result)
    print(f"Report: {page.resolve()}")
    if open_:
        typer.launch(str(page.resolve()))

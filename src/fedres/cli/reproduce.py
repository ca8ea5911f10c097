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
    reading: Annotated[
        str, typer.Option(help="What the paper does not state, by the name of a reading.")
    ] = "library",
    labels: Annotated[
        str | None, typer.Option(help="Of that reading, change: -1/1, 0/1 or 1/2.")
    ] = None,
    clip: Annotated[
        bool | None, typer.Option("--clip/--no-clip", help="Whether predictions are clipped.")
    ] = None,
    step: Annotated[str | None, typer.Option(help="One adaptive step size, or tuned.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="Of features: given, raw, 0..1, -1..1, letter=raw, ...")
    ] = None,
    late: Annotated[str | None, typer.Option(help="examples, gradients or arrival.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Cores to use (default: all).")] = None,
    backend: Annotated[str, typer.Option(help="joblib, or ray for a Ray cluster.")] = "joblib",
    out: Annotated[Path, typer.Option(help="Folder for the report and finished runs.")] = Path(
        "reproduction"
    ),
    open_: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """Reproduce the paper: figures, claims judged, one report. Stopped, it resumes.

    Figures: overall, clients, delay, clients-delay, bits, bytes, local-all, newcomers,
    readings, appendix-c, regret.

    Readings: library, vw, vw-default, vw-default-raw, late-gradients, labels-01, labels-12,
    labels-12-unclipped, labels-12-tuned, nearest.

    Example: fedres reproduce --figure delay --data letter,pendigits --reading vw --step 0.2
    """
    from fedres.paper.readings import find_reading
    from fedres.paper.reproduction import reproduce as run
    from fedres.report.comparison_table import print_claims
    from fedres.report.reproduction_page import write_reproduction
    from fedres.simulation.run_store import RunStore

    if out.exists() and not out.is_dir():
        raise ValueError(f"cannot write to {out}, which is a file: name a folder by --out")
    result = run(
        None if data is None else data.split(","),
        None if figure is None else figure.split(","),
        seeds=seeds,
        reading=find_reading(reading, labels=labels, clip=clip, step=step, scale=scale, late=late),
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

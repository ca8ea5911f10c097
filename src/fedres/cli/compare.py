"""`fedres compare`."""

import json as json_
from pathlib import Path
from typing import Annotated

import typer


def compare(
    data: Annotated[str, typer.Option(help="A data set by name.")] = "digits",
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 10,
    delay: Annotated[int, typer.Option(help="Round-trip delay in rounds.")] = 0,
    seeds: Annotated[int, typer.Option(help="Federations to average over.")] = 20,
    rounds: Annotated[int, typer.Option(help="Samples that each client sees.")] = 500,
    alignment: Annotated[
        str, typer.Option(help="arrival, or the paper's aligned or asymmetric.")
    ] = "arrival",
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Cores to use (default: all).")] = None,
) -> None:
    """Compare Independent, Central and FedRes: does personal + shared pay?

    Example: fedres compare --data digits --clients 10 --delay 20 --report report.html
    """
    from fedres.simulation.compare import compare as run

    result = run(
        data,
        clients=clients,
        delay=delay,
        seeds=seeds,
        rounds=rounds,
        alignment=alignment,  # type: ignore[arg-type]
        cores=jobs,
        progress=True,
    )
    if json:
        print(json_.dumps(result.to_dict(), indent=2))
    else:
        from fedres.report.table import print_comparison

        print_comparison(result)
    if report is not None:
        from fedres.report.page import write_comparison

        write_comparison(result, report)
        if not json:
            print(f"Report: {report.resolve()}")

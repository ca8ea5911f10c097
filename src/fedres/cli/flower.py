"""`fedres flower`: FedRes on other machines."""

from pathlib import Path
from typing import Annotated

import typer

from fedres.core.extras import require

app = typer.Typer(
    help="Run on several machines, with Flower.\n\nExample: fedres flower demo",
    no_args_is_help=True,
)
RunFolder = Annotated[Path, typer.Argument(help="The run's folder.")]
Client = Annotated[str, typer.Argument(help="The client's name.")]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The app directory to make.")],
    like: Annotated[
        Path | None, typer.Option(help="A sample table (CSV, Parquet); default: built-in digits.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Its column that is to be predicted.")] = None,
    client: Annotated[str | None, typer.Option(help="Its column that names the client.")] = None,
    time: Annotated[str | None, typer.Option(help="Its column that rows are sorted by.")] = None,
    local: Annotated[
        str | None, typer.Option(help="Columns that local models see: a,b or a wildcard.")
    ] = None,
    global_: Annotated[
        str | None,
        typer.Option("--global", help="Columns that the server sees, row by row; '*' for all."),
    ] = None,
    categorical: Annotated[
        str | None, typer.Option(help="Columns of numbers that are categories.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="What labels are: numbers or classes (default: texts are classes)."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="All classes, as a,b,c; default: those of the sample.")
    ] = None,
    allow_ids: Annotated[
        bool, typer.Option("--allow-ids", help="Take columns that look like ids, too.")
    ] = False,
    widths: Annotated[
        str | None,
        typer.Option(help="Numbers of global and local features, as 10,3: for data by a function."),
    ] = None,
) -> None:
    """Make an app directory: settings, and a README with the commands.

    Example: fedres flower init myapp --like sample.csv --label ill --global age,sex
    """
    require("flower", "fedres flower")
    from fedres.flower import app_folder
    from fedres.flower.app_settings import AppSettings

    if like is not None and label is None:
        raise ValueError("--like needs --label: name the column that is to be predicted")
    classes = _names(labels)
    if task not in (None, "numbers", "classes"):
        raise ValueError(f"--task is numbers or classes, not {task!r}")
    if classes is not None and (task == "numbers" or (widths is None and like is None)):
        raise ValueError("--labels names the classes of --like or --widths, not numbers")
    if widths is not None:
        if task == "classes" and classes is None:
            raise ValueError("--task classes needs --labels with --widths: name all classes")
        known = {} if classes is None else app_folder.class_settings(classes)
        settings = AppSettings(*_two_numbers(widths), **known)
    elif like is not None and label is not None:
        settings = app_folder.settings_like(
            like,
            label=label,
            client=client,
            time=time,
            local=_names(local),
            global_=_names(global_),
            categorical=_names(categorical),
            allow_ids=allow_ids,
            task=task,  # type: ignore[arg-type]
            classes=classes,
        )
    else:
        settings = app_folder.digits_settings()
    app_folder.write_app(folder, settings)
    print(
        f"{folder}: {settings.width_global} global and {settings.width_local} local features, "
        f"{settings.loss} loss. Next: {folder / 'README.md'}"
    )
    if names := settings.class_names:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        print(f"{f'Labels are {len(names)} classes:':29}{shown}")
    else:
        print("Labels are numbers.")
    if settings.features:
        seen = app_folder.views_of(settings)
        print(f"The server sees, row by row: {', '.join(seen['global']) or 'no column'}; the label")
        print(f"Clients alone see:           {', '.join(seen['local']) or 'no column'}")
        print(f"Nobody uses:                 {', '.join(seen['neither']) or 'no column'}")


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="The app directory.")],
    superlink: Annotated[
        str | None, typer.Option(help="A superlink on this machine, by its name in ~/.flwr.")
    ] = None,
    local: Annotated[
        int | None, typer.Option(help="So many nodes of Flower's simulation runtime instead.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder (default: as set).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run there.")] = False,
    rounds: Annotated[
        int | None, typer.Option(help="Stop after so many (default: as set).")
    ] = None,
) -> None:
    """Run an app: progress, then a report and a model folder.

    Example: fedres flower run myapp --superlink clinics
    """
    require("flower", "fedres flower")
    from fedres.flower.flwr_command import Flwr
    from fedres.flower.launch import launch, launch_here, write_report

    if (superlink is None) == (local is None):
        raise ValueError("give either --superlink NAME or --local N")
    chosen = {"folder": out and str(out), "rounds": rounds, "resume": resume or None}
    overrides = {name: value for name, value in chosen.items() if value is not None}
    if superlink is not None:
        settings = launch(Flwr(superlink), folder, overrides)
    else:
        settings = launch_here(folder, overrides, nodes=local or 0)
    print(f"Report: {write_report(Path(settings.folder), settings)}")
    if settings.features:
        print(f"Model: {Path(settings.folder) / 'model'}")


@app.command()
def status(
    run: RunFolder,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, until Ctrl-C.")] = False,
    clients: Annotated[int, typer.Option(help="Show so many at most.")] = 40,
) -> None:
    """Show the clients of a run: uploads, loss, lag, when they were seen, held back, refused.

    Example: fedres flower status run --watch
    """
    import time

    from rich.console import Console
    from rich.live import Live

    from fedres.flower.launch import progress_table
    from fedres.flower.run_folder import read_run

    console = Console()
    if not watch:
        console.print(progress_table(read_run(run, clients)))
        return
    with Live(progress_table(read_run(run, clients)), console=console) as live:
        while True:
            time.sleep(1.0)
            live.update(progress_table(read_run(run, clients)))


@app.command()
def model(
    run: RunFolder, out: Annotated[Path, typer.Argument(help="Folder for the model.")]
) -> None:
    """Write the newest global model of a run, also of one under way: for clients without rows yet.

    Example: fedres flower model run shared && fedres predict shared new.csv
    """
    from fedres.flower.model_folder import write_newest
    from fedres.tables.storage import refuse_foreign

    refuse_foreign(out)
    print(f"{out}: the global model after {write_newest(out, run)} uploads.")


@app.command()
def metrics(
    run: RunFolder, port: Annotated[int, typer.Option(help="Of 127.0.0.1.")] = 9464
) -> None:
    """Serve the same figures to Prometheus, at http://127.0.0.1:9464/metrics.

    Example: fedres flower metrics run
    """
    from fedres.flower.metrics import metrics_server

    with metrics_server(run, port) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}/metrics", flush=True)
        server.serve_forever()


@app.command()
def forgive(run: RunFolder, client: Client) -> None:
    """Hear a client again that is ignored, after too many refusals or removed.

    Example: fedres flower forgive run clinic-3
    """
    _order(run, client, "forgive", "heard again")


@app.command()
def remove(run: RunFolder, client: Client) -> None:
    """Ignore a client from now on; what the global model has learned from it stays.

    Example: fedres flower remove run clinic-3
    """
    _order(run, client, "remove", "ignored")


def _order(run: Path, client: str, what: str, will_be: str) -> None:
    from fedres.flower.run_folder import give_order

    give_order(run, what, client)
    print(f"{client} is {will_be}, at once or when the run is resumed.")


@app.command()
def reset(
    folder: Annotated[Path, typer.Argument(help="The client's folder, STATE/NAME.")],
) -> None:
    """Let a client begin again, on its own machine: its state is damaged, or its table changed.

    Example: fedres flower reset /var/lib/fedres/state/clinic-3
    """
    from fedres.flower.reset import reset as set_aside

    old = set_aside(folder)
    print("The client begins with an empty local model and its first row. In a run under way, the")
    print("server learns from its rows once more.")
    if old:
        print(f"Its old state: {old}")


@app.command()
def demo(
    rounds: Annotated[int, typer.Option(help="Stop after so many.")] = 8,
    report: Annotated[Path, typer.Option(help="Where to leave the report.")] = Path(
        "flower-report.html"
    ),
) -> None:
    """Show all of it on this machine: a superlink, three nodes with real data, one of them slow.

    Example: fedres flower demo
    """
    require("flower", "fedres flower")
    import shutil
    import signal
    from tempfile import TemporaryDirectory

    from rich.console import Console

    from fedres.flower.demo import SECONDS, SLOW
    from fedres.flower.demo import demo as show

    # Ended from outside, it cleans up as after Ctrl-C, also where that is ignored in background.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    console.print(
        f"A superlink and three nodes on 127.0.0.1; {SLOW} waits {SECONDS:g} s with each reply.",
        highlight=False,
    )
    with TemporaryDirectory(prefix="fedres-") as folder:
        result = show(Path(folder), rounds, console)
        shutil.copy(result.report, report)
    late = ", ".join(f"{name} {rounds:.1f}" for name, rounds in result.late.items())
    console.print(f"Rounds late, mean: {late}.", highlight=False)
    console.print(
        f"Test accuracy of the nodes' own models: {result.accuracy:.3f}; of the same rows, order "
        f"and delays in one process: {result.replayed:.3f}.",
        highlight=False,
    )
    print(f"Report: {report.resolve()}")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name for name in text.split(",") if name]


def _two_numbers(text: str) -> tuple[int, int]:
    try:
        first, second = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--widths takes two numbers, as in 10,3, not {text!r}") from None
    return first, second

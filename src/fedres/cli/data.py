"""`fedres data`: which data sets are here, and how to get the others."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedres.cli import table_options as tables

if TYPE_CHECKING:
    from rich.progress import Progress

    from fedres.simulation.known_sets import KnownSet

data = typer.Typer(
    help="List, download and generate data sets.\n\nExample: fedres data list", no_args_is_help=True
)


@data.command("list")
def list_() -> None:
    """List the data sets that are known by name, and whether they are here.

    Example: fedres data list
    """
    from rich.console import Console

    from fedres.report.terminal_table import terminal_table
    from fedres.simulation.data_files import data_folder
    from fedres.simulation.known_sets import SETS

    rows = []
    for known in SETS.values():
        counts = " / ".join([*(f"{count:,}" for count in known.rows), "-"][:2])
        facts = [counts, str(known.features), str(known.classes), known.origin]
        rows.append([known.name, _here(known), *facts])
    columns = ("set", "here", "rows train / test", "features", "classes", "from")
    console = Console()
    console.print(terminal_table(columns, rows, ("set", "here", "from"), close=True))
    folder = data_folder()
    if folder is None:
        looked = "FEDRES_DATA is not set: set it to a folder of data sets to have them found there."
    else:
        looked = f"Looked in {folder} (FEDRES_DATA{'' if folder.is_dir() else ': no such folder'})."
    built_in = [f"{known.name}: {known.built_in}." for known in SETS.values() if known.built_in]
    table = "A table of film ratings to try `fedres fit` on: run `fedres data ratings`."
    for line in (*built_in, table, looked):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


@data.command()
def get(
    names: Annotated[list[str], typer.Argument(help="Data sets by name, as `list` shows them.")],
) -> None:
    """Download data sets from the LIBSVM site.

    Example: fedres data get letter pendigits
    """
    from fedres.simulation.known_sets import SETS

    for name in names:
        if name not in SETS:
            raise ValueError(f"unknown data set {name!r}: choose one of {', '.join(SETS)}")
    for name in names:
        _get(SETS[name])


@data.command()
def ratings(
    out: Annotated[Path, typer.Option(help="A .csv or .parquet file to write.")] = Path(
        "ratings.csv"
    ),
    new: Annotated[
        Path | None,
        typer.Option(help="Write the last tenth of the ratings to this file instead, as new rows."),
    ] = None,
    users: Annotated[int, typer.Option(help="How many users.")] = 1000,
    items: Annotated[int, typer.Option(help="How many films.")] = 1700,
    rows: Annotated[int, typer.Option(help="How many ratings.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Decides everything.")] = 0,
) -> None:
    """Generate a table of film ratings, to try `fedres fit` on.

    Example: fedres data ratings --rows 100000 --out ratings.csv --new new.csv
    """
    from fedres.tables.ratings import generate

    paths = [out] if new is None else [out, new]
    for path in paths:
        tables.refuse_unwritable(path, is_table=True)
    tables.refuse_negative(seed)
    table = generate(users, items, rows, seed)
    past = rows if new is None else rows - rows // 10
    for path, part in zip(paths, (table[:past], table[past:]), strict=False):
        tables.write_table(part, path)
        print(f"{path}: {len(part):,} ratings")


def _here(known: "KnownSet") -> str:
    from fedres.simulation.data_files import find
    from fedres.simulation.known_sets import SETS

    if known.built_in or find(known):
        return "yes"
    return "sample" if known.sample and find(SETS[known.sample]) else "no"


def _get(known: "KnownSet") -> None:
    from fedres.simulation.dataset import load_data, where_to_put

    if _here(known) == "yes":
        print(f"{known.name} is already here.")
        return
    if not known.downloads:
        raise ValueError(f"{known.name} is not on the LIBSVM site: {where_to_put(known)}")
    files = [_download(known, *file) for file in known.downloads.items()]
    try:
        # Reading it now proves it whole, and the first run need not wait for the parser.
        found = load_data(known.name)
    except ValueError:
        for file in files:
            file.unlink()
        raise
    print(f"{known.name}: {len(found.y):,} training rows in {files[0].parent}")


class Bar:
    """A progress bar as pooch drives one."""

    total = 0

    def __init__(self, progress: "Progress") -> None:
        self.progress = progress
        self.task = progress.add_task("", total=None)

    def update(self, size: int) -> None:
        """Note that many more bytes."""
        self.progress.update(self.task, total=self.total, advance=size)

    def reset(self) -> None:
        """Begin again: pooch does, to end with the exact size."""
        self.progress.update(self.task, completed=0)

    def close(self) -> None:
        """Leave the bar as it is."""


def _download(known: "KnownSet", file: str, known_hash: str | None) -> Path:
    import pooch
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from fedres.simulation import known_sets as sets
    from fedres.simulation.data_files import downloads_folder
    from fedres.simulation.dataset import where_to_put

    address = sets.LIBSVM + file
    pooch.get_logger().setLevel("WARNING")
    columns = TextColumn(file), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, transient=True) as progress:
        fetch = pooch.HTTPDownloader(progressbar=Bar(progress), chunk_size=2**16)
        try:
            return Path(pooch.retrieve(address, known_hash, file, downloads_folder(), None, fetch))
        except (OSError, ValueError) as error:
            reason = _reason(error)
    raise ValueError(f"cannot download {address} ({reason}): {where_to_put(known)}")


def _reason(error: Exception) -> str:
    """Why a download failed, in few words: what `requests` says fills a screen."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"{response.status_code} {response.reason}"
    return type(error).__name__ if hasattr(error, "request") else str(error)

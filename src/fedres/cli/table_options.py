"""What commands on users' tables share: options, the verdict, and how a model reads new rows."""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from glob import glob
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import typer

from fedres.core.files import whole_file

if TYPE_CHECKING:
    import pandas as pd

    from fedres.cluster.batch_models import BatchModel
    from fedres.tables.column_notes import ColumnReading
    from fedres.tables.read_table import Table
    from fedres.tables.table_comparison import TableComparison

PANEL = "A table of rows (of several columns: a,b or a wildcard such as genre*)"
CLIENT = typer.Option(help="Column that names the client of a row.", rich_help_panel=PANEL)
LABEL = typer.Option(help="Column to predict.", rich_help_panel=PANEL)
TIME = typer.Option(
    help="Column with the time of a row: the last rows of each client are then held out.",
    rich_help_panel=PANEL,
)
CATEGORICAL = typer.Option(
    help="Columns of numbers that are categories; texts always are.", rich_help_panel=PANEL
)
LOCAL = typer.Option(
    help="Columns that local models see (default: a few narrow ones).", rich_help_panel=PANEL
)
GLOBAL = typer.Option(
    "--global", help="Columns that the global model sees (default: all).", rich_help_panel=PANEL
)
TASK = typer.Option(
    help="numbers or classes (default: texts, and two different numbers, are classes).",
    rich_help_panel=PANEL,
)
IGNORE = typer.Option(help="Columns to leave out.", rich_help_panel=PANEL)
SOLVER = typer.Option(help="How models are found: bayes (default) or sgd.", rich_help_panel=PANEL)
SHARED = typer.Option(
    "--shared",
    help="Shared model: linear, trees, or auto for what is better on rows left out of training.",
    rich_help_panel=PANEL,
)
LATENT = typer.Option(
    help="How many tastes a client has for items, such as 8 (with --item).", rich_help_panel=PANEL
)
ITEM = typer.Option(
    help="Column that names the item of a row, for --latent.", rich_help_panel=PANEL
)
SEED = typer.Option(
    help="Decides which rows are held out, and the order of passes.", rich_help_panel=PANEL
)
MEMORY = typer.Option(
    help="Read the table in batches and work in so little memory, such as 2GB (several files are "
    "read in batches anyway).",
    rich_help_panel=PANEL,
)
JSON = typer.Option("--json", help="Print JSON instead of a table.")
REPORT = typer.Option(help="Write an HTML report here.")
MODEL = typer.Argument(help="Folder of a model.")


class ColumnOptions(NamedTuple):
    """Which columns are what, as options say it."""

    client: str
    label: str
    time: str | None
    categorical: str | None
    local: str | None
    global_: str | None
    ignore: str | None
    item: str | None = None

    def read(self, path: str) -> "Table":
        """Read a table to learn from."""
        from fedres.simulation.parallel import working
        from fedres.tables.read_table import read_table

        with working(f"reading {path}"):
            return read_table(
                path,
                client=self.client,
                label=self.label,
                time=self.time,
                categorical=[*(_listed(self.categorical) or ()), *filter(None, [self.item])],
                ignore=self.ignored,
            )

    def estimator(
        self,
        y: Any,
        task: str | None,
        solver: str | None,
        shared: str,
        seed: int,
        latent: int | None = None,
    ) -> Any:
        """The estimator they ask for."""
        from fedres.tables.judging import estimator_for

        return estimator_for(
            y,
            task,  # type: ignore[arg-type]
            client=self.client,
            shared=shared,
            latent=latent,
            item=self.item,
            random_state=seed,
            **self.parameters(solver),
        )

    def parameters(self, solver: str | None) -> dict[str, Any]:
        """Those parameters of an estimator that name columns, and the solver."""
        return {
            "categorical_features": _listed(self.categorical),
            "local_features": _listed(self.local),
            "global_features": _listed(self.global_),
            **({} if solver is None else {"solver": solver}),
        }

    def refuse_bad(
        self, task: str | None, solver: str | None, shared: str, latent: int | None, seed: int
    ) -> None:
        """Raise if options do not go together, before the table is read."""
        from fedres.simulation.settings import choose
        from fedres.tables.parameters import SharedKind, Solver
        from fedres.tables.table_comparison import Task

        if task is not None:
            choose("task", task, get_args(Task))
        if solver is not None:
            choose("solver", solver, get_args(Solver))
        choose("shared", shared, get_args(SharedKind))
        if self.item is not None and latent is None:
            raise ValueError("--item needs --latent, such as --latent 8")
        if self.item is None and latent is not None:
            raise ValueError("--latent needs --item, the column that names the item of a row")
        if latent is not None and latent < 1:
            raise ValueError(f"--latent must be 1 or more, not {latent}")
        refuse_negative(seed)

    @property
    def ignored(self) -> list[str]:
        """The columns to leave out."""
        return _listed(self.ignore) or []


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [name for name in text.split(",") if name]


def how_columns_are_read(
    rows: "Table",
    label: str,
    model: Any,
    as_json: bool,
    encoder: Any = None,
    labels_from_to: tuple[float, float] | None = None,
) -> "list[ColumnReading]":
    """How columns are read; printed before anything is learned, should that fail.

    Where rows are some of a table, its encoder and the range of its labels are given.
    """
    from fedres.tables.column_notes import LabelColumn, readings
    from fedres.tables.encoder import Encoder

    encoder = encoder or Encoder.fit(
        rows.frame,
        categorical=model.categorical_features,
        local=model.local_features,
        global_=model.global_features,
        item=model.item,
    )
    client = False if rows.client is None else rows.client
    labels = LabelColumn(label, rows.y, hasattr(model, "predict_proba"), client, labels_from_to)
    columns = readings(encoder, rows.frame, model.categorical_features, labels)
    if not as_json:
        from fedres.report.columns_table import print_columns

        print_columns(columns)
    return columns


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings that the command has printed already: of the table, and of new rows."""
    from fedres.tables.client_ids import ClientWarning
    from fedres.tables.column_notes import ColumnWarning, LabelWarning
    from fedres.tables.unseen import UnseenWarning

    with warnings.catch_warnings():
        for kind in (ColumnWarning, LabelWarning, ClientWarning, UnseenWarning):
            warnings.simplefilter("ignore", kind)
        yield


def show(
    verdict: "TableComparison",
    table: str,
    report: Path | None,
    as_json: bool,
    columns: "list[ColumnReading]",
    model: dict[str, Any] | None = None,
) -> None:
    """Print a verdict, and what is to be said of the model, and write the report."""
    model = model or {}
    if as_json:
        read = [column._asdict() for column in columns]
        print(json.dumps({"columns": read, **verdict.to_dict(), **model}, indent=2))
    else:
        from fedres.report.verdict_table import print_verdict

        print_verdict(verdict, short_name(table))
        if because := shared_because(verdict, model.get("method", "fedres")):
            print(because)
        if because := model.get("tastes_because") or tastes_because(verdict.model):
            print(because)
        if model:
            print(f"Saved in {model['model']}: {saved(verdict, model['method'])}.")
    if report is not None:
        from fedres.report.verdict_page import write_verdict
        from fedres.simulation.parallel import working

        with working("writing the report"):
            write_verdict(verdict, report, short_name(table), columns, model)
        if not as_json:
            print(f"Report: {report.resolve()}")


def shared_because(verdict: "TableComparison", method: Any) -> str | None:
    """Which shared model a method took, and why; None if there was no choice."""
    from fedres.tables.verdict_words import which_shared

    taken = verdict.chosen[method]["shared"]
    return which_shared(verdict.shared_losses[method], taken)


def tastes_because(model: Any) -> str | None:
    """How many tastes clients of a model have, and why; None if it was not asked for any."""
    from fedres.tables.verdict_words import which_tastes

    if model is None or model.latent is None:
        return None
    losses = {
        trial["taste_strength"]: trial["loss"]
        for trial in model.validation_
        if "taste_strength" in trial
    }
    return which_tastes(losses, model.latent_)


def saved(verdict: "TableComparison", method: str) -> str:
    """Which model was saved, and why."""
    from fedres.tables.verdict_words import LABELS

    if not verdict.judged_enough:
        why = "the default" if method == verdict.recommended else "as --method asks"
        return f"{LABELS[method]}, {why}; too few rows or clients were judged to recommend a method"
    if method == verdict.recommended:
        return f"{LABELS[method]}, as recommended"
    return f"{LABELS[method]}, as --method asks; recommended is {LABELS[verdict.recommended]}"


def refuse_missing(table: str | None = None, model: Path | None = None) -> None:
    """Raise if a table or model does not exist, before heavy libraries are imported.

    Addresses such as ``s3://...`` are left to the reader.
    """
    if model is not None and not (model.expanduser() / "model.json").is_file():
        raise ValueError(
            f"{model} holds no model: there is no model.json in it; name a folder that "
            "`fedres fit` wrote"
        )
    if table is not None:
        from fedres.reading.files import refuse_absent_table

        refuse_absent_table(table)


def open_model(folder: Path, client: Any = None) -> Any:
    """The model in a folder, or what one client needs of it."""
    from fedres.tables.stored_estimator import load_model

    return load_model(folder, client)


def known_columns(model: Any, path: str, table: "Table") -> Any:
    """Those columns of a new table that the model knows."""
    from fedres.reading.files import listed

    names, frame = getattr(model, "feature_names_in_", None), cast(Any, table.frame)
    if (names is None) == hasattr(frame, "columns"):
        kind = "svmlight text" if names is None else "a table with names of columns"
        raise ValueError(f"{path} is of another kind than what the model learned from, {kind}")
    if names is None:
        return frame
    needed = needed_columns(model)
    for name in needed:
        if name not in frame:
            raise ValueError(
                f"{path} has no column {name!r}, which the model needs: it has "
                f"{listed([*map(str, frame.columns)])}"
            )
    return frame[needed]


def needed_columns(model: Any) -> list[str]:
    """The columns of a table that a model predicts from."""
    return [*model.feature_names_in_, *([] if model.offset is None else [model.offset])]


def say_unseen(table: str, stored: "BatchModel") -> None:
    """Print which rows of a table in batches were predicted without local models."""
    if stored.is_personal and not stored.names_clients:
        _say_nameless(table, stored.model)
    stored.warn_unknown()


def is_large(table: str) -> bool:
    """Whether a table is in several files, and read in batches."""
    from fedres.reading.files import is_several

    return is_several(table)


def shown(table: str) -> str:
    """What to call a table in messages."""
    return "standard input" if table == "-" else table


def short_name(table: str) -> str:
    """What to call a table in a title."""
    return PurePosixPath(shown(table)).name


@contextmanager
def table_writer(path: Path | None) -> "Iterator[Callable[[pd.DataFrame], None]]":
    """What writes a table batch by batch, as the end of its name says; CSV to the terminal.

    A file takes its place when all of it is written.
    """
    names = iter([True])
    if path is None:
        yield lambda frame: frame.to_csv(sys.stdout, index=False, header=next(names, False))
        return
    with ExitStack() as stack:
        file = stack.enter_context(whole_file(path))
        writers: list[Any] = []

        def write_csv(frame: "pd.DataFrame") -> None:
            file.write(frame.to_csv(index=False, header=next(names, False)).encode())

        def write_parquet(frame: "pd.DataFrame") -> None:
            import pyarrow as pa
            from pyarrow.parquet import ParquetWriter

            batch = pa.Table.from_pandas(_plain_texts(frame), preserve_index=False)
            if not writers:
                writers.append(stack.enter_context(ParquetWriter(file, batch.schema)))
            writers[0].write_table(batch.cast(writers[0].schema))

        yield write_parquet if path.suffix == ".parquet" else write_csv


def _plain_texts(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Categories as what they are of: each batch has others."""
    kinds = {
        name: column.cat.categories.dtype
        for name, column in frame.items()
        if hasattr(column, "cat")
    }
    return frame.astype(kinds)


def or_nobody(client: Any, model: Any, path: str) -> Any:
    """Return the clients of rows, or False after printing that the table names none."""
    if len(model.clients_) <= 1 or model.method == "central" or client is not None:
        return client
    _say_nameless(path, model)
    return False


def _say_nameless(path: str, model: Any) -> None:
    from fedres.tables.client_ids import predicted_by

    column = f" (column {model.client})" if model.client else ""
    how = predicted_by(model.method)
    print(
        f"fedres: warning: {path} names no client{column}: all rows are predicted by {how}",
        file=sys.stderr,
    )


@contextmanager
def naming(path: str) -> "Iterator[None]":
    """Name the table in errors about its values."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(path):
            raise
        raise ValueError(f"{path}: {error}") from None


def refuse_overwriting(out: Path, table: str) -> None:
    """Refuse to write a file over, or among, those that are read for it."""
    read, written = Path(table).expanduser(), out.resolve()
    same = {Path(name).resolve() for name in glob(str(read), recursive=True)} | {read.resolve()}
    if written in same or any(folder in written.parents for folder in same if folder.is_dir()):
        raise ValueError(f"cannot write {out}, which belongs to the table: name another file")


def refuse_negative(seed: int) -> None:
    """Raise unless a seed is one that NumPy takes."""
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more, not {seed}")


def refuse_unwritable(path: Path, is_table: bool = False) -> None:
    """Refuse the name of a file that cannot be written, before any work is done for it."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ValueError(f"cannot write {path}: name a file in a folder that exists")
    if is_table and path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"cannot write {path}: name a .csv or .parquet file")


def write_table(frame: "pd.DataFrame", path: Path | None) -> None:
    """Write a table as the end of its name says; CSV to the terminal."""
    with table_writer(path) as write:
        write(frame)

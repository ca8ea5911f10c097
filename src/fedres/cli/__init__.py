"""The command line. Heavy libraries are imported by the command that needs them."""

import sys
import warnings
from typing import Any

import typer

from fedres.cli.bandit import bandit
from fedres.cli.compare import compare
from fedres.cli.data import data
from fedres.cli.evaluate import evaluate
from fedres.cli.fit import fit
from fedres.cli.flower import app as flower
from fedres.cli.inspect import inspect
from fedres.cli.predict import predict
from fedres.cli.reproduce import reproduce
from fedres.core.display import printable
from fedres.core.files import FULL_DISK

app = typer.Typer(
    help="Federated Residual Learning: private local models + one shared global model.\n\n"
    "Example: fedres data ratings --out ratings.csv, then fedres fit ratings.csv --client user_id "
    "--label rating --time timestamp --out model",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (compare, fit, evaluate, predict, inspect, bandit, reproduce):
    app.command()(command)
app.add_typer(data, name="data")
app.add_typer(flower, name="flower")


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from fedres import __version__

        print(__version__)


def main() -> None:
    """Run a command; a mistake of the user's is one sentence and exit code 2."""
    warnings.showwarning = _warn  # type: ignore[assignment]
    try:
        app()
    except (ValueError, OSError, MemoryError) as error:
        print(printable(f"fedres: {_words(error)}"), file=sys.stderr)
        sys.exit(2)


def _warn(message: Warning | str, *_: Any) -> None:
    print(printable(f"fedres: warning: {message}"), file=sys.stderr)


def _words(error: ValueError | OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error}): a table is read in batches by --memory 1GB"
    if isinstance(error, OSError) and error.filename:
        remedy = "; make room, or name another place" if error.errno in FULL_DISK else ""
        return f"{error.strerror}: {error.filename}{remedy}"
    return str(error)

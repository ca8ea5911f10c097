"""The work folder of a fit in shards, and the finished steps that are kept in it.

The folder is named after all that decides the result of a fit: its options, its files and the code.
So the same command finds it after an error, Ctrl-C or a kill, and goes on from the finished steps;
any other command begins anew. Steps are kept as JSON and safetensors.
"""

import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedres.core import state_files
from fedres.core.files import locked
from fedres.core.source import digest, digest_of_code
from fedres.reading.table_files import TableFiles

ROOMS = ("cluster", "tables", "simulation", "reading", "core")

T = TypeVar("T")
Arrays = dict[str, NDArray[Any]]


@contextmanager
def work_folder(out: Path, parts: TableFiles, options: Any, prepared: str) -> Iterator[Path]:
    """Open the folder of a fit, beside its model; remove it when the fit has succeeded.

    Parameters
    ----------
    out
        Where the model is to be.
    parts
        The table: other files, or files that have changed, are another fit.
    options
        All else that decides the result; they are told apart by how they are printed.
    prepared
        The file that exists once the folder holds work worth keeping. Without it the folder is
        removed after an error, too.
    """
    files = [(file.path, file.size, file.modified) for file in parts.files]
    name = digest(repr(files).encode(), repr(options).encode(), digest_of_code(*ROOMS).encode())
    beside = f".{out.name}-shards-"
    folder = out.absolute().parent / f"{beside}{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise ValueError(f"{folder} belongs to someone else: remove it, or change --out")
    with locked(folder, patience=0, signed=True):
        if (folder / prepared).exists():
            print(f"fedres: going on from {folder}, which an earlier fit left", file=sys.stderr)
        try:
            yield folder
        except BaseException:
            if (folder / prepared).exists():
                print(
                    f"fedres: finished steps are kept in {folder}: the same command goes on from "
                    "there",
                    file=sys.stderr,
                )
            else:
                shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)
    for other in folder.parent.glob(f"{beside}*"):  # left by fits of a model that is now replaced
        with suppress(ValueError), locked(other, patience=0):
            shutil.rmtree(other)


def kept(path: Path, make: Callable[[], T], records: Collection[type] = ()) -> T:
    """Return the result of a step, from its file if an earlier fit has finished it.

    Parameters
    ----------
    path
        The file of the step.
    make
        Works out the result: numbers, texts, arrays, lists, dicts and `records` of these.
    records
        Dataclasses and named tuples that may be in the result.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sum"
    ...     kept(path, lambda: np.array([3])), kept(path, lambda: np.array([4]))
    (array([3]), array([3]))
    """
    if not path.exists():
        arrays: Arrays = {}
        state_files.write(path, {"result": _packed(make(), arrays)}, arrays)
    facts, arrays = state_files.read(path, f"remove {path.parent} to begin anew")
    result: T = _unpacked(facts["result"], arrays, {one.__name__: one for one in records})
    return result


def _packed(value: Any, arrays: Arrays) -> Any:
    """Return plain JSON, and put arrays into `arrays`."""
    if isinstance(value, np.ndarray):
        name = str(len(arrays))
        arrays[name] = value
        return {"array": name}
    if isinstance(value, list) or type(value) is tuple:
        return [_packed(one, arrays) for one in value]
    if isinstance(value, dict):
        return {"dict": {key: _packed(one, arrays) for key, one in value.items()}}
    names = [one.name for one in fields(value)] if is_dataclass(value) else _names(value)
    if names:
        of = {name: _packed(getattr(value, name), arrays) for name in names}
        return {"record": type(value).__name__, "fields": of}
    return value.item() if isinstance(value, np.generic) else value


def _names(value: Any) -> Sequence[str]:
    """Return the fields of a named tuple; none of anything else."""
    return getattr(value, "_fields", ())


def _unpacked(stored: Any, arrays: Arrays, records: Mapping[str, type]) -> Any:
    if isinstance(stored, list):
        return [_unpacked(one, arrays, records) for one in stored]
    if not isinstance(stored, dict):
        return stored
    if "array" in stored:
        return arrays[stored["array"]]
    content = stored["dict"] if "dict" in stored else stored["fields"]
    found = {name: _unpacked(one, arrays, records) for name, one in content.items()}
    return found if "dict" in stored else records[stored["record"]](**found)

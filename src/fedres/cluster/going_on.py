"""A fit that was killed, and is asked for again, goes on from what it has finished.

Whatever is finished is a file in the folder of the shards, which is named after all that decides
what comes of a fit: its options, its files and the code. So the same command finds it, and any
other begins anew. These files are pickles: the folder is for its owner alone.
"""

import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fedres.core.files import locked, whole_file
from fedres.core.source import digest, digest_of_code
from fedres.reading.table_files import TableFiles

ROOMS = ("cluster", "tables", "simulation", "reading", "core")

T = TypeVar("T")


@contextmanager
def work_folder(out: Path, parts: TableFiles, options: Any) -> Iterator[Path]:
    """The folder of a fit, beside its model; only a process that is killed leaves it there.

    Parameters
    ----------
    out
        Where the model is to be.
    parts
        The table: other files, or files that have changed, are another fit.
    options
        All else that decides what comes of it; they are told apart by how they are printed.
    """
    files = [(file.path, file.size, file.modified) for file in parts.files]
    name = digest(repr(files).encode(), repr(options).encode(), digest_of_code(*ROOMS).encode())
    folder = out.absolute().parent / f".{out.name}-shards-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise ValueError(f"{folder} belongs to someone else: remove it, or change --out")
    with locked(folder, patience=0, signed=True):
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def kept(path: Path, make: Callable[[], T]) -> T:
    """What is made, or what was made before and kept in a file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sum"
    ...     kept(path, lambda: 3), kept(path, lambda: 4)
    (3, 3)
    """
    if path.exists():
        found: T = pickle.loads(path.read_bytes())
        return found
    made = make()
    with whole_file(path) as file:
        pickle.dump(made, file)
    return made

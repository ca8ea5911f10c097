"""Files that are whole or not there: arrays and JSON in one safetensors file, without pickle."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

Arrays = dict[str, NDArray[Any]]


def write(path: Path, facts: dict[str, Any], arrays: Arrays) -> None:
    """Put the file in place at once; a crash leaves the old one or the new one.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "state"
    >>> write(path, {"step": 3}, {"w": np.float32([1, 2])})
    >>> read(path)
    ({'step': 3}, {'w': array([1., 2.], dtype=float32)})
    """
    write_bytes(path, save(arrays, {"facts": json.dumps(facts)}))


def write_bytes(path: Path, data: bytes) -> None:
    """Put bytes in place at once."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make what was renamed in a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """The facts and arrays of a file."""
    try:
        with safe_open(path, "numpy") as file:
            arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            return json.loads(file.metadata()["facts"]), arrays
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a state that fedres wrote: {error}") from None


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, without reading arrays."""
    with safe_open(path, "numpy") as file:
        facts: dict[str, Any] = json.loads(file.metadata()["facts"])
    return facts


@contextmanager
def locked(folder: Path, patience: float = 3600.0) -> Iterator[None]:
    """Keep other processes out of a folder; the lock of a killed process is free at once."""
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + patience
    with (folder / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ValueError(f"another process is at work in {folder}: stop it") from None
                time.sleep(0.1)
        yield

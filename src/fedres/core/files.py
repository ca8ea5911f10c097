"""Files that are whole or not there, and folders that one process at a time works in."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOCK = ".lock"


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write that takes its place at once, and only when all of it is on the disk.

    A crash leaves the old file or the new one; what it may leave besides is called
    ``NAME-<16 digits>.part``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "state"
    ...     with whole_file(path) as file:
    ...         _ = file.write(b"all of it")
    ...         there = path.exists()
    ...     there, path.read_bytes()
    (False, b'all of it')
    """
    part = path.with_name(f"{path.stem}-{secrets.token_hex(8)}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make what was renamed in a folder survive a loss of power; Windows sees to it itself."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path, patience: float = 3600.0) -> Iterator[None]:
    """Keep other processes out of a folder; the lock of a killed process is free at once.

    The file that carries the lock stays: to delete it would let two processes in, one with the
    old file and one with a new one of that name.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise ValueError(f"another process is at work in {folder}: stop it") from None
    try:
        yield
    finally:
        lock.release()

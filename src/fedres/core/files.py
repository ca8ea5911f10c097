"""Files that are whole or not there, and folders that one process at a time works in."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, EEXIST, EFBIG, ENOSPC
from pathlib import Path
from typing import IO

LOCK, HOLDER = ".lock", ".lock-holder"
FULL_DISK = (ENOSPC, EDQUOT, EFBIG)  # no room, or none that this user may take


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
    if path.exists() and not path.is_file():
        raise FileExistsError(EEXIST, "not a file that could be replaced", str(path))
    part = path.with_name(f"{path.stem}-{secrets.token_hex(8)}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk is reported without a name
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
def locked(folder: Path, patience: float = 3600.0, signed: bool = False) -> Iterator[None]:
    """Keep other processes out of a folder; the lock of a killed process is free at once.

    The file that carries the lock stays: to delete it would let two processes in, one with the
    old file and one with a new one of that name. Where it is signed, a second file
    says who has it, for those who wait in vain.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(folder / LOCK), folder / HOLDER
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        who = holder.read_text(encoding="utf-8") if holder.exists() else "another process"
        raise ValueError(f"{who} is at work in {folder}: wait for it, or end it") from None
    try:
        if signed:
            holder.write_text(f"process {os.getpid()}", encoding="utf-8")
        yield
    finally:
        lock.release()

"""Writing a model, whole or not at all."""

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedres.core.files import LOCK, locked, whole_file
from fedres.tables.storage.ids import Array
from fedres.tables.storage.index import NAME, OURS, index_text, read_index

# No header is longer; a damaged one may say so.
LONGEST_HEADER = 100_000_000
CHUNK = 2**22  # numbers that are written at once
DTYPES = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"{kind}{bits}": f"<{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)},
    "BOOL": "?",
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


def write(
    folder: str | os.PathLike[str],
    meta: Mapping[str, Any],
    arrays: Mapping[str, Mapping[str, Array]],
) -> None:
    """Write a model; one that the folder holds is replaced.

    Files of arrays get new names, and the index, which names them, is replaced last. So whenever
    this is interrupted, the folder holds the old model or the new one.

    Parameters
    ----------
    folder
        Made if absent; refused if it holds anything but a model.
    meta
        What JSON can hold.
    arrays
        Groups of arrays by name; a group is one file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from fedres.tables.storage import open_folder
    >>> with TemporaryDirectory() as folder:
    ...     write(folder, {"loss": "squared"}, {"global": {"weights": np.float32([1, 2, 3])}})
    ...     stored = open_folder(folder)
    >>> stored.meta, stored.slice("global", "weights", 1, 3)
    ({'loss': 'squared'}, array([2., 3.], dtype=float32))
    """
    folder = Path(folder)
    index_text(meta, {})  # what cannot be written is refused before anything is
    groups = {name: _writeable(name, group) for name, group in arrays.items()}
    refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        entries = {name: _write_group(folder, name, group) for name, group in groups.items()}
        with whole_file(folder / NAME) as file:
            file.write(index_text(meta, entries))
        _sweep(folder, {entry["file"] for entry in entries.values()})


def _writeable(group: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    if not re.fullmatch(r"\w+", group):
        raise ValueError(f"a group of arrays is named by letters, digits and _, not {group!r}")
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise ValueError(f"array {name!r} of {group!r} must hold numbers, not {array.dtype}")
    # As they lie in memory is as they are written.
    return {
        name: np.require(array, array.dtype.newbyteorder("<"), "C")
        for name, array in arrays.items()
    }


def refuse_foreign(folder: Path) -> None:
    """Refuse to save where no folder can be, or in one that holds anything but a model."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest} is a file: name a folder to save the model in")
    if not os.access(nearest, os.W_OK):
        raise ValueError(f"{nearest} may not be written to: name another folder for the model")
    if not folder.exists():
        return
    if (folder / NAME).exists():
        try:
            read_index(folder)
        except ValueError as error:
            raise ValueError(f"{error}; to save there, delete it first") from None
        return
    for path in folder.iterdir():
        if path.name != LOCK and not OURS.fullmatch(path.name):
            raise ValueError(
                f"{folder} holds {path.name} and no model: save in a new or an empty folder"
            )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make writers take turns."""
    with ExitStack() as turn:
        with suppress(OSError):  # not all network folders can be locked
            turn.enter_context(locked(folder))
        yield


def _write_group(folder: Path, name: str, arrays: dict[str, Array]) -> dict[str, Any]:
    """Write a safetensors file; arrays may be larger than memory, if they are mapped into it."""
    # As the library of that name orders them: wide numbers first, so that all are aligned.
    ordered = dict(sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
    header = _header(ordered)
    digest, size = sha256(header), len(header)
    file = f"{name}-{secrets.token_hex(8)}.safetensors"
    with whole_file(folder / file) as written:
        written.write(header)
        for array in ordered.values():
            flat = array.reshape(-1)
            for first in range(0, len(flat), CHUNK):
                part = flat[first : first + CHUNK].tobytes()
                written.write(part)
                digest.update(part)
                size += len(part)
    return {
        "file": file,
        "bytes": size,
        "header_sha256": sha256(header).hexdigest(),
        "sha256": digest.hexdigest(),
    }


def _header(arrays: Mapping[str, Array]) -> bytes:
    described, end = {}, 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        described[name] = {
            "dtype": NAMES[array.dtype.newbyteorder("=")],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_header(file: IO[bytes]) -> bytes:
    """The begin of a safetensors file, which names the arrays, their types and places."""
    length = file.read(8)
    return length + file.read(min(int.from_bytes(length, "little"), LONGEST_HEADER))


def _sweep(folder: Path, keep: set[str]) -> None:
    for path in folder.iterdir():
        if OURS.fullmatch(path.name) and path.name not in keep:
            with suppress(OSError):  # one that is in use goes next time
                path.unlink()

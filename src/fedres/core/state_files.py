"""State on disk: arrays and JSON in one safetensors file, without pickle."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedres.core.files import whole_file

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
    text = json.dumps(facts)
    with whole_file(path) as file:
        file.write(save(arrays, {"facts": text, "sum": _checksum(text, arrays)}))


def _checksum(text: str, arrays: Arrays) -> str:
    found = zlib.crc32(text.encode())
    for name in sorted(arrays):
        found = zlib.crc32(np.ascontiguousarray(arrays[name]).data, found)
    return str(found)


def read(
    path: Path, remedy: str = "remove it to begin with an empty local model"
) -> tuple[dict[str, Any], Arrays]:
    """The facts and arrays of a file; of a damaged one, an error says what else can be done."""
    try:
        with safe_open(path, "numpy") as file:
            arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            known = file.metadata()
        if _checksum(known["facts"], arrays) != known["sum"]:
            raise ValueError("a checksum differs")
        return json.loads(known["facts"]), arrays
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged, or not a state that fedres wrote ({error}): put a backup in its "
            f"place, or {remedy}"
        ) from None


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, without reading arrays; none of a file that is damaged or not there."""
    try:
        with safe_open(path, "numpy") as file:
            facts: dict[str, Any] = json.loads(file.metadata()["facts"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return {}
    return facts

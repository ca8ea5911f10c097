"""Reading a model, whole or in part; nothing that is read is run."""

import json
import math
import mmap
import os
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np

from fedres.core.types import I64
from fedres.tables.storage.ids import Array, find_id, find_ids
from fedres.tables.storage.index import NAME, OURS, read_index
from fedres.tables.storage.writing import DTYPES, read_header


def open_folder(folder: str | os.PathLike[str]) -> "Stored":
    """Open a model; its arrays are read when asked for.

    The index and the sizes and headers of all files are checked at once, the content of arrays
    only by `Stored.verify`.
    """
    folder = Path(folder)
    while True:
        index = read_index(folder)
        try:
            return Stored(folder, index)
        except FileNotFoundError as error:
            # A new model may have replaced the one whose index was read.
            if read_index(folder) == index:
                raise ValueError(f"{error.filename} is missing: the model is damaged") from None
        except (AttributeError, LookupError, RecursionError, TypeError) as error:
            raise ValueError(f"{folder / NAME} lacks what a model has: {error!r}") from None


class Stored:
    """A model on disk.

    Attributes
    ----------
    folder
        Where it is.
    meta
        What was given to `write`.
    """

    def __init__(self, folder: Path, index: Mapping[str, Any]) -> None:
        self.folder = folder
        self.meta: dict[str, Any] = index["meta"]
        self._groups = {name: _Group(folder, entry) for name, entry in index["groups"].items()}

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def group(self, name: str, finite: bool = False) -> dict[str, Array]:
        """All arrays of a group; with `finite`, NaN and infinity are refused."""
        return self._group(name).whole(finite)

    def slice(
        self, group: str, array: str, a: int, b: int | None = None, finite: bool = False
    ) -> Array:
        """Rows a to b of an array, without reading the others."""
        return self._group(group).part(array, a, b, finite)

    def mapped(self, group: str, array: str) -> Array:
        """An array that is read where it is looked at; it cannot be changed."""
        return self._group(group).view(array)

    def arrays(self, group: str) -> set[str]:
        """The names of the arrays of a group."""
        return set(self._group(group).arrays)

    def find_all(self, group: str, ids: Array) -> I64:
        """The row of each client among the ids of a group; -1 for those that are not there."""
        of = self._with_ids(group)
        return find_ids(ids, "ids_text" in of.arrays, of.view)

    def find(self, group: str, id_: Any) -> int | None:
        """The row of a client among the ids of a group (`pack_ids`); None if it is not there."""
        of = self._with_ids(group)
        return find_id(id_, "ids_text" in of.arrays, of.part)

    def verify(self) -> None:
        """Read all files and compare them with their digests."""
        for group in self._groups.values():
            group.verify()

    def _with_ids(self, name: str) -> "_Group":
        of = self._group(name)
        keys, rows = of.view("ids_key"), of.view("ids_row")
        if keys.ndim != 1 or keys.shape != rows.shape:
            raise of.damaged("it has not as many ids as rows")
        return of

    def _group(self, name: str) -> "_Group":
        if name not in self._groups:
            raise ValueError(f"the model in {self.folder} has no arrays {name!r}: it is damaged")
        return self._groups[name]


class _Group:
    """A safetensors file, mapped into memory.

    The library of that name would do, but for the disk: its map has the system read megabytes
    ahead around every number of a client.
    """

    def __init__(self, folder: Path, entry: Mapping[str, Any]) -> None:
        self.path = folder / entry["file"]
        if not OURS.fullmatch(entry["file"]):
            raise ValueError(f"{self.path} cannot be a file of a model")
        self.digest = entry["sha256"]
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry["bytes"]:
                raise self.damaged(f"it has {size} bytes, not {entry['bytes']}")
            header = read_header(file)
            if sha256(header).hexdigest() != entry["header_sha256"]:
                raise self.damaged("its header does not match its digest")
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.begin = len(header)
        self.arrays = json.loads(header[8:])
        self.arrays.pop("__metadata__", None)
        self._refuse_overlaps(size)
        self.advise("MADV_RANDOM")

    def _refuse_overlaps(self, size: int) -> None:
        """Raise unless arrays fill the file, each with the bytes that its shape asks for."""
        end = self.begin
        for about in sorted(self.arrays.values(), key=lambda one: one["data_offsets"]):
            shape, (first, last) = about["shape"], about["data_offsets"]
            length = math.prod(shape) * np.dtype(DTYPES[about["dtype"]]).itemsize
            if min(shape, default=0) < 0 or (self.begin + first, length) != (end, last - first):
                raise self.damaged("its arrays overlap, or have other sizes than their shapes")
            end = self.begin + last
        if end != size:
            raise self.damaged("it has bytes of no array")

    def advise(self, how: str) -> None:
        if hasattr(mmap, how):
            self.map.madvise(getattr(mmap, how))

    def view(self, array: str) -> Array:
        if array not in self.arrays:
            raise self.damaged(f"it has no array {array!r}")
        about = self.arrays[array]
        first, end = about["data_offsets"]
        data = memoryview(self.map)[self.begin + first : self.begin + end]
        return np.frombuffer(data, DTYPES[about["dtype"]]).reshape(about["shape"])

    def whole(self, finite: bool) -> dict[str, Array]:
        self.advise("MADV_NORMAL")
        arrays = {name: self.copied(name, self.view(name), finite) for name in self.arrays}
        self.advise("MADV_RANDOM")
        return arrays

    def part(self, array: str, a: int, b: int | None, finite: bool = False) -> Array:
        return self.copied(array, self.view(array)[a:b], finite)

    def copied(self, array: str, values: Array, finite: bool) -> Array:
        if finite and values.dtype.kind == "f" and not np.isfinite(values).all():
            raise self.damaged(f"{array!r} has values that are not finite")
        return values.copy()

    def verify(self) -> None:
        with self.path.open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != self.digest:
                raise self.damaged("its content does not match its digest")

    def damaged(self, why: str) -> ValueError:
        return ValueError(f"{self.path} is damaged: {why}")

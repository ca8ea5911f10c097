"""The model folder of a table in shards, written as a stream: no client is in memory for it.

It is the folder that `FedResEstimator.save` writes: all that reads one reads the other.
"""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedres.cluster.local_parts import GlobalState, read_part
from fedres.cluster.shards import Shard
from fedres.tables.estimator import FedResEstimator
from fedres.tables.online_models import ModelShape
from fedres.tables.storage import hashes, pack_keys, write
from fedres.tables.stored_estimator import describe

Array = NDArray[Any]


class Grown:
    """An array that grows on disk, and is mapped into memory in the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.unlink(missing_ok=True)  # of a process that was killed
        self._rest: tuple[int, ...] = ()
        self._dtype: Any = None

    def add(self, array: Array) -> None:
        """Append along the first axis."""
        self._rest, self._dtype = array.shape[1:], array.dtype
        with self.path.open("ab") as file:
            array.tofile(file)

    def whole(self) -> Array:
        """All of it."""
        count = self.path.stat().st_size // self._dtype.itemsize
        shape = count // max(1, int(np.prod(self._rest))), *self._rest
        if not count:
            return np.empty(shape, self._dtype)
        return np.memmap(self.path, self._dtype, "r", shape=shape)


def write_model(
    folder: str | PathLike[str],
    model: FedResEstimator,
    shape: ModelShape,
    global_: GlobalState,
    shards: Sequence[Shard],
) -> int:
    """Write a model whose local models are beside their shards; how many clients it has.

    Parameters
    ----------
    folder
        Where to.
    model
        All that it is but for clients and models: encoder, labels, parameters, choices.
    shape
        Of its models.
    global_
        The global model.
    shards
        The shards; room for as much again is taken in their folder.
    """
    work = shards[0].folder
    local = {name: Grown(work / f"all.{name}") for name in ("columns", "weights", "squares")}
    sizes = []
    for shard in shards:
        part = read_part(shard)
        sizes.append(np.diff(part["start"]))
        for name, grown in local.items():
            grown.add(part[name])
    arrays = {name: grown.whole() for name, grown in local.items()}
    start = np.append(0, np.cumsum(np.concatenate(sizes)))
    groups = {
        "global": global_._asdict(),
        "local": {"start": start, **arrays},
        "clients": _packed_ids(shards, work),
    }
    write(folder, describe(model, shape), groups)
    return len(start) - 1


def _packed_ids(shards: Iterable[Shard], work: Path) -> dict[str, Array]:
    """The ids of all clients, as `pack_ids` packs them."""
    keys, lengths, text = [], [], Grown(work / "all.ids")
    for shard in shards:
        ids = shard.clients()
        if shard.layout.are_numbers:
            keys.append(ids)
            continue
        keys.append(hashes(ids.tolist()))
        parts = [id_.encode() for id_ in ids]
        lengths.append(np.array([len(part) for part in parts], np.int64))
        text.add(np.frombuffer(b"".join(parts), np.uint8))
    packed = pack_keys(np.concatenate(keys))
    if lengths:
        start = np.append(0, np.cumsum(np.concatenate(lengths)))
        packed["ids_start"] = start.astype(np.min_scalar_type(start[-1]))
        packed["ids_text"] = text.whole()
    return packed

"""Models of a table in shards: the global one, and those of a shard's clients on disk.

Local models are arrays as `OnlineModels.pack` lays them out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedres.cluster.shards import Shard
from fedres.core.files import whole_file
from fedres.core.types import F32

NAMES = ("start", "columns", "weights", "squares")


class GlobalState(NamedTuple):
    """The global model: weights, and the sums of squares that its steps are divided by."""

    weights: F32
    squares: F32


NO_GLOBAL = GlobalState(np.empty(0, np.float32), np.empty(0, np.float32))


def write_part(
    shard: Shard,
    arrays: Mapping[str, NDArray[Any]],
    messages: int = 0,
    global_: GlobalState | None = None,
) -> None:
    """Write them whole or not at all, with how many messages or turns they know of.

    Where there is no server that keeps the global model, they are written with the one they know.
    """
    with whole_file(shard.path("local")) as file:
        local = (arrays[name] for name in NAMES)
        for array in (np.array(messages), *(global_ or NO_GLOBAL), *local):
            np.save(file, array, allow_pickle=False)


def read_part(shard: Shard) -> dict[str, NDArray[Any]]:
    """The local models that `write_part` wrote."""
    with shard.path("local").open("rb") as file:
        for _ in ("messages", *GlobalState._fields):
            np.load(file, allow_pickle=False)
        return {name: np.load(file, allow_pickle=False) for name in NAMES}


def read_global(shard: Shard) -> GlobalState | None:
    """The global model that was written with the local ones; None where there are none yet."""
    if not shard.path("local").exists():
        return None
    with shard.path("local").open("rb") as file:
        np.load(file, allow_pickle=False)
        return GlobalState(*(np.load(file, allow_pickle=False) for _ in GlobalState._fields))


def messages_known(shard: Shard) -> int:
    """How many messages the local models on disk know of: none before they are written."""
    if not shard.path("local").exists():
        return 0
    with shard.path("local").open("rb") as file:
        return int(np.load(file, allow_pickle=False))

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


def write_part(shard: Shard, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write them, whole or not at all."""
    with whole_file(shard.path("local")) as file:
        for name in NAMES:
            np.save(file, arrays[name], allow_pickle=False)


def read_part(shard: Shard) -> dict[str, NDArray[Any]]:
    """What `write_part` wrote."""
    with shard.path("local").open("rb") as file:
        return {name: np.load(file, allow_pickle=False) for name in NAMES}

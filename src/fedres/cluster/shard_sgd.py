"""``solver="sgd"`` shard by shard: the core's stream (`fedres.tables.stream`), rows as they come.

While a shard is worked on its clients' models are in memory; they are written behind, and the
global model goes on to the next shard. What a shard's rows are to the stream is written too, when
it is first met, and mapped into memory from then on.

A shard may also be worked on far from the global model: `OnlineModels.learn_and_tell` learns from
rows with a copy of it, and says what `OnlineModels.apply_told` needs to learn the same rows, later
and elsewhere. With one shard, or in turns, both give the same bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedres.cluster.local_parts import (
    GlobalState,
    messages_known,
    read_global,
    read_part,
    write_part,
)
from fedres.cluster.over_shards import over_shards
from fedres.cluster.shards import Shard
from fedres.core.files import whole_file
from fedres.core.primitives import View
from fedres.core.types import F32, I32
from fedres.tables.encoder import Encoder
from fedres.tables.online_models import ModelShape, OnlineModels, StreamRows
from fedres.tables.sgd_tuning import ANNEALED, Trial
from fedres.tables.weight_slots import Slots


@dataclass(frozen=True)
class SgdProblem:
    """What all shards share: the two views, and the shape of models."""

    encoder: Encoder
    shape: ModelShape
    outputs: int


class OpenShard(NamedTuple):
    """A shard ready to be learned from.

    Attributes
    ----------
    models
        Its clients' models, and a copy of the global one.
    rows, y
        Its rows, and what to predict of them, (outputs, rows).
    clients
        How many clients it has.
    """

    models: OnlineModels
    rows: StreamRows
    y: F32
    clients: int


def new_global(problem: SgdProblem) -> GlobalState:
    """A global model that knows nothing."""
    models = OnlineModels(problem.shape, problem.outputs)
    return GlobalState(models.w_global, models.squares_global)


def open_shard(shard: Shard, problem: SgdProblem, global_: GlobalState) -> OpenShard:
    """Open a shard: its models as they were last written, none at first."""
    models = OnlineModels(problem.shape, problem.outputs)
    if shard.path("stream").exists():
        y, keys, clients, rows = _mapped_stream(shard)
        models.slots = Slots(keys)
    else:
        data = shard.encoded(problem.encoder)
        if problem.shape.width_local is None:  # then all clients are one
            data = data._replace(client=np.zeros_like(data.client))
        rows = models.rows(data.x_global, data.x_local, data.client)
        y, clients = data.y, len(shard.keys()[1])
        _keep_stream(shard, y, models.slots.sorted()[0], clients, rows)
    models.make_room()
    models.w_global, models.squares_global = global_.weights.copy(), global_.squares.copy()
    if shard.path("local").exists():
        part = read_part(shard)
        models.w_local[:, 1:], models.squares_local[:, 1:] = part["weights"].T, part["squares"].T
    return OpenShard(models, rows, y, clients)


def learn_shard(
    shard: Shard, problem: SgdProblem, global_: GlobalState, eta: float, order: I32, turn: int = 0
) -> GlobalState:
    """One pass over the rows of a shard, in some order; the global model afterwards.

    It is written together with the local ones, and how many turns of shards they know of.
    """
    opened = open_shard(shard, problem, global_)
    models = opened.models
    models.settings = problem.shape._replace(eta=eta)
    models.learn(opened.rows, opened.y, order)
    global_ = GlobalState(models.w_global, models.squares_global)
    write_part(shard, models.pack(opened.clients)[1], turn + 1, global_)
    return global_


def train(
    shards: Sequence[Shard],
    problem: SgdProblem,
    best: Trial,
    rng: Any,
    progress: str | None = None,
    go_on: bool = False,
) -> GlobalState:
    """All passes; the global model afterwards, and local models beside their shards.

    With `go_on`, turns of shards that were finished before this was killed are not taken again.
    """
    if not go_on:
        forget_models(shards)
    newest = max(shards, key=messages_known)
    global_, known = read_global(newest) or new_global(problem), messages_known(newest)
    turns = count()
    for number, (eta, ordered) in enumerate(passes(shards, best, rng), 1):

        def learn(shard: Shard, eta: float = eta) -> None:
            nonlocal global_
            turn, order = next(turns), rng.permutation(shard.rows).astype(np.int32)
            if turn >= known:
                global_ = learn_shard(shard, problem, global_, eta, order, turn)

        told = None if progress is None else f"{progress}: pass {number} of {count_passes(best)}"
        for _ in over_shards(learn, ordered, 1, told):
            pass
    return global_


def forget_models(shards: Sequence[Shard]) -> None:
    """Remove what earlier training has left."""
    for shard in shards:
        for what in ("stream", "local"):
            shard.path(what).unlink(missing_ok=True)


def passes(shards: Sequence[Shard], best: Trial, rng: Any) -> Iterator[tuple[float, list[Shard]]]:
    """The step of each pass and the shards in an order of chance.

    There are as many as asked for and three with smaller steps, as `tune_and_train` has them.
    """
    for share in (*[1.0] * best.passes, *ANNEALED):
        # With one shard, chance decides what it decides in memory, and nothing else.
        order = [0] if len(shards) == 1 else rng.permutation(len(shards))
        yield share * best.eta, [shards[i] for i in order]


def count_passes(best: Trial) -> int:
    """How many there are."""
    return best.passes + len(ANNEALED)


def _keep_stream(shard: Shard, y: F32, keys: NDArray[Any], clients: int, rows: StreamRows) -> None:
    """Write what the stream takes of a shard; the first slot is the first key's, and so on."""
    with whole_file(shard.path("stream")) as file:
        sizes = np.array([clients, rows.total, rows.global_.sparse, rows.local.sparse])
        for array in (sizes, y, keys, *rows.global_[:5], *rows.local[:5]):
            np.save(file, array, allow_pickle=False)


def _mapped_stream(shard: Shard) -> tuple[F32, NDArray[Any], int, StreamRows]:
    """What `_keep_stream` wrote, mapped into memory; to change it changes no file."""
    arrays = _mapped_arrays(shard.path("stream"))
    (clients, total, *are_sparse), y, keys, *views = arrays
    global_, local = (
        View(*views[first : first + 5], bool(sparse))  # type: ignore[arg-type, call-arg]
        for first, sparse in zip((0, 5), are_sparse, strict=True)
    )
    return y, keys, int(clients), StreamRows(global_, local, int(total))


def _mapped_arrays(path: Any) -> list[NDArray[Any]]:
    """The arrays of a file, as numpy wrote one after the other."""
    from numpy.lib import format as npy

    arrays = []
    with path.open("rb") as file:
        end = path.stat().st_size
        while file.tell() < end:
            npy.read_magic(file)
            shape, fortran, dtype = npy.read_array_header_1_0(file)
            assert not fortran
            first, count = file.tell(), int(np.prod(shape))
            # Copied on writing: read-only arrays would be another type to the compiler.
            mapped = np.memmap(path, dtype, "c", first, shape) if count else np.empty(shape, dtype)
            arrays.append(np.asarray(mapped))
            file.seek(first + count * dtype.itemsize)
    return arrays

"""What bandits keep on disk, as facts for JSON and arrays for safetensors.

A file holds one client or one server, and is put in place whole (`fedres.core.state_files`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fedres.core.random_state import bit_generator
from fedres.core.state_files import Arrays
from fedres.core.types import Matrix


def check_kind(facts: Mapping[str, Any], kind: str, path: str | Path) -> None:
    """Refuse a file of another kind."""
    if facts.get("kind") != kind:
        raise ValueError(f"{path} holds a {facts.get('kind', 'state of another kind')}, no {kind}")


def as_fact(value: Any, known: Sequence[type]) -> dict[str, Any] | None:
    """A dataclass of one of the known kinds, for JSON; None for another.

    Examples
    --------
    >>> from fedres.core.steps import Adaptive, Sgd
    >>> as_fact(Sgd(0.5), (Adaptive, Sgd))
    {'Sgd': {'eta': 0.5}}
    >>> from_fact(_, (Adaptive, Sgd))
    Sgd(eta=0.5)
    """
    return {type(value).__name__: asdict(value)} if type(value) in known else None


def from_fact(fact: dict[str, Any] | None, known: Sequence[type]) -> Any:
    """The dataclass again, or None."""
    if fact is None:
        return None
    ((name, fields),) = fact.items()
    return next(kind for kind in known if kind.__name__ == name)(**fields)


def generator_state(rng: Any, client: int | str) -> dict[str, Any]:
    """Where a generator of random numbers stands."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError(
            f"client {client!r} draws from {rng!r}, which cannot be saved: give it a number or a "
            "numpy.random.Generator as seed"
        )
    state: dict[str, Any] = _plain(rng.bit_generator.state)
    return state


def generator_from(state: dict[str, Any]) -> np.random.Generator:
    """A generator that stands there.

    Examples
    --------
    >>> rng = np.random.default_rng(7)
    >>> generator_from(generator_state(rng, client=0)).random() == rng.random()
    True
    """
    return np.random.Generator(bit_generator(state))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def named(prefix: str, arrays: Mapping[str, Any]) -> Arrays:
    """Arrays under names with a prefix."""
    return {f"{prefix} {name}": array for name, array in arrays.items()}


def part(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays whose names have that prefix, without it."""
    begin = f"{prefix} "
    return {name.removeprefix(begin): one for name, one in arrays.items() if name.startswith(begin)}


def pack_rows(rows: Iterable[Any], dtype: Any) -> Arrays:
    """Vectors of any lengths, end to end.

    Examples
    --------
    >>> unpack_rows(pack_rows([[1.0], [2.0, 3.0]], np.float64))
    [array([1.]), array([2., 3.])]
    """
    several = [np.asarray(row, dtype) for row in rows]
    return {
        "values": np.concatenate([np.empty(0, dtype), *several]),
        "lengths": np.array([len(row) for row in several], np.int64),
    }


def unpack_rows(arrays: Arrays) -> list[Any]:
    """The vectors again."""
    ends = np.cumsum(arrays["lengths"])
    return np.split(arrays["values"], ends[:-1]) if len(ends) else []


def pack_matrices(matrices: Sequence[Matrix]) -> Arrays:
    """Matrices of any widths, dense or CSR, end to end.

    Examples
    --------
    >>> sent = [np.eye(2, dtype=np.float32), sparse.csr_array(np.float32([[0, 3]]))]
    >>> dense, csr = unpack_matrices(pack_matrices(sent))
    >>> dense.tolist(), csr.toarray().tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[0.0, 3.0]])
    """
    csr = [x for x in matrices if not isinstance(x, np.ndarray)]
    dense = [isinstance(x, np.ndarray) for x in matrices]
    values = [np.ravel(x) if isinstance(x, np.ndarray) else x.data for x in matrices]
    return {
        "shapes": np.array([x.shape for x in matrices], np.int64).reshape(-1, 2),
        "dense": np.array(dense, np.uint8),
        **named("values", pack_rows(values, np.float32)),
        **named("indices", pack_rows([x.indices for x in csr], np.int32)),
        **named("indptr", pack_rows([x.indptr for x in csr], np.int64)),
    }


def unpack_matrices(arrays: Arrays) -> list[Matrix]:
    """The matrices again."""
    values = unpack_rows(part("values", arrays))
    indices, indptr = (iter(unpack_rows(part(name, arrays))) for name in ("indices", "indptr"))
    shapes = [tuple(shape) for shape in arrays["shapes"].tolist()]
    return [
        one.reshape(shape).copy()
        if dense
        else sparse.csr_array((one.copy(), next(indices).copy(), next(indptr).copy()), shape=shape)
        for one, shape, dense in zip(values, shapes, arrays["dense"].tolist(), strict=True)
    ]

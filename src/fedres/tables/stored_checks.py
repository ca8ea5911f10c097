"""Checks of stored arrays against each other, before anything is allocated or computed by them.

Compiled code looks weights up by slots, columns and the beginnings of clients without asking
whether they exist. So their shapes must be those of the encoder and of the labels, and what points
into an array must point inside it. The same checks serve a whole model, the part of one client
and that of a batch: they look at what was read and at nothing else.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedres.core.mixture import EXPERTS
from fedres.core.types import I64
from fedres.tables.columns import Hashed
from fedres.tables.dict_encoder import DictEncoder
from fedres.tables.empirical_bayes import LEVELS
from fedres.tables.encoder import Encoder
from fedres.tables.mixed_models import HALVES
from fedres.tables.online_models import Array, ModelShape

Shapes = dict[str, tuple[int, ...]]
MOST_HASHED = 2**24  # local features of hashed columns, which lists of all features must hold


def check_shape(shape: ModelShape, encoder: Encoder | DictEncoder, method: str) -> None:
    """Raise unless both sides have a model for the features that the encoder gives, or none."""
    sides = (
        ("global", shape.width_global, encoder.width_global, "independent"),
        ("local", shape.width_local, encoder.width_local, "central"),
    )
    for side, width, features, without in sides:
        if width != (None if method == without else features):
            raise _damaged(f"the {side} model has {width} features, and rows have {features}")
    if isinstance(encoder, DictEncoder):
        return  # has one width on both sides
    hashed = sum(one.width for one in encoder.local_columns if isinstance(one, Hashed))
    if hashed > MOST_HASHED:
        raise _damaged(f"{hashed} local features of hashed columns are more than {MOST_HASHED}")


def check_shared(
    arrays: Mapping[str, Array],
    meta: Mapping[str, Any],
    encoder: Encoder | DictEncoder,
    outputs: int,
) -> None:
    """Raise unless the arrays that all clients share are those of such models."""
    width = meta["settings"]["width_global"]
    weights = outputs, 1 + (width or 0)
    expected: Shapes = {"weights": weights, "squares": weights}
    if isinstance(encoder, Encoder) and encoder.tastes is not None:
        assert encoder.item is not None
        expected["factors"] = encoder.columns[encoder.item].width, encoder.tastes.width
    if "mixture" in meta:
        expected |= {"alone_weights": weights, "alone_squares": weights}
        if (meta["mixture"]["own"] is None) != isinstance(encoder, DictEncoder):
            raise _damaged("columns of clients alone are told if they are not hashed, and only so")
    if "posterior" in meta:
        rank, columns = arrays["root"].shape[-1], 0 if width is None else weights[1]
        expected |= {"variance": (outputs, columns), "root": (outputs, columns, rank)}
        expected["shared"] = outputs, rank, rank
    _check_numbers(arrays, expected)


def check_begins(begins: Array, entries: int, rows: I64 | None = None) -> tuple[I64, I64]:
    """Return where the entries of clients begin and how many they are, of all if `rows` is None.

    Raise if one lies outside of so many entries, or belongs to two clients.
    """
    if begins.ndim != 1 or not len(begins) or begins.dtype.kind not in "iu":
        raise _damaged("clients do not begin at whole numbers")
    if rows is None:
        first, end = begins[:-1].astype(np.int64), begins[1:].astype(np.int64)
        apart = begins[0] == 0 and begins[-1] == entries
    else:
        in_order = np.sort(rows)
        if len(rows) and not 0 <= in_order[0] <= in_order[-1] < len(begins) - 1:
            raise _damaged(f"a client is none of {len(begins) - 1}")
        first, end = begins[rows].astype(np.int64), begins[rows + 1].astype(np.int64)
        apart = (begins[in_order[1:]] >= begins[in_order[:-1] + 1]).all()
        apart &= (np.diff(in_order) > 0).all()
    if not (apart and ((first >= 0) & (first <= end) & (end <= entries)).all()):
        raise _damaged("what clients have lies outside of its arrays, or belongs to several")
    return first, end - first


def check_local(arrays: Mapping[str, Array], clients: int, width: int | None, outputs: int) -> None:
    """Raise unless local models are those of so many clients, each column of a client once."""
    start, columns = arrays["start"], arrays["columns"]
    weights = len(columns), outputs
    _check_numbers(arrays, {"weights": weights, "squares": weights})
    _check_whole(arrays, {"start": (clients + 1,), "columns": weights[:1]})
    if not len(columns):
        return
    if width is None or columns.min() < 0 or columns.max() > width:
        raise _damaged(f"a local weight is of none of {width} features")
    rises = columns[1:] > columns[:-1]
    rises[start[1:-1][(start[1:-1] > 0) & (start[1:-1] < len(columns))] - 1] = True
    if not rises.all():
        raise _damaged("local weights of a client are not in the order of its features")


def check_posterior(
    arrays: Mapping[str, Array],
    described: Mapping[str, Any],
    local: Mapping[str, Array],
    groups: int,
    shape: tuple[int, int],
) -> None:
    """Raise unless a posterior is of these local weights.

    Parameters
    ----------
    arrays, described
        Of clients, and of all groups of weights.
    local
        Arrays of local models, which were checked.
    groups
        How many groups of weights there are.
    shape
        Number of outputs, and of columns of the root of the covariances of shared weights.
    """
    size, entries, (outputs, rank) = np.diff(local["start"]), len(local["columns"]), shape
    cells = np.append(0, np.cumsum(size * (size + 1) // 2))
    clients = (len(size) + 1,)
    _check_whole(arrays, {"start": clients, "first_cell": clients, "columns": (entries,)})
    of_weights: Shapes = {"root_local": (entries, outputs, rank), "across": (entries, outputs)}
    _check_numbers(arrays, of_weights | {"cells": (int(cells[-1]), outputs)})
    fits = np.array_equal(arrays["start"], local["start"])
    if not (fits and np.array_equal(arrays["first_cell"], cells) and _same_columns(arrays, local)):
        raise _damaged("variances are not those of the local weights")
    expected: Shapes = {
        "noise": (outputs,),
        "variances": (outputs, groups),
        "mean_squares": (groups,),
        "errors": (2, len(LEVELS)),
    }
    if "of_shared" in described:
        expected["of_shared"] = (outputs,)
    _check_numbers({name: np.array(described[name], np.float64) for name in expected}, expected)


def check_mixture(
    arrays: Mapping[str, Array], own: Any, clients: int, shape: ModelShape, outputs: int
) -> None:
    """Raise unless what clients mix is of so many clients, and of these columns of their own."""
    columns = [] if own is None else own
    if len(set(columns)) < len(columns) or not all(
        isinstance(one, int) and 0 <= one < (shape.width_local or 0) for one in columns
    ):
        raise _damaged(f"columns of clients alone are not among {shape.width_local} features")
    check_local(arrays, clients, (shape.width_global or 0) + len(columns), outputs)
    trust = clients, outputs * HALVES * EXPERTS
    _check_numbers(arrays, {"trust": trust, "labels": (clients, outputs)})


def _same_columns(arrays: Mapping[str, Array], local: Mapping[str, Array]) -> bool:
    """Whether every client has the same columns in both, in whatever order in the first."""
    columns = arrays["columns"]
    if np.array_equal(columns, local["columns"]):
        return True
    client = np.repeat(np.arange(len(local["start"]) - 1), np.diff(local["start"]))
    return np.array_equal(columns[np.lexsort((columns, client))], local["columns"])


def _check_numbers(arrays: Mapping[str, Array], shapes: Shapes) -> None:
    """Raise unless arrays have these shapes, and finite numbers."""
    for name, shape in shapes.items():
        _check_array(name, arrays[name], shape, "f")
        if not np.isfinite(arrays[name]).all():
            raise _damaged(f"{name!r} has values that are not finite")


def _check_whole(arrays: Mapping[str, Array], shapes: Shapes) -> None:
    """Raise unless arrays have these shapes, and whole numbers."""
    for name, shape in shapes.items():
        _check_array(name, arrays[name], shape, "iu")


def _check_array(name: str, array: Array, shape: tuple[int, ...], kinds: str) -> None:
    if array.shape != shape or array.dtype.kind not in kinds:
        raise _damaged(f"{name!r} is {array.dtype} of shape {array.shape}, and not of {shape}")


def _damaged(why: str) -> ValueError:
    return ValueError(f"the model is damaged, or of another fedres: {why}")

"""A client's rows: from its own table, from a function of the user's, or from built-in data."""

import hashlib
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import safe_open

from fedres.core.state_files import Arrays, read_facts, write
from fedres.core.types import F32, Matrix
from fedres.flower.app_labels import labels
from fedres.flower.app_settings import AppSettings
from fedres.flower.client_state import RowSource

if TYPE_CHECKING:
    from fedres.tables.read_table import Table

ROWS = "rows.safetensors"
MEANING = ("features", "label", "classes", "client", "time")
CSR = ("data", "indices", "indptr")
LabelledRows = tuple[Matrix, Matrix, F32]


def open_source(
    settings: AppSettings, node: Mapping[str, Any], client: str, folder: Path
) -> RowSource:
    """The rows that ``data`` of a node's configuration speaks of.

    It is the path of a table, a function as ``module:name``, or ``digits``. The client's rows of
    a table are kept in the folder as features, since every message has a new process.
    """
    data = _data(settings, node)
    if data == "digits":
        part, parts = int(node["partition-id"]), int(node["num-partitions"])
        facts = (part, parts, settings.features)
        return _kept(settings, folder, facts, lambda: _digits(settings, part, parts))
    if ":" in data and not Path(data).exists():
        return FunctionSource(settings, _function(data))
    table = table_of(settings, node)
    seen = table.stat()
    # Whatever changes features or labels; the rest of the settings does not.
    ours = settings.to_config()
    meaning = [ours[name] for name in sorted(ours) if name.split("-")[0] in MEANING]
    facts = (str(table.resolve()), seen.st_mtime_ns, seen.st_size, client, *meaning)
    return _kept(settings, folder, facts, lambda: encoded(settings, table, client))


def table_of(settings: AppSettings, node: Mapping[str, Any]) -> Path:
    """The table of a node."""
    table = Path(_data(settings, node))
    if not table.exists():
        raise ValueError(f"there is no table {table}: check data in --node-config")
    return table


def _data(settings: AppSettings, node: Mapping[str, Any]) -> str:
    data = str(node.get("data") or settings.data)
    if not data:
        raise ValueError('this node has no data: name it in --node-config, as in data="/my.csv"')
    return data


@dataclass(frozen=True)
class FunctionSource:
    """Samples that a function yields.

    The function is called with the position to begin at and yields (x_global, x_local, y) from
    there on, rows as sequences of numbers, y as a number or one of the app's classes; it may end,
    or not.
    """

    settings: AppSettings
    function: Callable[[int], Iterable[tuple[Any, Any, Any]]]
    key: str = ""

    def take(self, position: int, count: int) -> LabelledRows:
        """Samples from that position on."""
        samples = list(islice(self.function(position), count))
        widths = self.settings.width_global, self.settings.width_local
        x_global, x_local = (
            np.array([sample[side] for sample in samples], np.float32).reshape(len(samples), width)
            for side, width in enumerate(widths)
        )
        return x_global, x_local, labels(self.settings, [sample[2] for sample in samples])


@dataclass(frozen=True)
class StoredSource:
    """Samples in a file of features, of which only those wanted are read."""

    settings: AppSettings
    path: Path
    key: str = ""

    def take(self, position: int, count: int) -> LabelledRows:
        """Samples from that position on."""
        with safe_open(self.path, "numpy") as file:
            labels = file.get_slice("y")
            wanted = _places(position, count, labels.get_shape()[0], self.settings.passes)
            if not len(wanted):
                return no_rows(self.settings)
            first, last = int(wanted.min()), int(wanted.max()) + 1
            inside = wanted - first
            widths = {"global": self.settings.width_global, "local": self.settings.width_local}
            x_global, x_local = (_part(file, *side, first, last)[inside] for side in widths.items())
            return x_global, x_local, labels[first:last][inside]


def _places(position: int, count: int, rows: int, passes: int) -> Any:
    """Which rows follow on a position, when the end is followed by the beginning."""
    end = position + count if passes == 0 else min(position + count, passes * rows)
    return np.arange(position, max(end, position)) % max(rows, 1) if rows else np.arange(0)


def _part(file: Any, side: str, width: int, first: int, last: int) -> Matrix:
    if f"{side} indptr" not in file.keys():  # noqa: SIM118
        rows: F32 = file.get_slice(side)[first:last]
        return rows
    from scipy import sparse

    starts = file.get_slice(f"{side} indptr")[first : last + 1]
    values, indices = (
        file.get_slice(f"{side} {name}")[int(starts[0]) : int(starts[-1])]
        for name in ("data", "indices")
    )
    return sparse.csr_array((values, indices, starts - starts[0]), shape=(last - first, width))


def _kept(
    settings: AppSettings, folder: Path, facts: tuple[Any, ...], make: Callable[[], LabelledRows]
) -> StoredSource:
    """Samples as a file of features, made anew where what they are made from has changed."""
    key = hashlib.sha256(repr(facts).encode()).hexdigest()
    path = folder / ROWS
    if read_facts(path).get("key") != key:
        x_global, x_local, y = make()
        arrays: Arrays = {"y": y}
        for side, x in (("global", x_global), ("local", x_local)):
            if isinstance(x, np.ndarray):
                arrays[side] = x
            else:
                arrays |= {f"{side} {name}": getattr(x, name) for name in CSR}
        folder.mkdir(parents=True, exist_ok=True)
        write(path, {"key": key}, arrays)
    return StoredSource(settings, path, key)


def no_rows(settings: AppSettings) -> LabelledRows:
    """What there is where there is nothing."""
    x_global, x_local = (
        np.empty((0, width), np.float32) for width in (settings.width_global, settings.width_local)
    )
    return x_global, x_local, np.empty(0, np.float32)


def encoded(settings: AppSettings, table: Path, client: str) -> LabelledRows:
    """Features and labels of a client's rows in a table, which may come later."""
    from fedres.reading.files import NoRowsError

    try:
        read = rows_of(settings, table, client)
    except NoRowsError:
        return no_rows(settings)
    return features(settings, read.frame, read.y)


def rows_of(
    settings: AppSettings, table: Path, client: str, categorical: Iterable[str] = ()
) -> "Table":
    """A client's rows in a table; the app knows which columns are categories, but for these."""
    from fedres.tables.encoder import Encoder
    from fedres.tables.read_table import read_table

    known = Encoder.from_dict(settings.table["encoder"]).categorical
    read = read_table(
        table,
        client=settings.client_column or None,
        label=settings.label,
        time=settings.time_column or None,
        categorical=[*known, *(name for name in categorical if name not in known)],
        optional=("client",),
    )
    if read.client is not None:
        own = np.flatnonzero([str(name) == client for name in read.client])
        if not len(own):
            raise ValueError(
                f"{table} has no rows of {client!r} in column {settings.client_column!r}: check "
                "client in --node-config"
            )
        read = read.take(own)
    return read


def features(settings: AppSettings, frame: Any, y: Any) -> LabelledRows:
    """Features and labels of rows, as the models see them."""
    from fedres.tables.encoder import Encoder

    x_global, x_local = Encoder.from_dict(settings.table["encoder"]).transform(frame)
    return x_global, x_local, labels(settings, y)


def _function(name: str) -> Callable[[int], Iterable[tuple[Any, Any, Any]]]:
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise ValueError(
            f"there is neither a table nor a function {name!r}: check data in --node-config"
        ) from None
    return function  # type: ignore[no-any-return]


def _digits(settings: AppSettings, part: int, parts: int) -> LabelledRows:
    from fedres.flower.digits import tables

    frame = tables(parts)[part].train
    return features(settings, frame.drop(columns="label"), frame["label"].to_numpy())

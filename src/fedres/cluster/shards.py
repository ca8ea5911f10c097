"""Rows on disk, dealt to shards by their client, encoded, and as short as they can be.

A row is a record of fixed size: the client's key, the label as models see it (of classes: which),
a number of 32 bits for each column of numbers (NaN where it is missing), and for each column of
categories as many codes as a row has of them at most. A shard holds all rows of its clients, in the
order of the table. Clients are dealt by a hash of their ids: a shard is a fair sample of them.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedres.cluster.client_keys import RowKeys, shard_numbers
from fedres.core.files import whole_file
from fedres.core.types import F32, I64
from fedres.tables.columns import Category, Features, Number
from fedres.tables.encoder import EncodedTable, Encoder
from fedres.tables.labels import ClassLabels, Labels, NumberLabels
from fedres.tables.sgd_tuning import Encoded

if TYPE_CHECKING:
    import pandas as pd

INDEX = "shards.json"
MOST_SHARDS = 512  # files that are open at once
Records = NDArray[np.void]


class Layout(NamedTuple):
    """What a record holds.

    Attributes
    ----------
    encoder
        How columns are encoded.
    labels
        How labels are.
    most
        How many categories a row has at most, by name of the column.
    are_numbers
        Whether ids of clients are numbers, and not texts.
    """

    encoder: Encoder
    labels: Labels
    most: dict[str, int]
    are_numbers: bool

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The record."""
        fields: list[tuple[Any, ...]] = [("client", "<i8"), ("y", "<f4")]
        for i, column in enumerate(self.encoder.columns):
            if isinstance(column, Category):
                code = np.min_scalar_type(column.width).newbyteorder("<")
                fields.append((str(i), code, (self.most[column.name],)))
            else:
                fields.append((str(i), "<f4"))
        return np.dtype(fields)

    def records(self, keys: I64, y: NDArray[Any], frame: "pd.DataFrame") -> Records:
        """Encode rows."""
        encoded = self.encoder.encode(frame)
        out = np.empty(len(keys), self.dtype)
        out["client"], out["y"] = keys, self._packed(y)
        for i, features in encoded.features.items():
            column, (counts, indices, values) = self.encoder.columns[i], features
            if isinstance(column, Category):
                codes = out[str(i)]
                codes[:] = column.width
                place = np.arange(codes.shape[1]) < np.asarray(counts)[:, None]
                codes[place] = indices
            elif len(values) == len(out):
                out[str(i)] = values
            else:
                z = values[indices == 0]
                z[np.asarray(counts) > 1] = np.nan
                out[str(i)] = z
        return out

    def table(self, records: Records) -> EncodedTable:
        """The features of rows, as `Encoder.encode` gave them."""
        features = {}
        for i, column in enumerate(self.encoder.columns):
            stored = np.ascontiguousarray(records[str(i)])
            if isinstance(column, Number):
                absent = np.isnan(stored)
                stored[absent] = 0
                features[i] = column.features_of_encoded(stored, absent)
            else:
                there = stored < column.width
                found = stored[there].astype(np.int64)
                counts = there.sum(axis=1)
                features[i] = Features(counts, found, np.ones(len(found), np.float32))
        return EncodedTable(len(records), features)

    def targets(self, records: Records) -> F32:
        """What models are to predict, (outputs, rows)."""
        if isinstance(self.labels, NumberLabels):
            return np.ascontiguousarray(records["y"])[None]
        classes = self.labels.classes
        return self.labels.targets(classes[records["y"].astype(np.int64)])

    def _packed(self, y: NDArray[Any]) -> F32:
        if isinstance(self.labels, NumberLabels):
            return np.asarray(self.labels.targets(y.astype(np.float64))[0])
        numbers = np.searchsorted(self.labels.classes, y)
        return numbers.astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        kind = "numbers" if isinstance(self.labels, NumberLabels) else "classes"
        return {
            "encoder": self.encoder.to_dict(),
            "labels": {"kind": kind, **self.labels.to_dict()},
            "most": self.most,
            "are_numbers": self.are_numbers,
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Layout":
        """What `to_dict` gave."""
        labels = dict(stored["labels"])
        kind = NumberLabels if labels.pop("kind") == "numbers" else ClassLabels
        return cls(
            Encoder.from_dict(stored["encoder"]),
            kind.from_dict(labels),
            stored["most"],
            stored["are_numbers"],
        )


@dataclass(frozen=True)
class Shard:
    """All rows of some clients.

    Attributes
    ----------
    folder, number
        Where it is: what is kept of its models is beside it, under its number.
    layout
        What its rows hold.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> from fedres.cluster.client_keys import keys_of
    >>> frame = pd.DataFrame({"age": [20.0, 40.0, 60.0]})
    >>> layout = Layout(Encoder.fit(frame), NumberLabels(), {}, are_numbers=False)
    >>> with TemporaryDirectory() as folder:
    ...     with ShardWriter(Path(folder), layout, shards=1) as writer:
    ...         writer.add(keys_of(pd.Series(["ann", "bob", "ann"]), False), np.ones(3), frame)
    ...     (shard,) = open_shards(folder)
    ...     shard.clients().tolist(), shard.encoded().client, shard.encoded().x_global.shape
    (['ann', 'bob'], array([0, 1, 0]), (3, 1))
    """

    folder: Path
    number: int
    layout: Layout

    def path(self, what: str) -> Path:
        """The file of this shard that holds its ``rows``, or anything else."""
        return self.folder / f"shard-{self.number:04d}.{what}"

    @cached_property
    def rows(self) -> int:
        """How many rows it has."""
        return self.path("rows").stat().st_size // self.layout.dtype.itemsize

    def records(self) -> Records:
        """The rows as they are on disk; read when they are looked at."""
        if not self.rows:
            return np.empty(0, self.layout.dtype)
        return np.memmap(self.path("rows"), self.layout.dtype, "r")

    def keys(self) -> tuple[I64, I64]:
        """The number of every row's client, from 0 in the order in which they come; their keys."""
        import pandas as pd

        codes, keys = pd.factorize(np.ascontiguousarray(self.records()["client"]))
        return np.asarray(codes, np.int64), np.asarray(keys, np.int64)

    def clients(self) -> NDArray[Any]:
        """The id of every client, by number: whole numbers, or texts in an array of objects."""
        import pandas as pd
        import pyarrow as pa

        keys = self.keys()[1]
        if self.layout.are_numbers:
            return keys
        with pa.OSFile(str(self.path("ids"))) as file, pa.ipc.open_stream(file) as stream:
            known = stream.read_all().to_pandas().drop_duplicates()
        if (twice := known["key"].duplicated()).any():
            key = known["key"][twice].iloc[0]
            first, second = known["id"][known["key"] == key].iloc[:2]
            raise ValueError(
                f"the clients {first!r} and {second!r} have the same hash, and would be taken for "
                "one: rename one of them"
            )
        place = pd.Index(known["key"]).get_indexer(pd.Index(keys))
        return np.asarray(known["id"].to_numpy(object)[place], object)

    def encoded(self, encoder: Encoder | None = None) -> Encoded:
        """Its rows in the two views of an encoder, or of a half of it: what solvers take."""
        records = self.records()
        views = (encoder or self.layout.encoder).views(self.layout.table(records))
        limits = self.layout.labels.limits
        return Encoded(*views, self.layout.targets(records), self.keys()[0], limits)


class ShardWriter:
    """Deals rows to new shards; nothing is kept in memory.

    Parameters
    ----------
    folder
        Where they are to be, and nothing else is.
    layout
        What a row holds.
    shards
        How many.
    """

    def __init__(self, folder: Path, layout: Layout, shards: int) -> None:
        if not 1 <= shards <= MOST_SHARDS:
            raise ValueError(f"there may be 1 to {MOST_SHARDS} shards, not {shards}")
        self.shards = [Shard(folder, number, layout) for number in range(shards)]
        self._layout, self._open = layout, ExitStack()

    def __enter__(self) -> Self:
        import pyarrow as pa

        self._rows = [
            self._open.enter_context(one.path("rows").open("wb", buffering=0))
            for one in self.shards
        ]
        self._ids: list[Any] = []
        self._schema = pa.schema([("key", pa.int64()), ("id", pa.string())])
        if not self._layout.are_numbers:
            for one in self.shards:
                sink = self._open.enter_context(pa.OSFile(str(one.path("ids")), "wb"))
                self._ids.append(self._open.enter_context(pa.ipc.new_stream(sink, self._schema)))
        return self

    def __exit__(self, *failure: Any) -> None:
        self._open.close()
        if failure[0] is None:
            index = {"shards": len(self.shards), **self._layout.to_dict()}
            with whole_file(self.shards[0].folder / INDEX) as file:
                file.write(json.dumps(index).encode())

    def add(self, clients: RowKeys, y: NDArray[Any], frame: "pd.DataFrame") -> None:
        """Encode some rows, and append each to the shard of its client."""
        import pyarrow as pa

        records = self._layout.records(clients.keys, y, frame)
        for number, part in self._dealt(clients.keys):
            data = memoryview(records[part].view(np.uint8).data)
            while data:  # a disk that is nearly full takes less than all, then says so
                data = data[self._rows[number].write(data) :]
        if self._ids:
            for number, part in self._dealt(clients.distinct):
                columns = [pa.array(clients.distinct[part]), pa.array(clients.texts[part])]
                self._ids[number].write_batch(pa.record_batch(columns, schema=self._schema))

    def _dealt(self, keys: I64) -> Iterator[tuple[int, I64]]:
        """For each shard that some of these keys belong to, which of them."""
        number = shard_numbers(keys, len(self.shards)).astype(np.uint16)
        order = np.argsort(number, kind="stable")
        ends = np.cumsum(np.bincount(number, minlength=len(self.shards)))
        for shard, part in enumerate(np.split(order, ends[:-1])):
            if len(part):
                yield shard, part


def open_shards(folder: str | Path) -> Sequence[Shard]:
    """The shards that a `ShardWriter` has written and that have rows."""
    path = Path(folder) / INDEX
    if not path.is_file():
        raise ValueError(f"{folder} holds no shards: there is no {INDEX} in it")
    index = json.loads(path.read_bytes())
    layout = Layout.from_dict(index)
    every = (Shard(Path(folder), number, layout) for number in range(index["shards"]))
    return [shard for shard in every if shard.rows]

"""What travels between clients and server, as objects and as bytes, and the count of bytes."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedres.core.quantising import cell_of, middle_of
from fedres.core.receipts import Ticket
from fedres.core.types import F32, Matrix

SCHEMA = 1
_UPLOAD = struct.Struct("<BBHIII")  # schema, bits (+ 128: sparse), rows, client, round, version
_MODEL = struct.Struct("<BBHIff")  # schema, whether lives count, uploads used, version, low, high
_SPARSE = 128
_TICKET = struct.Struct("<QQQ")  # after the head of an upload that has one,
_HAS_TICKET = 64  # whose bits say so
_EPOCH = struct.Struct("<Q")  # after the head of a model of a server with several lives

Count = Any  # an int or an array of them

RESIDUAL_BITS = (*range(1, 9), 16, 32)
MOST_ROWS = 2**16 - 1  # the header of an upload counts rows in two bytes


class MessageError(ValueError):
    """A message that cannot be read.

    Attributes
    ----------
    reason
        Why, in a few words that reports count by.
    """

    def __init__(self, words: str, reason: str = "wrong size") -> None:
        super().__init__(words)
        self.reason = reason


@dataclass(frozen=True, eq=False)
class Upload:
    """Z = (x^g, f(x^l; w_i), y) of one batch: all that ever leaves a client.

    Attributes
    ----------
    client, round
        Who sends it, and in which of its rounds it was made.
    version
        The global model that made the predictions.
    x_global, residual, y
        A row, a local prediction and a label a sample. The residual is what the server will
        see: already rounded to `bits`. Where models have several outputs (`one_against_all`), a
        sample has a residual for each: (rows, outputs).
    bits
        Bits a residual: 1 to 8, 16, 32, or 0 where there is no local model.
    span
        Range that residuals of fewer than 32 bits cover; agreed beforehand, not sent.
    ticket
        By which the server knows an upload that comes again; None where nobody keeps count.

    Examples
    --------
    >>> sent = Upload(3, 7, 6, np.float32([[1, 2]]), np.float32([0.5]), np.float32([1]))
    >>> len(sent.pack())
    32
    >>> Upload.unpack(sent.pack(), width=2).residual
    array([0.5], dtype=float32)
    """

    client: int
    round: int
    version: int
    x_global: Matrix
    residual: F32
    y: F32
    bits: int = 32
    span: tuple[float, float] = (-1.0, 1.0)
    ticket: Ticket | None = None

    def pack(self) -> bytes:
        """The message as bytes."""
        if len(self.y) > MOST_ROWS:
            raise ValueError(
                f"an upload has {len(self.y)} rows, and a message holds {MOST_ROWS} at most: "
                "send them in several"
            )
        x = self.x_global
        dense = isinstance(x, np.ndarray)
        flags = self.bits | (0 if dense else _SPARSE) | (_HAS_TICKET if self.ticket else 0)
        head = _UPLOAD.pack(SCHEMA, flags, len(self.y), self.client, self.round, self.version)
        head += _TICKET.pack(*self.ticket) if self.ticket else b""
        features = (
            [x.astype("<f4")]
            if isinstance(x, np.ndarray)
            else [np.diff(x.indptr).astype("<u4"), x.indices.astype("<u4"), x.data.astype("<f4")]
        )
        parts = [
            self.y.astype("<f4"),
            _encode(self.residual.ravel(), self.bits, self.span),
            *features,
        ]
        return head + b"".join(part.tobytes() for part in parts)

    @classmethod
    def unpack(
        cls,
        data: bytes,
        width: int,
        span: tuple[float, float] = (-1.0, 1.0),
        outputs: int = 1,
    ) -> "Upload":
        """Read a message with so many global features and so many residuals a row."""
        if len(data) < _UPLOAD.size:
            raise MessageError(f"an upload has at least {_UPLOAD.size} bytes, this one {len(data)}")
        schema, flags, rows, client, round_, version = _UPLOAD.unpack_from(data)
        _check_schema(schema)
        bits = flags & ~(_SPARSE | _HAS_TICKET)
        if bits not in (0, *RESIDUAL_BITS) or rows == 0:
            raise MessageError(
                f"an upload claims {rows} rows with {bits}-bit residuals: it is broken"
            )
        reader = _Reader(data, _UPLOAD.size)
        ticket = Ticket(*map(int, reader.take("<u8", 3))) if flags & _HAS_TICKET else None
        y = reader.take("<f4", rows)
        count = rows * outputs
        residual = _decode(reader.take("u1", residual_bytes(count, bits)), count, bits, span)
        if outputs > 1:
            residual = residual.reshape(rows, outputs)
        x: Matrix
        if flags & _SPARSE:
            counts = reader.take("<u4", rows).astype(np.int64)
            indptr = np.concatenate([[0], np.cumsum(counts)])
            indices, values = reader.take("<u4", indptr[-1]), reader.take("<f4", indptr[-1])
            if indptr[-1] and indices.max() >= width:
                raise MessageError(f"an upload has feature {indices.max()}, the model only {width}")
            _check_order(counts, indices, width)
            from scipy import sparse

            x = sparse.csr_array((values, indices, indptr), shape=(rows, width))
        else:
            x = reader.take("<f4", rows * width).reshape(rows, width)
        reader.finish()
        for name, part in (("label", y), ("feature", values if flags & _SPARSE else x)):
            if not np.isfinite(part).all():
                raise MessageError(
                    f"an upload of client {client} has a {name} that is not finite", "not finite"
                )
        return cls(client, round_, version, x, residual, y, bits, span, ticket)


@dataclass(frozen=True, eq=False)
class GlobalModel:
    """The global model as published at the end of a round.

    Attributes
    ----------
    version
        t of G_t.
    weights
        w^g, the constant's weight last if it has one.
    low, high
        Range of the labels the server has learned from.
    used
        Per client, the rounds of its uploads that this version is the first to include. Only
        the alignment ``aligned`` needs it; each client is sent its own alone.
    epoch
        Which life of the server it is of: versions count anew in each. 0 where it has only one.

    Examples
    --------
    >>> model = GlobalModel(4, np.float32([0.5, 1.0]), -1.0, 1.0, {2: (3,)})
    >>> GlobalModel.unpack(model.pack(client=2), client=2).used
    {2: (3,)}
    """

    version: int
    weights: F32
    low: float
    high: float
    used: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    epoch: int = 0

    def pack(self, client: int) -> bytes:
        """The message to one client, as bytes."""
        used = np.array(self.used.get(client, ()), "<u4")
        head = _MODEL.pack(SCHEMA, self.epoch > 0, len(used), self.version, self.low, self.high)
        head += _EPOCH.pack(self.epoch) if self.epoch else b""
        return head + used.tobytes() + self.weights.astype("<f4").tobytes()

    @classmethod
    def unpack(cls, data: bytes, client: int) -> "GlobalModel":
        """Read a message that came to that client."""
        if len(data) < _MODEL.size or len(data) % 4:
            raise MessageError(f"a global model of {len(data)} bytes is broken or cut short")
        schema, lives, count, version, low, high = _MODEL.unpack_from(data)
        _check_schema(schema)
        reader = _Reader(data, _MODEL.size)
        epoch = int(reader.take("<u8", 1)[0]) if lives else 0
        used = {client: tuple(map(int, reader.take("<u4", count)))} if count else {}
        weights = reader.take("<f4", (len(data) - reader.at) // 4)
        if not np.isfinite(weights).all():
            raise MessageError(
                f"global model {version} has a weight that is not finite", "not finite"
            )
        return cls(version, weights, low, high, used, epoch)


@dataclass
class Ledger:
    """Bytes sent so far."""

    up: int = 0
    down: int = 0


def residual_bytes(rows: Count, bits: Count) -> Any:
    """Bytes that so many residuals take in one message."""
    return (rows * bits + 7) // 8


def upload_bytes(
    rows: Count, features: Count, bits: Count, sparse: bool, outputs: Count = 1
) -> Any:
    """Bytes of one upload, or of many; `features` counts all values, stored zeros included."""
    index = 4 * features + 4 * rows if sparse else 0
    return _UPLOAD.size + 4 * rows + residual_bytes(rows * outputs, bits) + 4 * features + index


def model_bytes(weights: int, used: int = 0) -> int:
    """Bytes of one global model message."""
    return _MODEL.size + 4 * (weights + used)


def check_bits(bits: int) -> None:
    """Refuse a number of residual bits that messages do not have."""
    if bits not in RESIDUAL_BITS:
        raise ValueError(f"residual_bits must be 1 to 8, 16 or 32, not {bits}")


def _encode(residual: F32, bits: int, span: tuple[float, float]) -> NDArray[Any]:
    if bits == 32:
        return residual.astype("<f4")
    codes: NDArray[Any] = cell_of(residual, bits, *map(np.float32, span))
    if bits == 16:
        return codes.astype("<u2")
    if bits == 0:
        return np.empty(0, "u1")
    return np.packbits(np.unpackbits(codes.astype("u1")[:, None], axis=1)[:, 8 - bits :])


def _decode(data: NDArray[Any], rows: int, bits: int, span: tuple[float, float]) -> F32:
    if bits == 32:
        residual = data.view("<f4").astype(np.float32)
        if not np.isfinite(residual).all():
            raise MessageError("an upload has a residual that is not finite", "not finite")
        return residual
    if bits == 0:
        return np.zeros(rows, np.float32)
    if bits == 16:
        return _middle(data.view("<u2"), bits, span)
    unpacked = np.unpackbits(data)
    if unpacked[rows * bits :].any():
        raise MessageError("an upload has bits after its last residual", "not canonical")
    codes = unpacked[: rows * bits].reshape(rows, bits)
    padded = np.pad(codes, ((0, 0), (8 - bits, 0)))
    return _middle(np.packbits(padded, axis=1)[:, 0], bits, span)


def _middle(codes: NDArray[Any], bits: int, span: tuple[float, float]) -> F32:
    middle = middle_of(codes.astype(np.float32), bits, *map(np.float32, span))
    return np.asarray(middle, np.float32)


def _check_schema(schema: int) -> None:
    if schema != SCHEMA:
        raise MessageError(
            f"a message has schema version {schema}, this fedres reads {SCHEMA}: "
            "run the same fedres on clients and server",
            "schema version",
        )


def _check_order(counts: NDArray[Any], indices: NDArray[Any], width: int) -> None:
    """Refuse a feature that comes twice in a row: limits on features hold for each value alone."""
    places = np.repeat(np.arange(len(counts)) * width, counts) + indices
    if not (np.diff(places) > 0).all():
        raise MessageError(
            "an upload has a row whose features are not in rising order", "not canonical"
        )


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, dtype: str, count: int) -> NDArray[Any]:
        size = np.dtype(dtype).itemsize * int(count)
        if self.at + size > len(self.data):
            raise MessageError(
                f"a message of {len(self.data)} bytes should have at least {self.at + size}: "
                "it is cut short, or clients and server disagree on the number of features"
            )
        part = np.frombuffer(self.data, dtype, int(count), self.at)
        self.at += size
        return part.astype(part.dtype.newbyteorder("="))

    def finish(self) -> None:
        if self.at != len(self.data):
            raise MessageError(
                f"a message has {len(self.data) - self.at} bytes too many: "
                "clients and server disagree on the number of features"
            )

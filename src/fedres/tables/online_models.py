"""The global model and the local models of any number of clients, learning from one stream.

Local weights of all clients lie in one array, with a slot for each pair (client, column) that was
ever learned from: nothing else is kept a client, so that a million of them are a few arrays.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedres.core.losses import find_loss
from fedres.core.primitives import SMALLEST, Models, View
from fedres.core.sgd import Linear
from fedres.core.types import F32, F64, I32, I64, Matrix
from fedres.core.views import matrix_view
from fedres.simulation.parallel import run_all
from fedres.tables.stream import apply_told, learn_and_tell, learn_rows, predict_rows
from fedres.tables.weight_slots import NO_SLOTS, Slots

Array = NDArray[Any]
ZERO, NOTHING = np.zeros(1, np.int64), np.empty(0, np.float32)
CONSTANT = np.array([[0], [1]], np.float32)  # of a model without one, and with one


class ModelShape(NamedTuple):
    """What `OnlineModels` have to know.

    Attributes
    ----------
    width_global, width_local
        Number of features of each view, to which a constant is added; None for no model on that
        side.
    loss
        ``squared`` or ``logistic`` (labels -1 and 1).
    eta
        Step size of both sides.
    shrinkage
        What the running sums of squares of local weights begin at: the larger, the more slowly a
        local model leaves zero, and the more a client with few rows is left to the global model.
    """

    width_global: int | None
    width_local: int | None
    loss: str = "squared"
    eta: float = 0.3
    shrinkage: float = 0.0


class SparseRow(NamedTuple):
    """A CSR matrix of one row, as scipy calls its parts, for which scipy's own are slow to make."""

    data: F32
    indices: I32
    indptr: I64
    shape: tuple[int, int]


class StreamRows(NamedTuple):
    """Rows ready to be learned from or predicted, as many times as needed."""

    global_: View
    local: View
    total: int


class OnlineModels:
    """One global model and a local model a client, for each of several outputs.

    Outputs are problems that share rows and features and nothing else, such as one class against
    all others. Clients are numbers from 0.

    Parameters
    ----------
    settings
        Widths, loss and step.
    outputs
        How many problems.
    slots
        Where local weights are; shared by models that see the same rows.

    Examples
    --------
    Two clients share a slope of 1 and differ in their constants.

    >>> rng = np.random.default_rng(0)
    >>> x, client = np.float32(rng.normal(size=(4000, 1))), np.arange(4000) % 2
    >>> y = np.float32(x[:, 0] + np.where(client, 2, -2))
    >>> models = OnlineModels(ModelShape(width_global=1, width_local=0))
    >>> predictions = models.learn(models.rows(x, np.empty((4000, 0)), client), y[None])
    >>> bool(abs(predictions[0, -100:] - y[-100:]).max() < 0.01)
    True
    >>> columns, weights = models.client(1)  # column 0, past its last feature, is the constant
    >>> columns, (models.w_global[:, -1] + weights[:, 0]).round(1)
    (array([0], dtype=int32), array([2.], dtype=float32))
    """

    def __init__(self, settings: ModelShape, outputs: int = 1, slots: Slots | None = None) -> None:
        self.settings = settings
        self.slots = Slots() if slots is None else slots
        size = 1 + (settings.width_global or 0)
        self.w_global = np.zeros((outputs, size), np.float32)
        self.squares_global = np.full_like(self.w_global, SMALLEST)
        self.w_local = np.zeros((outputs, 0), np.float32)
        self.squares_local = np.zeros_like(self.w_local)

    @property
    def outputs(self) -> int:
        """How many problems there are."""
        return len(self.w_global)

    def fresh(self, eta: float, shrinkage: float) -> "OnlineModels":
        """Models of the same shape that know nothing, for the same rows."""
        settings = self.settings._replace(eta=eta, shrinkage=shrinkage)
        return OnlineModels(settings, self.outputs, self.slots)

    def rows(
        self,
        x_global: Matrix | SparseRow,
        x_local: Matrix | SparseRow,
        client: I64,
        *,
        new: bool = True,
    ) -> StreamRows:
        """Features of each row, and its client's number, -1 for an unknown one.

        Where not `new`, no room is made for what was never learned from, and it has no weight.
        """
        if self.settings.width_global is None:
            x_global = np.empty((len(client), 0), np.float32)
        return StreamRows(
            matrix_view(x_global, np.zeros(2, np.int64)),
            self._slot_view(x_local, client, new),
            len(client),
        )

    def learn(self, rows: StreamRows, y: F32, order: I32 | None = None, n_jobs: int = 1) -> F32:
        """Learn from rows one by one, as they stand or in this order; y is (outputs, rows).

        Returns the predictions made on the way, each before its row was learned from, likewise.
        """
        return self._learn(learn_rows, rows, y, order, n_jobs)

    def learn_and_tell(self, rows: StreamRows, y: F32, order: I32) -> F32:
        """Learn likewise, and return what local models said of each row when it was learned from.

        That is all that a server of the global model needs beside its features and its label, to
        learn from it (`apply_told`).
        """
        return self._learn(learn_and_tell, rows, y, order, 1)

    def apply_told(self, rows: StreamRows, y: F32, order: I32, own: F32) -> None:
        """Let the global model learn from rows, given what local models said of each."""
        from fedres.core.compiled import compiled

        run, loss = compiled(apply_told), find_loss(self.settings.loss).number
        for k in range(self.outputs):
            run(loss, self._sides(rows, k)[0], y[k], order, own[k])

    def _learn(
        self, kernel: Callable[..., None], rows: StreamRows, y: F32, order: I32 | None, n_jobs: int
    ) -> F32:
        from fedres.core.compiled import compiled  # takes a moment to load

        run, loss = compiled(kernel), find_loss(self.settings.loss).number
        return self._each(
            lambda k, sides, *rest: run(loss, *sides, y[k], *rest), rows, order, n_jobs
        )

    def predict(self, rows: StreamRows, order: I32 | None = None, n_jobs: int = 1) -> F32:
        """The sums of both models, not clipped: (outputs, rows)."""
        from fedres.core.compiled import compiled

        run = compiled(predict_rows)
        return self._each(lambda _, sides, *rest: run(*sides, *rest), rows, order, n_jobs)

    def add_output(self) -> None:
        """Add a problem of which nothing is known yet."""
        one = ((0, 1), (0, 0))
        self.w_global, self.w_local = np.pad(self.w_global, one), np.pad(self.w_local, one)
        self.squares_global = np.pad(self.squares_global, one, constant_values=SMALLEST)
        self.squares_local = np.pad(self.squares_local, one, constant_values=self._begin)

    def client(self, number: int) -> tuple[I32, F32]:
        """The columns that a client has weights for, the constant's last, and these weights."""
        self.make_room()
        keys, slots = self.slots.sorted()
        size = (self.settings.width_local or 0) + 1
        first, last = np.searchsorted(keys, [number * size, (number + 1) * size])
        columns = (keys[first:last] - number * size).astype(np.int32)
        return columns, self.w_local[:, slots[first:last]]

    def pack(self, clients: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Arrays of the global model, and those of all clients one after another.

        Of client i, rows start[i] to start[i + 1] of `columns`, `weights` and `squares`.
        """
        self.make_room()
        keys, slots = self.slots.sorted()
        size = (self.settings.width_local or 0) + 1
        local: dict[str, Array] = {
            "start": np.searchsorted(keys, np.arange(clients + 1) * size),
            "columns": (keys % size).astype(np.int32),
            "weights": self.w_local[:, slots].T,
            "squares": self.squares_local[:, slots].T,
        }
        return {"weights": self.w_global, "squares": self.squares_global}, local

    @classmethod
    def unpack(
        cls, settings: ModelShape, global_: Mapping[str, Array], local: Mapping[str, Array]
    ) -> "OnlineModels":
        """The models that `pack` gave the arrays of."""
        client = np.repeat(np.arange(len(local["start"]) - 1), np.diff(local["start"]))
        keys = client * ((settings.width_local or 0) + 1) + local["columns"]
        models = cls(settings, len(global_["weights"]), Slots(keys))
        models.make_room()
        models.w_global[:] = global_["weights"]
        models.squares_global[:] = global_["squares"]
        models.w_local[:, 1:] = local["weights"].T
        models.squares_local[:, 1:] = local["squares"].T
        return models

    def client_norms(self, clients: int) -> F64:
        """The norm of every client's weights, over all outputs."""
        self.make_room()
        keys, slots = self.slots.sorted()
        squares = (self.w_local[:, slots].astype(np.float64) ** 2).sum(axis=0)
        owner = keys // ((self.settings.width_local or 0) + 1)
        return np.sqrt(np.bincount(owner, squares, clients))

    @property
    def _begin(self) -> float:
        return max(self.settings.shrinkage, float(SMALLEST))

    def _slot_view(self, x_local: Matrix | SparseRow, client: I64, new: bool) -> View:
        """Slots in place of columns, and one entry more a row: the constant."""
        if self.settings.width_local is None:
            return View(NOTHING, NO_SLOTS, np.zeros(len(client) + 1, np.int64), ZERO, ZERO, True)
        client = np.asarray(client, np.int64)
        if isinstance(x_local, np.ndarray):
            values, keys, of_key, indptr = _dense_entries(x_local, client)
        else:
            values, keys, of_key, indptr = _sparse_entries(x_local, client)
        slots = self.slots.add(keys.ravel()) if new else self.slots.find(keys.ravel())
        return View(values, slots.reshape(keys.shape)[of_key].ravel(), indptr, ZERO, ZERO, True)

    def _each(
        self, call: Callable[..., None], rows: StreamRows, order: I32 | None, n_jobs: int
    ) -> F32:
        """Call it for each output: number, sides, order of rows, and room for predictions."""
        self.make_room()
        order = np.arange(rows.total, dtype=np.int32) if order is None else order
        out = np.empty((self.outputs, len(order)), np.float32)
        calls = [partial(call, k, self._sides(rows, k), order, out[k]) for k in range(len(out))]
        if n_jobs > 1:
            run_all(calls, n_jobs)
        else:
            for one in calls:
                one()
        return out

    def _sides(self, rows: StreamRows, k: int) -> tuple[Linear, Linear]:
        """Both sides of an output. The constant of a local model is among its entries."""
        eta, constant = np.float32(self.settings.eta), int(self.settings.width_global is not None)
        return (
            _side(rows.global_, self.w_global[k], self.squares_global[k], constant, eta),
            _side(rows.local, self.w_local[k], self.squares_local[k], 0, eta),
        )

    def make_room(self) -> None:
        """Let every slot have weights."""
        have, need = self.w_local.shape[1], self.slots.count
        if have < need:
            more = ((0, 0), (0, max(need - have, have // 2)))
            self.w_local = np.pad(self.w_local, more)
            self.squares_local = np.pad(self.squares_local, more, constant_values=self._begin)


def _side(x: View, weights: F32, squares: F32, constant: int, eta: np.float32) -> Linear:
    """One model; the range of labels and the sums of a batch are not asked for."""
    size = np.array([len(weights) if constant else 1])  # then the last is slot 0: nobody's
    models = Models(weights, squares, ZERO, ZERO, size, CONSTANT[constant], NOTHING, NOTHING)
    return Linear(x, models, eta, NOTHING)


class _Entries(NamedTuple):
    """The entries of all rows, one after another; their keys are those of keys[of_key]."""

    values: F32
    keys: I64
    of_key: I64
    indptr: I64


def _dense_entries(x: F32, client: I64) -> _Entries:
    """Every column is an entry, so that keys go by client: (clients, columns)."""
    n, size = x.shape[0], x.shape[1] + 1
    values = np.ones((n, size), np.float32)
    values[:, :-1] = x
    distinct, which = np.unique(client, return_inverse=True)
    keys = distinct[:, None] * size + np.arange(size)
    return _Entries(values.ravel(), keys, which, np.arange(n + 1) * size)


def _sparse_entries(x: sparse.csr_array | SparseRow, client: I64) -> _Entries:
    size = x.shape[1] + 1
    if len(client) == 1:  # in one row all keys differ
        keys = np.append(x.indices, size - 1) + client * size
        ones, ends = np.arange(len(keys)), np.array([0, len(keys)])
        return _Entries(np.append(x.data, np.float32(1)), keys, ones, ends)
    import pandas as pd

    counts = np.diff(x.indptr) + 1
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    last = indptr[1:] - 1
    feature = np.ones(indptr[-1], bool)
    feature[last] = False
    keys = np.repeat(client * size, counts)
    keys[feature] += x.indices
    keys[last] += size - 1
    values = np.ones(len(keys), np.float32)
    values[feature] = x.data
    of_key, distinct = pd.factorize(keys)
    return _Entries(values, distinct, of_key, indptr)

"""The models of FedRes, beside them those of clients alone and of the server alone, all mixed.

Each expert learns from the same stream of rows. What a client trusts each of them with
(`fedres.core.mixture`) is a few numbers a client and output.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedres.core.losses import find_loss
from fedres.core.mixture import EXPERTS, FALLING, Mixture, mix, mix_rows, soften
from fedres.core.types import F32, F64, I64, Matrix
from fedres.core.views import beside
from fedres.tables.online_models import Array, ModelShape, OnlineModels, SparseRow, StreamRows
from fedres.tables.weight_slots import Slots

HALVES = 2  # of all trust: one stays, one moves
ROUNDING = 1e-6  # a range that is wider by no more is the same
# Of whom nothing is known has no model, and is left to what all clients share.
STRANGER = np.tile([0.0, 0.25, 0.25], (HALVES, 1))


class MixedRows(NamedTuple):
    """Rows as each expert sees them, and their clients."""

    alone: StreamRows
    shared: StreamRows
    both: StreamRows
    client: I64


class MixedModels(OnlineModels):
    """Three kinds of models that learn from the same rows, and how far clients trust each.

    By itself it is FedRes's.

    Parameters
    ----------
    settings, outputs, slots
        Those of FedRes.
    own
        Columns of the local view that the global one lacks; None where both are hashed to the same
        places.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, client = np.float32(rng.normal(size=(900, 1))), np.arange(900) % 3
    >>> y = np.float32(x[:, 0] * (client - 1))  # nothing in common
    >>> models = MixedModels(ModelShape(width_global=1, width_local=1), own=np.array([], int))
    >>> models.between(float(y.min()), float(y.max()))
    >>> models.widen(float(y.max() - y.min()))
    >>> predictions = models.learn(models.rows(x, x, client), y[None])
    >>> alone, shared, both = models.trust_of(2)[0]
    >>> bool(alone > both > 10 * shared)
    True
    """

    def __init__(
        self,
        settings: ModelShape,
        outputs: int = 1,
        slots: Slots | None = None,
        own: I64 | None = None,
    ) -> None:
        super().__init__(settings, outputs, slots)
        self.own = own
        width = (settings.width_global or 0) + (0 if own is None else len(own))
        self.alone = OnlineModels(settings._replace(width_global=None, width_local=width), outputs)
        self.shared = OnlineModels(settings._replace(width_local=None), outputs)
        self.trust = np.empty((outputs, HALVES, EXPERTS, 0))
        self.labels = np.empty((outputs, 0))  # how many each client has seen
        self.limits = -1.0, 1.0
        self.reach = 0.0  # of all labels seen, in units of labels

    def between(self, low: float, high: float) -> None:
        """Say what labels lie between, in units of the models; log odds know no bounds."""
        if np.isfinite(high - low):
            self.limits = low, high

    def widen(self, reach: float) -> None:
        """Say how far apart labels lie: if farther than before, all losses weigh less."""
        from fedres.core.compiled import compiled  # takes a moment to load

        if not self.reach * (1 + ROUNDING) < reach < np.inf:
            return
        if self.reach and self.trust.size:
            for weights in self.trust:
                powers = np.full(weights.shape[-1], (self.reach / reach) ** 2)
                compiled(soften)(weights, powers)
        self.reach = reach

    def rows(
        self,
        x_global: Matrix | SparseRow,
        x_local: Matrix | SparseRow,
        client: I64,
        *,
        new: bool = True,
    ) -> Any:
        """Features of each row as each expert sees them, and its client's number."""
        everything = self._together(x_global, x_local)
        nothing = np.empty((len(client), 0), np.float32)
        return MixedRows(
            self.alone.rows(nothing, everything, client, new=new),
            self.shared.rows(x_global, nothing, client, new=new),
            super().rows(x_global, x_local, client, new=new),
            client,
        )

    def learn(self, rows: Any, y: F32, order: Any = None, n_jobs: int = 1) -> F32:
        """Let all experts learn from rows one by one, and clients whom to trust."""
        from fedres.core.compiled import compiled

        assert order is None, "a mixture goes through rows as they stand"
        said = np.stack(
            [
                self.alone.learn(rows.alone, y, n_jobs=n_jobs),
                self.shared.learn(rows.shared, y, n_jobs=n_jobs),
                super().learn(rows.both, y, n_jobs=n_jobs),
            ],
            axis=1,
        )
        self._welcome(int(rows.client.max()) + 1)
        if self.settings.loss == "squared" and not self.reach:
            y = np.full_like(y, np.nan)  # all labels are alike so far, and experts as good
        out = np.empty_like(y)
        for who, grid in _rounds(rows.client):
            for k in range(self.outputs):
                mixture = self._mixture(self.trust[k][..., who], self.labels[k, who])
                predicted = np.empty(grid.size, np.float32)
                cells = said[k].take(grid.ravel(), axis=1), y[k, grid.ravel()], predicted
                compiled(mix, allocates=True)(mixture, *cells)
                out[k, grid.ravel()] = predicted
                self.trust[k][..., who] = mixture.staying, mixture.moving
                self.labels[k, who] = mixture.labels
        return out

    def predict(self, rows: Any, order: Any = None, n_jobs: int = 1) -> F32:
        """The mixed predictions: (outputs, rows)."""
        from fedres.core.compiled import compiled

        assert order is None, "a mixture goes through rows as they stand"
        said = np.stack(
            [
                self.alone.predict(rows.alone, n_jobs=n_jobs),
                self.shared.predict(rows.shared, n_jobs=n_jobs),
                super().predict(rows.both, n_jobs=n_jobs),
            ],
            axis=1,
        )
        out = np.empty((self.outputs, len(rows.client)), np.float32)
        for k in range(self.outputs):
            trust = np.concatenate([self.trust[k], STRANGER[..., None]], axis=2)
            mixture = self._mixture(trust, np.zeros(trust.shape[2]))
            who = np.where(rows.client < 0, trust.shape[2] - 1, rows.client)
            compiled(mix_rows, allocates=True)(mixture, who, said[k], out[k])
        return out

    def trust_of(self, number: int) -> F64:
        """How far a client trusts each expert: (outputs, experts)."""
        return np.asarray(self.trust[..., number].sum(axis=1))

    def add_output(self) -> None:
        """Add a problem of which nothing is known yet."""
        super().add_output()
        self.alone.add_output()
        self.shared.add_output()
        even = np.full((1, *self.trust.shape[1:]), 1 / (HALVES * EXPERTS))
        self.trust = np.concatenate([self.trust, even])
        self.labels = np.pad(self.labels, ((0, 1), (0, 0)))

    def pack_beside(
        self, clients: int
    ) -> tuple[dict[str, Any], dict[str, Array], dict[str, Array]]:
        """What a mixture has beside FedRes: plain facts, the server's arrays, and clients'."""
        self._welcome(clients)
        _, own = self.alone.pack(clients)
        facts = {"own": None if self.own is None else self.own.tolist(), "reach": self.reach}
        shared = {
            "alone_weights": self.shared.w_global,
            "alone_squares": self.shared.squares_global,
        }
        trust = self.trust.reshape(-1, self.trust.shape[-1]).T
        return facts, shared, own | {"trust": trust, "labels": self.labels.T}

    @classmethod
    def unpack_beside(
        cls,
        both: OnlineModels,
        facts: Mapping[str, Any],
        global_: Mapping[str, Array],
        own: Mapping[str, Array],
    ) -> "MixedModels":
        """The models that `pack_beside` gave the arrays of, those of FedRes being there."""
        columns = None if facts["own"] is None else np.array(facts["own"], np.int64)
        models = cls(both.settings, both.outputs, both.slots, columns)
        for name in ("w_global", "squares_global", "w_local", "squares_local"):
            setattr(models, name, getattr(both, name))
        fresh = models.alone
        nothing = {"weights": fresh.w_global, "squares": fresh.squares_global}
        models.alone = OnlineModels.unpack(fresh.settings, nothing, own)
        models.shared.w_global[:] = global_["alone_weights"]
        models.shared.squares_global[:] = global_["alone_squares"]
        shape = both.outputs, HALVES, EXPERTS, -1
        models.trust = np.ascontiguousarray(own["trust"].T, np.float64).reshape(shape)
        models.labels = np.ascontiguousarray(own["labels"].T, np.float64)
        models.reach = float(facts["reach"])
        return models

    def _together(self, x_global: Matrix | SparseRow, x_local: Matrix | SparseRow) -> Any:
        """All features of each row, those in both views once."""
        if isinstance(x_global, SparseRow) and isinstance(x_local, SparseRow):
            more = ~np.isin(x_local.indices, x_global.indices)
            places = np.concatenate([x_global.indices, x_local.indices[more]])
            values = np.concatenate([x_global.data, x_local.data[more]])
            order = np.argsort(places)
            ends = np.array([0, len(places)])
            return SparseRow(values[order], places[order], ends, x_global.shape)
        assert self.own is not None
        assert not isinstance(x_global, SparseRow)
        assert not isinstance(x_local, SparseRow)
        return beside(x_global, x_local, self.own)

    def _welcome(self, clients: int) -> None:
        """Let so many clients trust all experts alike, unless they know better."""
        if (more := clients - self.trust.shape[-1]) > 0:
            room = ((0, 0), (0, 0), (0, 0), (0, more))
            self.trust = np.pad(self.trust, room, constant_values=1 / (HALVES * EXPERTS))
            self.labels = np.pad(self.labels, ((0, 0), (0, more)))

    def _mixture(self, trust: F64, labels: F64) -> Mixture:
        low, high = self.limits
        half = (high - low) / 2 or 1.0
        staying, moving = (np.ascontiguousarray(part) for part in trust)
        loss = find_loss(self.settings.loss).number
        return Mixture(loss, (low + high) / 2, half, FALLING, staying, moving, labels)


def _rounds(client: I64) -> Iterator[tuple[I64, I64]]:
    """Clients with as many rows each, and these rows, (rows of each, clients): none has to rest."""
    order = np.argsort(client, kind="stable")
    distinct, first, counts = np.unique(client[order], return_index=True, return_counts=True)
    for each in np.unique(counts):
        alike = counts == each
        yield distinct[alike], order[first[alike] + np.arange(each)[:, None]]

"""What ``solver="bayes"`` knows beyond the weights: variances, standard errors and intervals.

It is also what `partial_fit` and `learn_one` go on from (`kalman_filter`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from fedres.core.types import F32, F64, I32, I64, Matrix
from fedres.tables.arrow import Arrow
from fedres.tables.client_blocks import SortedRows, row_variances
from fedres.tables.empirical_bayes import LEVELS, Solution
from fedres.tables.kalman_filter import KINDS, Belief, Blocks, Entries, add_members, assimilate
from fedres.tables.online_models import OnlineModels, SparseRow
from fedres.tables.weight_groups import Groups

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
DESCRIBED = ("noise", "variances", "mean_squares", "errors", "of_shared")
FIRST = np.int32(1)  # slot of `OnlineModels`; those of a posterior count from 0


@dataclass
class Posterior:
    """Variances and covariances, in units of the models, for each output.

    Attributes
    ----------
    groups
        Groups of weights.
    noise, variances
        (outputs,) and (outputs, groups): of the noise, and of the weights of each group.
    mean_squares
        Of each group: the mean over rows of the sum of squares of its features.
    errors
        Quantiles of standardised errors of the first output, of known clients and of new ones.
    is_whole
        Whether roots are exact, and not drawn at random; drawn ones are of the first output only.
    variance_global
        (outputs, columns): variances of global weights over the noise.
    shared, root_global, root_local
        Q and R of `kalman_filter`; local ones by slot.
    blocks, cells
        Where clients' weights are, and their covariances given the global model (outputs, cells).
    across
        (outputs, slots): what the global model adds to the variances of local weights, over the
        noise.
    of_shared
        (outputs,): variance of the predictions of a shared model that is not linear, if there is
        one and it is known.
    """

    groups: Groups
    noise: F64
    variances: F64
    mean_squares: F64
    errors: F64
    is_whole: bool
    variance_global: F64
    shared: F64
    root_global: F32
    root_local: F32
    blocks: Blocks
    cells: F32
    across: F32
    of_shared: F64 | None = None

    @classmethod
    def of(cls, arrow: Arrow, found: list[Solution]) -> "Posterior":
        """What of a solution goes beyond weights."""
        sides = [one.covariance for one in found]
        is_whole = arrow.is_whole
        roots = sides if is_whole or len(found) == 1 else []
        width = sides[0].root_global.shape[1] if roots else 0
        prior = np.stack([one.variances.of_groups for one in found])
        noise = np.array([one.variances.noise for one in found])
        slots = np.arange(arrow.slots, dtype=np.int32)
        most = np.append(prior, np.full((len(found), 1), np.inf), axis=1)[:, arrow.groups.of_global]
        return cls(
            arrow.groups,
            noise,
            prior,
            arrow.mean_squares(),
            found[0].errors,
            is_whole,
            np.minimum(np.stack([one.global_ for one in sides]), most / noise[:, None]),
            np.stack([np.eye(width)] * len(found)),
            np.stack([one.root_global for one in roots])
            if roots
            else np.zeros((len(found), arrow.width, 0), np.float32),
            _stack([one.root_local for one in roots])
            if roots
            else np.zeros((len(found), arrow.slots, 0), np.float32),
            _sorted_blocks(arrow.rows.first_slot, arrow.corner, slots, arrow.columns),
            _stack([one.blocks for one in sides]),
            np.stack([one.across for one in sides]).astype(np.float32),
        )

    def pack(self, clients: int) -> tuple[dict[str, Any], dict[str, Array], dict[str, Array]]:
        """Plain JSON, arrays that all clients need, and those of all clients one after another."""
        described = {
            name: value.tolist() for name in DESCRIBED if (value := getattr(self, name)) is not None
        }
        blocks, slots, _ = self._members(clients)
        size, corner = blocks.size[:clients], blocks.corner[:clients]
        cells = size * (size + 1) // 2
        return (
            described | {"is_whole": self.is_whole},
            {
                "variance": self.variance_global,
                "shared": self.shared,
                "root": self.root_global,
            },
            {
                "start": np.append(0, np.cumsum(size)),
                "columns": blocks.column[slots],
                "first_cell": np.append(0, np.cumsum(cells)),
                "cells": self.cells[:, _ranges(corner, cells)].T,
                "root_local": self.root_local[:, slots].swapaxes(0, 1),
                "across": self.across[:, slots].T,
            },
        )

    @classmethod
    def unpack(
        cls,
        described: Mapping[str, Any],
        global_: Mapping[str, Array],
        local: Mapping[str, Array],
        groups: Groups,
        models: OnlineModels,
    ) -> "Posterior":
        """What `pack` gave."""
        start, size = local["start"], max(1, len(groups.of_local))
        client = np.repeat(np.arange(len(start) - 1), np.diff(start))
        keys, slots = models.slots.sorted()
        wanted = client * size + local["columns"]
        # Those of a model that has learned more since its fit are in another order.
        slots = (slots if np.array_equal(keys, wanted) else models.slots.find(wanted)) - FIRST

        def by_slot(values: Array) -> Array:
            out = np.zeros((len(values), models.slots.count - FIRST, *values.shape[2:]), np.float32)
            out[:, slots] = values
            return out

        known = [name for name in DESCRIBED if name in described]
        arrays = {name: np.array(described[name], np.float64) for name in known}
        return cls(
            groups=groups,
            **arrays,
            is_whole=bool(described["is_whole"]),
            variance_global=np.array(global_["variance"], np.float64),
            shared=np.array(global_["shared"], np.float64),
            root_global=np.array(global_["root"], np.float32),
            root_local=by_slot(local["root_local"].swapaxes(0, 1)),
            blocks=_sorted_blocks(start, local["first_cell"], slots, local["columns"]),
            cells=np.array(local["cells"].T, np.float32, order="C"),
            across=by_slot(local["across"].T),
        )

    def learn(
        self,
        models: OnlineModels,
        x_global: Matrix | SparseRow,
        x_local: Matrix | SparseRow,
        client: I64,
        y: F32,
        offset: F64,
        keep: float = 1.0,
    ) -> F32:
        """Learn from rows one by one, as they stand; y and offsets are (outputs, rows).

        Of what is known of a client, it keeps this share at each of its rows.

        Returns the scores predicted on the way, each before its row was learned from, likewise.
        """
        from fedres.core.compiled import compiled

        shared, own = entries(x_global, len(self.groups.of_global)), self._own(x_local)
        has_variance = np.asarray(self._prior().any(axis=0))[own.at]
        of_row = np.repeat(np.arange(len(client)), np.diff(own.begin))[has_variance]
        begin = np.append(0, np.cumsum(has_variance))[own.begin]
        columns, values = own.at[has_variance], own.values[has_variance]
        keys = client[of_row] * max(1, len(self.groups.of_local)) + columns
        slots = models.slots.add(keys) - FIRST
        models.make_room()
        self._make_room(client, client[of_row], columns, slots)
        rows = shared, Entries(values, slots, begin)
        count, kind = models.slots.count - FIRST, KINDS.index(models.settings.loss)
        width = self.shared.shape[1] if self.is_whole else 0
        prior, out = self._prior(), np.empty((models.outputs, len(client)), np.float32)
        run = compiled(assimilate, allocates=True)
        for k in range(models.outputs):
            q = self.variance_global[k]
            belief = Belief(
                models.w_global[k],
                models.w_local[k, FIRST:],
                np.zeros_like(q) if self.is_whole else q,
                self.root_global[k, :, :width],
                self.root_local[k, :count, :width],
                self.shared[k, :width, :width],
                self.cells[k],
                prior[k],
            )
            run(kind, rows, client, y[k], offset[k], self.blocks, belief, keep, out[k])
        return out

    def variances_of(
        self, models: OnlineModels, x_global: Matrix, x_local: Matrix, client: I64
    ) -> F64:
        """The variance of the score of each row, and not of its noise.

        What was never seen of a client, and a category that was never seen at all, has the
        variance of its group.
        """
        from fedres.core.compiled import compiled

        shared, own = entries(x_global, len(self.groups.of_global)), self._own(x_local)
        of_row = np.repeat(np.arange(len(client)), np.diff(own.begin))
        keys = client[of_row] * max(1, len(self.groups.of_local)) + own.at
        slots = models.slots.find(np.where(client[of_row] < 0, -1, keys)) - FIRST
        rows = SortedRows(*shared, own.values, slots, own.begin, *(np.zeros(1, np.int64),) * 3)
        root_global, root_local = self.root_global[0], self.root_local[0]
        if self.is_whole and len(self.shared[0]):
            turn = _root(self.shared[0])
            root_global, root_local = (one @ turn for one in (root_global, root_local))
        out = np.zeros(len(client))
        blocks, run = self.blocks, compiled(row_variances, allocates=True)
        run(rows, blocks.place, blocks.corner, client, self.cells[0], root_global, root_local, out)
        prior = self.variances[0][self.groups.of_local][own.at] * own.values**2
        out = self.noise[0] * out + np.bincount(of_row[slots < 0], prior[slots < 0], len(client))
        return np.asarray(out + self._never_seen(shared))

    def quantiles(self, level: float) -> F64:
        """Between which errors lie in so many of all cases, in units of the standard deviation.

        The first pair is for known clients, the second for new ones.
        """
        sides = np.array([1 - level, 1 + level]) / 2
        inside = (sides >= LEVELS[0]) & (sides <= LEVELS[-1])
        kept = np.stack([np.interp(sides, LEVELS, errors) for errors in self.errors])
        return np.asarray(np.where(inside, kept, ndtri(sides)))

    def components(
        self,
        scale: float,
        outputs: list[Any],
        residual: F64 | None,
        shared: str | None = None,
        seen: Collection[int] = (),
    ) -> "pd.DataFrame":
        """How much of the labels' variance is whose.

        Parameters
        ----------
        scale
            What makes labels of scores.
        outputs
            Names of the outputs.
        residual
            Variance of what is left, by output; None if there is no such number.
        shared
            The shared model if it is not linear.
        seen
            Groups of weights whose columns that model sees, and which are 0.
        """
        import pandas as pd

        kept = [i for i in range(len(self.groups.names)) if i not in seen]
        tables = []
        for k, output in enumerate(outputs):
            names = [self.groups.names[i] for i in kept]
            variance, squares = (self.variances[k] * scale**2)[kept], self.mean_squares[kept]
            if shared is not None and self.of_shared is not None:
                names.insert(0, ("shared", shared))
                variance = np.insert(variance, 0, self.of_shared[k] * scale**2)
                squares = np.insert(squares, 0, 1.0)
            if residual is not None:
                names.append(("residual", ""))
                variance, squares = np.append(variance, residual[k]), np.append(squares, 1.0)
            parts = variance * squares
            table = pd.DataFrame(names, columns=["part", "column"])
            table["variance"], table["share"] = variance, parts / parts.sum()
            tables.append(table if len(outputs) == 1 else table.assign(**{"class": output}))
        return pd.concat(tables, ignore_index=True)

    def shared_variances(self, k: int, mix: F64) -> tuple[F64, float]:
        """Variances of the shared weights of output k, and of one linear combination of them.

        Parameters
        ----------
        k
            The output.
        mix
            Coefficients of the combination, one per weight, the constant's last.

        Returns
        -------
        variances, of_mix
            In units of the models. The variance of the combination is NaN where covariances are
            not stored, as of a shared model of more than 64 columns.
        """
        noise = float(self.noise[k])
        prior = np.append(self.variances[k], np.inf)[self.groups.of_global]
        if not self.is_whole:
            return noise * self.variance_global[k], np.nan
        root = self.root_global[k].astype(np.float64)
        known = root @ self.shared[k]
        of_mix = float((mix @ known) @ (mix @ root))
        variances = noise * np.einsum("ij,ij->i", known, root)
        return np.minimum(variances, prior), noise * of_mix

    def effects(
        self,
        models: OnlineModels,
        ids: list[Any],
        names: list[str],
        scale: float,
        outputs: list[Any],
    ) -> "pd.DataFrame":
        """Every client's weights with their standard errors."""
        import pandas as pd

        blocks, slots, client = self._members(len(ids))
        order = np.lexsort((blocks.column[slots], client))
        client, slots = client[order], slots[order]
        variance = self.noise[:, None] * self._variance_of(client, slots)
        tables = []
        for k, output in enumerate(outputs):
            effect = scale * models.w_local[k, slots + FIRST].astype(np.float64)
            # Where a variance is 0, training leaves tiny numbers.
            varies = self.variances[k][self.groups.of_local[blocks.column[slots]]] > 0
            table = pd.DataFrame(
                {
                    "client": np.array(ids)[client],
                    "column": np.array([*names, "constant"], object)[blocks.column[slots]],
                    "effect": np.where(varies, effect, 0.0),
                    "standard_error": np.where(varies, scale * np.sqrt(variance[k]), 0.0),
                }
            )
            tables.append(table if len(outputs) == 1 else table.assign(**{"class": output}))
        return pd.concat(tables, ignore_index=True)

    def _own(self, x_local: Matrix | SparseRow) -> Entries:
        return entries(x_local, len(self.groups.of_local))

    def _prior(self) -> F64:
        """Variances of weights of local columns over the noise, (outputs, columns)."""
        return np.asarray(self.variances.take(self.groups.of_local, axis=1) / self.noise[:, None])

    def _members(self, clients: int) -> tuple[Blocks, I32, I64]:
        """Slots of all clients one after another, and whose they are."""
        blocks = self.blocks
        size = blocks.size[:clients]
        slots = blocks.members[_ranges(blocks.first[:clients], size)]
        return blocks, slots, np.repeat(np.arange(len(size)), size)

    def _variance_of(self, client: I64, slots: I32) -> F64:
        """Variances of clients' weights over the noise, (outputs, weights)."""
        place = self.blocks.place[slots].astype(np.int64)
        own = self.cells[:, self.blocks.corner[client] + place * (place + 3) // 2]
        if not self.is_whole:
            return np.asarray(own + self.across[:, slots], np.float64)
        root = self.root_local[:, slots].astype(np.float64)
        return np.asarray(own + (root @ self.shared * root).sum(axis=2))

    def _make_room(self, client: I64, of_slot: I64, columns: I32, slots: I32) -> None:
        """Take in clients, and weights with their slots."""
        from fedres.core.compiled import compiled

        blocks = self.blocks
        members, cells, known = blocks.used.tolist()
        clients = int(client.max(initial=-1)) + 1
        first, size, corner = (longer(one, clients) for one in blocks[:3])
        slot, index = np.unique(np.append(slots, known - 1), return_index=True)
        fresh = slot >= known
        slot, index = slot[fresh], index[fresh]
        whose, added = np.unique(of_slot[index], return_counts=True)
        after = size[whose] + added
        place, column = (longer(one, known + len(slot)) for one in (blocks.place, blocks.column))
        column[slot] = columns[index]
        members_ = longer(blocks.members, members + int(after.sum()))
        self.blocks = Blocks(first, size, corner, members_, place, column, blocks.used)
        self.cells = longer(self.cells, cells + int((after * (after + 1) // 2).sum()))
        self.across = longer(self.across, known + len(slot))
        self.root_local = longer(self.root_local, known + len(slot))
        compiled(add_members)(of_slot[index], slot, self.blocks, self.cells, self._prior())

    def _never_seen(self, shared: Entries) -> F64:
        """The prior variance of columns of categories that a row has no feature of."""
        names, variances, of = self.groups.names, self.variances[0], self.groups.of_global
        used = np.unique(of[of >= 0])
        used = used[[names[g][1] != "numbers" for g in used]]
        x = sparse.csr_array(
            (shared.values, shared.at, shared.begin), (len(shared.begin) - 1, len(of))
        )
        if not len(used):
            return np.zeros(x.shape[0])
        group = np.where(of < 0, len(variances), of)
        belongs = sparse.csr_array(
            (np.ones(len(group)), (np.arange(len(group)), group)), (len(group), len(variances) + 1)
        )
        absent = (x @ belongs).toarray()[:, used] == 0
        return np.asarray(absent @ variances[used])


def entries(x: Matrix | SparseRow, size: int) -> Entries:
    """Rows with their constant, so many features in all; none where there is no model.

    Examples
    --------
    >>> entries(np.float32([[3.0, 0.0]]), 3)
    Entries(values=array([3., 0., 1.], dtype=float32), at=array([0, 1, 2], dtype=int32), \
begin=array([0, 3]))
    """
    n = x.shape[0]
    if not size:
        return Entries(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(n + 1, np.int64))
    if isinstance(x, np.ndarray):
        values = np.ones((n, size), np.float32)
        values[:, :-1] = x
        columns = np.tile(np.arange(size, dtype=np.int32), n)
        return Entries(values.ravel(), columns, np.arange(n + 1) * size)
    ends = x.indptr[1:]
    return Entries(
        np.insert(x.data.astype(np.float32, copy=False), ends, 1),
        np.insert(x.indices.astype(np.int32, copy=False), ends, size - 1),
        x.indptr.astype(np.int64) + np.arange(n + 1),
    )


def longer(array: Array, need: int) -> Array:
    """An array with room for so many: along the second axis, if it has two or more."""
    axis = min(1, array.ndim - 1)
    have = array.shape[axis]
    if need <= have:
        return array
    more = [(0, 0)] * array.ndim
    more[axis] = (0, max(need - have, have // 2))
    return np.pad(array, more)


def _stack(arrays: list[Any]) -> Array:
    """The same as numpy's, but one large array is not copied."""
    return np.asarray(arrays[0][None] if len(arrays) == 1 else np.stack(arrays))


def _sorted_blocks(start: I64, corner: I64, slots: I32, columns: I32 | I64) -> Blocks:
    """Blocks of clients one after another."""
    size = np.diff(start)
    place, column = (np.empty(len(slots), np.int32) for _ in range(2))
    place[slots] = np.arange(len(slots)) - np.repeat(start[:-1], size)
    column[slots] = columns
    used = np.array([len(slots), corner[-1], len(slots)])
    return Blocks(start[:-1].copy(), size, corner[:-1].copy(), slots, place, column, used)


def _ranges(first: I64, size: I64) -> I64:
    """first[0], first[0] + 1, ..., size[0] of them, and so on."""
    end = np.cumsum(size)
    return np.asarray(np.repeat(first - end + size, size) + np.arange(size.sum()))


def _root(covariance: F64) -> F32:
    """R with RR' this covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(values.clip(0)), np.float32)

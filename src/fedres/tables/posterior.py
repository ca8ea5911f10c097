"""What ``solver="bayes"`` knows beyond the weights: variances, standard errors and intervals."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedres.core.types import F32, F64, I32, I64, Matrix
from fedres.tables.client_blocks import SortedRows, row_variances
from fedres.tables.empirical_bayes import LEVELS, Arrow, Groups, Solution, with_constant
from fedres.tables.online_models import OnlineModels

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]


@dataclass(frozen=True)
class Posterior:
    """Variances and covariances, in units of the models; a column or a row for each output.

    Attributes
    ----------
    noise, variances
        (outputs,) and (outputs, groups): of the noise, and of the weights of each group.
    mean_squares
        Of each group: the mean over rows of the sum of squares of its features.
    errors
        Quantiles of standardised errors, of the first output.
    start, columns
        Of client i, columns[start[i] : start[i + 1]] have weights of its own.
    variance_local
        (weights, outputs): posterior variances of local weights.
    first_cell, cells, root_global, root_local
        Covariances over the noise, of the first output, as `empirical_bayes.Covariance` has them.
    """

    noise: F64
    variances: F64
    mean_squares: F64
    errors: F64
    start: I64
    columns: I32
    variance_local: F32
    first_cell: I64
    cells: F32
    root_global: F32
    root_local: F32

    @classmethod
    def of(cls, arrow: Arrow, found: list[Solution]) -> "Posterior":
        """What of a solution goes beyond weights."""
        noise = np.array([one.variances.noise for one in found])
        first = found[0].covariance
        own = np.stack([one.covariance.local for one in found], axis=1) * noise
        return cls(
            noise,
            np.stack([one.variances.of_groups for one in found]),
            arrow.mean_squares(),
            found[0].errors,
            arrow.rows.first_slot,
            arrow.columns,
            own.astype(np.float32),
            arrow.rows.first_cell,
            np.asarray(first.blocks, np.float32),
            first.root_global,
            first.root_local,
        )

    def pack(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Plain JSON, and arrays."""
        plain = ("noise", "variances", "mean_squares", "errors")
        described = {name: getattr(self, name).tolist() for name in plain}
        return described, {name: one for name, one in vars(self).items() if name not in plain}

    @classmethod
    def unpack(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> "Posterior":
        """What `pack` gave."""
        return cls(**{name: np.array(one) for name, one in described.items()}, **arrays)

    def variances_of(self, groups: Groups, x_global: Matrix, x_local: Matrix, client: I64) -> F64:
        """The variance of the score of each row, and not of its noise.

        What was never seen of a client, and a category that was never seen at all, has the
        variance of its group.
        """
        from fedres.core.compiled import compiled

        shared = with_constant(x_global, len(groups.of_global))
        own = with_constant(x_local, len(groups.of_local))
        size = max(1, len(groups.of_local))
        of_row = np.repeat(np.arange(len(client)), np.diff(own.indptr))
        known = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start)) * size + self.columns
        keys = np.where(client[of_row] < 0, -1, client[of_row] * size + own.indices)
        place = np.minimum(np.searchsorted(known, keys), max(0, len(known) - 1))
        found = known[place] == keys if len(known) else np.zeros(len(keys), bool)
        rows = SortedRows(
            shared.data,
            shared.indices.astype(np.int32),
            shared.indptr.astype(np.int64),
            own.data,
            np.where(found, place, -1).astype(np.int32),
            own.indptr.astype(np.int64),
            np.zeros(1, np.int64),
            self.start,
            self.first_cell,
        )
        out = np.zeros(len(client))
        compiled(row_variances, allocates=True)(
            rows, client, self.cells, self.root_global, self.root_local, out
        )
        prior = self.variances[0][groups.of_local][own.indices] * own.data**2
        out = self.noise[0] * out + np.bincount(of_row[~found], prior[~found], len(client))
        return np.asarray(out + _never_seen(groups, shared, self.variances[0]))

    def quantiles(self, level: float) -> tuple[float, float]:
        """Between which errors lie in so many of all cases, in units of the standard deviation."""
        sides = np.array([1 - level, 1 + level]) / 2
        inside = (sides >= LEVELS[0]) & (sides <= LEVELS[-1])
        low, high = np.where(inside, np.interp(sides, LEVELS, self.errors), ndtri(sides))
        return float(low), float(high)

    def components(self, groups: Groups, scale: float, outputs: list[Any]) -> "pd.DataFrame":
        """How much of the labels' variance is whose."""
        import pandas as pd

        tables = []
        for k, output in enumerate(outputs):
            variance = np.append(self.variances[k], self.noise[k]) * scale**2
            parts = variance * np.append(self.mean_squares, 1.0)
            names = [*groups.names, ("residual", "")]
            table = pd.DataFrame(names, columns=["part", "column"])
            table["variance"], table["share"] = variance, parts / parts.sum()
            tables.append(table if len(outputs) == 1 else table.assign(**{"class": output}))
        return pd.concat(tables, ignore_index=True)

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

        client = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        size = 1 + (models.settings.width_local or 0)
        slots = models.slots.find(client * size + self.columns)
        tables = []
        for k, output in enumerate(outputs):
            table = pd.DataFrame(
                {
                    "client": np.array(ids)[client],
                    "column": np.array([*names, "constant"], object)[self.columns],
                    "effect": scale * models.w_local[k, slots].astype(np.float64),
                    "standard_error": scale * np.sqrt(self.variance_local[:, k].astype(np.float64)),
                }
            )
            tables.append(table if len(outputs) == 1 else table.assign(**{"class": output}))
        return pd.concat(tables, ignore_index=True)


def _never_seen(groups: Groups, shared: Any, variances: F64) -> F64:
    """The prior variance of columns of categories that a row has no feature of."""
    from scipy import sparse

    group = np.where(groups.of_global < 0, len(variances), groups.of_global)
    used = np.unique(groups.of_global[groups.of_global >= 0])
    used = used[[groups.names[g][1] != "numbers" for g in used]]
    if not len(used):
        return np.zeros(shared.shape[0])
    belongs = sparse.csr_array(
        (np.ones(len(group)), (np.arange(len(group)), group)), (len(group), len(variances) + 1)
    )
    absent = (shared @ belongs).toarray()[:, used] == 0
    return np.asarray(absent @ variances[used])

"""Where clients' slopes begin: at the mean of a column, or at its zero.

A client's constant is its score where all numbers are 0 as encoded, at their mean. Constant and
slope are independent in the prior, which cannot be true at the mean *and* at zero: people whose
reaction times are alike on day 0 and who tire at different rates differ at the mean day in both at
once. Their covariance over clients, given the rows, tells where it is true (a step of EM):

    independent at o = -sum E[constant * slope] / sum E[slope^2]

A column whose zero is nearer to o than its mean is counted from zero.
"""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from fedres.core.types import F32, F64, I64, Matrix
from fedres.tables.arrow import Arrow
from fedres.tables.columns import Column, Number, Tastes
from fedres.tables.empirical_bayes import Solution

NEAREST, FARTHEST = 0.25, 5.0  # standard deviations between zero and the mean for it to matter


def zeros_of(columns: Sequence[Column | Tastes]) -> F64:
    """What the value 0 becomes, of every local feature that may be counted from it; others NaN.

    Examples
    --------
    >>> day = Number("day", mean=4.5, scale=0.5, missing=True)
    >>> year = Number("year", mean=1999.0, scale=0.1, missing=False)
    >>> zeros_of([day, year])
    array([-2.25,   nan,   nan])
    """
    zeros: list[float] = []
    for column in columns:
        zero = column.zero if isinstance(column, Number) else 0.0
        is_candidate = NEAREST <= abs(zero) <= FARTHEST
        zeros += [zero if is_candidate else np.nan] + [np.nan] * (column.width - 1)
    return np.array(zeros)


def nearer_to_zero(arrow: Arrow, found: Solution, zeros: F64) -> I64:
    """Those local features whose slopes are independent of constants nearer to 0 than to the mean.

    Parameters
    ----------
    arrow, found
        What was found with all numbers counted from their means.
    zeros
        What the value 0 became.
    """
    rows, noise = arrow.rows, found.variances.noise
    client = np.repeat(np.arange(len(rows.first_slot) - 1), np.diff(rows.first_slot))
    last = rows.first_slot[client + 1] - 1  # the slot of the constant
    place, w, blocks = arrow.places(), found.w_local, found.covariance.blocks
    corner = arrow.corner[client]
    both = w * w[last] + noise * blocks[corner + place[last] * (place[last] + 1) // 2 + place]
    own = w**2 + noise * blocks[corner + place * (place + 3) // 2]
    size = len(arrow.groups.of_local)
    across, squares = (np.bincount(arrow.columns, one, size)[:-1] for one in (both, own))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.flatnonzero(-across / squares / zeros > 0.5)


def counted_from(x: Matrix, origin: F64) -> Matrix:
    """Features less what each is counted from; of CSR, those entries that are there."""
    origin = origin.astype(np.float32)
    if not sparse.issparse(x):
        return np.asarray(x - origin, np.float32)
    values: F32 = x.data - origin[x.indices]
    return sparse.csr_array((values, x.indices, x.indptr), x.shape)

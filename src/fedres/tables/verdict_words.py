"""A verdict in plain words."""

from typing import TYPE_CHECKING

import numpy as np

from fedres.simulation.intervals import Interval

if TYPE_CHECKING:
    from fedres.tables.table_comparison import TableComparison

WORDS = {"rmse": "RMSE", "mae": "MAE", "log_loss": "log loss", "accuracy": "accuracy"}
# By the signs of what FedRes gains over Central and over Independent; 0 for nothing clear.
HEADS = {
    (1, 1): "Personal + shared pays",
    (1, 0): "Personalisation pays, sharing makes no clear difference",
    (1, -1): "Clients do best alone",
    (0, 1): "Sharing pays, personalisation makes no clear difference",
    (0, 0): "There is no clear difference",
    (0, -1): "Clients do best alone",
    (-1, 1): "Sharing pays, personalisation does not",
    (-1, 0): "Sharing pays, personalisation does not",
    (-1, -1): "Personal or shared alone is better than both together",
}


def sentence(verdict: "TableComparison") -> str:
    """Does personal + shared beat only personal and only shared, and for how many clients?"""
    central, independent = verdict.gain_over("central"), verdict.gain_over("independent")
    if len(verdict.rows_of) == 1:
        head = "One client alone cannot tell"
    elif _sign(verdict.gain_over("constant")) < 1:
        head = "These features tell little, a constant does as well"
    else:
        head = HEADS[_sign(central), _sign(independent)]
    error = verdict.metrics[0]
    counts, clients = verdict.counts("central"), len(verdict.rows_of)
    return (
        f"{head}: FedRes ({WORDS[error]} {shown(verdict.score('fedres', error))}) "
        f"{_relation('Central', central)} and {_relation('Independent', independent)}; "
        f"against Central, {counts.gain:,} of {clients:,} clients gain "
        f"({counts.gain_clearly:,} clearly) and {counts.lose:,} lose "
        f"({counts.lose_clearly:,} clearly)."
    )


def shown(value: Interval) -> str:
    """A mean and its interval, to the digits that the interval leaves certain.

    Examples
    --------
    >>> shown(Interval(0.60188, 0.0123)), shown(Interval(34_567.8, 123.4))
    ('0.602 ± 0.012', '34,568 ± 123')
    """
    if np.isnan(value.half) or value.half == 0:
        return f"{value.mean:.4g}"
    digits = max(0, 1 - int(np.floor(np.log10(value.half))))
    return f"{value.mean:,.{digits}f} ± {value.half:,.{digits}f}"


def _sign(gain: Interval) -> int:
    return 0 if abs(gain.mean) <= gain.half else int(np.sign(gain.mean))


def _relation(name: str, gain: Interval) -> str:
    if np.isnan(gain.half):
        return f"differs from {name} by {shown(gain)}"
    if _sign(gain) == 0:
        return f"is within noise of {name} ({shown(gain)})"
    verb = "beats" if gain.mean > 0 else "loses to"
    return f"{verb} {name} by {shown(Interval(abs(gain.mean), gain.half))}"

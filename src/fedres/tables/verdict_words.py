"""A verdict in plain words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedres.simulation.intervals import Interval

if TYPE_CHECKING:
    from fedres.tables.table_comparison import ComparedMethod, TableComparison

WORDS = {"rmse": "RMSE", "mae": "MAE", "log_loss": "log loss", "accuracy": "accuracy"}
LABELS = {
    "constant": "Constant",
    "independent": "Independent",
    "central": "Central",
    "fedres": "FedRes",
}
FEWEST_JUDGED, FEWEST_CLIENTS = 30, 5  # held-out rows and their clients, for a recommendation
ALIKE = 0.1  # of the error of a constant: two errors that differ by less are alike
TINY = 0.02  # of the error of a constant: smaller errors are seldom honest
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


def sentences(verdict: "TableComparison") -> list[str]:
    """Does personal + shared beat only personal and only shared, and for how many clients?"""
    clients = len(verdict.rows_of)
    alone, shared = verdict.counts("independent"), verdict.counts("central")
    said = [
        f"{_head(verdict)}: {_beats(verdict, 'central', 'independent')}; "
        f"{part(alone.lose, clients)} of {clients:,} clients would be worse off than alone "
        f"({part(alone.lose_clearly, clients)} clearly) and {part(shared.lose, clients)} than with "
        f"Central ({part(shared.lose_clearly, clients)} clearly)."
    ]
    if (new := verdict.new) is not None:
        said.append(
            f"New clients ({len(new.rows_of):,}, without training rows): "
            f"{_beats(new, 'central', 'constant')}."
        )
    error = verdict.metrics[0]
    ours, constant = (verdict.score(method, error).mean for method in ("fedres", "constant"))
    if verdict.judged_enough and ours < TINY * constant:
        said.append(
            f"The error of FedRes is {100 * ours / constant:.2g}% of Constant's: see that no "
            "column is known only with the label."
        )
    if verdict.judged_enough:
        return [*said, f"Recommended: {LABELS[verdict.recommended]}."]
    rows = len(verdict.client)
    few, what, needed = rows, "row", FEWEST_JUDGED
    if rows >= FEWEST_JUDGED:
        few, what, needed = clients, "client", FEWEST_CLIENTS
    are = f"{what} is" if few == 1 else f"{what}s are"
    return [
        *said,
        f"{few} judged {are} too few to recommend a method: at least {needed} are needed.",
    ]


def which_shared(losses: Mapping[str, float], taken: str) -> str | None:
    """Which shared model was taken, and why; None if there was no choice.

    Examples
    --------
    >>> which_shared({"linear": 0.5, "trees": 0.4}, "trees")
    'Shared model: trees, with 20.0% less loss on rows left out than a linear one.'
    >>> which_shared({"linear": 0.5, "trees": 0.5}, "linear")
    'Shared model: linear; trees do about as well on rows left out.'
    """
    if not losses:
        return None
    kind, other, name = (
        ("trees", "linear", "a linear one") if taken == "trees" else ("linear", "trees", "trees")
    )
    change = losses[kind] / losses[other] - 1
    size = f"{100 * abs(change):.1f}% {'less' if change < 0 else 'more'} loss"
    if abs(change) < 1e-3:
        does = "does" if kind == "trees" else "do"
        return f"Shared model: {kind}; {name} {does} about as well on rows left out."
    return f"Shared model: {kind}, with {size} on rows left out than {name}."


def which_tastes(losses: Mapping[float, float], latent: int) -> str | None:
    """How many tastes clients have, and why.

    Parameters
    ----------
    losses
        Mean losses on rows left out by strength of tastes, 0 for none; empty if there is no client.
    latent
        How many there are.

    Examples
    --------
    >>> which_tastes({0.0: 0.5, 0.1: 0.4}, 8)
    'Tastes: 8 per client; with them the loss on rows left out is 20.0% smaller.'
    >>> which_tastes({0.0: 0.5, 0.1: 0.6}, 0)
    'Tastes: none, since they do not make the loss on rows left out clearly smaller.'
    """
    if not latent:
        return (
            "Tastes: none, since they do not make the loss on rows left out clearly smaller."
            if losses
            else None
        )
    gain = 1 - min(losses.values()) / losses[0.0]
    return (
        f"Tastes: {latent} per client; with them the loss on rows left out is {100 * gain:.1f}% "
        "smaller."
    )


def _head(verdict: "TableComparison") -> str:
    clients = len(verdict.rows_of)
    if clients == 1:
        return "One client alone cannot tell"
    if len(verdict.client) < FEWEST_JUDGED:
        return "Too few rows to tell"
    if sign(verdict.gain_over("constant")) < 1:
        return _no_better_than_a_constant(verdict)
    if clients < FEWEST_CLIENTS:
        return "Too few clients to tell"
    return HEADS[sign(verdict.gain_over("central")), sign(verdict.gain_over("independent"))]


def _no_better_than_a_constant(verdict: "TableComparison") -> str:
    gain, constant = verdict.gain_over("constant"), verdict.score("constant", verdict.metrics[0])
    if sign(gain) < 0:
        return "These features mislead, a constant does better"
    # Where a few clients decide the error of all methods, it is uncertain, and no gain is seen.
    if gain.mean + gain.half > ALIKE * constant.mean or constant.half > constant.mean / 2:
        return f"FedRes cannot be told from a constant with {len(verdict.rows_of):,} clients"
    return "These features tell little, a constant does as well"


def _beats(verdict: "TableComparison", *others: "ComparedMethod") -> str:
    error = verdict.metrics[0]
    relations = [_relation(LABELS[other], verdict.gain_over(other)) for other in others]
    score = shown(verdict.score("fedres", error))
    return f"FedRes ({WORDS[error]} {score}) {' and '.join(relations)}"


def part(some: int, of_all: int) -> str:
    """A share in percent, which is 0% for none and 100% for all alone.

    Examples
    --------
    >>> part(0, 965), part(4, 965), part(170, 965), part(964, 965)
    ('0%', '<1%', '18%', '>99%')
    """
    percent = 100 * some / of_all
    if 0 < percent < 1:
        return "<1%"
    return ">99%" if 99 < percent < 100 else f"{percent:.0f}%"


def shown(value: Interval) -> str:
    """A mean and its interval, to the digits that the interval leaves certain.

    Examples
    --------
    >>> shown(Interval(0.60188, 0.0123)), shown(Interval(34_567.8, 123.4))
    ('0.602 ± 0.012', '34,568 ± 123')
    >>> shown(Interval(0.031434, 1.2e-6)), shown(Interval(3.2e9, 4.56e7))
    ('0.0314 ± 1e-06', '3.2e+09 ± 5e+07')
    """
    mean, half = value
    if np.isnan(half) or half == 0:
        return f"{mean:.4g}"
    # Five digits will do, even of millions of rows.
    digits = max(0, min(1 - _magnitude(half), 4 - _magnitude(mean or half)))
    if digits > 5 or abs(mean) >= 1e6:
        return f"{mean:.3g} ± {half:.1g}"
    return f"{mean:,.{digits}f} ± {half:,.{digits}f}"


def _magnitude(x: float) -> int:
    return int(np.floor(np.log10(abs(x))))


def sign(gain: Interval) -> int:
    """Whether a gain is clearly above 0 (1), below (-1) or neither (0)."""
    return int(np.sign(gain.mean)) if abs(gain.mean) > gain.half else 0


def _relation(name: str, gain: Interval) -> str:
    if np.isnan(gain.half):
        return f"differs from {name} by {shown(gain)}"
    if sign(gain) == 0:
        return f"is within noise of {name} ({shown(gain)})"
    verb = "beats" if gain.mean > 0 else "loses to"
    return f"{verb} {name} by {shown(Interval(abs(gain.mean), gain.half))}"

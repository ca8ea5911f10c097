"""Verdicts on sentences, from many measured differences: what is certain, and what all say.

A difference that lies above its bound for certain holds, one that lies below does not, others are
undecided. "For certain" is Student's test of the mean, with Holm's allowance for all the
differences that are looked at: the chance that any of these verdicts is wrong is at most 5%, so an
interval of a single difference may exclude the bound and the verdict still be undecided.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedres.core.types import F64
from fedres.simulation.intervals import Interval

Ruling = Literal["holds", "does not hold", "undecided", "confounded"]
Quantifier = Literal["all", "most", "any"]

LEVEL = 0.05  # chance that any verdict of a form is wrong


@dataclass(frozen=True)
class Finding:
    """One measured difference of a claim."""

    where: str
    difference: Interval
    chance: float  # p-value of the difference against the claim's bound
    verdict: Ruling
    confounded: str = ""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and what was found."""

    section: str
    statement: str
    measured: str
    bound: float
    findings: tuple[Finding, ...]
    verdict: Ruling
    quantifier: Quantifier = "all"
    sets: str = ""  # how many of the sets that it names were run, where not all were


def holm(chances: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which of many hypotheses to reject, so that the chance of any wrong one is the level.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])  # 0.01 < 0.05 / 3, but 0.03 > 0.05 / 2
    [True, False, False]
    """
    rejected = [False] * len(chances)
    for k, place in enumerate(np.argsort(chances, kind="stable").tolist()):
        if not chances[place] <= level / (len(chances) - k):
            break
        rejected[place] = True
    return rejected


def rule(verdicts: Sequence[Ruling], quantifier: Quantifier) -> Ruling:
    """What the differences of a claim together say.

    Examples
    --------
    >>> rule(["holds", "holds", "undecided"], "all"), rule(["holds", "holds", "undecided"], "most")
    ('undecided', 'holds')
    """
    counted = [one for one in verdicts if one != "confounded"]
    if not counted:
        return "confounded"
    yes, no = counted.count("holds"), counted.count("does not hold")
    enough: dict[Quantifier, Callable[[int], bool]] = {
        "all": lambda n: n == len(counted),
        "most": lambda n: 2 * n > len(counted),
        "any": lambda n: n > 0,
    }
    opposite: dict[Quantifier, Quantifier] = {"all": "any", "most": "most", "any": "all"}
    if enough[quantifier](yes):
        return "holds"
    return "does not hold" if enough[opposite[quantifier]](no) else "undecided"


def rule_on_all(claims: list[Claim]) -> list[Claim]:
    """The same claims with verdicts that allow for how many differences were looked at."""
    counted = [one for claim in claims for one in claim.findings if not one.confounded]
    certain = iter(holm([one.chance for one in counted]))

    def judged(finding: Finding, bound: float) -> Finding:
        if finding.confounded:
            return finding
        side: Ruling = "holds" if finding.difference.mean > bound else "does not hold"
        return replace(finding, verdict=side if next(certain) else "undecided")

    ruled = []
    for claim in claims:
        findings = tuple(judged(finding, claim.bound) for finding in claim.findings)
        verdict = rule([finding.verdict for finding in findings], claim.quantifier)
        ruled.append(replace(claim, findings=findings, verdict=verdict))
    return ruled


def chance(values: F64, bound: float) -> float:
    """Two-sided p-value of Student's test that the mean is the bound; NaN becomes 1."""
    from scipy import stats

    if len(values) < 2 or (values == bound).all():
        return 1.0
    if (values == values[0]).all():
        return 0.0
    return float(stats.ttest_1samp(values, bound).pvalue)

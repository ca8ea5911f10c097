"""The paper's sentences that a measurement can judge, as code.

Each claim names differences of accuracy, paired by seed, and a bound that they should exceed. One
that lies above its bound for certain holds, one that lies below does not, others are undecided.
"For certain" is Student's test of the mean, with Holm's allowance for all the differences that are
looked at: the chance that any of these verdicts is wrong is at most 5%, so an interval of a single
difference may exclude the bound and the verdict still be undecided.

Words such as "near", "little" or "modest" are given a number here, and the number is shown. A claim
is judged on the sets that it names and that were run. "Always" means all of them, "sometimes" any,
"typically" most. Differences between numbers of clients are confounded where rows run out: with
more clients each has fewer samples. They are shown, and have no say.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fedres.core.types import F64
from fedres.simulation.intervals import Interval, interval

if TYPE_CHECKING:
    import pandas as pd

Ruling = Literal["holds", "does not hold", "undecided", "confounded"]
Quantifier = Literal["all", "most", "any"]

TYPE_1 = ("mnist", "satimage", "sensorless", "usps")  # the paper's: Central beats Independent
TYPE_2 = ("letter", "pendigits", "shuttle", "covtype")
KEYS: list[Hashable] = ["figure", "data", "scheme", "clients", "delay"]
NEAR, GREAT, LITTLE, MODEST, ROBUST = 0.01, 0.03, 0.02, 0.10, 0.02
LEVEL = 0.05  # chance that any verdict of a form is wrong


class Difference(NamedTuple):
    """Where something was measured, its difference seed by seed, and what else differed."""

    where: str
    by_seed: "pd.Series"
    confounded: str = ""


Differences = list[Difference]


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


def judge_claims(table: "pd.DataFrame", form: str = "aligned") -> list[Claim]:
    """Judge every claim that the table has runs for, FedRes being in that form."""
    sets = _Sets(table, form)
    if not len(sets.accuracy):
        return []
    schemes = (form, "central")
    claims = [
        sets.claim(
            "6.3",
            "FedRes is always a near winner (P = 10 and P = 50, no delay).",
            f"FedRes less the better baseline exceeds -{_points(NEAR)} on every set",
            sets.over_best_at(sets.all, "overall", "clients"),
            -NEAR,
        ),
        sets.claim(
            "6.3",
            "FedRes sometimes greatly outperforms the baselines.",
            f"FedRes less the better baseline exceeds {_points(GREAT)} on some set",
            sets.over_best_at(sets.all, "overall", "clients"),
            GREAT,
            "any",
        ),
        sets.claim(
            "6.4",
            "Independent outperforms Central on letter, pendigits, shuttle and covtype.",
            "Independent less Central exceeds 0",
            sets.each(TYPE_2, sets.less, "overall", "independent", "central"),
        ),
        sets.claim(
            "6.4",
            "Central outperforms Independent on mnist, satimage, sensorless and usps.",
            "Central less Independent exceeds 0",
            sets.each(TYPE_1, sets.less, "overall", "central", "independent"),
        ),
        sets.claim(
            "6.4",
            "On sensorless and mnist performance improves with the number of clients.",
            "FedRes at the most clients less FedRes at the fewest exceeds 0",
            sets.each(("sensorless", "mnist"), sets.growth),
        ),
        sets.claim(
            "6.4",
            "On letter and pendigits performance improves little with the number of clients.",
            f"FedRes at the fewest clients less FedRes at the most exceeds -{_points(LITTLE)}",
            _minus(sets.each(("letter", "pendigits"), sets.growth)),
            -LITTLE,
        ),
        sets.claim(
            "6.4",
            "FedRes is comparable with the best of Independent and Central in all experiments.",
            f"FedRes less the better baseline exceeds -{_points(NEAR)} at every number of clients",
            sets.over_best_at(sets.all, "clients", "clients"),
            -NEAR,
        ),
        sets.claim(
            "6.5",
            "Delay degrades performance on letter and pendigits.",
            "FedRes without delay less FedRes at delay 200 exceeds 0",
            sets.each(("letter", "pendigits"), sets.decay, form),
        ),
        sets.claim(
            "6.5",
            "The degradation on letter and pendigits is modest.",
            f"FedRes at delay 200 less FedRes without delay exceeds -{_points(MODEST)}",
            _minus(sets.each(("letter", "pendigits"), sets.decay, form)),
            -MODEST,
        ),
        sets.claim(
            "E.2",
            "On mnist, satimage and usps FedRes and Central are robust to delay.",
            f"Accuracy at delay 200 less accuracy without exceeds -{_points(ROBUST)}",
            _minus(sets.decay_of(("mnist", "satimage", "usps"), schemes)),
            -ROBUST,
        ),
        sets.claim(
            "E.2",
            "On mnist, satimage and usps FedRes constantly outperforms both baselines.",
            "FedRes less the better baseline exceeds 0 at every delay",
            sets.over_best_at(("mnist", "satimage", "usps"), "delay", "delay"),
        ),
        sets.claim(
            "E.2",
            "On sensorless FedRes and Central degrade with delay.",
            "Accuracy without delay less accuracy at delay 200 exceeds 0",
            sets.decay_of(("sensorless",), schemes),
        ),
        sets.claim(
            "E.2",
            "On sensorless FedRes degrades somewhat more than Central.",
            "FedRes's loss of accuracy at delay 200 less Central's exceeds 0",
            sets.each(("sensorless",), sets.decays_more, *schemes),
        ),
        sets.claim(
            "E.2",
            "On sensorless FedRes still outperforms Central when the delay is not excessive.",
            "FedRes less Central exceeds 0 at delays up to 80",
            [
                Difference(f"{name}, delay {tau}", sets.less(name, "delay", *schemes, delay=tau))
                for name in sets.of(("sensorless",))
                for tau in sets.values(name, "delay", "delay")
                if tau <= 80
            ],
        ),
        sets.claim(
            "E.2",
            "With delay FedRes can be worse than Independent on letter, pendigits and shuttle.",
            "Independent less FedRes exceeds 0 at delay 80",
            sets.each(
                ("letter", "pendigits", "shuttle"),
                sets.less,
                "delay",
                "independent",
                form,
                None,
                80,
            ),
        ),
        sets.claim(
            "E.3",
            "The loss of performance is larger for the higher delay.",
            "FedRes at delay 20 less FedRes at delay 80 exceeds 0",
            sets.each(sets.all, sets.between, 20, 80),
        ),
        sets.claim(
            "E.3",
            "The loss by delay is typically overcome as the number of clients increases.",
            "The loss at delay 80 with the fewest clients less that with the most exceeds 0",
            sets.each(sets.all, sets.recovery),
            quantifier="most",
        ),
        sets.claim(
            "E.4",
            "Delay harms more where clients can learn well alone (letter, pendigits, shuttle, "
            "covtype) than elsewhere.",
            "Mean loss at delay 200 over those sets less that over the others exceeds 0",
            [Difference(sets.both(TYPE_2, TYPE_1), sets.harm(TYPE_2, TYPE_1))],
        ),
    ]
    return _allowed([claim for claim in claims if claim is not None])


def _allowed(claims: list[Claim]) -> list[Claim]:
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


class _Sets:
    """Differences of accuracy, by seed."""

    def __init__(self, table: "pd.DataFrame", form: str) -> None:
        possible = table[table.accuracy.notna() & (table.figure != "readings")]
        indexed = possible.set_index([*KEYS, "seed"]).sort_index()
        self.accuracy, self.samples = indexed.accuracy, indexed.samples
        self.known = {key[:-1] for key in self.accuracy.index}
        self.form = form
        self.all = tuple(possible.data.unique())

    def of(self, names: Sequence[str]) -> list[str]:
        """Those of the sets that are here."""
        return [name for name in self.all if name in names]

    def each(
        self, names: Sequence[str], measure: Callable[..., "pd.Series | Difference"], *given: Any
    ) -> Differences:
        """A difference of each of these sets."""
        found = ((name, measure(name, *given)) for name in self.of(names))
        return [
            one._replace(where=name) if isinstance(one, Difference) else Difference(name, one)
            for name, one in found
        ]

    def values(self, name: str, figure: str, level: str) -> list[int]:
        """The numbers of clients, or the delays, that a figure has for a set."""
        try:
            return sorted(self.accuracy[figure, name].index.unique(level).tolist())
        except KeyError:
            return []

    def get(
        self, name: str, figure: str, scheme: str, clients: int | None = None, delay: int = 0
    ) -> "pd.Series":
        """Accuracy by seed, empty if it is not known; clients default to the most of the figure."""
        counts = self.values(name, figure, "clients")
        key = (figure, name, scheme, clients or max(counts, default=0), delay)
        return self.accuracy[key] if key in self.known else self.accuracy[:0].droplevel(KEYS)

    def less(
        self, name: str, figure: str, a: str, b: str, clients: int | None = None, delay: int = 0
    ) -> "pd.Series":
        """Scheme a less scheme b."""
        one, other = (self.get(name, figure, scheme, clients, delay) for scheme in (a, b))
        return one - other

    def over_best(
        self, name: str, figure: str, clients: int | None = None, delay: int = 0
    ) -> "pd.Series":
        """FedRes less whichever baseline has the higher mean."""
        fedres, *others = (
            self.get(name, figure, scheme, clients, delay)
            for scheme in (self.form, "independent", "central")
        )
        return fedres - max(others, key=lambda other: (len(other) > 0, other.mean()))

    def over_best_at(self, names: Sequence[str], figure: str, level: str) -> Differences:
        """The same at every number of clients, or every delay, of a figure."""
        word = "P =" if level == "clients" else level
        return [
            Difference(f"{name}, {word} {value}", self.over_best(name, figure, **{level: value}))
            for name in self.of(names)
            for value in self.values(name, figure, level)
        ]

    def fewer_samples(self, name: str, figure: str, few: int, most: int) -> str:
        """What is confounded with the number of clients: how many samples each of them has."""
        try:
            many, less = (self.samples[figure, name, "independent", p].mean() for p in (few, most))
        except KeyError:
            return ""
        if less == many:
            return ""
        return f"N falls from {many:.3g} at P = {few} to {less:.3g} at P = {most}"

    def growth(self, name: str) -> Difference:
        """FedRes at the most clients less FedRes at the fewest."""
        few, *_, most = self.values(name, "clients", "clients") or [0, 0]
        change = self.get(name, "clients", self.form) - self.get(name, "clients", self.form, few)
        return Difference(name, change, self.fewer_samples(name, "clients", few, most))

    def decay(self, name: str, scheme: str) -> "pd.Series":
        """What each seed loses from no delay to delay 200."""
        return self.get(name, "delay", scheme) - self.get(name, "delay", scheme, delay=200)

    def decay_of(self, names: Sequence[str], schemes: Sequence[str]) -> Differences:
        """The same of several sets and schemes."""
        pairs = product(self.of(names), schemes)
        return [Difference(f"{name}, {scheme}", self.decay(name, scheme)) for name, scheme in pairs]

    def decays_more(self, name: str, one: str, other: str) -> "pd.Series":
        """What one scheme loses by delay less what another does."""
        return self.decay(name, one) - self.decay(name, other)

    def between(self, name: str, low: int, high: int) -> "pd.Series":
        """FedRes at the lower delay less FedRes at the higher, at the number of Figure 5."""
        p = min(self.values(name, "delay", "clients"), default=None)
        a, b = (self.get(name, "clients-delay", self.form, p, tau) for tau in (low, high))
        return a - b

    def recovery(self, name: str) -> Difference:
        """How much less a delay of 80 costs with the most clients than with the fewest."""
        few, *_, most = self.values(name, "clients-delay", "clients") or [0, 0]
        with_few, with_most = (
            self.get(name, "clients", self.form, p)
            - self.get(name, "clients-delay", self.form, p, 80)
            for p in (few, most)
        )
        confounded = self.fewer_samples(name, "clients", few, most)
        return Difference(name, with_few - with_most, confounded)

    def harm(self, ones: Sequence[str], others: Sequence[str]) -> "pd.Series":
        """The mean loss at delay 200 over some sets less that over others, by seed."""
        import pandas as pd

        one, other = (
            pd.DataFrame({name: self.decay(name, self.form) for name in self.of(names)}).mean(
                axis=1
            )
            for names in (ones, others)
        )
        return one - other

    def both(self, ones: Sequence[str], others: Sequence[str]) -> str:
        """Two groups of sets in words, those of them that are here."""
        return " less ".join("+".join(self.of(names)) for names in (ones, others))

    def claim(
        self,
        section: str,
        statement: str,
        measured: str,
        differences: Iterable[Difference],
        bound: float = 0.0,
        quantifier: Quantifier = "all",
    ) -> Claim | None:
        """A claim with what was found of it, not ruled on yet; None where nothing was."""
        findings = []
        for where, by_seed, confounded in differences:
            values = by_seed.dropna()
            if len(values):
                verdict: Ruling = "confounded" if confounded else "undecided"
                chance = _chance(values.to_numpy(float), bound)
                found = Finding(where, interval(values), chance, verdict, confounded)
                findings.append(found)
        if not findings:
            return None
        named = [name for name in (*TYPE_2, *TYPE_1) if name in statement] or [*TYPE_2, *TYPE_1]
        here = {one.where.split(",")[0] for one in findings}
        run = [name for name in named if name in here]
        sets = f"{len(run)} of {len(named)} sets run" if run and len(run) < len(named) else ""
        return Claim(
            section, statement, measured, bound, tuple(findings), "undecided", quantifier, sets
        )


def _chance(values: F64, bound: float) -> float:
    """Two-sided p-value of Student's test that the mean is the bound; NaN becomes 1."""
    from scipy import stats

    if len(values) < 2 or (values == bound).all():
        return 1.0
    if (values == values[0]).all():
        return 0.0
    return float(stats.ttest_1samp(values, bound).pvalue)


def _minus(differences: Differences) -> Differences:
    return [one._replace(by_seed=-one.by_seed) for one in differences]


def _points(share: float) -> str:
    return f"{100 * share:g} point{'s' if share != 0.01 else ''}"

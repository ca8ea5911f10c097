"""The paper's sentences that a measurement can judge, as code.

Each claim names differences of accuracy, paired by seed, and what they should exceed. A 95%
interval above that bound holds, one below it does not hold, and one that covers it is undecided.
Words such as "near", "little" or "modest" are given a number here, and the number is shown.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from fedres.simulation.intervals import Interval, interval

if TYPE_CHECKING:
    import pandas as pd

Ruling = Literal["holds", "does not hold", "undecided"]
Differences = list[tuple[str, Interval | None]]  # and where each was measured

TYPE_1 = ("mnist", "satimage", "sensorless", "usps")  # the paper's: Central beats Independent
TYPE_2 = ("letter", "pendigits", "shuttle", "covtype")
KEYS: list[Hashable] = ["figure", "data", "scheme", "clients", "delay"]
NEAR, GREAT, LITTLE, MODEST, ROBUST = 0.01, 0.03, 0.02, 0.10, 0.02


@dataclass(frozen=True)
class Finding:
    """One measured difference of a claim."""

    where: str
    difference: Interval
    verdict: Ruling


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and what was found."""

    section: str
    statement: str
    measured: str
    findings: tuple[Finding, ...]
    verdict: Ruling


def above(difference: Interval, bound: float) -> Ruling:
    """Whether a difference exceeds a bound.

    Examples
    --------
    >>> above(Interval(0.03, 0.01), 0.0), above(Interval(0.03, 0.04), 0.0)
    ('holds', 'undecided')
    """
    if difference.mean - difference.half > bound:
        return "holds"
    return "does not hold" if difference.mean + difference.half < bound else "undecided"


def judge_claims(table: "pd.DataFrame", form: str = "aligned") -> list[Claim]:
    """Judge every claim that the table has runs for, FedRes being in that form."""
    sets = _Sets(table, form)
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
            any,
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
            "That degradation is modest.",
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
            "There FedRes constantly outperforms both baselines.",
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
            "On sensorless FedRes still outperforms Central if the delay is not excessive.",
            "FedRes less Central exceeds 0 at delays up to 80",
            [
                (f"{name}, delay {tau}", sets.less(name, "delay", *schemes, delay=tau))
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
            "That loss is typically overcome as the number of clients increases.",
            "The loss at delay 80 with the fewest clients less that with the most exceeds 0",
            sets.each(sets.all, sets.recovery),
        ),
        sets.claim(
            "E.4",
            "Delay harms more where clients can learn well alone (letter, pendigits, shuttle, "
            "covtype) than elsewhere.",
            "Mean loss at delay 200 over those sets less that over the others exceeds 0",
            [("all sets", sets.harm(TYPE_2, TYPE_1))],
        ),
    ]
    return [claim for claim in claims if claim is not None]


class _Sets:
    """Differences of accuracy, by seed."""

    def __init__(self, table: "pd.DataFrame", form: str) -> None:
        possible = table[table.accuracy.notna()]
        self.accuracy = possible.set_index([*KEYS, "seed"]).accuracy.sort_index()
        self.known = {key[:-1] for key in self.accuracy.index}
        self.form = form
        self.all = tuple(possible.data.unique())

    def of(self, names: Sequence[str]) -> list[str]:
        """Those of the sets that are here."""
        return [name for name in self.all if name in names]

    def each(
        self, names: Sequence[str], measure: Callable[..., Interval | None], *arguments: Any
    ) -> Differences:
        """A difference of each of these sets."""
        return [(name, measure(name, *arguments)) for name in self.of(names)]

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

    def paired(self, a: "pd.Series", b: "pd.Series | int") -> Interval | None:
        """The interval of a - b, over the seeds that both have."""
        differences = (a - b).dropna()
        return interval(differences) if len(differences) else None

    def less(
        self, name: str, figure: str, a: str, b: str, clients: int | None = None, delay: int = 0
    ) -> Interval | None:
        """Scheme a less scheme b."""
        return self.paired(*(self.get(name, figure, scheme, clients, delay) for scheme in (a, b)))

    def over_best(
        self, name: str, figure: str, clients: int | None = None, delay: int = 0
    ) -> Interval | None:
        """FedRes less whichever baseline has the higher mean."""
        fedres, *others = (
            self.get(name, figure, scheme, clients, delay)
            for scheme in (self.form, "independent", "central")
        )
        return self.paired(fedres, max(others, key=lambda other: (len(other) > 0, other.mean())))

    def over_best_at(self, names: Sequence[str], figure: str, level: str) -> Differences:
        """The same at every number of clients, or every delay, of a figure."""
        word = "P =" if level == "clients" else level
        return [
            (f"{name}, {word} {value}", self.over_best(name, figure, **{level: value}))
            for name in self.of(names)
            for value in self.values(name, figure, level)
        ]

    def growth(self, name: str) -> Interval | None:
        """FedRes at the most clients less FedRes at the fewest."""
        fewest = min(self.values(name, "clients", "clients"), default=None)
        return self.paired(*(self.get(name, "clients", self.form, p) for p in (None, fewest)))

    def decays(self, name: str, scheme: str) -> "pd.Series":
        """What each seed loses from no delay to delay 200."""
        return self.get(name, "delay", scheme) - self.get(name, "delay", scheme, delay=200)

    def decay(self, name: str, scheme: str) -> Interval | None:
        """The same as an interval."""
        return self.paired(self.decays(name, scheme), 0)

    def decay_of(self, names: Sequence[str], schemes: Sequence[str]) -> Differences:
        """The same of several sets and schemes."""
        pairs = product(self.of(names), schemes)
        return [(f"{name}, {scheme}", self.decay(name, scheme)) for name, scheme in pairs]

    def decays_more(self, name: str, one: str, other: str) -> Interval | None:
        """What one scheme loses by delay less what another does."""
        return self.paired(self.decays(name, one), self.decays(name, other))

    def between(self, name: str, low: int, high: int) -> Interval | None:
        """FedRes at the lower delay less FedRes at the higher, at the number of Figure 5."""
        p = min(self.values(name, "delay", "clients"), default=None)
        a, b = (self.get(name, "clients-delay", self.form, p, tau) for tau in (low, high))
        return self.paired(a, b)

    def recovery(self, name: str) -> Interval | None:
        """How much less a delay of 80 costs with the most clients than with the fewest."""
        counts = self.values(name, "clients-delay", "clients") or [0]
        lost = [
            self.get(name, "clients", self.form, p)
            - self.get(name, "clients-delay", self.form, p, 80)
            for p in (counts[0], counts[-1])
        ]
        return self.paired(*lost)

    def harm(self, ones: Sequence[str], others: Sequence[str]) -> Interval | None:
        """The mean loss at delay 200 over some sets less that over others, by seed."""
        import pandas as pd

        means = [
            pd.DataFrame({name: self.decays(name, self.form) for name in self.of(names)}).mean(
                axis=1
            )
            for names in (ones, others)
        ]
        return self.paired(*means)

    def claim(
        self,
        section: str,
        statement: str,
        measured: str,
        differences: Differences,
        bound: float = 0.0,
        over: Callable[..., bool] = all,
    ) -> Claim | None:
        """Judge each difference, then the claim: all of them must hold, or any."""
        findings = tuple(
            Finding(where, difference, above(difference, bound))
            for where, difference in differences
            if difference is not None
        )
        if not findings:
            return None
        verdicts = [finding.verdict for finding in findings]
        verdict: Ruling = "undecided"
        if over(one == "holds" for one in verdicts):
            verdict = "holds"
        elif (any if over is all else all)(one == "does not hold" for one in verdicts):
            verdict = "does not hold"
        return Claim(section, statement, measured, findings, verdict)


def _minus(differences: Differences) -> Differences:
    return [(where, found and Interval(-found.mean, found.half)) for where, found in differences]


def _points(share: float) -> str:
    return f"{100 * share:g} point{'s' if share != 0.01 else ''}"

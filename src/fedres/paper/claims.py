"""The paper's sentences that a measurement can judge, as code.

Each claim names differences of accuracy, paired by seed, and what they should exceed. A 95%
interval above that bound holds, one below it does not hold, and one that covers it is undecided.
Words such as "near", "little" or "modest" are given a number here, and the number is shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedres.simulation.intervals import Interval, interval

if TYPE_CHECKING:
    import pandas as pd

Ruling = Literal["holds", "does not hold", "undecided"]

TYPE_1 = ("mnist", "satimage", "sensorless", "usps")  # the paper's: Central beats Independent
TYPE_2 = ("letter", "pendigits", "shuttle", "covtype")
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
    claims = [
        sets.claim(
            "6.3",
            "FedRes is always a near winner (P = 10 and P = 50, no delay).",
            f"FedRes less the better baseline exceeds -{_points(NEAR)} on every set",
            [
                (f"{name}, P = {p}", sets.over_best(name, "overall", clients=p))
                for name in sets.all
                for p in sets.values(name, "overall", "clients")
            ],
            -NEAR,
        ),
        sets.claim(
            "6.3",
            "FedRes sometimes greatly outperforms the baselines.",
            f"FedRes less the better baseline exceeds {_points(GREAT)} on some set",
            [
                (f"{name}, P = {p}", sets.over_best(name, "overall", clients=p))
                for name in sets.all
                for p in sets.values(name, "overall", "clients")
            ],
            GREAT,
            any,
        ),
        sets.claim(
            "6.4",
            "Independent outperforms Central on letter, pendigits, shuttle and covtype.",
            "Independent less Central exceeds 0",
            [
                (name, sets.less(name, "overall", "independent", "central"))
                for name in sets.of(TYPE_2)
            ],
        ),
        sets.claim(
            "6.4",
            "Central outperforms Independent on mnist, satimage, sensorless and usps.",
            "Central less Independent exceeds 0",
            [
                (name, sets.less(name, "overall", "central", "independent"))
                for name in sets.of(TYPE_1)
            ],
        ),
        sets.claim(
            "6.4",
            "On sensorless and mnist performance improves with the number of clients.",
            "FedRes at the most clients less FedRes at the fewest exceeds 0",
            [(name, sets.growth(name)) for name in sets.of(("sensorless", "mnist"))],
        ),
        sets.claim(
            "6.4",
            "On letter and pendigits performance improves little with the number of clients.",
            f"FedRes at the fewest clients less FedRes at the most exceeds -{_points(LITTLE)}",
            [(name, _minus(sets.growth(name))) for name in sets.of(("letter", "pendigits"))],
            -LITTLE,
        ),
        sets.claim(
            "6.4",
            "FedRes is comparable with the best of Independent and Central in all experiments.",
            f"FedRes less the better baseline exceeds -{_points(NEAR)} at every number of clients",
            [
                (f"{name}, P = {p}", sets.over_best(name, "clients", clients=p))
                for name in sets.all
                for p in sets.values(name, "clients", "clients")
            ],
            -NEAR,
        ),
        sets.claim(
            "6.5",
            "Delay degrades performance on letter and pendigits.",
            "FedRes without delay less FedRes at delay 200 exceeds 0",
            [(name, sets.decay(name)) for name in sets.of(("letter", "pendigits"))],
        ),
        sets.claim(
            "6.5",
            "That degradation is modest.",
            f"FedRes at delay 200 less FedRes without delay exceeds -{_points(MODEST)}",
            [(name, _minus(sets.decay(name))) for name in sets.of(("letter", "pendigits"))],
            -MODEST,
        ),
        sets.claim(
            "E.2",
            "On mnist, satimage and usps FedRes and Central are robust to delay.",
            f"Accuracy at delay 200 less accuracy without exceeds -{_points(ROBUST)}",
            [
                (f"{name}, {scheme}", _minus(sets.decay(name, scheme)))
                for name in sets.of(("mnist", "satimage", "usps"))
                for scheme in (form, "central")
            ],
            -ROBUST,
        ),
        sets.claim(
            "E.2",
            "There FedRes constantly outperforms both baselines.",
            "FedRes less the better baseline exceeds 0 at every delay",
            [
                (f"{name}, delay {tau}", sets.over_best(name, "delay", delay=tau))
                for name in sets.of(("mnist", "satimage", "usps"))
                for tau in sets.values(name, "delay", "delay")
            ],
        ),
        sets.claim(
            "E.2",
            "On sensorless FedRes and Central degrade with delay.",
            "Accuracy without delay less accuracy at delay 200 exceeds 0",
            [
                (f"{name}, {scheme}", sets.decay(name, scheme))
                for name in sets.of(("sensorless",))
                for scheme in (form, "central")
            ],
        ),
        sets.claim(
            "E.2",
            "On sensorless FedRes degrades somewhat more than Central.",
            "FedRes's loss of accuracy at delay 200 less Central's exceeds 0",
            [
                (name, sets.paired(sets.decays(name, form), sets.decays(name, "central")))
                for name in sets.of(("sensorless",))
            ],
        ),
        sets.claim(
            "E.2",
            "On sensorless FedRes still outperforms Central if the delay is not excessive.",
            "FedRes less Central exceeds 0 at delays up to 80",
            [
                (f"{name}, delay {tau}", sets.less(name, "delay", form, "central", delay=tau))
                for name in sets.of(("sensorless",))
                for tau in sets.values(name, "delay", "delay")
                if tau <= 80
            ],
        ),
        sets.claim(
            "E.2",
            "With delay FedRes can be worse than Independent on letter, pendigits and shuttle.",
            "Independent less FedRes exceeds 0 at delay 80",
            [
                (name, sets.less(name, "delay", "independent", form, delay=80))
                for name in sets.of(("letter", "pendigits", "shuttle"))
            ],
        ),
        sets.claim(
            "E.3",
            "The loss of performance is larger for the higher delay.",
            "FedRes at delay 20 less FedRes at delay 80 exceeds 0",
            [(name, sets.between(name, 20, 80)) for name in sets.all],
        ),
        sets.claim(
            "E.3",
            "That loss is typically overcome as the number of clients increases.",
            "The loss at delay 80 with the fewest clients less that with the most exceeds 0",
            [(name, sets.recovery(name)) for name in sets.all],
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
        keys = ["figure", "data", "scheme", "clients", "delay"]
        self.accuracy = possible.set_index([*keys, "seed"]).accuracy.sort_index()
        self.known = {key[:-1] for key in self.accuracy.index}
        self.form = form
        self.all = tuple(possible.data.unique())

    def of(self, names: Sequence[str]) -> list[str]:
        """Those of the sets that are here."""
        return [name for name in self.all if name in names]

    def values(self, name: str, figure: str, level: str) -> list[int]:
        """The numbers of clients, or the delays, that a figure has for a set."""
        try:
            return sorted(self.accuracy[figure, name].index.unique(level).tolist())
        except KeyError:
            return []

    def get(
        self, name: str, figure: str, scheme: str, clients: int | None = None, delay: int = 0
    ) -> "pd.Series | None":
        """Accuracy by seed; clients default to the most of the figure."""
        counts = self.values(name, figure, "clients")
        key = (figure, name, scheme, clients or max(counts, default=0), delay)
        return self.accuracy[key] if key in self.known else None

    def paired(self, a: "pd.Series | None", b: "pd.Series | None") -> Interval | None:
        """The interval of a - b."""
        return None if a is None or b is None else interval((a - b).dropna())

    def less(
        self, name: str, figure: str, a: str, b: str, clients: int | None = None, delay: int = 0
    ) -> Interval | None:
        """Scheme a less scheme b."""
        return self.paired(*(self.get(name, figure, scheme, clients, delay) for scheme in (a, b)))

    def over_best(
        self, name: str, figure: str, clients: int | None = None, delay: int = 0
    ) -> Interval | None:
        """FedRes less whichever baseline has the higher mean."""
        baselines = [
            self.get(name, figure, scheme, clients, delay) for scheme in ("independent", "central")
        ]
        here = [baseline for baseline in baselines if baseline is not None]
        if not here:
            return None
        best = max(here, key=lambda baseline: float(baseline.mean()))
        return self.paired(self.get(name, figure, self.form, clients, delay), best)

    def growth(self, name: str) -> Interval | None:
        """FedRes at the most clients less FedRes at the fewest."""
        counts = self.values(name, "clients", "clients")
        if not counts:
            return None
        most, fewest = (self.get(name, "clients", self.form, p) for p in (counts[-1], counts[0]))
        return self.paired(most, fewest)

    def decays(self, name: str, scheme: str) -> "pd.Series | None":
        """What each seed loses from no delay to delay 200."""
        a, b = (self.get(name, "delay", scheme, delay=tau) for tau in (0, 200))
        return None if a is None or b is None else a - b

    def decay(self, name: str, scheme: str | None = None) -> Interval | None:
        """The same as an interval."""
        lost = self.decays(name, scheme or self.form)
        return None if lost is None else interval(lost)

    def between(self, name: str, low: int, high: int) -> Interval | None:
        """FedRes at the lower delay less FedRes at the higher, at the number of Figure 5."""
        counts = self.values(name, "delay", "clients")
        p = counts[0] if counts else None
        a, b = (self.get(name, "clients-delay", self.form, p, tau) for tau in (low, high))
        return self.paired(a, b)

    def recovery(self, name: str) -> Interval | None:
        """How much less a delay of 80 costs with the most clients than with the fewest."""
        counts = self.values(name, "clients-delay", "clients")
        if not counts:
            return None
        lost = []
        for p in (counts[0], counts[-1]):
            without = self.get(name, "clients", self.form, p)
            late = self.get(name, "clients-delay", self.form, p, 80)
            lost.append(None if without is None or late is None else without - late)
        return self.paired(*lost)

    def harm(self, ones: Sequence[str], others: Sequence[str]) -> Interval | None:
        """The mean loss at delay 200 over some sets less that over others, by seed."""
        import pandas as pd

        means = []
        for names in (ones, others):
            lost = [self.decays(name, self.form) for name in self.of(names)]
            kept = [one for one in lost if one is not None]
            means.append(pd.concat(kept, axis=1).mean(axis=1) if kept else None)
        return self.paired(*means)

    def claim(
        self,
        section: str,
        statement: str,
        measured: str,
        differences: Sequence[tuple[str, Interval | None]],
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


def _minus(difference: Interval | None) -> Interval | None:
    return None if difference is None else Interval(-difference.mean, difference.half)


def _points(share: float) -> str:
    return f"{100 * share:g} point{'s' if share != 0.01 else ''}"

"""The paper's sentences that a measurement can judge, as code.

Each claim names differences of accuracy (`paired_runs`) and a bound that they should exceed;
`rulings` judges them. Words such as "near", "little" or "modest" are given a number here, and the
number is shown. A claim is judged on the sets that it names and that were run. "Always" means all
of them, "sometimes" any, "typically" most. Differences between numbers of clients are confounded
where rows run out: with more clients each has fewer samples. They are shown, and have no say.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fedres.paper.paired_runs import Difference, PairedRuns, negated
from fedres.paper.rulings import Claim, Finding, Quantifier, Ruling, chance, rule_on_all
from fedres.simulation.intervals import interval

if TYPE_CHECKING:
    import pandas as pd

TYPE_1 = ("mnist", "satimage", "sensorless", "usps")  # the paper's: Central beats Independent
TYPE_2 = ("letter", "pendigits", "shuttle", "covtype")
NEAR, GREAT, LITTLE, MODEST, ROBUST = 0.01, 0.03, 0.02, 0.10, 0.02


def judge_claims(table: "pd.DataFrame", form: str = "aligned") -> list[Claim]:
    """Judge every claim that the table has runs for, FedRes being in that form."""
    sets = PairedRuns(table, form)
    if not len(sets.accuracy):
        return []
    schemes = (form, "central")
    claims = [
        _claim(
            "6.3",
            "FedRes is always a near winner (P = 10 and P = 50, no delay).",
            f"FedRes less the better baseline exceeds -{_points(NEAR)} on every set",
            sets.over_best_at(sets.all, "overall", "clients"),
            -NEAR,
        ),
        _claim(
            "6.3",
            "FedRes sometimes greatly outperforms the baselines.",
            f"FedRes less the better baseline exceeds {_points(GREAT)} on some set",
            sets.over_best_at(sets.all, "overall", "clients"),
            GREAT,
            "any",
        ),
        _claim(
            "6.4",
            "Independent outperforms Central on letter, pendigits, shuttle and covtype.",
            "Independent less Central exceeds 0",
            sets.each(TYPE_2, sets.less, "overall", "independent", "central"),
        ),
        _claim(
            "6.4",
            "Central outperforms Independent on mnist, satimage, sensorless and usps.",
            "Central less Independent exceeds 0",
            sets.each(TYPE_1, sets.less, "overall", "central", "independent"),
        ),
        _claim(
            "6.4",
            "On sensorless and mnist performance improves with the number of clients.",
            "FedRes at the most clients less FedRes at the fewest exceeds 0",
            sets.each(("sensorless", "mnist"), sets.growth),
        ),
        _claim(
            "6.4",
            "On letter and pendigits performance improves little with the number of clients.",
            f"FedRes at the fewest clients less FedRes at the most exceeds -{_points(LITTLE)}",
            negated(sets.each(("letter", "pendigits"), sets.growth)),
            -LITTLE,
        ),
        _claim(
            "6.4",
            "FedRes is comparable with the best of Independent and Central in all experiments.",
            f"FedRes less the better baseline exceeds -{_points(NEAR)} at every number of clients",
            sets.over_best_at(sets.all, "clients", "clients"),
            -NEAR,
        ),
        _claim(
            "6.5",
            "Delay degrades performance on letter and pendigits.",
            "FedRes without delay less FedRes at delay 200 exceeds 0",
            sets.each(("letter", "pendigits"), sets.decay, form),
        ),
        _claim(
            "6.5",
            "The degradation on letter and pendigits is modest.",
            f"FedRes at delay 200 less FedRes without delay exceeds -{_points(MODEST)}",
            negated(sets.each(("letter", "pendigits"), sets.decay, form)),
            -MODEST,
        ),
        _claim(
            "E.2",
            "On mnist, satimage and usps FedRes and Central are robust to delay.",
            f"Accuracy at delay 200 less accuracy without exceeds -{_points(ROBUST)}",
            negated(sets.decay_of(("mnist", "satimage", "usps"), schemes)),
            -ROBUST,
        ),
        _claim(
            "E.2",
            "On mnist, satimage and usps FedRes constantly outperforms both baselines.",
            "FedRes less the better baseline exceeds 0 at every delay",
            sets.over_best_at(("mnist", "satimage", "usps"), "delay", "delay"),
        ),
        _claim(
            "E.2",
            "On sensorless FedRes and Central degrade with delay.",
            "Accuracy without delay less accuracy at delay 200 exceeds 0",
            sets.decay_of(("sensorless",), schemes),
        ),
        _claim(
            "E.2",
            "On sensorless FedRes degrades somewhat more than Central.",
            "FedRes's loss of accuracy at delay 200 less Central's exceeds 0",
            sets.each(("sensorless",), sets.decays_more, *schemes),
        ),
        _claim(
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
        _claim(
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
        _claim(
            "E.3",
            "The loss of performance is larger for the higher delay.",
            "FedRes at delay 20 less FedRes at delay 80 exceeds 0",
            sets.each(sets.all, sets.between, 20, 80),
        ),
        _claim(
            "E.3",
            "The loss by delay is typically overcome as the number of clients increases.",
            "The loss at delay 80 with the fewest clients less that with the most exceeds 0",
            sets.each(sets.all, sets.recovery),
            quantifier="most",
        ),
        _claim(
            "E.4",
            "Delay harms more where clients can learn well alone (letter, pendigits, shuttle, "
            "covtype) than elsewhere.",
            "Mean loss at delay 200 over those sets less that over the others exceeds 0",
            [Difference(sets.both(TYPE_2, TYPE_1), sets.harm(TYPE_2, TYPE_1))],
        ),
    ]
    return rule_on_all([claim for claim in claims if claim is not None])


def _claim(
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
            by_chance = chance(values.to_numpy(float), bound)
            found = Finding(where, interval(values), by_chance, verdict, confounded)
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


def _points(share: float) -> str:
    return f"{100 * share:g} point{'s' if share != 0.01 else ''}"
